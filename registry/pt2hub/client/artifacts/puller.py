"""Pulling of artifacts: resolve, check compatibility, fetch manifest, config and blobs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from pt2hub.client.artifacts.local import LocalArtifact
from pt2hub.client.artifacts.pulled_files import PulledFiles
from pt2hub.client.artifacts.selection import parse_device, select_artifact
from pt2hub.client.machine.host import check_host, warn_of_compatibility
from pt2hub.domain.artifacts import (
    ARTIFACT_TYPE,
    CODE_TYPE,
    CONFIG_SCHEMA,
    TITLE,
    WEIGHTS_TYPE,
    ArtifactConfig,
    Manifest,
)
from pt2hub.domain.codec import decode, parse_json
from pt2hub.domain.compatibility.selection import Candidate
from pt2hub.domain.digests import Digest
from pt2hub.domain.names import Reference
from pt2hub.domain.targets import parse_target
from pt2hub.errors import (
    BadResponse,
    BlobDamaged,
    ClientTooOld,
    DigestMismatch,
    InvalidInput,
    NotFound,
    NotReady,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pt2hub.client.artifacts.origin import Origin
    from pt2hub.client.artifacts.selection import Device
    from pt2hub.client.blobs.cache import BlobCache, Verify
    from pt2hub.client.http.transport import Transport
    from pt2hub.domain.artifacts import Descriptor
    from pt2hub.domain.locks import LockedModel
    from pt2hub.wire.resolution import ArtifactRef, ResolvedReference

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Choice:
    """The artifact to pull, and what its config must say.

    Attributes:
        number: None if the reference names a digest.
        target: None if the reference names a digest.
        passed_over: Better artifacts that do not run here.
    """

    digest: Digest
    model: str
    number: int | None = None
    target: str | None = None
    passed_over: tuple[Candidate, ...] = ()


class Puller:
    """Brings artifacts into the cache.

    Args:
        origin: Where artifacts come from; a pinned artifact that is in the cache never asks for it.
        cache: Where files are kept.
    """

    def __init__(self, origin: Origin, cache: BlobCache) -> None:
        self._origin = origin
        self._cache = cache

    def close(self) -> None:
        """Close idle connections."""
        self._origin.close()

    def pull(  # noqa: PLR0913  # each is an option by name
        self,
        reference: str,
        *,
        target: str | None = None,
        device: str | None = None,
        verify: Verify = "stat",
        progress: bool | None = None,
        locked: LockedModel | None = None,
        files: bool = True,
    ) -> LocalArtifact:
        """Download an artifact's files into the cache.

        Warns if the artifact is degraded here, stands in for a better one, or is of a yanked version.

        Args:
            reference: `team/name@<number|alias|sha256:digest>`, or `team/name` for the newest ready version.
            target: The target wanted, for another machine too; where omitted, the one that suits this machine best.
            device: Such as `cuda:1`; where omitted, the GPU if there is an artifact for it.
            verify: How weights that are in the cache already are checked; code is always hashed.
            progress: Whether downloads are shown on stderr; None where somebody watches.
            locked: What the reference is locked to; no server is asked what it means then.
            files: Whether the attached files are pulled too.

        Raises:
            NotFound: The version does not exist, or lacks the target.
            Incompatible: No artifact runs here; the error says why for each one, and how to build one that does.
            BadResponse: The server's answers contradict each other.
            DigestMismatch: Bytes were changed on the way.
            ServerUnreachable: Something is missing here and the server did not answer.
            Offline: Something is missing here and no server is asked.
            ResolutionExpired: The server did not answer, and what is known of the reference is too old.
            LockMismatch: The artifact is not as it was locked.
        """
        place = parse_device(device)
        choice = self._choose(Reference.parse(reference), target, place, locked)
        manifest, config = self._read(choice.model, choice.digest, locked)
        _check_identity(config, choice)
        if target is None:
            compatibility = check_host(config, gpu_index=place.index)
            warn_of_compatibility(config, compatibility, choice.passed_over)
        code, weights = _layer(manifest, CODE_TYPE), _layer(manifest, WEIGHTS_TYPE)
        code_path = self._blob(code, progress=progress)
        weights_path = self._blob(weights, verify, progress=progress)
        return LocalArtifact(
            config=config,
            code=code_path,
            weights=weights_path,
            weights_stamp=self._cache.stamp(weights_path),
            manifest_digest=choice.digest,
            code_digest=code.digest,
            weights_digest=weights.digest,
            files=self._files(choice.digest, manifest, verify, progress=progress)
            if files
            else PulledFiles(left_out=_file_names(manifest)),
        )

    def warn_of_yank(self, resolved: ResolvedReference) -> None:
        """Warn if a resolved version is yanked, once for each yank."""
        self._origin.warn_of_yank(resolved)

    def describe(self, model: str, digest: Digest) -> tuple[int, Manifest]:
        """Return the size of an artifact's manifest in bytes, and the manifest; errors as for `pull`."""
        manifest = self._manifest(model, digest)
        return self._size(digest), manifest

    def check(self, locked: LockedModel) -> None:
        """Check every locked artifact by its manifest and config, for other machines too; errors as for `pull`."""
        for artifact in locked.artifacts:
            digest = artifact.manifest.digest
            manifest = self._manifest(locked.model, digest)
            path, config = self._blob(manifest.config, progress=False), None
            with suppress(BadResponse):  # only a newer pt2hub can read it, and this machine may not need it
                config = _document(ArtifactConfig, path, "config")
            locked.check(digest, self._size(digest), manifest, config)

    def _choose(
        self, reference: Reference, target: str | None, device: Device, locked: LockedModel | None
    ) -> _Choice:
        if locked:
            resolved = _locked_reference(reference, locked)
        elif reference.digest:
            return _Choice(reference.digest, reference.model, target=target)
        else:
            resolved = self._origin.resolve(str(reference), resolve)
            self.warn_of_yank(resolved)
        where = f"{resolved.model}@{resolved.number}"
        if not reference.allows_version(resolved.model, resolved.number):
            raise BadResponse(
                f"{reference} was resolved to {where}", where=str(reference), hint="Nothing was loaded."
            )
        artifacts = tuple(
            item for item in resolved.artifacts if item.digest.startswith(reference.digest_start)
        )
        if not artifacts:
            raise NotReady(where=where, hint=f"To see its builds: pt2hub show {where}")
        if target:
            found = _find_target(artifacts, target, where)
            return _Choice(found.digest, reference.model, resolved.number, target)

        def read_config(digest: Digest) -> ArtifactConfig:
            return self._read(reference.model, digest, locked)[1]

        artifacts = tuple(
            replace(item, damaged=item.damaged and not self._is_cached(item)) for item in artifacts
        )
        chosen, passed_over = select_artifact(replace(resolved, artifacts=artifacts), read_config, device)
        return _Choice(chosen.digest, reference.model, resolved.number, chosen.name, passed_over)

    def _read(
        self, model: str, digest: Digest, locked: LockedModel | None
    ) -> tuple[Manifest, ArtifactConfig]:
        """Read an artifact's manifest and config, and check that they are as locked."""
        manifest = self._manifest(model, digest)
        config = _document(ArtifactConfig, self._blob(manifest.config, progress=False), "config")
        if locked:
            locked.check(digest, self._size(digest), manifest, config)
        return manifest, config

    def _is_cached(self, artifact: ArtifactRef) -> bool:
        """Return whether all files of an artifact are here, so that damage on the server does not matter."""
        path = self._cache.find(artifact.digest, verify="always")
        if path is None:
            return False
        manifest = _document(Manifest, path, "manifest")
        parts = (manifest.config, *manifest.layers)
        return all(self._cache.find(part.digest, verify="always") for part in parts)

    def _files(
        self, digest: Digest, manifest: Manifest, verify: Verify, *, progress: bool | None
    ) -> PulledFiles:
        """Return the paths of an artifact's attached files, by name."""
        if not manifest.files:
            return PulledFiles()
        from pt2hub.client.blobs.file_links import link_files
        from pt2hub.domain.attached_files.files import files_of

        try:
            layers = {item.name: item.as_layer() for item in files_of(manifest)}
        except InvalidInput as exc:
            raise BadResponse(
                f"The manifest is malformed: {exc.message}", where=digest, hint="Nothing was loaded."
            ) from exc
        blobs = {name: self._file(name, layer, verify, progress=progress) for name, layer in layers.items()}
        return PulledFiles(link_files(self._cache.own.root, digest, blobs))

    def _file(self, name: str, layer: Descriptor, verify: Verify, *, progress: bool | None) -> Path:
        try:
            return self._blob(layer, verify, progress=progress)
        except BlobDamaged as exc:
            raise BlobDamaged(
                f"The attached file {name} is damaged on the server ({layer.digest})",
                where=f"file {name}",
                hint=f"The model itself can be pulled: pt2hub pull --no-files, files=False in Python. {exc.hint or ''}".strip(),
                context=exc.context,
            ) from exc

    def _size(self, digest: Digest) -> int:
        path = self._cache.find(digest)
        return path.stat().st_size if path else 0

    def _manifest(self, model: str, digest: Digest) -> Manifest:
        path = self._cache.find(digest, verify="always")
        if path is None:
            data = self._origin.manifest(model, digest)
            path = self._cache.put(digest, data)
        manifest = _document(Manifest, path, "manifest")
        if manifest.artifactType != ARTIFACT_TYPE:
            raise BadResponse(
                f"{digest} is a manifest of type {manifest.artifactType[:80]!a}, not of an artifact",
                where=model,
                hint=f"To see the artifacts of a version: pt2hub show {model}",
            )
        return manifest

    def _blob(self, descriptor: Descriptor, verify: Verify = "always", *, progress: bool | None) -> Path:
        digest, size = descriptor.digest, descriptor.size
        try:
            return self._cache.get(
                digest,
                size,
                lambda: self._origin.blob(digest, size),
                verify=verify,
                title=f"pulling {descriptor.annotations.get(TITLE, digest)}",
                progress=progress,
            )
        except BlobDamaged:  # the server knows
            raise
        except DigestMismatch:
            self._origin.report_mismatch(digest)
            raise


