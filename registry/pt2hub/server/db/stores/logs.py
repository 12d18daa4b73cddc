"""Logs of attempts: lines that are still rows, and where the log lies once it was put away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import delete, func, or_, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert

from pt2hub.domain.builds import LogLine
from pt2hub.domain.digests import Digest
from pt2hub.server.db.schema import Artifact as SQLArtifact
from pt2hub.server.db.schema import Build as SQLBuild
from pt2hub.server.db.schema import BuildAttempt as SQLBuildAttempt
from pt2hub.server.db.schema import BuildLog as SQLBuildLog
from pt2hub.server.db.schema import Referrer as SQLReferrer
from pt2hub.server.db.stores.values import stamp

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from sqlalchemy import ColumnElement
    from sqlalchemy.orm import Session

    from pt2hub.domain.artifacts import Manifest

NOISE = "compiler"
"""The level that summaries leave out."""
ERROR = "error"
"""The level of lines that tell why an attempt ended."""
_EMPTY = {"log_bytes": 0, "log_lines": 0}
_LINE = (SQLBuildLog.seq, SQLBuildLog.at, SQLBuildLog.step, SQLBuildLog.level, SQLBuildLog.text)
"""What a line is made of: whole entities of a thousand lines take thrice the time."""


@dataclass(frozen=True, slots=True)
class PutAway:
    """A log that lies in the storage.

    Attributes:
        digest: Its blob: JSON lines, numbered 1, 2, 3 and so on.
        size: Its length in bytes.
        lines: How many there are.
    """

    digest: Digest
    size: int
    lines: int


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt that is over.

    Attributes:
        ended_at: When, ISO 8601, UTC.
        log: Its log as it was put away, or None.
    """

    ended_at: str
    log: PutAway | None


