"""From a build's files and figures to blobs and manifests, all of them known before the first is stored."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.domain import artifacts
from pt2hub.domain.artifacts import (
    ArtifactConfig,
    Descriptor,
    Manifest,
    ProgramKey,
    StepTiming,
    VersionIdentity,
)
from pt2hub.domain.builds import Claim
from pt2hub.domain.codec import encode
from pt2hub.domain.digests import Digest, canonical_json, digest_bytes, digest_file
from pt2hub.domain.measurements import Measurement
from pt2hub.domain.performance import METRICS
from pt2hub.domain.publications import MeasuredRun, Publication
from pt2hub.domain.workers import Isolation
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.services.blobs import Piece
from pt2hub_workers.machine import Machine
from pt2hub_workers.messages import read
from pt2hub_workers.runs import build_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.domain.measurements import MeasurementRun
    from pt2hub_workers.messages import Fields, Result
    from pt2hub_workers.traces import Trace


EMPTY_CONFIG = b"{}"
"""The OCI specification's empty descriptor, for referrers."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an artifact comes from.

    Attributes:
        claim: The attempt that builds it.
        machine: The worker.
        weights: The version's weights blob.
        golden: The version's golden blob.
        reused: Digest of the code layer that was reused, or None.
        isolation: How the worker confines what it runs.
        isolation_profile: Digest of the sandbox's profile, None without one.
        image: The container image that the worker runs in, or None.
    """

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
    """The files of an artifact, out of reach of the process that made them.

    Attributes:
        code: The code layer.
        weights: The weights layer.
        sources: Generated sources, None where code was reused.
    """

    code: Held
    weights: Held
    sources: Held | None = None


@dataclass(frozen=True, slots=True)
class Composed:
    """An artifact that is ready to be stored and published.

    Attributes:
        publication: Its rows to be.
        pieces: What is to be stored first.
    """

    publication: Publication
    pieces: list[Piece]


@dataclass(frozen=True, slots=True)
class Held:
    """A file that was taken.

    Attributes:
        path: Where it lies.
        digest: Its digest when it was taken; other bytes are not stored under it.
        size: Likewise its length.
    """

    path: Path
    digest: Digest
    size: int

    @classmethod
    def of(cls, path: Path) -> Held:
        """A file as it is now."""
        return cls(path, digest_file(path), path.stat().st_size)

    @property
    def piece(self) -> Piece:
        """The file, to be stored."""
        return Piece(StorageKey.blob(self.digest), self.size, self.path)


def make_config(
    fields: Fields,
    origin: Origin,
    timings: Sequence[tuple[str, float]],
    verification: dict[str, Any] | None = None,
) -> ArtifactConfig:
    """The artifact's config.

    Args:
        fields: What the build's process found out.
        origin: Where the artifact comes from.
        timings: Steps finished so far, seconds.
        verification: The report; None before the gate has run.

    Raises:
        OutputRefused: The build's process found out something else than a config holds.
    """
    claim, machine = origin.claim, origin.machine
    told = {
        name: getattr(fields, name) for name in ("signature", "constants", "native", "key", "single_file")
    }
    document = {
        "schema": artifacts.CONFIG_SCHEMA,
        "version": encode(_identity(origin)),
        "target": encode(claim.target),
        "toolchain": encode(machine.toolchain),
        "environment": encode(machine.environment),
        **told,
        "dtype": fields.dtype,
        "steps": [encode(StepTiming(name, round(seconds, 6))) for name, seconds in timings],
        "verification": verification or {},
        "provenance": {
            "build": claim.build,
            "attempt": claim.attempt,
            "worker": claim.worker,
            "isolation": origin.isolation,
            "isolation_profile": origin.isolation_profile,
            "code_reused_from": origin.reused,
            **_of_key(read(ProgramKey, fields.key)),
            "compiler_processes": fields.compiler_processes,
            "autotuning": fields.autotuning,
            "request": claim.request,
            "image": origin.image,
        },
    }
    return read(ArtifactConfig, document)


def _of_key(key: ProgramKey) -> dict[str, Any]:
    """What statements about an artifact's code rest on, where the database can be asked for it."""
    return {
        "key_schema": key.schema,
        "operators": list(key.operators),
        "never_reused": list(key.never_reused) or None,
    }


@dataclass(frozen=True, slots=True)
class Exhibit:
    """A blob that says something about an artifact.

    Attributes:
        data: Its bytes.
        media_type: What they are.
        title: How the file is called.
    """

    data: bytes
    media_type: str
    title: str


