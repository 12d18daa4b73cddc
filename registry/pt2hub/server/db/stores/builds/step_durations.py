"""Durations of the steps of earlier builds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import and_, func, literal, or_, select, union_all

from pt2hub.domain.builds import BuildState
from pt2hub.server.db.reading import only_readable
from pt2hub.server.db.schema import Build as SQLBuild
from pt2hub.server.db.schema import BuildStep as SQLBuildStep
from pt2hub.server.db.schema import Model as SQLModel
from pt2hub.server.db.schema import Version as SQLVersion
from pt2hub.server.db.stores.values import moment, stamp
from pt2hub.server.views.step_durations import StepDurations

if TYPE_CHECKING:
    from sqlalchemy import Select
    from sqlalchemy.orm import Session

    from pt2hub.wire.responses import BuildView

_MOST_BUILDS = 15
_MOST_VERSIONS = 60
"""Earlier versions of the model that are searched, newest first."""
_MOST_OF_TARGET = 200
"""Earlier builds for the target that are searched, newest first."""
_MOST_SECONDS = 1e7
"""Longer steps are not believed: workers are not trusted."""


class StepDurationStore:
    """Durations of the steps of earlier builds, a bounded number of them."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def earlier(self, view: BuildView) -> StepDurations:
        """Return the durations in the last builds before one that succeeded: of its model, else for its target."""
        chosen = union_all(_of_model(view), _of_target(view)).cte("chosen")
        # Those for the target count only where the model has none.
        of_model = select(func.coalesce(func.bool_or(chosen.c.same_model), False)).scalar_subquery()
        counted = select(chosen).where(or_(chosen.c.same_model, ~of_model)).cte("counted")
        steps = (
            select(
                SQLBuildStep.name,
                func.percentile_cont(0.5).within_group(SQLBuildStep.seconds).label("median"),
                func.count().label("count"),
            )
            .join(
                counted,
                and_(counted.c.id == SQLBuildStep.build_id, counted.c.attempt == SQLBuildStep.attempt),
            )
            .where(SQLBuildStep.state == "done", SQLBuildStep.seconds.between(0, _MOST_SECONDS))
            .group_by(SQLBuildStep.name)
            .subquery()
        )
        whole = select(
            func.clock_timestamp().label("now"),
            of_model.label("same_model"),
            select(func.count()).select_from(counted).scalar_subquery().label("builds"),
        ).subquery()
        rows = self._session.execute(select(whole, steps).outerjoin(steps, literal(True))).all()
        first = rows[0]
        found = [row for row in rows if row.name is not None]
        return StepDurations(
            now=stamp(first.now),
            medians={row.name: row.median for row in found},
            counts={row.name: row[-1] for row in found},
            builds=first.builds,
            same_model=first.same_model,
        )


def _of_model(view: BuildView) -> Select[str, int, bool]:
    """Select the last builds of the same model for the same target, through its versions: each has one."""
    versions = (
        select(SQLVersion.id)
        .join(SQLModel, SQLModel.id == SQLVersion.model_id)
        .where(SQLModel.name == view.model, SQLVersion.number <= view.number)
        .order_by(SQLVersion.number.desc())
        .limit(_MOST_VERSIONS)
        .subquery()
    )
    return (
        select(SQLBuild.id, SQLBuild.attempt, literal(True).label("same_model"))
        .join(versions, versions.c.id == SQLBuild.version_id)
        .where(SQLBuild.target == view.target, SQLBuild.kind == view.kind, SQLBuild.id != view.id)
        .where(SQLBuild.state == BuildState.SUCCEEDED)
        .order_by(SQLBuild.created_at.desc(), SQLBuild.id)
        .limit(_MOST_BUILDS)
    )


def _of_target(view: BuildView) -> Select[str, int, bool]:
    """Select the last builds of any model for the same target."""
    newest = (
        select(SQLBuild.id, SQLBuild.attempt, SQLBuild.version_id, SQLBuild.kind, SQLBuild.created_at)
        .where(SQLBuild.target == view.target, SQLBuild.state == BuildState.SUCCEEDED)
        .where(SQLBuild.created_at <= moment(view.created_at), SQLBuild.id != view.id)
        .order_by(SQLBuild.created_at.desc(), SQLBuild.id.desc())
        .limit(_MOST_OF_TARGET)
        .subquery()
    )
    statement = (
        select(newest.c.id, newest.c.attempt, literal(False).label("same_model"))
        .where(newest.c.kind == view.kind)
        .order_by(newest.c.created_at.desc())
        .limit(_MOST_BUILDS)
    )
    if limits := only_readable(SQLModel.name):
        statement = (
            statement.join(SQLVersion, SQLVersion.id == newest.c.version_id)
            .join(SQLModel, SQLModel.id == SQLVersion.model_id)
            .where(*limits)
        )
    return statement
