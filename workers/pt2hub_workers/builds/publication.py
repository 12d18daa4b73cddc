"""Blobs and manifests of an artifact and its measurements, all composed before the first is stored."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pt2hub.domain import artifacts
from pt2hub.domain.artifacts import (
    ArtifactConfig,
    Descriptor,
    Manifest,
    ProgramKey,
    StepTiming,
    VersionIdentity,
)
from pt2hub.domain.attached_files.files import file_layers
from pt2hub.domain.builds import Claim
from pt2hub.domain.codec import encode
from pt2hub.domain.digests import Digest, canonical_json, digest_bytes, digest_file
from pt2hub.domain.performance.measurements import RUN_SCHEMA, Measurement, MeasurementRun
from pt2hub.domain.performance.metrics import METRICS
from pt2hub.domain.publications import MeasuredRun, Publication
from pt2hub.domain.publishing.compile_modes import compile_mode, requested_options
from pt2hub.domain.workers import Isolation
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.services.blobs.blob_writes import BlobChunk
from pt2hub_workers.builds.child_messages import read
from pt2hub_workers.operations.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub_workers.builds.child_messages import MessageFields, Result


EMPTY_CONFIG = b"{}"
"""The OCI specification's empty descriptor, for referrers."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of an artifact."""

    claim: Claim
    machine: Machine
    weights: Digest
    golden: Digest
    reused: Digest | None
    isolation: Isolation
    isolation_profile: Digest | None = None
    image: str | None = None


@dataclass(frozen=True, slots=True)
class Files:
    """Files of an artifact, out of reach of the process that wrote them."""

    code: BlobFile
    weights: BlobFile
    sources: BlobFile | None = None
    fusion: BlobFile | None = None
    debug_logs: BlobFile | None = None


@dataclass(frozen=True, slots=True)
class BlobFile:
    """A file moved out of a child's reach.

    Attributes:
        digest: Digest at that time; storing other bytes under it is refused.
    """

    path: Path
    digest: Digest
    size: int

    @classmethod
    def of(cls, path: Path) -> BlobFile:
        """Return a file with its present digest and size."""
        return cls(path, digest_file(path), path.stat().st_size)

    @property
    def chunk(self) -> BlobChunk:
        """The file as a chunk to store."""
        return BlobChunk(StorageKey.blob(self.digest), self.size, self.path)


def make_config(
    fields: MessageFields,
    origin: Origin,
    timings: Sequence[tuple[str, float]],
    verification: dict[str, Any] | None = None,
) -> ArtifactConfig:
    """Return the artifact's config."""
    claim, machine = origin.claim, origin.machine
    regions = _regions(fields, origin)
    described = {
        name: getattr(fields, name) for name in ("signature", "constants", "native", "key", "single_file")
    }
    document = {
        "schema": artifacts.CONFIG_SCHEMA,
        "version": encode(_identity(origin)),
        "target": encode(claim.target),
        "toolchain": encode(machine.toolchain),
        "environment": encode(machine.environment),
        **described,
        "dtype": fields.dtype,
        "regions": regions,
        "steps": [encode(StepTiming(name, round(seconds, 6))) for name, seconds in timings],
        "verification": verification or {},
        "provenance": {
            "build": claim.build,
            "attempt": claim.attempt,
            "worker": claim.worker,
            "isolation": origin.isolation,
            "isolation_profile": origin.isolation_profile,
            "code_reused_from": origin.reused,
            **_reused_parts(regions),
            **_of_key(read(ProgramKey, fields.key)),
            "compiler_processes": fields.compiler_processes,
            "autotuning": fields.autotuning,
            "request": claim.request,
            "published_by": encode(claim.published_by),
            "requested_by": encode(claim.requested_by),
            "compile": {
                "mode": compile_mode(claim.spec, claim.request),
                "options": requested_options(claim.spec, claim.request),
            },
            "image": origin.image,
        },
    }
    return read(ArtifactConfig, document)


def _regions(fields: MessageFields, origin: Origin) -> list[dict[str, Any]]:
    """Return the parts; if all the code was reused, each was, wherever the other artifact had it from."""
    if origin.reused is None:
        return fields.regions
    return [{**region, "code_reused_from": origin.reused} for region in fields.regions]


