"""What is in a cache, by artifacts; checking all of it, and removing what was not used for longest."""

from __future__ import annotations

import json
import re
import stat
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.client.blobs.partial import count_bytes, is_abandoned
from pt2hub.client.blobs.records import SUFFIX, regular_stamp
from pt2hub.client.blobs.sweep import sweep
from pt2hub.domain.artifacts import ARTIFACT_TYPE, ArtifactConfig, Manifest
from pt2hub.domain.codec import decode
from pt2hub.domain.digests import Digest, digest_file
from pt2hub.errors import BadResponse, HomeUnusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pt2hub.client.blobs.folder import BlobFolder

_NAME = re.compile(r"[0-9a-f]{64}")
_MAX_DOCUMENT_BYTES = 4 << 20
"""Largest file that may be a manifest or a config."""


@dataclass(frozen=True, slots=True)
class CachedBlob:
    """A file of the cache.

    Attributes:
        size: Size in bytes.
        used: Unix time of its last use, to the hour.
    """

    digest: Digest
    size: int
    used: float


@dataclass(frozen=True, slots=True)
class CachedArtifact:
    """An artifact whose manifest is in the cache.

    Attributes:
        version: `team/name@3`; empty if its config is missing.
        blobs: Its files, the manifest first.
        missing: Files that are not there, because a pull was interrupted.
    """

    version: str
    target: str
    digest: Digest
    blobs: tuple[CachedBlob, ...]
    missing: int

    @property
    def size(self) -> int:
        """Bytes of its files; other artifacts may share them."""
        return sum(blob.size for blob in self.blobs)

    @property
    def used(self) -> float:
        """Unix time of its last use: that of its manifest, since other artifacts may share the other files."""
        return self.blobs[0].used


@dataclass(frozen=True, slots=True)
class CachedDownload:
    """A download that is under way, or was interrupted.

    Attributes:
        received: Bytes that are there.
        active: Whether a process works on it.
    """

    digest: Digest
    received: int
    active: bool


@dataclass(frozen=True, slots=True)
class DamagedFile:
    """A file of the cache whose bytes are not those of its name."""

    path: str
    reason: str