def resolve(transport: Transport, reference: str) -> ResolvedReference:
    """Resolve a reference on the server; see `Artifacts.resolve`."""
    from pt2hub.wire.resolution import ResolvedReference  # a pinned reference needs none of them

    Reference.parse(reference)
    return transport.fetch(ResolvedReference, "/api/v1/resolve", {"reference": reference})


def _locked_reference(reference: Reference, locked: LockedModel) -> ResolvedReference:
    from pt2hub.wire.resolution import ArtifactRef, ResolvedReference

    artifacts = tuple(ArtifactRef(item.target, item.manifest.digest, "") for item in locked.artifacts)
    return ResolvedReference(str(reference), reference.model, locked.version, artifacts)


def _find_target(artifacts: Sequence[ArtifactRef], target: str, where: str) -> ArtifactRef:
    for item in artifacts:
        if item.target == target:
            return item
    parse_target(target)  # a name of no known form is said to be one
    raise NotFound(
        f"The version has no artifact for {target}",
        where=where,
        hint=f"Its targets: {', '.join(sorted(item.target for item in artifacts))}. "
        f"To add this one: pt2hub build {where} --target {target}",
    )


def _check_identity(config: ArtifactConfig, choice: _Choice) -> None:
    """Refuse an artifact of another model, version, target or schema before large files are fetched."""
    version, digest, model = config.version, choice.digest, choice.model
    if version.model != model:
        raise NotFound(
            f"{digest} belongs to {version.model}",
            where=model,
            hint=f"Use the reference {version.model}@{digest}.",
        )
    if config.schema > CONFIG_SCHEMA:
        raise ClientTooOld(
            f"The artifact's config has schema {config.schema}, this pt2hub reads up to {CONFIG_SCHEMA}",
            where=f"{model}@{digest}",
            hint="Upgrade with pip install --upgrade pt2hub.",
        )
    if choice.number is None:
        if choice.target not in (None, config.target.name):
            raise NotFound(f"{digest} was built for {config.target}, not for {choice.target}", where=model)
    elif (version.number, config.target.name) != (choice.number, choice.target):
        raise BadResponse(
            f"The server resolved {model}@{choice.number} for {choice.target} to {digest}, which is "
            f"{version.model}@{version.number} for {config.target}",
            where=f"{model}@{choice.number}",
            hint="Nothing was loaded. Report this to the server's operator: its index and its storage contradict "
            "each other (pt2hub admin reindex rebuilds the index).",
        )


def _document(cls: type[T], path: Path, where: str) -> T:
    try:
        value = parse_json(path.read_bytes())
    except ValueError as exc:
        raise BadResponse(f"The {where} is not JSON", where=str(path)) from exc
    return decode(cls, value, where=where)


def _file_names(manifest: Manifest) -> list[str]:
    return [layer.annotations.get(TITLE, "") for layer in manifest.files]


def _layer(manifest: Manifest, media_type: str) -> Descriptor:
    found = manifest.layer(media_type)
    if found is None:
        raise BadResponse(
            f"The manifest has no layer of type {media_type}",
            where="manifest",
            hint="A newer pt2hub may have written it; upgrade this one.",
        )
    return found
