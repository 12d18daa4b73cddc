"""From a build's parts to blobs and manifests in the storage, and the rows over them."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.domain import artifacts
from pt2hub.domain.artifacts import ArtifactConfig, Descriptor, Manifest, StepTiming, VersionIdentity
from pt2hub.domain.builds import Claim
from pt2hub.domain.codec import decode, encode
from pt2hub.domain.digests import Digest, canonical_json, digest_bytes, digest_file
from pt2hub.domain.publications import Publication
from pt2hub.server.blobs.keys import StorageKey
from pt2hub_workers import sandbox
from pt2hub_workers.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.server.blobs.ports import Storage


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
        image: The container image that the worker runs in, or None.
    """

    claim: Claim
    machine: Machine
    weights: Digest
    golden: Digest
    reused: Digest | None
    image: str | None = None


def make_config(
    parts: dict[str, Any], origin: Origin, timings: Sequence[tuple[str, float]]
) -> ArtifactConfig:
    """The artifact's config; before the gate has run its report is empty.

    Args:
        parts: What the build's process found out, as JSON.
        origin: Where the artifact comes from.
        timings: Steps finished so far, seconds.
    """
    claim, machine = origin.claim, origin.machine
    document = {
        "schema": artifacts.CONFIG_SCHEMA,
        "version": encode(_identity(origin)),
        "target": encode(claim.target),
        "toolchain": encode(machine.toolchain),
        "environment": encode(machine.environment),
        **{name: parts[name] for name in ("signature", "constants", "native", "key", "single_file", "dtype")},
        "steps": [encode(StepTiming(name, round(seconds, 4))) for name, seconds in timings],
        "verification": parts.get("verification", {}),
        "provenance": {
            "build": claim.build,
            "attempt": claim.attempt,
            "worker": claim.worker,
            "isolation": sandbox.ISOLATION,
            "code_reused_from": origin.reused,
            "compiler_processes": parts["compiler_processes"],
            "request": claim.request,
            "image": origin.image,
        },
    }
    return decode(ArtifactConfig, document)


def upload(parts: dict[str, Any], config: ArtifactConfig, storage: Storage) -> Publication:
    """Stores blobs, then the manifest, then its referrers: blob before whatever names it.

    Args:
        parts: What the build's process returned.
        config: The final config.
        storage: Where to.
    """
    layers = (
        _put_file(storage, Path(parts["code_path"]), artifacts.CODE_TYPE, artifacts.CODE_NAME),
        _put_file(storage, Path(parts["weights_path"]), artifacts.WEIGHTS_TYPE, artifacts.WEIGHTS_NAME),
    )
    manifest = Manifest(
        artifactType=artifacts.ARTIFACT_TYPE,
        config=_put_bytes(storage, canonical_json(encode(config)), artifacts.CONFIG_TYPE),
        layers=layers,
        annotations={
            artifacts.CREATED: dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            artifacts.MODEL: config.version.model,
            artifacts.VERSION: str(config.version.number),
            artifacts.TARGET: config.target.name,
            artifacts.BUILD: str(config.provenance["build"]),
        },
    )
    _put_manifest(storage, manifest)
    measurements = [*parts["measurements"], *_sizes(layers, config), *_times(config)]
    referrers = [
        _refer(
            storage, manifest, artifacts.MEASUREMENTS_TYPE, canonical_json(measurements), "measurements.json"
        )
    ]
    if parts["autotune"]:
        data = canonical_json(parts["autotune"])
        referrers.append(_refer(storage, manifest, artifacts.AUTOTUNE_TYPE, data, "autotune.json"))
    sources = Path(parts["code_path"]).with_name("sources.zip")
    if sources.exists():
        data = sources.read_bytes()
        referrers.append(_refer(storage, manifest, artifacts.SOURCES_TYPE, data, "sources.zip"))
    return Publication(manifest, config, tuple(referrers), parts["autotune"], measurements)


def _identity(origin: Origin) -> VersionIdentity:
    claim = origin.claim
    return VersionIdentity(
        model=claim.model,
        number=claim.number,
        identity=claim.identity,
        spec=claim.spec,
        pins=claim.pins,
        weights=origin.weights,
        golden=origin.golden,
    )


def _sizes(layers: tuple[Descriptor, ...], config: ArtifactConfig) -> list[dict[str, Any]]:
    sizes = {
        "code_bytes": layers[0].size,
        "weights_bytes": layers[1].size,
        "package_bytes": config.single_file.size,
    }
    return [_measurement(metric, size, "B") for metric, size in sizes.items()]


def _times(config: ArtifactConfig) -> list[dict[str, Any]]:
    times = [_measurement("compile_time", s.seconds, "s") for s in config.steps if s.name == "compile"]
    error = config.verification.get("relative_error")
    return [*times, *([_measurement("relative_error", error, "1")] if error is not None else [])]


def _measurement(metric: str, value: float, unit: str) -> dict[str, Any]:
    subject = "artifact"
    return {
        "metric": metric,
        "value": value,
        "unit": unit,
        "batch": None,
        "subject": subject,
        "samples": None,
    }


def _refer(storage: Storage, subject: Manifest, artifact_type: str, data: bytes, title: str) -> Manifest:
    body = subject.as_bytes()
    manifest = Manifest(
        artifactType=artifact_type,
        config=_put_bytes(storage, EMPTY_CONFIG, artifacts.EMPTY_TYPE),
        layers=(_put_bytes(storage, data, artifact_type, title),),
        subject=Descriptor(artifacts.MANIFEST_TYPE, subject.digest, len(body)),
    )
    _put_manifest(storage, manifest)
    return manifest


def _put_manifest(storage: Storage, manifest: Manifest) -> None:
    storage.write(StorageKey.manifest(manifest.digest), [manifest.as_bytes()])


def _put_bytes(storage: Storage, data: bytes, media_type: str, title: str | None = None) -> Descriptor:
    digest = digest_bytes(data)
    storage.write(StorageKey.blob(digest), [data])
    return Descriptor(media_type, digest, len(data), {artifacts.TITLE: title} if title else {})


def _put_file(storage: Storage, path: Path, media_type: str, title: str) -> Descriptor:
    digest = digest_file(path)
    key = StorageKey.blob(digest)
    if storage.size(key) is None:
        storage.write_file(key, path)
    return Descriptor(media_type, digest, path.stat().st_size, {artifacts.TITLE: title})
