"""Last known resolutions: what references resolved to when the server last answered."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pt2hub.domain.codec import decode, encode
from pt2hub.domain.digests import digest_bytes, hex_of
from pt2hub.domain.storage import StorageLocation
from pt2hub.errors import BadResponse
from pt2hub.wire.resolution import ResolvedReference

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")
_STORAGE = "storage.json"
_SHORT = 32
"""Digits of the digests that name folders and files."""
_CLOCK_SKEW_S = 300.0


@dataclass(frozen=True, slots=True)
class KnownResolution:
    """An earlier answer of a server.

    Attributes:
        resolved: The answer.
        resolved_at: When it came, in seconds since the epoch.
    """

    resolved: ResolvedReference
    resolved_at: float

    @property
    def age_s(self) -> float:
        """Its age in seconds; infinite if this machine's clock was set back since."""
        age = time.time() - self.resolved_at
        return max(age, 0.0) if age > -_CLOCK_SKEW_S else float("inf")


class ResolutionStore:
    """The last answer of one server for each reference, as files next to the cache.

    A folder that cannot be written or a damaged file never stops a pull: nothing is known then.

    Args:
        cache: The cache's folder.
        server: Address of the server; answers of others are kept apart.
    """

    def __init__(self, cache: Path, server: str) -> None:
        self._cache = cache
        self._folder = cache / "resolutions" / _name(server)

    def record(self, reference: str, resolved: ResolvedReference, *, at: float | None = None) -> None:
        """Remember an answer.

        Args:
            at: When it was given, in seconds since the epoch; now where omitted.
        """
        with suppress(OSError):
            if not self._folder.is_dir():
                self._make()
            known = KnownResolution(resolved, time.time() if at is None else at)
            self._write(f"{_name(reference)}.json", known)
            if resolved.storage and resolved.storage != self.storage():
                self._write(_STORAGE, resolved.storage)

    def find(self, reference: str) -> KnownResolution | None:
        """Return the last answer for a reference, or None."""
        return self._read(KnownResolution, f"{_name(reference)}.json")

    def storage(self) -> StorageLocation | None:
        """Return where the server's storage was at its last answer; None if it was not in a bucket, or is unknown."""
        return self._read(StorageLocation, _STORAGE)

    def _make(self) -> None:
        """Create the folder for this user alone, as those of the cache are."""
        from pt2hub.places import make_folder

        for path in (self._cache, self._folder.parent, self._folder):
            make_folder(path, 0o700)

    def _write(self, name: str, value: object) -> None:
        temporary = self._folder / f"{name}.{os.urandom(4).hex()}"
        try:
            temporary.touch(mode=0o600)
            temporary.write_text(json.dumps(encode(value)), encoding="ascii")
            temporary.replace(self._folder / name)
        finally:
            temporary.unlink(missing_ok=True)

    def _read(self, cls: type[T], name: str) -> T | None:
        try:
            return decode(cls, json.loads((self._folder / name).read_bytes()))
        except (OSError, ValueError, RecursionError, BadResponse):
            return None


def _name(text: str) -> str:
    """Return a name of fixed length: a reference may be longer than a file's name."""
    return hex_of(digest_bytes(text.encode()))[:_SHORT]
