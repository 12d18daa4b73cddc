"""Exports of a client: for Triton Inference Server, as a bundle, and the import of a bundle."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pt2hub.client.artifacts.puller import resolve
from pt2hub.client.blobs.cache import BlobCache
from pt2hub.client.exports import destination as places
from pt2hub.client.exports.bundle import (
    REFERENCE,
    RESOLVED_AT,
    Bundle,
    read_digest,
    read_document,
    write_bundle,
)
from pt2hub.client.exports.bundled_blobs import bring_blob, read_manifest
from pt2hub.client.exports.bundled_records import export_record, import_records, read_records
from pt2hub.client.exports.import_records import remember
from pt2hub.domain.artifacts import (
    ARTIFACT_TYPE,
    CODE_TYPE,
    MANIFEST_TYPE,
    MODEL,
    TARGET,
    VERSION,
    WEIGHTS_TYPE,
    ArtifactConfig,
    Descriptor,
    Manifest,
)
from pt2hub.domain.codec import decode
from pt2hub.domain.digests import Digest
from pt2hub.domain.names import Reference
from pt2hub.errors import CorruptArchive, HomeUnusable, InvalidInput, NotFound, Offline

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pt2hub.client.artifacts.local import LocalArtifact
    from pt2hub.client.connection import Connection
    from pt2hub.client.http.transport import Transport
    from pt2hub.wire.resolution import ResolvedReference

_REF_NAME = "org.opencontainers.image.ref.name"


@dataclass(frozen=True, slots=True)
class TritonExport:
    """What was written for Triton Inference Server.

    Attributes:
        model: Name of the model in the repository.
        destination: The repository.
        target: Target of the artifact.
        release: Which release of Triton Inference Server fits.
        config: Text of `config.pbtxt`.
    """

    model: str
    destination: str
    target: str
    release: str
    config: str


@dataclass(frozen=True, slots=True)
class ImportedArtifact:
    """An artifact that an import brought into the cache.

    Attributes:
        reference: `team/name@3`.
        target: Its target.
        digest: Digest of its manifest.
    """

    reference: str
    target: str
    digest: Digest


class Exports:
    """Exports artifacts of a server.

    Args:
        connect: Gives the transport; an import never asks for it.
    """

    def __init__(self, connection: Connection, connect: Callable[[], Transport]) -> None:
        self._connection = connection
        self._connect = connect
        self._cache = BlobCache(connection.config.cache, shared=connection.config.shared_cache)

    def single_file(self, artifact: LocalArtifact, destination: str) -> None:
        """Write the single file of a pulled artifact, which stock PyTorch, KServe and others load.

        Args:
            destination: The path of the file, or `s3://bucket/key`, written with the caller's own credentials.

        Raises:
            DigestMismatch: The result differs from the digest in the artifact's config.
            HomeUnusable: The file cannot be written.
            StorageUnavailable: The bucket cannot be written.
        """
        from pt2hub.client.artifacts.single_file import write_model

        if not places.is_bucket(destination):
            write_model(artifact, Path(destination))
            return
        with tempfile.TemporaryDirectory(prefix="pt2hub-") as scratch:
            file = Path(scratch) / "model.pt2"
            write_model(artifact, file)
            places.send({"": file}, destination)

    def triton(
        self,
        reference: str,
        destination: str,
        *,
        target: str | None = None,
        name: str | None = None,
        progress: bool | None = None,
    ) -> TritonExport:
        """Write a model repository of Triton Inference Server with one model.

        Args:
            destination: The repository: a directory, or `s3://bucket/prefix`. The model is a new folder in it.
            target: The artifact's target; the one that suits this machine best if omitted.
            name: The model's name in the repository; from the reference if omitted.

        Raises:
            InvalidInput: Triton cannot call the model.
            Conflict: The directory has a model of this name; in a bucket it is replaced.
            Pt2hubError: As for `Client.pull`.
        """
        from pt2hub.client.artifacts.single_file import write_model
        from pt2hub.client.exports import triton
        from pt2hub.client.exports.golden_outputs import read_output_forms

        artifact = self._connection.pull(reference, target=target, progress=progress)
        config = artifact.config
        called = name or config.version.model.replace("/", "_")
        if "/" in called or called in {"", ".", ".."}:
            raise InvalidInput(f"Invalid name {called[:80]!r}", where="name", hint="Use a folder's name.")
        forms = read_output_forms(self._connect(), config)
        text = triton.render_config(called, config, triton.name_outputs(config.signature.out_spec, forms))
        version = str(config.version.number)
        if places.is_bucket(destination):
            with tempfile.TemporaryDirectory(prefix="pt2hub-") as scratch:
                files = {  # the configuration last: a server that looks in between must find the model
                    f"{called}/{version}/model.pt2": Path(scratch) / "model.pt2",
                    f"{called}/config.pbtxt": Path(scratch) / "config.pbtxt",
                }
                write_model(artifact, files[f"{called}/{version}/model.pt2"])
                files[f"{called}/config.pbtxt"].write_text(text)
                places.send(files, destination)
        else:
            folder = Path(destination) / called
            places.make_new(folder)
            try:
                (folder / version).mkdir()
                write_model(artifact, folder / version / "model.pt2")
                (folder / "config.pbtxt").write_text(text)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
        release = triton.explain_release(config)
        return TritonExport(called, destination, config.target.name, release, text)

    def bundle(
        self,
        references: Sequence[str],
        out: Path,
        *,
        targets: Sequence[str] = (),
        progress: bool | None = None,
    ) -> list[ImportedArtifact]:
        """Write artifacts with all their files into a bundle, for `import_bundle` on a machine without the server.

        What belongs to their versions comes with them: labels, lineage, evaluations and documentation that was attached later.

        Args:
            out: A tar file if its name ends in `.tar`, else a folder; it must not exist.
            targets: Targets to take; all of each version if empty.

        Raises:
            Conflict: `out` exists.
            NotFound: A version lacks a target.
            HomeUnusable: The bundle cannot be written.
            Offline: No server is asked.
            Pt2hubError: As for `Client.pull`.
        """
        if out.exists():
            raise places.taken(out)
        if self._connection.config.availability.offline:  # records of another bundle would look like new ones
            raise Offline(
                "pt2hub is offline, and an export needs the server",
                where=self._connection.config.url,
                hint="Unset PT2HUB_OFFLINE.",
            )
        manifests: list[Descriptor] = []
        files: dict[Digest, Path] = {}
        cache, transport = self._cache, self._connect()
        versions: dict[str, ResolvedReference] = {}
        for reference in references:
            resolved = resolve(transport, reference)
            versions[f"{resolved.model}@{resolved.number}"] = resolved
            for artifact in self._pulled(resolved, targets, progress=progress):
                manifests.append(_entry_of(artifact, reference, cache))
                files |= _files_of(artifact, cache)
        if not manifests:
            raise NotFound(
                "No artifact to export", where=", ".join(references), hint="pt2hub show lists them."
            )
        records = [
            export_record(transport, cache, item.model, item.number, progress=progress)
            for item in versions.values()
        ]
        entries = [item.entry for item in records if item]
        for item in filter(None, records):
            files |= item.files
        try:
            _write(out, [*manifests, *entries], files)
        except OSError as exc:
            raise HomeUnusable(
                f"Cannot write the bundle: {exc.strerror or exc}",
                where=str(out),
                hint="Choose another place.",
            ) from exc
        return [
            ImportedArtifact(item.annotations[_REF_NAME], item.annotations[TARGET], item.digest)
            for item in manifests
        ]

    def import_bundle(self, path: Path, *, progress: bool | None = None) -> list[ImportedArtifact]:
        """Bring the artifacts of a bundle into the cache, every byte checked against its digest.

        Their references load from the cache afterwards, offline too. Labels, lineage, evaluations and documentation of their
        versions answer offline as they were at the export, if the bundle has them. Nothing is published on a server.

        Raises:
            NotFound: There is no bundle.
            CorruptArchive: It is malformed, or lacks a file.
            DigestMismatch: Bytes were changed on the way.
        """
        bundle = Bundle.open(path)
        if not bundle.manifests:
            raise CorruptArchive("The bundle has no artifacts", where=str(path))
        records = read_records(bundle)  # before anything is stored: a bundle is taken as a whole
        found = [self._bring(bundle, item["digest"], progress=progress) for item in bundle.manifests]
        remember(self._connection, bundle, found)
        import_records(self._connection, self._cache, bundle, records, found, progress=progress)
        return found

    def _pulled(
        self, resolved: ResolvedReference, targets: Sequence[str], *, progress: bool | None
    ) -> list[LocalArtifact]:
        number = f"{resolved.model}@{resolved.number}"
        wanted = targets or [item.target for item in resolved.artifacts]
        return [self._connection.pull(number, target=target, progress=progress) for target in wanted]

    def _bring(self, bundle: Bundle, name: str, *, progress: bool | None) -> ImportedArtifact:
        """Bring one artifact into the cache, its manifest last."""
        digest, cache = read_digest(name, bundle), self._cache
        data, manifest = read_manifest(bundle, digest)
        if manifest.artifactType != ARTIFACT_TYPE:
            raise CorruptArchive("An entry is not an artifact of pt2hub", where=f"{bundle.path}: {digest}")
        for item in (manifest.config, *manifest.layers):
            bring_blob(bundle, cache, item, progress=progress)
        config_path = cache.find(manifest.config.digest)
        config = read_document(ArtifactConfig, config_path.read_bytes() if config_path else b"", bundle)
        cache.put(digest, data)
        version = config.version
        return ImportedArtifact(f"{version.model}@{version.number}", config.target.name, digest)


def _entry_of(artifact: LocalArtifact, reference: str, cache: BlobCache) -> Descriptor:
    version, digest = artifact.config.version, artifact.manifest_digest
    path = cache.find(digest) if digest else None
    assert digest is not None and path is not None, "it was pulled a moment ago"  # noqa: PT018
    annotations = {
        _REF_NAME: f"{version.model}@{version.number}",
        MODEL: version.model,
        VERSION: str(version.number),
        TARGET: artifact.config.target.name,
        REFERENCE: reference,
    }
    if Reference.parse(reference).number is None:  # what it means can change, so it has a time
        annotations[RESOLVED_AT] = f"{time.time():.0f}"
    return Descriptor(MANIFEST_TYPE, digest, path.stat().st_size, annotations)


def _files_of(artifact: LocalArtifact, cache: BlobCache) -> dict[Digest, Path]:
    assert artifact.manifest_digest is not None
    path = cache.find(artifact.manifest_digest)
    assert path is not None
    manifest = decode(Manifest, json.loads(path.read_bytes()))
    found = {artifact.manifest_digest: path}
    layers = {CODE_TYPE: artifact.code, WEIGHTS_TYPE: artifact.weights}
    found |= {item.digest: layers[item.mediaType] for item in manifest.layers if item.mediaType in layers}
    found |= {item.digest: _held(cache, item.digest) for item in manifest.files}
    config = cache.find(manifest.config.digest)
    assert config is not None
    return found | {manifest.config.digest: config}


def _held(cache: BlobCache, digest: Digest) -> Path:
    path = cache.find(digest)
    assert path is not None, "it was pulled a moment ago"
    return path


def _write(out: Path, manifests: list[Descriptor], files: dict[Digest, Path]) -> None:
    """Write the bundle beside its place, so that only a whole one has the name."""
    as_tar = out.suffix == ".tar"
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as scratch:
        made = Path(scratch) / out.name
        if not as_tar:
            made.mkdir()
        write_bundle(made, manifests, files, as_tar=as_tar)
        made.rename(out)