class Inventory:
    """What is in one folder of a cache.

    Attributes:
        blobs: Its files, by digest.
        artifacts: Its artifacts, the most recently used first.
        downloads: Its partial downloads.
        strange: Names among its files that pt2hub did not give; it leaves them alone.
    """

    def __init__(self, folder: BlobFolder) -> None:
        self._folder = folder
        self.blobs: dict[Digest, CachedBlob] = {}
        self.strange: list[str] = []
        self._odd: list[Path] = []
        for path in sorted(folder.blobs.glob("*")):
            self._add(path)
        self.artifacts = sorted(self._artifacts(), key=lambda item: -item.used)
        self.downloads = [
            CachedDownload(Digest(f"sha256:{path.name[:64]}"), count_bytes(path), not is_abandoned(path))
            for path in sorted(folder.partial.glob("*.*"))
            if _NAME.fullmatch(path.name.partition(".")[0])
        ]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(blob.size for blob in self.blobs.values())

    @property
    def others(self) -> list[CachedBlob]:
        """Files that belong to no artifact of the cache."""
        owned = {blob.digest for artifact in self.artifacts for blob in artifact.blobs}
        return [blob for digest, blob in self.blobs.items() if digest not in owned]

    def verify(self, seen: Callable[[int], None]) -> list[DamagedFile]:
        """Hash every file, and return the damaged ones; the next pull replaces them.

        Args:
            seen: Takes the number of bytes that were hashed.
        """
        damaged = [DamagedFile(str(path), "it is not a regular file") for path in self._odd]
        done = 0
        for digest, blob in self.blobs.items():
            if reason := self._check(digest):
                damaged.append(DamagedFile(str(self._folder.path(digest)), reason))
            done += blob.size
            seen(done)
        return damaged

    def prune(self, max_bytes: int | None = None, *, dry_run: bool = False) -> list[CachedBlob]:
        """Remove the least recently used artifacts, and what killed processes left; return the removed files.

        Args:
            max_bytes: Bytes that may stay; None removes no artifact.
            dry_run: Whether to remove nothing.

        Raises:
            HomeUnusable: Files cannot be removed.
        """
        removed = self._choose(max_bytes) if max_bytes is not None else []
        if dry_run:
            return removed
        for blob in removed:
            path = self._folder.path(blob.digest)
            for each in (path.with_suffix(SUFFIX), path):
                with suppress(OSError):
                    each.unlink()
        if left := [blob for blob in removed if self._folder.path(blob.digest).exists()]:
            raise HomeUnusable(
                f"Cannot remove {len(left)} of {len(removed)} files",
                where=str(self._folder.root),
                hint="Run it as the user whom the files belong to.",
            )
        sweep(self._folder, everything=True)
        for record in self._folder.blobs.glob(f"*{SUFFIX}"):
            if _NAME.fullmatch(record.stem) and not record.with_suffix("").exists():
                with suppress(OSError):
                    record.unlink()
        return removed

    def _choose(self, max_bytes: int) -> list[CachedBlob]:
        groups = [artifact.blobs for artifact in self.artifacts] + [(blob,) for blob in self.others]
        groups.sort(key=lambda blobs: -blobs[0].used)
        kept: dict[Digest, CachedBlob] = {}
        size = 0
        for blobs in groups:
            new = [blob for blob in blobs if blob.digest not in kept]
            size += sum(blob.size for blob in new)
            if size > max_bytes:  # this one and all that were used before it
                break
            kept |= {blob.digest: blob for blob in new}
        return [blob for digest, blob in self.blobs.items() if digest not in kept]

    def _check(self, digest: Digest) -> str | None:
        path = self._folder.path(digest)
        found = regular_stamp(path)
        try:
            actual = digest_file(path)
        except OSError as exc:
            return f"it cannot be read: {exc.strerror}"
        if found and actual == digest:
            self._folder.record(path, found, synced=True)
            return None
        with suppress(OSError):
            path.with_suffix(SUFFIX).unlink(missing_ok=True)
        return f"its digest is {actual}"

    def _add(self, path: Path) -> None:
        try:
            status = path.lstat()
        except OSError:  # another process removed it just now
            return
        if not _NAME.fullmatch(path.name):
            if not _NAME.fullmatch(path.name.partition(".")[0]) or not path.name[64:].startswith("."):
                self.strange.append(path.name)
        elif not stat.S_ISREG(status.st_mode):
            self._odd.append(path)
        else:
            digest = Digest(f"sha256:{path.name}")
            self.blobs[digest] = CachedBlob(digest, status.st_size, _last_use(path, status.st_mtime))

    def _artifacts(self) -> Iterable[CachedArtifact]:
        for digest, blob in self.blobs.items():
            manifest = self._manifest(digest) if blob.size <= _MAX_DOCUMENT_BYTES else None
            if manifest is None or manifest.artifactType != ARTIFACT_TYPE:
                continue
            layers = dict.fromkeys(layer.digest for layer in manifest.layers)
            optional = {layer.digest for layer in manifest.files}  # a pull may have left them out
            wanted = dict.fromkeys((digest, manifest.config.digest, *layers))
            there = [self.blobs[each] for each in wanted if each in self.blobs]
            missing = sum(each not in self.blobs and each not in optional for each in wanted)
            version, target = self._identity(manifest.config.digest)
            yield CachedArtifact(version, target, digest, tuple(there), missing)

    def _manifest(self, digest: Digest) -> Manifest | None:
        try:
            document = json.loads(self._folder.path(digest).read_bytes())
            return decode(Manifest, document) if isinstance(document, dict) else None
        except (OSError, ValueError, RecursionError, BadResponse):
            return None  # another file

    def _identity(self, config: Digest) -> tuple[str, str]:
        """Return version and target of an artifact; empty if its config is missing or of a newer release."""
        try:
            found = decode(ArtifactConfig, json.loads(self._folder.path(config).read_bytes()))
        except (OSError, ValueError, RecursionError, BadResponse):
            return "", ""
        return f"{found.version.model}@{found.version.number}", found.target.name


def _last_use(path: Path, otherwise: float) -> float:
    try:
        return path.with_suffix(SUFFIX).stat().st_mtime
    except OSError:
        return otherwise
