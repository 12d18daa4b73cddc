"""Locks for tests, with the manifests and configs that they pin."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pt2hub.domain import artifacts as oci
from pt2hub.domain.artifacts import ArtifactConfig, Descriptor, Manifest
from pt2hub.domain.codec import encode
from pt2hub.domain.digests import Digest, canonical_json, digest_bytes
from pt2hub.domain.locks import LOCK_SCHEMA, Lock, LockedArtifact, LockedModel
from pt2hub.domain.storage import StorageLocation
from pt2hub.domain.targets import parse_target
from support.artifacts import a_config

SERVER = "https://registry.example"
BUCKET = StorageLocation("s3://models/pt2hub", "https://s3.example", "eu-central-1")
CPU, GPU = "torch2.13-cpu-x86_64_v3", "torch2.11-cu130-sm90"


@dataclass(frozen=True)
class Stored:
    """A manifest and its config, as a server has them."""

    manifest: Manifest
    config: ArtifactConfig

    @property
    def size(self) -> int:
        return len(self.manifest.as_bytes())


def a_stored(
    target: str = CPU, *, model: str = "vision/resnet18", number: int = 3, code: bytes = b"code"
) -> Stored:
    """An artifact of a version."""
    config = a_config(target=parse_target(target))
    config = replace(config, version=replace(config.version, model=model, number=number))
    data = canonical_json(encode(config))
    layers = (_blob(code + target.encode(), oci.CODE_TYPE), _blob(b"weights", oci.WEIGHTS_TYPE))
    return Stored(Manifest(oci.ARTIFACT_TYPE, _blob(data, oci.CONFIG_TYPE), layers), config)


def locked_model(reference: str, *stored: Stored) -> LockedModel:
    """A reference locked to artifacts."""
    found = [LockedArtifact.of(s.config.target.name, s.size, s.manifest.digest, s.manifest) for s in stored]
    artifacts = tuple(sorted((item for item in found if item), key=lambda item: item.target))
    return LockedModel(reference, stored[0].config.version.number, artifacts)


def a_lock(*models: LockedModel) -> Lock:
    """A lock of a server with a bucket; by default of one version on two targets."""
    given = models or (locked_model("vision/resnet18@prod", a_stored(CPU), a_stored(GPU)),)
    schema = LOCK_SCHEMA if any(model.files for model in given) else 1
    return Lock(schema, SERVER, given, BUCKET)


def _blob(data: bytes, media_type: str) -> Descriptor:
    return Descriptor(media_type, Digest(digest_bytes(data)), len(data))
