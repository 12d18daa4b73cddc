"""Logs of builds: followed while they grow, put away into the storage when their attempt is over.

Reading is the same before, during and after: who asks for lines behind a position gets them from wherever they lie.
"""

from __future__ import annotations

import hashlib
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pt2hub.domain.artifacts import (
    BUILD,
    CREATED,
    EMPTY_TYPE,
    LINES,
    LOG_TYPE,
    MANIFEST_TYPE,
    TITLE,
    Descriptor,
    Manifest,
)
from pt2hub.domain.digests import Digest, digest_bytes
from pt2hub.errors import NotFound
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.blobs import BlobStore
from pt2hub.server.db.stores.logs import LogStore, PutAway
from pt2hub.server.services.blobs import Piece
from pt2hub.server.services.documents import named_by
from pt2hub.server.services.log_blobs import LogBlobs, as_json_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.domain.builds import LogLine
    from pt2hub.server.blobs.ports import Reads
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.stores.logs import Ended
    from pt2hub.server.services.blobs import BlobService

MAX_LINES = 10_000
"""Log lines answered at once."""
REST = timedelta(seconds=1)
"""A worker sends an attempt's last lines after its end, within a tenth of a second or two."""
LOG_NAME = "log.jsonl"
_EMPTY = b"{}"


class LogService:
    """Logs."""

    def __init__(self, sessions: Sessions, storage: Reads, blobs: BlobService) -> None:
        """Is built by the container.

        Args:
            sessions: Opens transactions.
            storage: Has the logs of attempts that are over.
            blobs: Takes them.
        """
        self._sessions = sessions
        self._storage = storage
        self._blobs = blobs
        self._put_away = LogBlobs(storage)

    def lines(
        self,
        build_id: str,
        *,
        attempt: int | None = None,
        after: int = 0,
        limit: int = 1000,
        summary: bool = False,
    ) -> tuple[int, list[LogLine]]:
        """Lines of an attempt's log.

        Args:
            build_id: The build.
            attempt: Its number; None for the latest.
            after: Position of the last line known.
            limit: Lines at most.
            summary: Leave the compiler's noise out.

        Returns:
            The attempt's number (0 where none has begun) and the lines.

        Raises:
            NotFound: There is no such build or attempt, or the storage lost the log.
        """
        limit = min(limit, MAX_LINES)
        with self._sessions.begin() as session:
            store = LogStore(session)
            number = attempt_number(store, build_id, attempt)
            rows = store.rows(build_id, number, after=after, limit=limit, summary=summary)
            away = store.put_away(build_id, number)
        if away is None:
            return number, rows
        if after >= away.lines:
            return number, []
        return number, self._put_away.page(away.digest, after=after, limit=limit, summary=summary)

    def complete(self, build_id: str, attempt: int) -> bool:
        """Whether an attempt is over for so long that no further line of its log is awaited."""
        with self._sessions.begin() as session:
            return LogStore(session).rests(build_id, attempt, REST)

    def archive(self, build_id: str, attempt: int) -> Digest | None:
        """Puts the log of an attempt that is over into the storage and drops its rows; once is enough.

        The log of the attempt that published the artifact becomes a referrer of it. Of an attempt that left no line
        it is noted, so that nobody looks again.

        Returns:
            The log's digest; None where there is nothing to put away: the attempt is not over, or left no line,
            or its last lines came meanwhile.

        Raises:
            BlobGone: It took longer than a lease lasts; the next try stores it anew.
        """
        with self._sessions.begin() as session:
            store = LogStore(session)
            ended = store.ended(build_id, attempt)
            artifact = store.artifact(build_id, attempt)
        if ended is None or ended.log:
            return ended.log.digest if ended and ended.log else None
        owner = f"log:{build_id}:{attempt}"
        with tempfile.NamedTemporaryFile(prefix="pt2hub-log-") as file:
            log = self._write(build_id, attempt, file)
            manifest = self._referrer(artifact, build_id, ended, log) if artifact and log else None
            self._blobs.store(_pieces(log, Path(file.name), manifest), holder=owner)
        with self._sessions.begin() as session:
            store = LogStore(session)
            if store.ended(build_id, attempt, lock=True) != ended:
                return None
            if store.rows(build_id, attempt, after=log.lines if log else 0, limit=1):
                return None
            store.record(build_id, attempt, log)
            if artifact and manifest:
                store.refer(artifact, manifest)
            if log:
                needed = named_by(manifest) if manifest else {StorageKey.blob(log.digest): log.size}
                BlobStore(session).refer(needed, owner)
                BlobStore(session).drop(owner)
        return log.digest if log else None

    def text(self, build_id: str, attempt: int | None = None) -> Iterator[bytes]:
        """The whole log of an attempt, line by line, each with its end.

        Args:
            build_id: The build.
            attempt: Its number; None for the latest.

        Raises:
            NotFound: There is no such build or attempt; raised at once, not when the first line is asked for.
        """
        number, first = self.lines(build_id, attempt=attempt, limit=MAX_LINES)
        return self._text(build_id, number, first)

    def _text(self, build_id: str, number: int, page: list[LogLine]) -> Iterator[bytes]:
        while page:
            yield "".join(map(_as_text, page)).encode()
            _, page = self.lines(build_id, attempt=number, after=page[-1].seq, limit=MAX_LINES)

    def _write(self, build_id: str, attempt: int, file: IO[bytes]) -> PutAway | None:
        """Writes the log as it is now into a file; None where there is no line."""
        hasher, count = hashlib.sha256(), 0
        for raw in as_json_lines(self._all(build_id, attempt)):
            hasher.update(raw)
            file.write(raw)
            count += 1
        file.flush()
        return PutAway(Digest(f"sha256:{hasher.hexdigest()}"), file.tell(), count) if count else None

    def _all(self, build_id: str, attempt: int) -> Iterator[LogLine]:
        after = 0
        while page := self.lines(build_id, attempt=attempt, after=after, limit=MAX_LINES)[1]:
            yield from page
            after = page[-1].seq

    def _referrer(self, artifact: Digest, build_id: str, ended: Ended, log: PutAway) -> Manifest | None:
        """The log's manifest; its bytes depend on nothing but the attempt, so that each try makes the same."""
        size = self._storage.size(StorageKey.manifest(artifact))
        if size is None:  # a lost artifact still has its log
            return None
        return Manifest(
            artifactType=LOG_TYPE,
            config=Descriptor(EMPTY_TYPE, digest_bytes(_EMPTY), len(_EMPTY)),
            layers=(Descriptor(LOG_TYPE, log.digest, log.size, {TITLE: LOG_NAME}),),
            subject=Descriptor(MANIFEST_TYPE, artifact, size),
            annotations={CREATED: ended.ended_at, BUILD: build_id, LINES: str(log.lines)},
        )


