"""How builds go: what workers report of steps and log lines, by attempt. Logs are read through `LogStore`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert

from pt2hub.domain.builds import STEPS
from pt2hub.server.db.schema import Build as SQLBuild
from pt2hub.server.db.schema import BuildLog as SQLBuildLog
from pt2hub.server.db.schema import BuildStep as SQLBuildStep
from pt2hub.server.db.stores.values import stamp, storable
from pt2hub.wire.shapes import StepView

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy.orm import Session

    from pt2hub.domain.builds import LogLine, StepReport

_PLACE = {name: place for place, name in enumerate(STEPS)}


class ProgressStore:
    """Steps and log lines."""

    def __init__(self, session: Session) -> None:
        """Works in the caller's transaction."""
        self._session = session

    def put_steps(self, build_id: str, attempt: int, steps: Iterable[StepReport]) -> None:
        """Adds steps, or moves them on; a step's start stays the first one noted.

        Args:
            build_id: The build.
            attempt: The attempt that does them.
            steps: In the order in which they were reported.
        """
        for step in steps:
            changed = {"state": step.state, "seconds": step.seconds}
            statement = insert(SQLBuildStep).values(
                build_id=build_id,
                attempt=attempt,
                name=step.name,
                started_at=func.to_timestamp(step.started),
                detail=storable(step.detail),
                **changed,
            )
            self._session.execute(
                statement.on_conflict_do_update(
                    index_elements=["build_id", "attempt", "name"],
                    set_={
                        **changed,
                        "detail": func.coalesce(statement.excluded.detail, SQLBuildStep.detail),
                    },
                )
            )

    def steps(self, build_ids: Sequence[str]) -> dict[str, list[StepView]]:
        """The steps of each build's latest attempt, in order."""
        rows = self._session.scalars(
            select(SQLBuildStep)
            .join(SQLBuild, SQLBuild.id == SQLBuildStep.build_id)
            .where(SQLBuild.id.in_(build_ids), SQLBuildStep.attempt == SQLBuild.attempt)
        )
        found: dict[str, list[StepView]] = {}
        for row in sorted(rows, key=lambda row: _PLACE.get(row.name, len(_PLACE))):
            view = StepView(row.name, row.state, stamp(row.started_at), row.seconds, row.detail)
            found.setdefault(row.build_id, []).append(view)
        return found

    def add_lines(self, build_id: str, attempt: int, lines: Sequence[LogLine]) -> None:
        """Adds log lines; those already there, by position, are left as they are."""
        rows = [
            {
                "build_id": build_id,
                "attempt": attempt,
                "seq": line.seq,
                "at": line.at,
                "step": line.step,
                "level": line.level,
                "text": storable(line.text),
            }
            for line in lines
        ]
        if rows:
            self._session.execute(insert(SQLBuildLog).on_conflict_do_nothing(), rows)
