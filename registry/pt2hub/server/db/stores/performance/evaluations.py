"""Evaluations of versions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, cast

from sqlalchemy import exists, func, select, tuple_
from sqlalchemy.dialects.postgresql import distinct_on, insert
from sqlalchemy.orm import aliased

from pt2hub.domain.codec import encode
from pt2hub.domain.digests import Digest
from pt2hub.domain.performance.data_sets import DataSet
from pt2hub.domain.principals import read_principal
from pt2hub.server.db.performance_schema import Evaluation as SQLEvaluation
from pt2hub.server.db.schema import Model as SQLModel
from pt2hub.server.db.schema import Version as SQLVersion
from pt2hub.server.db.stores.values import stamp
from pt2hub.wire.evaluations import EvaluationView

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from sqlalchemy import ColumnElement, Select
    from sqlalchemy.orm import Session

    from pt2hub.domain.principals import Principal

_MAX_OF_VERSION = 1000
"""Metrics and data sets whose newest evaluations are read for one version."""
_NEWEST_FIRST = (SQLEvaluation.measured_at.desc(), SQLEvaluation.id.desc())


@dataclass(frozen=True, slots=True)
class NewEvaluation:
    """An evaluation to store.

    Attributes:
        measured_at: None for now.
    """

    key: str
    version_id: int
    metric: str
    value: float
    unit: str
    data: DataSet
    count: int
    measured_at: datetime | None

    def is_same(self, row: SQLEvaluation) -> bool:
        """Return whether a stored evaluation has the same content; an undated one matches any time."""
        own = (
            self.version_id,
            self.metric,
            self.value,
            self.unit,
            self.data.name,
            self.data.digest,
            self.count,
        )
        other = (row.version_id, row.metric, row.value, row.unit, row.data_set, row.data_digest, row.count)
        return own == other and self.measured_at in (None, row.measured_at)


class EvaluationStore:
    """Evaluations of versions."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def now(self) -> datetime:
        """Return the database's time."""
        return cast("datetime", self._session.scalars(select(func.clock_timestamp())).one())

    def find_delivered(self, by: str, keys: Collection[str]) -> dict[str, SQLEvaluation]:
        """Return the evaluations that a reporter delivered under these keys before."""
        mine = (SQLEvaluation.reporter == by, SQLEvaluation.key == func.any(list(keys)))
        return {row.key: row for row in self._session.scalars(select(SQLEvaluation).where(*mine))}

    def overtaken(self, by: str, keys: Collection[str], *, limit: int) -> list[EvaluationView]:
        """Return the evaluations that a reporter delivered under these keys and followed by another result since."""
        if not keys:
            return []
        later = aliased(SQLEvaluation)
        one, other = (
            (item.version_id, item.metric, item.data_digest, item.reporter) for item in (SQLEvaluation, later)
        )
        is_later = tuple_(later.measured_at, later.id) > tuple_(SQLEvaluation.measured_at, SQLEvaluation.id)
        differs = later.value != SQLEvaluation.value
        mine = (SQLEvaluation.reporter == by, SQLEvaluation.key == func.any(list(keys)))
        found = _select().where(*mine, exists().where(tuple_(*other) == tuple_(*one), is_later, differs))
        rows = self._session.execute(found.order_by(SQLEvaluation.id).limit(limit))
        return [_view(*row) for row in rows]

    def add(self, items: Sequence[NewEvaluation], *, by: Principal, now: datetime) -> set[str]:
        """Add evaluations whose keys are new.

        Returns:
            The keys of those added: another transaction may have added some meanwhile.
        """
        rows = [
            {
                "version_id": item.version_id,
                "metric": item.metric,
                "unit": item.unit,
                "value": item.value,
                "data_set": item.data.name,
                "data_digest": item.data.digest,
                "count": item.count,
                "reporter": by.name,
                "key": item.key,
                "by": encode(by),
                "measured_at": item.measured_at or now,
            }
            # In the order of keys, so that concurrent deliveries wait for each other and never deadlock.
            for item in sorted(items, key=lambda item: item.key)
        ]
        statement = insert(SQLEvaluation).values(rows).on_conflict_do_nothing()
        return set(self._session.scalars(statement.returning(SQLEvaluation.key)))

    def of_version(self, version_id: int) -> list[EvaluationView]:
        """Return the newest evaluation of a version by each metric, on each data set, newest first."""
        return self._newest(SQLVersion.id == version_id)

    def of_number(self, model: str, number: int) -> list[EvaluationView]:
        """Return the same as `of_version`, by the name of the version's model and its number."""
        return self._newest((SQLModel.name == model) & (SQLVersion.number == number))

    def counting(
        self,
        version_id: int,
        metric: str,
        *,
        data_digest: str | None,
        counts: Callable[[Principal], bool] | None,
    ) -> dict[Digest, EvaluationView]:
        """Return the newest evaluation of a version on each data set by the reporters that count, newest first.

        None that counts is left out, however many others there are: a check would pass without it.

        Args:
            data_digest: Only on this data set; None for all.
            counts: Whether the evaluations of a reporter count; None if all do.
        """
        wanted = (SQLEvaluation.version_id == version_id) & (SQLEvaluation.metric == metric)
        if data_digest is not None:
            wanted &= SQLEvaluation.data_digest == data_digest
        if counts is not None:
            known = self._session.scalars(select(SQLEvaluation.by).where(wanted).distinct())
            wanted &= SQLEvaluation.by.in_(
                [by for by in known if (who := read_principal(by)) and counts(who)]
            )
        rows = self._session.execute(
            _select()
            .where(wanted)
            .order_by(SQLEvaluation.data_digest, *_NEWEST_FIRST)
            .ext(distinct_on(SQLEvaluation.data_digest))
        )
        views = [_view(*row) for row in rows]
        return {
            view.data_digest: view for view in sorted(views, key=lambda view: view.measured_at, reverse=True)
        }

    def _newest(self, wanted: ColumnElement[bool]) -> list[EvaluationView]:
        of_one = (SQLEvaluation.version_id, SQLEvaluation.metric, SQLEvaluation.data_digest)
        ids = (
            select(SQLEvaluation.id)
            .join(SQLVersion, SQLVersion.id == SQLEvaluation.version_id)
            .join(SQLModel, SQLModel.id == SQLVersion.model_id)
            .where(wanted)
            .order_by(*of_one, *_NEWEST_FIRST)
            .ext(distinct_on(*of_one))
        )
        newest = _select().where(SQLEvaluation.id.in_(ids)).order_by(*_NEWEST_FIRST).limit(_MAX_OF_VERSION)
        return [_view(*row) for row in self._session.execute(newest)]

    def page(
        self, model_id: int, *, metric: str | None, data_digest: str | None, before: int | None, limit: int
    ) -> list[tuple[int, EvaluationView]]:
        """Return the evaluations of a model's versions with their ids, newest report first.

        Args:
            before: Exclusive upper bound of the ids.
        """
        wanted = _select().where(SQLVersion.model_id == model_id)
        if metric is not None:
            wanted = wanted.where(SQLEvaluation.metric == metric)
        if data_digest is not None:
            wanted = wanted.where(SQLEvaluation.data_digest == data_digest)
        if before is not None:
            wanted = wanted.where(SQLEvaluation.id < before)
        rows = self._session.execute(wanted.order_by(SQLEvaluation.id.desc()).limit(limit))
        return [(row.id, _view(row, model, number)) for row, model, number in rows]

    def of_newest_versions(
        self, model: str, versions: int, *, also: int | None = None
    ) -> list[EvaluationView]:
        """Return the newest evaluation by each metric, on each data set, of a model's newest versions, oldest version first.

        Args:
            versions: How many of the newest versions count.
            also: A version that counts however old it is.
        """
        newest = (
            select(SQLVersion.id)
            .join(SQLModel, SQLModel.id == SQLVersion.model_id)
            .where(SQLModel.name == model)
            .order_by(SQLVersion.number.desc())
            .limit(versions)
        )
        one = (SQLVersion.number, SQLEvaluation.metric, SQLEvaluation.data_digest)
        rows = self._session.execute(
            _select()
            .where(SQLModel.name == model, SQLVersion.id.in_(newest) | (SQLVersion.number == also))
            .order_by(*one, *_NEWEST_FIRST)
            .ext(distinct_on(*one))
        )
        return [_view(*row) for row in rows]

    def units(self, model_id: int) -> dict[str, str]:
        """Return a unit of each metric that a model's versions were evaluated by."""
        rows = self._session.execute(
            select(SQLEvaluation.metric, func.min(SQLEvaluation.unit))
            .join(SQLVersion, SQLVersion.id == SQLEvaluation.version_id)
            .where(SQLVersion.model_id == model_id)
            .group_by(SQLEvaluation.metric)
        )
        return {metric: unit for metric, unit in rows}  # noqa: C416  # rows are not tuples to mypy


def newest_by_data(items: Sequence[EvaluationView]) -> dict[tuple[str, Digest], EvaluationView]:
    """Return the newest evaluation of each metric and data set.

    Args:
        items: Newest first.
    """
    found: dict[tuple[str, Digest], EvaluationView] = {}
    for item in items:
        found.setdefault((item.metric, item.data_digest), item)
    return found


def _select() -> Select[SQLEvaluation, str, int]:
    return (
        select(SQLEvaluation, SQLModel.name, SQLVersion.number)
        .join(SQLVersion, SQLVersion.id == SQLEvaluation.version_id)
        .join(SQLModel, SQLModel.id == SQLVersion.model_id)
    )


def _view(row: SQLEvaluation, model: str, number: int) -> EvaluationView:
    return EvaluationView(
        model,
        number,
        row.metric,
        row.value,
        row.unit,
        Digest(row.data_digest),
        row.data_set,
        row.count,
        row.reporter,
        stamp(row.measured_at),
    )
