"""Where artifacts come from: the server; while it is away, last known resolutions and its bucket."""

from __future__ import annotations

import math
import time
import warnings
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeVar

from pt2hub.client.artifacts.yanks import read_yank
from pt2hub.client.http.outages import is_away, with_hint
from pt2hub.domain.names import Reference
from pt2hub.errors import (
    BadConfiguration,
    NotFound,
    Offline,
    Pt2hubError,
    ResolutionExpired,
    StorageUnavailable,
)
from pt2hub.wire.compatibility import YANK_HEADER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pt2hub.client.artifacts.resolutions import KnownResolution, ResolutionStore
    from pt2hub.client.artifacts.yanks import YankWarnings
    from pt2hub.client.availability import Availability
    from pt2hub.client.blobs.bucket import Bucket
    from pt2hub.client.blobs.download import BlobSource
    from pt2hub.client.http.transport import Transport
    from pt2hub.domain.digests import Digest
    from pt2hub.domain.storage import StorageLocation
    from pt2hub.wire.resolution import ResolvedReference

T = TypeVar("T")
_AWAY_SECONDS = 30.0
"""How long a server that did not answer is not asked again where there is another way."""
_NOTHING_KNOWN = (
    "The reference was never resolved on this machine; a lock file or a digest works without the server."
)


class LastKnownResolutionWarning(UserWarning):
    """A reference resolved to what it was last known to be, because the server was not asked or did not answer."""


class Connect(Protocol):
    """Gives the transport to the server."""

    def __call__(self, *, hurried: bool) -> Transport:
        """Return a transport.

        Args:
            hurried: Whether requests give up soon, because there is another way.
        """
        ...