def _reused_parts(regions: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Return the number of parts with code of other artifacts, for the database."""
    count = sum(bool(region.get("code_reused_from")) for region in regions)
    return {"reused_parts": count} if count else {}


def _of_key(key: ProgramKey) -> dict[str, Any]:
    """Return the parts of a program key that the database can be queried for."""
    return {
        "key_schema": key.schema,
        "operators": list(key.operators),
        "never_reused": list(key.never_reused) or None,
    }


class ReferrerContent(NamedTuple):
    """Content of a manifest that refers to an artifact."""

    data: bytes
    media_type: str
    title: str


def compose(
    files: Files, result: Result, config: ArtifactConfig, at: float
) -> tuple[Publication, list[BlobChunk]]:
    """Compose an artifact's manifests and the chunks to store, each blob before the manifest that names it.

    The first measurement run holds what the build itself knows: sizes, durations of its steps and the verified error.

    Args:
        at: Time of creation, in seconds since the epoch by the database's clock (`Journal.now`).
    """
    chunks = _Chunks()
    layers = (
        chunks.add_file(files.code, artifacts.CODE_TYPE, artifacts.CODE_NAME),
        chunks.add_file(files.weights, artifacts.WEIGHTS_TYPE, artifacts.WEIGHTS_NAME),
    )
    manifest = Manifest(
        artifactType=artifacts.ARTIFACT_TYPE,
        config=chunks.add(canonical_json(encode(config)), artifacts.CONFIG_TYPE),
        layers=(*layers, *file_layers(config.version.pins)),  # files are stored since the submission
        annotations={
            artifacts.CREATED: dt.datetime.fromtimestamp(at, dt.UTC).isoformat(timespec="seconds"),
            artifacts.MODEL: config.version.model,
            artifacts.VERSION: str(config.version.number),
            artifacts.TARGET: config.target.name,
            artifacts.BUILD: str(config.provenance["build"]),
        },
    )
    chunks.add_manifest(manifest)
    run = _first_run(config, at, [*_sizes(layers, config), *_times(config)])
    referrers = [chunks.add_run(manifest, run)]
    if result.autotune:
        layer = chunks.add(canonical_json(result.autotune), artifacts.AUTOTUNE_TYPE, "autotune.json")
        referrers.append(chunks.refer(manifest, layer))
    for held, kind, title in (
        (files.sources, artifacts.SOURCES_TYPE, "sources.zip"),
        (files.fusion, artifacts.FUSION_TYPE, "fusion.json"),
        (files.debug_logs, artifacts.DEBUG_LOGS_TYPE, "debug-logs.zip"),
    ):
        if held:
            referrers.append(chunks.refer(manifest, chunks.add_file(held, kind, title)))
    return Publication(manifest, config, tuple(referrers), result.autotune, (run,)), chunks.found


def as_time(at: float) -> str:
    """Return seconds since the epoch as an ISO 8601 time in UTC."""
    return dt.datetime.fromtimestamp(at, dt.UTC).isoformat(timespec="milliseconds")


def _first_run(config: ArtifactConfig, at: float, measurements: Sequence[Measurement]) -> MeasurementRun:
    """Return the run of what a build knows about its artifact without timing it."""
    return MeasurementRun(
        schema=RUN_SCHEMA,
        id=f"{config.provenance['build']}:{config.provenance['attempt']}",
        source="build",
        measured_at=as_time(at),
        environment=config.environment,
        conditions={},
        measurements=list(measurements),
    )


def compose_run(
    subject: Descriptor, run: MeasurementRun, referrers: Sequence[ReferrerContent] = ()
) -> tuple[MeasuredRun, list[BlobChunk]]:
    """Compose the referrers that hold a benchmark's run, and the chunks to store for them."""
    chunks = _Chunks()
    manifest = chunks.add_run(subject, run)
    others = [chunks.refer(subject, chunks.add(*item)) for item in referrers]
    return MeasuredRun(manifest, run, tuple(others)), chunks.found


@dataclass(slots=True)
class _Chunks:
    """Chunks to store, in order."""

    found: list[BlobChunk] = field(default_factory=list)

    def add(self, data: bytes, media_type: str, title: str | None = None) -> Descriptor:
        digest = digest_bytes(data)
        self.found.append(BlobChunk(StorageKey.blob(digest), len(data), data))
        return Descriptor(media_type, digest, len(data), {artifacts.TITLE: title} if title else {})

    def add_file(self, held: BlobFile, media_type: str, title: str) -> Descriptor:
        self.found.append(held.chunk)
        return Descriptor(media_type, held.digest, held.size, {artifacts.TITLE: title})

    def add_manifest(self, manifest: Manifest) -> None:
        data = manifest.as_bytes()
        self.found.append(BlobChunk(StorageKey.manifest(manifest.digest), len(data), data))

    def add_run(self, subject: Manifest | Descriptor, run: MeasurementRun) -> Manifest:
        data = canonical_json(encode(run))
        return self.refer(subject, self.add(data, artifacts.MEASUREMENT_RUN_TYPE, "measurements.json"))

    def refer(self, subject: Manifest | Descriptor, layer: Descriptor) -> Manifest:
        """Return a manifest that refers to another one."""
        if isinstance(subject, Manifest):
            subject = Descriptor(artifacts.MANIFEST_TYPE, subject.digest, len(subject.as_bytes()))
        manifest = Manifest(
            artifactType=layer.mediaType,
            config=self.add(EMPTY_CONFIG, artifacts.EMPTY_TYPE),
            layers=(layer,),
            subject=subject,
        )
        self.add_manifest(manifest)
        return manifest


def _identity(origin: Origin) -> VersionIdentity:
    claim = origin.claim
    return VersionIdentity(
        model=claim.model,
        number=claim.number,
        identity=claim.identity,
        spec=claim.version_spec,
        pins=claim.pins,
        weights=origin.weights,
        golden=origin.golden,
    )


def _sizes(layers: tuple[Descriptor, ...], config: ArtifactConfig) -> list[Measurement]:
    sizes = {
        "code_bytes": layers[0].size,
        "weights_bytes": layers[1].size,
        "package_bytes": config.single_file.size,
    }
    return [Measurement(metric, float(size), "B", "artifact") for metric, size in sizes.items()]


def _times(config: ArtifactConfig) -> list[Measurement]:
    """Return the durations of the build's steps, and the error that verification found."""
    timed = [step for step in config.steps if f"{step.name}_time" in METRICS]
    times = [Measurement(f"{step.name}_time", step.seconds, "s", "artifact") for step in timed]
    error = config.verification.get("relative_error")
    return [
        *times,
        *([Measurement("relative_error", float(error), "1", "artifact")] if error is not None else []),
    ]