def exhibits_of(trace: Trace, packed: bytes | None) -> tuple[Exhibit, ...]:
    """What is kept of a trace: the table of it, which pages read, and the trace itself, which they do not.

    Args:
        trace: The trace.
        packed: `Trace.packed` of it, None where that is too large.
    """
    table = canonical_json(encode(trace.profile()))
    found = (Exhibit(table, artifacts.PROFILE_TYPE, "profile.json"),)
    return (*found, Exhibit(packed, artifacts.TRACE_TYPE, "trace.json.gz")) if packed else found


def compose(files: Files, result: Result, config: ArtifactConfig, at: float) -> Composed:
    """An artifact's manifests, and everything that is to be stored: blob before whatever names it.

    Its first measurement run holds what the build itself knows: sizes, seconds of its steps and the verified error.

    Args:
        files: Layers and sources.
        result: What the build's process returned.
        config: The final config.
        at: When, in seconds since the epoch by the database's clock (`Journal.now`).
    """
    pieces = _Pieces()
    layers = (
        pieces.add_file(files.code, artifacts.CODE_TYPE, artifacts.CODE_NAME),
        pieces.add_file(files.weights, artifacts.WEIGHTS_TYPE, artifacts.WEIGHTS_NAME),
    )
    manifest = Manifest(
        artifactType=artifacts.ARTIFACT_TYPE,
        config=pieces.add(canonical_json(encode(config)), artifacts.CONFIG_TYPE),
        layers=layers,
        annotations={
            artifacts.CREATED: dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            artifacts.MODEL: config.version.model,
            artifacts.VERSION: str(config.version.number),
            artifacts.TARGET: config.target.name,
            artifacts.BUILD: str(config.provenance["build"]),
        },
    )
    pieces.add_manifest(manifest)
    run = build_run(config, at, [*_sizes(layers, config), *_times(config)])
    referrers = [pieces.add_run(manifest, run)]
    if result.autotune:
        told = pieces.add(canonical_json(result.autotune), artifacts.AUTOTUNE_TYPE, "autotune.json")
        referrers.append(pieces.refer(manifest, told))
    if files.sources:
        told = pieces.add_file(files.sources, artifacts.SOURCES_TYPE, "sources.zip")
        referrers.append(pieces.refer(manifest, told))
    return Composed(Publication(manifest, config, tuple(referrers), result.autotune, (run,)), pieces.found)


def compose_run(
    subject: Descriptor, run: MeasurementRun, exhibits: Sequence[Exhibit] = ()
) -> tuple[MeasuredRun, list[Piece]]:
    """Compose the referrers of an artifact that hold a benchmark's run, and what is to be stored for them.

    Args:
        subject: The artifact's manifest.
        run: What was measured.
        exhibits: What else is kept of it.
    """
    pieces = _Pieces()
    manifest = pieces.add_run(subject, run)
    others = [pieces.refer(subject, pieces.add(item.data, item.media_type, item.title)) for item in exhibits]
    return MeasuredRun(manifest, run, tuple(others)), pieces.found


@dataclass(slots=True)
class _Pieces:
    """What is to be stored, in order."""

    found: list[Piece] = field(default_factory=list)

    def add(self, data: bytes, media_type: str, title: str | None = None) -> Descriptor:
        digest = digest_bytes(data)
        self.found.append(Piece(StorageKey.blob(digest), len(data), data))
        return Descriptor(media_type, digest, len(data), {artifacts.TITLE: title} if title else {})

    def add_file(self, held: Held, media_type: str, title: str) -> Descriptor:
        self.found.append(held.piece)
        return Descriptor(media_type, held.digest, held.size, {artifacts.TITLE: title})

    def add_manifest(self, manifest: Manifest) -> None:
        data = manifest.as_bytes()
        self.found.append(Piece(StorageKey.manifest(manifest.digest), len(data), data))

    def add_run(self, subject: Manifest | Descriptor, run: MeasurementRun) -> Manifest:
        data = canonical_json(encode(run))
        return self.refer(subject, self.add(data, artifacts.MEASUREMENT_RUN_TYPE, "measurements.json"))

    def refer(self, subject: Manifest | Descriptor, layer: Descriptor) -> Manifest:
        """A manifest that says something about another one."""
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
    """Seconds of the build's steps, and the error that the verification found."""
    timed = [step for step in config.steps if f"{step.name}_time" in METRICS]
    times = [Measurement(f"{step.name}_time", step.seconds, "s", "artifact") for step in timed]
    error = config.verification.get("relative_error")
    return [
        *times,
        *([Measurement("relative_error", float(error), "1", "artifact")] if error is not None else []),
    ]
