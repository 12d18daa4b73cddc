"""Cache of pulled blobs: this user's own, and one that the machine's users share."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pt2hub.client.blobs.folder import BlobFolder, Verify
from pt2hub.client.blobs.records import Record, regular_stamp
from pt2hub.errors import DigestMismatch, DiskFull, HomeUnusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pt2hub.client.blobs.download import BlobSource
    from pt2hub.client.blobs.records import Stamp
    from pt2hub.domain.digests import Digest

__all__ = ["BlobCache", "Verify"]

_FULL = (errno.ENOSPC, errno.EDQUOT)
_SPACE_HINT = "Free space: `pt2hub cache prune --max-size` removes what was not used for longest."


class BlobCache:
    """Verified files of this user, and optionally those that the machine's users share.

    Args:
        directory: This user's own folder.
        shared: A folder that only its owner writes to; the others read it before their own.
    """

    def __init__(self, directory: Path, shared: Path | None = None) -> None:
        self.own = BlobFolder(directory)
        self.shared = BlobFolder(shared, shared=True) if shared else None

    @property
    def folders(self) -> list[BlobFolder]:
        """The folders, in the order in which they are searched."""
        return [self.shared, self.own] if self.shared else [self.own]

    def holds(self, digest: Digest) -> bool:
        """Return whether there is a file of a blob, intact or damaged."""
        return any(folder.path(digest).exists() for folder in self.folders)

    def find(self, digest: Digest, *, verify: Verify = "stat") -> Path | None:
        """Return an intact cached file, or None; see `BlobFolder.find`.

        Raises:
            HomeUnusable: The shared folder can be written by others than its owner.
        """
        self._check_shared()
        found = (folder.find(digest, verify=verify) for folder in self.folders)
        return next(filter(None, found), None)

    def stamp(self, path: Path) -> Stamp | None:
        """Return how a cached file looked when it was verified."""
        record = Record.read(path)
        return record.stamp if record else regular_stamp(path)

    def get(
        self,
        digest: Digest,
        size: int,
        connect: Callable[[], BlobSource],
        *,
        verify: Verify = "stat",
        title: str = "pulling",
        progress: bool | None = False,
    ) -> Path:
        """Return a cached file, downloading what of it is missing; of many processes one downloads.

        Args:
            size: Its length in bytes.
            connect: Returns where its bytes come from; called only if they are needed.
            verify: As for `find`.
            title: What the progress bar says.
            progress: Whether to show it; None for only on a terminal or in a notebook.

        Raises:
            DigestMismatch: The source has other bytes.
            BadResponse: The source has another length.
            DiskFull: The disk lacks space.
            HomeUnusable: The folder cannot be written.
            ServerUnreachable: The source did not answer.
            StorageUnavailable: The same for a storage.
        """
        folder = self._target()
        before = regular_stamp(folder.path(digest))
        if found := self.find(digest, verify=verify):
            return found
        from pt2hub.client.blobs.retrieval import Retrieval
        from pt2hub.client.http.transfers import meter

        with _writing(folder.root), meter(title, size, progress) as seen:
            return Retrieval(folder, digest, size, connect(), seen, damaged=before).run(verify)

    def put(self, digest: Digest, data: bytes) -> Path:
        """Store a small file whose bytes were verified.

        Raises:
            DigestMismatch: They are others.
            HomeUnusable: The folder cannot be written.
        """
        from pt2hub.domain.digests import digest_bytes

        if (found := digest_bytes(data)) != digest:
            raise mismatch(found, digest)
        folder = self._target()
        with _writing(folder.root):
            return folder.put(digest, data)

    def _target(self) -> BlobFolder:
        return self.shared if self.shared and self.shared.is_own() else self.own

    def _check_shared(self) -> None:
        if self.shared and (found := self.shared.strangers()):
            raise HomeUnusable(
                "The shared cache can be written by others than its owner",
                where=str(found[0]),
                hint=f"Its owner corrects it with: chmod go-w {found[0]}",
            )


def mismatch(found: Digest, digest: Digest) -> DigestMismatch:
    """Return the error for bytes that are not those of their digest."""
    return DigestMismatch(
        f"Digest mismatch: received {found}",
        where=digest,
        hint="Try again; if it persists, a proxy changes the bytes or the storage is damaged.",
    )


@contextmanager
def _writing(root: Path) -> Iterator[None]:
    """Translate errors of the disk.

    Raises:
        DiskFull: The disk or the user's share of it is full.
        HomeUnusable: The folder cannot be written.
    """
    try:
        yield
    except DiskFull as exc:
        exc.hint = _SPACE_HINT
        raise
    except OSError as exc:
        if exc.errno in _FULL:
            raise DiskFull(
                f"The disk of the cache is full: {exc.strerror}", where=str(root), hint=_SPACE_HINT
            ) from exc
        raise HomeUnusable(
            f"Cannot write to the cache: {exc.strerror or exc}",
            where=str(exc.filename2 or exc.filename or root),  # of a renaming, its destination
            hint="Correct the permissions, or set PT2HUB_CACHE to another folder.",
        ) from exc
