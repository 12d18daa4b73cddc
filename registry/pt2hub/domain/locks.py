"""Locks: what references are pinned to, for every target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.domain.artifacts import CODE_TYPE, TITLE, WEIGHTS_TYPE
from pt2hub.domain.digests import Digest
from pt2hub.domain.names import Reference
from pt2hub.domain.storage import StorageLocation
from pt2hub.errors import Ambiguous, Detail, LockMismatch, NotFound

if TYPE_CHECKING:
    from pt2hub.domain.artifacts import ArtifactConfig, Descriptor, Manifest

LOCK_SCHEMA = 2
"""The newest schema; a lock without attached files is written in the first one, which has all that it needs."""
_RELOCK = "If the file was edited or merged by hand, lock it again: pt2hub lock --upgrade {}"


@dataclass(frozen=True, slots=True)
class LockedBlob:
    """A blob of a locked artifact.

    Attributes:
        digest: Digest of the content.
        size: Size in bytes.
    """

    digest: Digest
    size: int


@dataclass(frozen=True, slots=True)
class LockedArtifact:
    """A locked artifact.

    Attributes:
        target: Name of its target.
        manifest: Its manifest, whose digest pins everything else.
        config: Its config.
        code: Its code layer.
        weights: Its weights layer, which targets share.
    """

    target: str
    manifest: LockedBlob
    config: LockedBlob
    code: LockedBlob
    weights: LockedBlob

    @classmethod
    def of(cls, target: str, size: int, digest: Digest, manifest: Manifest) -> LockedArtifact | None:
        """Return the lock of an artifact; None if the manifest lacks a layer that this pt2hub knows.

        Args:
            size: Size of the manifest in bytes.
        """
        code, weights = manifest.layer(CODE_TYPE), manifest.layer(WEIGHTS_TYPE)
        if code is None or weights is None:
            return None
        own = LockedBlob(digest, size)
        return cls(target, own, _locked(manifest.config), _locked(code), _locked(weights))

    @property
    def blobs(self) -> dict[str, LockedBlob]:
        """Its blobs by name, the manifest first."""
        return {
            "manifest": self.manifest,
            "config": self.config,
            "code": self.code,
            "weights": self.weights,
        }


@dataclass(frozen=True, slots=True)
class LockedFile:
    """An attached file of a locked version, which all of its artifacts have.

    Attributes:
        name: Its name.
        digest: Digest of the content.
        size: Size in bytes.
    """

    name: str
    digest: Digest
    size: int


@dataclass(frozen=True, slots=True)
class LockedModel:
    """A locked reference.

    Attributes:
        reference: The reference as it was declared.
        version: Number of the version that it is pinned to.
        artifacts: The version's artifacts, by target.
        files: The attached files that the artifacts have, by name; empty if there are none, or if an older pt2hub wrote
            the lock, where the manifests alone pin them.
    """

    reference: str
    version: int
    artifacts: tuple[LockedArtifact, ...]
    files: tuple[LockedFile, ...] = ()

    @property
    def model(self) -> str:
        """Name of the model."""
        return Reference.parse(self.reference).model

    @property
    def targets(self) -> tuple[str, ...]:
        """The locked targets."""
        return tuple(item.target for item in self.artifacts)

    def only(self, targets: tuple[str, ...]) -> LockedModel:
        """Return the same with artifacts for these targets only."""
        kept = tuple(item for item in self.artifacts if item.target in targets)
        return LockedModel(self.reference, self.version, kept, self.files)

    def check(self, digest: Digest, size: int, manifest: Manifest, config: ArtifactConfig | None) -> None:
        """Check that an artifact is as it was locked.

        Args:
            digest: Digest of its manifest, one of those locked.
            size: Size of the manifest in bytes.
            config: None if only a newer pt2hub can read it.

        Raises:
            LockMismatch: Something differs; the details name each field.
        """
        locked = next(item for item in self.artifacts if item.manifest.digest == digest)
        found = LockedArtifact.of(locked.target, size, digest, manifest)
        given: dict[str, object] = {}
        actual: dict[str, object] = {}
        if config:
            version, target = config.version, config.target.name
            given = {"model": self.model, "version": self.version, "target": locked.target}
            actual = {"model": version.model, "version": version.number, "target": target}
        for name, blob in locked.blobs.items():
            other = found.blobs[name] if found else None
            given |= {f"{name}.digest": blob.digest, f"{name}.size": blob.size}
            actual |= {f"{name}.digest": other and other.digest, f"{name}.size": other and other.size}
        if self.files:
            given |= _fields(self.files)
            actual |= dict.fromkeys(given.keys() - actual.keys()) | _fields(locked_files(manifest))
            given |= dict.fromkeys(actual.keys() - given.keys())
        wrong = [
            Detail(name, f"is {_shown(value)} in the lock, {_shown(actual[name])} in the artifact")
            for name, value in given.items()
            if value != actual[name]
        ]
        if wrong:
            raise LockMismatch(
                where=f"{self.reference} for {locked.target}",
                hint=_RELOCK.format(self.reference),
                details=tuple(wrong),
            )


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock file's content.

    Attributes:
        schema: `LOCK_SCHEMA`.
        server: Address of the server that the references were resolved at.
        models: The locked references, by name.
        storage: The server's bucket, or None if it keeps blobs in a directory.
        targets: The only targets that are locked; empty for all of each version.
    """

    schema: int
    server: str
    models: tuple[LockedModel, ...] = ()
    storage: StorageLocation | None = None
    targets: tuple[str, ...] = ()

    @property
    def references(self) -> tuple[str, ...]:
        """The locked references."""
        return tuple(item.reference for item in self.models)

    def get(self, reference: str) -> LockedModel | None:
        """Return what a reference is locked to, or None."""
        return next((item for item in self.models if item.reference == reference), None)

    def find(self, name: str, *, where: str) -> LockedModel:
        """Return what a reference is locked to; a model's name finds its only reference.

        Args:
            where: Path of the lock file, for errors.

        Raises:
            NotFound: It is not locked.
            Ambiguous: Several references of the model are locked.
        """
        Reference.parse(name)
        if exact := self.get(name):
            return exact
        found = [item for item in self.models if item.model == name]
        if len(found) == 1:
            return found[0]
        if found:
            several = ", ".join(item.reference for item in found)
            raise Ambiguous(
                f"Several references of {name} are locked", where=where, hint=f"Use one of {several}."
            )
        raise NotFound(
            f"{name} is not locked",
            where=where,
            hint=f"Locked: {', '.join(self.references) or 'nothing'}. To add it: pt2hub lock {name}",
        )


def locked_files(manifest: Manifest) -> tuple[LockedFile, ...]:
    """Return the attached files of an artifact as a lock has them."""
    files = (LockedFile(item.annotations.get(TITLE, ""), item.digest, item.size) for item in manifest.files)
    return tuple(sorted(files, key=lambda item: item.name))


def _fields(files: tuple[LockedFile, ...]) -> dict[str, object]:
    return {
        f"files.{item.name}.{field}": value
        for item in files
        for field, value in (("digest", item.digest), ("size", item.size))
    }


def _shown(value: object) -> object:
    return "missing" if value is None else value


def _locked(descriptor: Descriptor) -> LockedBlob:
    return LockedBlob(descriptor.digest, descriptor.size)
