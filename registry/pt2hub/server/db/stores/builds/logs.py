"""Logs of attempts: the lines that are still in the database, and the blobs of archived logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import delete, func, or_, select, tuple_, update

from pt2hub.domain.builds import LogLine
from pt2hub.domain.digests import Digest
from pt2hub.server.db.schema import Artifact as SQLArtifact
from pt2hub.server.db.schema import Build as SQLBuild
from pt2hub.server.db.schema import BuildAttempt as SQLBuildAttempt
from pt2hub.server.db.schema import BuildLog as SQLBuildLog
from pt2hub.server.db.stores.values import stamp

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from sqlalchemy import ColumnElement
    from sqlalchemy.orm import Session


NOISE = "compiler"
"""Level of the lines that summaries leave out."""
ERROR = "error"
"""Level of the lines that explain why an attempt ended."""
_EMPTY = {"log_bytes": 0, "log_lines": 0}
_LINE = (SQLBuildLog.seq, SQLBuildLog.at, SQLBuildLog.step, SQLBuildLog.level, SQLBuildLog.text)
"""Columns of a line: loading whole entities takes three times as long."""


@dataclass(frozen=True, slots=True)
class ArchivedLog:
    """An archived log: a blob of JSON lines, numbered from 1 without gaps.

    Attributes:
        size: In bytes.
        lines: Number of lines.
    """

    digest: Digest
    size: int
    lines: int


@dataclass(frozen=True, slots=True)
class EndedAttempt:
    """An ended attempt.

    Attributes:
        ended_at: ISO 8601, UTC.
        log: Its archived log, or None.
    """

    ended_at: str
    log: ArchivedLog | None


class LogStore:
    """Log lines and archived logs."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def latest(self, build_id: str) -> int | None:
        """Return the number of a build's latest attempt, 0 before the first; None where the build does not exist."""
        return self._session.scalar(select(SQLBuild.attempt).where(SQLBuild.id == build_id))

    def rows(
        self, build_id: str, attempt: int, *, after: int, limit: int, summary: bool = False
    ) -> list[LogLine]:
        """Return the lines in the database after a position, in order."""
        statement = select(*_LINE).where(*_of(build_id, attempt), SQLBuildLog.seq > after)
        if summary:
            statement = statement.where(SQLBuildLog.level != NOISE)
        return [
            LogLine(*row) for row in self._session.execute(statement.order_by(SQLBuildLog.seq).limit(limit))
        ]

    def rows_before(
        self, build_id: str, attempt: int, *, before: int, limit: int, summary: bool = False
    ) -> list[LogLine]:
        """Return the last lines in the database before a position, in order."""
        statement = select(*_LINE).where(*_of(build_id, attempt), SQLBuildLog.seq < before)
        if summary:
            statement = statement.where(SQLBuildLog.level != NOISE)
        rows = self._session.execute(statement.order_by(SQLBuildLog.seq.desc()).limit(limit)).all()
        return [LogLine(*row) for row in reversed(rows)]

    def rows_holding(self, build_id: str, attempt: int, text: str) -> Iterator[LogLine]:
        """Yield the lines in the database that may contain a text, in order.

        Colour codes may stand between its letters, so all lines with escape sequences are included.
        """
        statement = select(*_LINE).where(*_of(build_id, attempt)).order_by(SQLBuildLog.seq)
        if text.isascii():  # the database's case rules differ beyond ASCII
            holds = SQLBuildLog.text.icontains(text, autoescape=True)
            statement = statement.where(or_(holds, SQLBuildLog.text.contains("\x1b")))
        for row in self._session.execute(statement):
            yield LogLine(*row)

    def extent(self, build_id: str, attempt: int) -> tuple[int, int | None]:
        """Return the positions of the last line (0 if empty) and of the first error line (or None) in the database."""
        first_error = func.min(SQLBuildLog.seq).filter(SQLBuildLog.level == ERROR)
        statement = select(func.max(SQLBuildLog.seq), first_error).where(*_of(build_id, attempt))
        last, error = self._session.execute(statement).one()
        return last or 0, error

    def last(self, build_id: str, attempt: int) -> int:
        """Return the position of the last line in the database, 0 if empty."""
        return self._session.scalar(select(func.max(SQLBuildLog.seq)).where(*_of(build_id, attempt))) or 0

    def archived_log(self, build_id: str, attempt: int) -> ArchivedLog | None:
        """Return the archived log of an attempt, or None.

        Read the lines first: a log that is archived between the two reads is then still complete.
        """
        row = self._session.get(SQLBuildAttempt, (build_id, attempt), populate_existing=True)
        return _to_archived_log(row)

    def page(self, after: tuple[str, int], limit: int) -> list[tuple[str, int, Digest]]:
        """Return build, attempt and blob of archived logs, in that order."""
        key = tuple_(SQLBuildAttempt.build_id, SQLBuildAttempt.attempt)
        statement = (
            select(SQLBuildAttempt.build_id, SQLBuildAttempt.attempt, SQLBuildAttempt.log)
            .where(SQLBuildAttempt.log.is_not(None), key > tuple_(*after))
            .order_by(SQLBuildAttempt.build_id, SQLBuildAttempt.attempt)
            .limit(limit)
        )
        return [
            (build, attempt, Digest(log or "")) for build, attempt, log in self._session.execute(statement)
        ]

    def find_ended(self, build_id: str, attempt: int, *, lock: bool = False) -> EndedAttempt | None:
        """Return an ended attempt, None where it runs or does not exist.

        Args:
            lock: Whether to lock it until the transaction ends.
        """
        row = self._session.get(
            SQLBuildAttempt, (build_id, attempt), with_for_update=lock, populate_existing=True
        )
        return EndedAttempt(stamp(row.ended_at), _to_archived_log(row)) if row and row.ended_at else None

    def rests(self, build_id: str, attempt: int, rest: timedelta) -> bool:
        """Return whether an attempt ended some time ago, its log is archived, or it does not exist."""
        row = self._session.execute(
            select(SQLBuildAttempt.log, SQLBuildAttempt.ended_at < func.clock_timestamp() - rest).where(
                SQLBuildAttempt.build_id == build_id, SQLBuildAttempt.attempt == attempt
            )
        ).first()
        return row is None or row[0] is not None or bool(row[1])

    def record(self, build_id: str, attempt: int, log: ArchivedLog | None) -> None:
        """Record an attempt's archived log, or that it has none, and delete the archived lines."""
        values = {"log": log.digest, "log_bytes": log.size, "log_lines": log.lines} if log else _EMPTY
        self._session.execute(
            update(SQLBuildAttempt)
            .where(SQLBuildAttempt.build_id == build_id, SQLBuildAttempt.attempt == attempt)
            .values(**values)
        )
        if log:
            self._session.execute(
                delete(SQLBuildLog).where(*_of(build_id, attempt), SQLBuildLog.seq <= log.lines)
            )

    def artifact(self, build_id: str, attempt: int) -> Digest | None:
        """Return the artifact that an attempt published, or None."""
        found = self._session.scalar(
            select(SQLArtifact.digest).where(SQLArtifact.build_id == build_id, SQLArtifact.attempt == attempt)
        )
        return Digest(found) if found else None


def _of(build_id: str, attempt: int) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return SQLBuildLog.build_id == build_id, SQLBuildLog.attempt == attempt


def _to_archived_log(row: SQLBuildAttempt | None) -> ArchivedLog | None:
    if row is None or row.log is None:
        return None
    return ArchivedLog(Digest(row.log), row.log_bytes or 0, row.log_lines or 0)