def _pieces(log: PutAway | None, path: Path, manifest: Manifest | None) -> list[Piece]:
    """What to store of a log: its blob before the manifest that names it."""
    pieces = [Piece(StorageKey.blob(log.digest), log.size, path)] if log else []
    if manifest:
        data = manifest.as_bytes()
        pieces.append(Piece(StorageKey.blob(manifest.config.digest), len(_EMPTY), _EMPTY))
        pieces.append(Piece(StorageKey.manifest(manifest.digest), len(data), data))
    return pieces


def _as_text(line: LogLine) -> str:
    at = datetime.fromtimestamp(line.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    level = f"{line.level}: " if line.level in ("warning", "error") else ""
    return f"{at} {line.step:<8} {level}{line.text}\n"


def attempt_number(store: LogStore, build_id: str, attempt: int | None) -> int:
    """The number of the attempt that is meant: the one given, else the latest, 0 where none has begun.

    Raises:
        NotFound: There is no such build or attempt.
    """
    latest = store.latest(build_id)
    if latest is None:
        raise NotFound(f"There is no build {build_id[:80]!r}", where="build")
    if attempt is not None and not 1 <= attempt <= latest:
        had = f"it has had {latest}" if latest else "none has begun"
        raise NotFound(
            f"The build has no attempt {attempt}: {had}",
            where="attempt",
            hint=f"GET /api/v1/builds/{build_id} lists its attempts.",
        )
    return latest if attempt is None else attempt
