"""Logs of builds: in the database while they grow, archived to storage after their attempt has ended.

Reading is the same before, during and after archiving.
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
from pt2hub.server.db.stores.artifacts.artifacts import ArtifactStore
from pt2hub.server.db.stores.blobs.blobs import BlobStore
from pt2hub.server.db.stores.builds.logs import ArchivedLog, LogStore
from pt2hub.server.services import not_found
from pt2hub.server.services.blobs.blob_writes import BlobChunk
from pt2hub.server.services.blobs.documents import named_by
from pt2hub.server.services.builds.log_blobs import LogBlobs, as_json_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy.orm import Session

    from pt2hub.domain.builds import LogLine
    from pt2hub.server.blobs.ports import BlobReader
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.stores.builds.logs import EndedAttempt
    from pt2hub.server.services.blobs.blob_writes import BlobService

MAX_LINES = 10_000
"""Log lines per response."""
TRAILING_LINES_TIMEOUT = timedelta(seconds=1)
"""A worker sends an attempt's last lines up to 0.2 s after its end."""
LOG_NAME = "log.jsonl"
_EMPTY = b"{}"


class LogService:
    """Reads and archives logs."""

    def __init__(self, sessions: Sessions, storage: BlobReader, blobs: BlobService) -> None:
        self._sessions = sessions
        self._storage = storage
        self._blobs = blobs
        self._archived = LogBlobs(storage)

    def lines(
        self,
        build_id: str,
        *,
        attempt: int | None = None,
        after: int = 0,
        limit: int = 1000,
        summary: bool = False,
    ) -> tuple[int, list[LogLine]]:
        """Return the lines of an attempt's log.

        Args:
            attempt: Its number; None for the latest.

        Returns:
            The attempt's number (0 where none has begun) and the lines.

        Raises:
            NotFound: The build or attempt does not exist, or the log is missing from storage.
        """
        limit = min(limit, MAX_LINES)
        with self._sessions.begin() as session:
            store = LogStore(session)
            number = attempt_number(session, build_id, attempt)
            rows = store.rows(build_id, number, after=after, limit=limit, summary=summary)
            archived = store.archived_log(build_id, number)
        if archived is None:
            return number, rows
        if after >= archived.lines:
            return number, []
        return number, self._archived.page(archived.digest, after=after, limit=limit, summary=summary)

    def complete(self, build_id: str, attempt: int) -> bool:
        """Return whether an attempt ended long enough ago that no further log line is expected."""
        with self._sessions.begin() as session:
            return LogStore(session).rests(build_id, attempt, TRAILING_LINES_TIMEOUT)

    def archive(self, build_id: str, attempt: int) -> Digest | None:
        """Move the log of an ended attempt from the database to storage; idempotent.

        The log of the attempt that published the artifact becomes its referrer. An attempt without a log is marked as
        archived too, so that it is not looked at again.

        Returns:
            The log's digest; None where nothing was archived: the attempt has not ended, has no log, or its last
            lines arrived meanwhile.

        Raises:
            BlobGone: It took longer than the lease; the next try stores it again.
        """
        with self._sessions.begin() as session:
            store = LogStore(session)
            ended = store.find_ended(build_id, attempt)
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
            if store.find_ended(build_id, attempt, lock=True) != ended:
                return None
            if store.rows(build_id, attempt, after=log.lines if log else 0, limit=1):
                return None
            store.record(build_id, attempt, log)
            if artifact and manifest:
                ArtifactStore(session).refer(artifact, [manifest])
            if log:
                needed = named_by(manifest) if manifest else {StorageKey.blob(log.digest): log.size}
                BlobStore(session).refer(needed, owner)
                BlobStore(session).drop(owner)
        return log.digest if log else None

    def text(self, build_id: str, attempt: int | None = None) -> Iterator[bytes]:
        """Yield the whole log of an attempt, line by line, each with its end.

        Args:
            attempt: Its number; None for the latest.

        Raises:
            NotFound: The build or attempt does not exist; raised at once, not at the first line.
        """
        number, first = self.lines(build_id, attempt=attempt, limit=MAX_LINES)
        return self._text(build_id, number, first)

    def _text(self, build_id: str, number: int, page: list[LogLine]) -> Iterator[bytes]:
        while page:
            yield "".join(map(_as_text, page)).encode()
            _, page = self.lines(build_id, attempt=number, after=page[-1].seq, limit=MAX_LINES)

    def _write(self, build_id: str, attempt: int, file: IO[bytes]) -> ArchivedLog | None:
        """Write the current log to a file; return None where it is empty."""
        hasher, count = hashlib.sha256(), 0
        for raw in as_json_lines(self._all(build_id, attempt)):
            hasher.update(raw)
            file.write(raw)
            count += 1
        file.flush()
        return ArchivedLog(Digest(f"sha256:{hasher.hexdigest()}"), file.tell(), count) if count else None

    def _all(self, build_id: str, attempt: int) -> Iterator[LogLine]:
        after = 0
        while page := self.lines(build_id, attempt=attempt, after=after, limit=MAX_LINES)[1]:
            yield from page
            after = page[-1].seq

    def _referrer(
        self, artifact: Digest, build_id: str, ended: EndedAttempt, log: ArchivedLog
    ) -> Manifest | None:
        """Return the log's manifest; its bytes depend only on the attempt, so that each try makes the same."""
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


def _pieces(log: ArchivedLog | None, path: Path, manifest: Manifest | None) -> list[BlobChunk]:
    """Return the chunks to store for a log, its blob before the manifest that names it."""
    pieces = [BlobChunk(StorageKey.blob(log.digest), log.size, path)] if log else []
    if manifest:
        data = manifest.as_bytes()
        pieces.append(BlobChunk(StorageKey.blob(manifest.config.digest), len(_EMPTY), _EMPTY))
        pieces.append(BlobChunk(StorageKey.manifest(manifest.digest), len(data), data))
    return pieces


def _as_text(line: LogLine) -> str:
    at = datetime.fromtimestamp(line.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    level = f"{line.level}: " if line.level in ("warning", "error") else ""
    return f"{at} {line.step:<8} {level}{line.text}\n"


def attempt_number(session: Session, build_id: str, attempt: int | None) -> int:
    """Return the given attempt number or else the latest, 0 where none has begun.

    Raises:
        NotFound: The build or attempt does not exist.
    """
    latest = LogStore(session).latest(build_id)
    if latest is None:
        raise not_found.no_build(session, build_id)
    if attempt is not None and not 1 <= attempt <= latest:
        existing = f"it has {latest} so far" if latest else "none has begun"
        raise NotFound(
            f"Attempt {attempt} not found: {existing}",
            where="attempt",
            hint=f"GET /api/v1/builds/{build_id} lists its attempts.",
        )
    return latest if attempt is None else attempt