class Origin:
    """Resolutions, manifests and blobs of one server's artifacts.

    Args:
        connect: Gives the transport; an artifact that is pinned and in the cache never asks for it.
        cache: The cache's folder, next to which resolutions are remembered.
        server: Address of the server.
        availability: What holds while the server is away.
        yanks: Warns of yanked versions.
    """

    def __init__(
        self,
        connect: Connect,
        cache: Path,
        server: str,
        availability: Availability,
        yanks: YankWarnings,
    ) -> None:
        self._connect = connect
        self._cache = cache
        self._server = server
        self._availability = availability
        self._away: tuple[float, Pt2hubError] | None = None
        self._opened: Bucket | None = None
        self._yanks = yanks

    def resolve(
        self, reference: str, ask: Callable[[Transport, str], ResolvedReference]
    ) -> ResolvedReference:
        """Return what a reference resolves to, or what it was last known to resolve to.

        Args:
            ask: Asks a server.

        Raises:
            Offline: No server is asked, and the reference was never resolved here.
            ResolutionExpired: The server did not answer, and what is known is too old.
            Pt2hubError: The server's own error, or that it did not answer and nothing is known.
        """
        known = self._resolutions.find(reference)
        if self._availability.offline:
            return self._last_known(reference, known, _offline(reference, "Never resolved on this machine"))
        usable = known is not None and self._allows(reference, known)
        try:
            resolved = ask(self._connect(hurried=usable), reference)
        except Pt2hubError as exc:
            if not is_away(exc):
                raise
            self._away = time.monotonic(), exc
            return self._last_known(reference, known, exc)
        self._resolutions.record(reference, resolved)
        return resolved

    def manifest(self, model: str, digest: Digest) -> bytes:
        """Return the bytes of a manifest, unchecked; warn if its version is yanked.

        Raises:
            Offline: No server is asked.
            Pt2hubError: The server's own error, or that neither server nor bucket can be read.
        """
        self._refuse_offline(digest)
        if self._location is None:
            return self._read_manifest(self._connect(hurried=False), model, digest)
        try:
            return self._read_manifest(self._hurried(), model, digest)
        except Pt2hubError as exc:
            away = self._note(exc)
        try:
            return self._bucket().manifest(digest)
        except (BadConfiguration, NotFound, StorageUnavailable) as exc:
            with self._last_attempt(away, exc) as transport:
                return self._read_manifest(transport, model, digest)

    def warn_of_yank(self, resolved: ResolvedReference) -> None:
        """Warn if a resolved version is yanked, once for each yank."""
        self._yanks.warn(f"{resolved.model}@{resolved.number}", resolved.yanked)

    def blob(self, digest: Digest, size: int) -> BlobSource:
        """Return a blob, to be read in ranges. Nothing is sent before the first read.

        Args:
            size: Its length in bytes.

        Raises:
            Offline: No server is asked.
        """
        self._refuse_offline(digest)
        remote = self._connect(hurried=False).blob(f"/api/v1/blobs/{digest}", size)
        if self._location is None:
            return remote
        from pt2hub.client.blobs.fallback_blob import FallbackBlob

        return FallbackBlob(
            remote, lambda: self._bucket().blob(digest, size), away=self._recent(), note=self._note
        )

    def report_mismatch(self, digest: Digest) -> None:
        """Tell the server that a download had other bytes, so that it reads the blob again.

        It is a courtesy: errors, also of servers that know no reports, are ignored, and it gives up soon.
        """
        with suppress(Pt2hubError):
            self._hurried().send("POST", f"/api/v1/blobs/{digest}/check")

    def close(self) -> None:
        """Close idle connections."""
        if self._opened:
            self._opened.close()
            self._opened = None

    def _read_manifest(self, transport: Transport, model: str, digest: Digest) -> bytes:
        data, header = transport.read_with(f"/api/v1/models/{model}/manifests/{digest}", YANK_HEADER)
        self._yanks.warn(f"{model}@{digest}", read_yank(header))
        return data

    @cached_property
    def _resolutions(self) -> ResolutionStore:
        from pt2hub.client.artifacts.resolutions import ResolutionStore

        return ResolutionStore(self._cache, self._server)

    @cached_property
    def _location(self) -> StorageLocation | None:
        return self._availability.storage or self._resolutions.storage()

    def _bucket(self) -> Bucket:
        if self._opened is None:
            from pt2hub.client.blobs.bucket import Bucket

            assert self._location is not None
            self._opened = Bucket(self._location)
        return self._opened

    def _refuse_offline(self, digest: Digest) -> None:
        if self._availability.offline:
            raise _offline(digest, "Not in the cache, or damaged there")

    def _hurried(self) -> Transport:
        """Return the transport that gives up soon; raise the last error if the server was away a moment ago."""
        if away := self._recent():
            raise away
        return self._connect(hurried=True)

    def _recent(self) -> Pt2hubError | None:
        """Return the server's error if it was away a moment ago."""
        if self._away and time.monotonic() - self._away[0] < _AWAY_SECONDS:
            return self._away[1]
        return None

    def _note(self, error: Pt2hubError) -> Pt2hubError:
        """Remember that the server is away; raise any other error, and one of its storage, which is the bucket itself."""
        if not is_away(error) or isinstance(error, StorageUnavailable):
            raise error
        if self._away is None or self._away[1] is not error:
            self._away = time.monotonic(), error
        return error

    @contextmanager
    def _last_attempt(self, away: Pt2hubError, unreadable: Pt2hubError) -> Iterator[Transport]:
        """Yield the transport that has patience, for a server that may only have been slow.

        Raises:
            Pt2hubError: The server's error, with what is wrong with the bucket in its hint.
        """
        try:
            yield self._connect(hurried=False)
        except Pt2hubError as exc:
            assert self._location is not None
            hint = f"Its bucket {self._location.url} cannot be read either: {unreadable.message}. {unreadable.hint or ''}"
            raise with_hint(exc if is_away(exc) else away, hint.strip()) from unreadable

    def _allows(self, reference: str, known: KnownResolution) -> bool:
        """Return whether a known resolution may be used: a version's number and a digest always mean the same."""
        parsed = Reference.parse(reference)
        return bool(parsed.number or parsed.prefix) or known.age_s <= self._availability.max_age_s

    def _last_known(
        self, reference: str, known: KnownResolution | None, error: Pt2hubError
    ) -> ResolvedReference:
        from pt2hub.rendering.quantities import format_duration

        if known is None:
            raise error if isinstance(error, Offline) else with_hint(error, _NOTHING_KNOWN)
        number, limit = known.resolved.number, self._availability.max_age_s
        if not self._allows(reference, known):
            raise ResolutionExpired(
                f"The last known version is {number}, as of {_ago(known)}; at most {format_duration(limit)} is allowed",
                where=reference,
                hint=f"{_reason(error)} Allow more with max_age (PT2HUB_MAX_AGE), or use {known.resolved.model}@{number}.",
                context={"number": number, "resolved_at": known.resolved_at, "max_age_s": limit},
            ) from error
        found = f"is version {number}" if number != Reference.parse(reference).number else "has the artifacts"
        text = f"{reference} {found} as last known {_ago(known)}. {_reason(error)}"
        warnings.warn(text, LastKnownResolutionWarning, stacklevel=2)
        return known.resolved


def _offline(what: str, why: str) -> Offline:
    return Offline(
        f"{why}, and pt2hub is offline",
        where=what,
        hint="Pull it once without offline=True and PT2HUB_OFFLINE.",
    )


def _reason(error: Pt2hubError) -> str:
    if isinstance(error, Offline):
        return "No server was asked: pt2hub is offline."
    return f"{error.message.rstrip('.')} ({error.where})." if error.where else error.message


def _ago(known: KnownResolution) -> str:
    from pt2hub.rendering.quantities import format_age

    age = known.age_s
    return (
        f"{format_age(age)} ago"
        if math.isfinite(age)
        else "at a time that this machine's clock has yet to reach"
    )