class LogStore:
    """Logs."""

    def __init__(self, session: Session) -> None:
        """Works in the caller's transaction."""
        self._session = session

    def latest(self, build_id: str) -> int | None:
        """Number of a build's latest attempt, 0 before the first; None where there is no such build."""
        return self._session.scalar(select(SQLBuild.attempt).where(SQLBuild.id == build_id))

    def rows(
        self, build_id: str, attempt: int, *, after: int, limit: int, summary: bool = False
    ) -> list[LogLine]:
        """Lines that are rows, in order.

        Args:
            build_id: The build.
            attempt: Whose log.
            after: Position of the last line known.
            limit: Lines at most.
            summary: Leave the compiler's noise out.
        """
        statement = select(*_LINE).where(*_of(build_id, attempt), SQLBuildLog.seq > after)
        if summary:
            statement = statement.where(SQLBuildLog.level != NOISE)
        return [
            LogLine(*row) for row in self._session.execute(statement.order_by(SQLBuildLog.seq).limit(limit))
        ]

    def rows_before(
        self, build_id: str, attempt: int, *, before: int, limit: int, summary: bool = False
    ) -> list[LogLine]:
        """Lines that are rows, in order: the last ones in front of a position.

        Args:
            build_id: The build.
            attempt: Whose log.
            before: The position.
            limit: Lines at most.
            summary: Leave the compiler's noise out.
        """
        statement = select(*_LINE).where(*_of(build_id, attempt), SQLBuildLog.seq < before)
        if summary:
            statement = statement.where(SQLBuildLog.level != NOISE)
        rows = self._session.execute(statement.order_by(SQLBuildLog.seq.desc()).limit(limit)).all()
        return [LogLine(*row) for row in reversed(rows)]

    def rows_holding(self, build_id: str, attempt: int, text: str) -> Iterator[LogLine]:
        """Lines that are rows, in order, without those that do not hold a text.

        Colours may stand between the letters of what is looked for, so lines with escape sequences all come.

        Args:
            build_id: The build.
            attempt: Whose log.
            text: What is looked for, in any letters' case.
        """
        statement = select(*_LINE).where(*_of(build_id, attempt)).order_by(SQLBuildLog.seq)
        if text.isascii():  # letters' case beyond that is the database's, and not ours to know
            holds = SQLBuildLog.text.icontains(text, autoescape=True)
            statement = statement.where(or_(holds, SQLBuildLog.text.contains("\x1b")))
        for row in self._session.execute(statement):
            yield LogLine(*row)

    def extent(self, build_id: str, attempt: int) -> tuple[int, int | None]:
        """Positions of the last row (0 without any) and of the first that tells of an error (or None)."""
        first_error = func.min(SQLBuildLog.seq).filter(SQLBuildLog.level == ERROR)
        statement = select(func.max(SQLBuildLog.seq), first_error).where(*_of(build_id, attempt))
        last, error = self._session.execute(statement).one()
        return last or 0, error

    def last(self, build_id: str, attempt: int) -> int:
        """Position of the last row, 0 without any."""
        return self._session.scalar(select(func.max(SQLBuildLog.seq)).where(*_of(build_id, attempt))) or 0

    def put_away(self, build_id: str, attempt: int) -> PutAway | None:
        """The log as it was put away, or None.

        Ask for the rows first: a log that is put away between the two questions is then still seen whole.
        """
        row = self._session.get(SQLBuildAttempt, (build_id, attempt), populate_existing=True)
        return _put_away(row)

    def page(self, after: tuple[str, int], limit: int) -> list[tuple[str, int, Digest]]:
        """Logs that were put away: build, attempt and blob, in the order of these.

        Args:
            after: Build and attempt of the last one known.
            limit: At most so many.
        """
        place = tuple_(SQLBuildAttempt.build_id, SQLBuildAttempt.attempt)
        statement = (
            select(SQLBuildAttempt.build_id, SQLBuildAttempt.attempt, SQLBuildAttempt.log)
            .where(SQLBuildAttempt.log.is_not(None), place > tuple_(*after))
            .order_by(SQLBuildAttempt.build_id, SQLBuildAttempt.attempt)
            .limit(limit)
        )
        return [
            (build, attempt, Digest(log or "")) for build, attempt, log in self._session.execute(statement)
        ]

    def ended(self, build_id: str, attempt: int, *, lock: bool = False) -> Ended | None:
        """An attempt that is over, None where it runs or there is none.

        Args:
            build_id: The build.
            attempt: Its number.
            lock: Whether nobody else may change it until the transaction ends.
        """
        row = self._session.get(
            SQLBuildAttempt, (build_id, attempt), with_for_update=lock, populate_existing=True
        )
        return Ended(stamp(row.ended_at), _put_away(row)) if row and row.ended_at else None

    def rests(self, build_id: str, attempt: int, rest: timedelta) -> bool:
        """Whether an attempt is over for some time, or its log was put away, or there is no such attempt."""
        row = self._session.execute(
            select(SQLBuildAttempt.log, SQLBuildAttempt.ended_at < func.clock_timestamp() - rest).where(
                SQLBuildAttempt.build_id == build_id, SQLBuildAttempt.attempt == attempt
            )
        ).first()
        return row is None or row[0] is not None or bool(row[1])

    def record(self, build_id: str, attempt: int, log: PutAway | None) -> None:
        """Notes where an attempt's log lies, or that there is none, and drops the rows that it holds."""
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
        """The artifact that an attempt published, or None."""
        found = self._session.scalar(
            select(SQLArtifact.digest).where(SQLArtifact.build_id == build_id, SQLArtifact.attempt == attempt)
        )
        return Digest(found) if found else None

    def refer(self, artifact: Digest, manifest: Manifest) -> None:
        """Notes that a log belongs to an artifact."""
        row = {
            "digest": manifest.digest,
            "artifact": artifact,
            "artifact_type": manifest.artifactType,
            "size": len(manifest.as_bytes()),
            "annotations": manifest.annotations,
        }
        self._session.execute(insert(SQLReferrer).values(row).on_conflict_do_nothing())


def _of(build_id: str, attempt: int) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return SQLBuildLog.build_id == build_id, SQLBuildLog.attempt == attempt


def _put_away(row: SQLBuildAttempt | None) -> PutAway | None:
    if row is None or row.log is None:
        return None
    return PutAway(Digest(row.log), row.log_bytes or 0, row.log_lines or 0)
