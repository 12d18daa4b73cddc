"""A folder of verified blobs, named by digest.

A file appears under its name only whole and verified, is read-only from then on and never rewritten: a mapped
file that changes changes results, and one that shrinks is a crash (docs/facts/aoti.md#mapped-weights).
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, get_args

from pt2hub.client.blobs.records import SUFFIX, Record, boot_id, regular_stamp, sync
from pt2hub.domain.digests import Digest, digest_file, hex_of
from pt2hub.places import make_folder

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.client.blobs.records import Stamp

Verify = Literal["stat", "always"]
"""How a cached file is checked: by its record, written after a full hash, or hashed again."""
WAYS: tuple[Verify, ...] = get_args(Verify)
FILE_MODE = 0o444
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH


class BlobFolder:
    """A folder of verified files. Its modes do not depend on the umask.

    Attributes:
        root: The folder.
        blobs: Where the files are.
        partial: Where downloads are while they are incomplete.
        leaders: Where processes leave word that they download.

    Args:
        shared: Whether the machine's other users may read it. Only its owner's files count then.
    """

    def __init__(self, root: Path, *, shared: bool = False) -> None:
        self.root = root
        self.blobs = root / "blobs" / "sha256"
        self.partial = root / "partial"
        self.leaders = root / "leaders"
        self._shared = shared

    def path(self, digest: Digest) -> Path:
        """Return where a file is or would be."""
        return self.blobs / hex_of(digest)

    def find(self, digest: Digest, *, verify: Verify = "stat") -> Path | None:
        """Return an intact file, or None; a damaged one stays until a download replaces it.

        Args:
            verify: `stat` trusts a file that looks as it did after a full hash.
        """
        path, owner = self.path(digest), self._owner()
        found = regular_stamp(path, owner)
        if found is None:
            return None
        record = Record.read(path, owner)
        vouched = record is not None and record.vouches_for(found)
        if not (vouched and verify == "stat") and not self._is_whole(path, digest):
            return None
        if not vouched:
            self.record(path, found)
        elif record and self.is_own():
            record.note_use(path, self._mode)
        return path

    def _is_whole(self, path: Path, digest: Digest) -> bool:
        try:
            whole = digest_file(path) == digest
        except OSError:  # one that another process just took away, or one that nobody may read
            return False
        if not whole:
            # Not the file: without the leadership, it may by now be the one that another process put there.
            with suppress(OSError):
                path.with_suffix(SUFFIX).unlink(missing_ok=True)
        return whole

    def record(self, path: Path, found: Stamp, *, synced: bool = False) -> None:
        """Record that a file was verified while it looked like this."""
        boot = "" if synced else boot_id()
        if not boot:
            with suppress(OSError):
                sync(path)
        if self.is_own():
            Record(found, boot).write(path, self._mode)

    def put(self, digest: Digest, data: bytes) -> Path:
        """Store a small file whose bytes are known, and were verified.

        Raises:
            OSError: The folder cannot be written.
        """
        self.make()
        path = self.path(digest)
        made = path.with_suffix(f".{os.urandom(4).hex()}")
        descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        try:
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(descriptor, FILE_MODE)
                file.write(data)
            made.replace(path)
        except OSError:
            made.unlink(missing_ok=True)
            raise
        if found := regular_stamp(path):
            self.record(path, found)
        return path

    def make(self) -> None:
        """Create the folder and those in it.

        Raises:
            OSError: It cannot be created.
        """
        readable = 0o755 if self._shared else 0o700
        for path, mode in (
            (self.root, readable),
            (self.blobs.parent, readable),
            (self.blobs, readable),
            (self.partial, 0o700),
            (self.leaders, 0o700),
        ):
            make_folder(path, mode)

    def is_own(self) -> bool:
        """Return whether this process may write to the folder as its only writer; one that does not exist can be made."""
        if not self._shared:
            return True
        if status := _status(self.root):
            return status.st_uid == os.geteuid()
        above = next((path for path in self.root.parents if _status(path)), self.root)
        return os.access(above, os.W_OK)

    def strangers(self) -> list[Path]:
        """Return the folders that other users could write to, or that belong to others than the root does."""
        owner = _status(self.root)
        found = [(path, _status(path)) for path in (self.root, self.blobs.parent, self.blobs)]
        return [
            path
            for path, status in found
            if status and owner and (status.st_uid != owner.st_uid or status.st_mode & _WRITABLE)
        ]

    @property
    def _mode(self) -> int:
        """Mode of records."""
        return 0o644 if self._shared else 0o600

    def _owner(self) -> int | None:
        """Return the only user whose files count, None for anyone's."""
        status = _status(self.root) if self._shared else None
        return status.st_uid if status else None


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None
