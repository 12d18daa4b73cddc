"""Models in the order of the front page, one statement for each page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import text

from pt2hub.domain.builds import BuildState
from pt2hub.server.db.reading import readable
from pt2hub.server.db.stores.publishing.production import (
    IN_FORCE_AND_PRODUCTION,
    IN_FORCE_OF_MODELS,
    PRODUCTION_OF_MODEL,
    WORST,
)
from pt2hub.server.db.stores.values import optional_stamp, stamp
from pt2hub.server.views.overview import FilterChoices, LastBuild, Production, Regression

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from sqlalchemy.orm import Session

    from pt2hub.domain.version_filters import LabelFilter
    from pt2hub.server.views.overview import ModelFilter, Order

_MAX_CHOICES = 200
"""Teams, or targets, to choose from."""
# Models with their newest version and their version in production; parameters that are NULL do not filter.
_CANDIDATES = """
    SELECT models.id, models.name, newest.id AS newest_id, newest.number AS newest,
        production.alias, production.number, production.alias_id, production.moves, newest.created_at
    FROM models
    {production}
    LEFT JOIN LATERAL (
        SELECT id, number, created_at FROM versions WHERE model_id = models.id ORDER BY number DESC LIMIT 1
    ) AS newest ON true
    WHERE (CAST(:readable AS text) IS NULL OR models.name ~ :readable)
        AND (CAST(:search AS text) IS NULL OR strpos(models.name, :search) > 0)
        AND (CAST(:team AS text) IS NULL OR starts_with(models.name, :team))
        AND (:alias <> 'prod' OR production.number IS NOT NULL)
        AND (:alias NOT IN ('any', 'none') OR (:alias = 'any') = EXISTS (
            SELECT FROM aliases WHERE aliases.model_id = models.id AND aliases.version_id IS NOT NULL
        ))
        AND (CAST(:target AS text) IS NULL OR EXISTS (
            SELECT FROM builds WHERE builds.version_id IN (production.version_id, newest.id)
                AND builds.target = :target AND builds.kind = 'build'
        ))
        AND (CAST(:key AS text) IS NULL OR EXISTS (
            SELECT FROM labels WHERE labels.model_id = models.id AND labels.version_id IS NULL
                AND labels.key = :key AND (CAST(:value AS text) IS NULL OR labels.value = :value)
        ) OR EXISTS (
            SELECT FROM labels WHERE labels.version_id IN (production.version_id, newest.id)
                AND labels.key = :key AND (CAST(:value AS text) IS NULL OR labels.value = :value)
        ))
"""
# PostgreSQL reads names in order, and only as many as it needs.
_BY_NAME = text(f"""
    WITH page AS MATERIALIZED (
        {_CANDIDATES.format(production=f"LEFT JOIN LATERAL ({PRODUCTION_OF_MODEL}) AS production ON true")} AND models.name > :after ORDER BY models.name LIMIT :most
    )
    SELECT page.*, moved.at, moved.by FROM page
    LEFT JOIN alias_moves AS moved ON (moved.alias_id, moved.sequence) = (page.alias_id, page.moves)
    ORDER BY page.name
""")  # noqa: S608  # of constants
_RANKED = """
    WITH {in_force}, worst AS (
        SELECT model_id, bool_or(production IS NOT NULL) AS live,
            max(CASE WHEN metric = 'latency_p50' THEN factor ELSE 0 END) AS factor, count(*) AS series
        FROM in_force GROUP BY model_id
    ), candidates AS MATERIALIZED ({candidates}), ranked AS MATERIALIZED (
        SELECT candidates.*, moved.at, moved.by, row_number() OVER (ORDER BY {order}) AS place
        FROM candidates
        LEFT JOIN alias_moves AS moved
            ON (moved.alias_id, moved.sequence) = (candidates.alias_id, candidates.moves)
        LEFT JOIN worst ON worst.model_id = candidates.id
    )
    SELECT * FROM ranked
    WHERE :after = '' OR place > (SELECT place FROM ranked WHERE name = :after)
    ORDER BY place LIMIT :most
"""
_RECENT = "greatest(candidates.created_at, moved.at) DESC NULLS LAST, candidates.name"
_WORSE = "worst.live DESC NULLS LAST, worst.factor DESC NULLS LAST, worst.series DESC NULLS LAST"
_JOINED = _CANDIDATES.format(production="LEFT JOIN production ON production.model_id = models.id")
_STATEMENTS = {
    "name": _BY_NAME,
    **{
        name: text(_RANKED.format(in_force=IN_FORCE_AND_PRODUCTION, candidates=_JOINED, order=order))
        for name, order in (("recent", _RECENT), ("change", f"{_WORSE}, {_RECENT}"))
    },
}
_REGRESSIONS = text(f"""
    WITH {IN_FORCE_OF_MODELS}, worst AS ({WORST})
    SELECT worst.*, models.name FROM worst JOIN models ON models.id = worst.model_id
""")  # noqa: S608  # of constants
# The build of a newest version that says most: a failed one, else the latest that did something.
_BUILDS = text("""
    SELECT given.id, build.id AS build, build.target, build.state, build.at
    FROM unnest(CAST(:versions AS bigint[])) AS given (id)
    CROSS JOIN LATERAL (
        SELECT builds.id, target, state, coalesce(finished_at, started_at, queued_at) AS at FROM builds
        WHERE version_id = given.id AND kind = 'build'
        ORDER BY state = 'failed' DESC, state = 'running' DESC, state = 'queued' DESC, at DESC, builds.id LIMIT 1
    ) AS build
""")
_TEAMS = text("""
    SELECT DISTINCT split_part(name, '/', 1) AS team FROM models
    WHERE CAST(:readable AS text) IS NULL OR name ~ :readable ORDER BY team LIMIT :most
""")
_TARGETS = text("SELECT name FROM targets ORDER BY name LIMIT :most")


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model of the list.

    Attributes:
        newest_id: Id of its newest version; None without versions, as for its number.
    """

    id: int
    name: str
    newest_id: int | None
    newest: int | None
    production: Production | None


class ModelListStore:
    """Models in the order of the front page."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def page(
        self, wanted: ModelFilter, label: LabelFilter | None, order: Order, *, after: str, limit: int
    ) -> list[ListedModel]:
        """Return the models that may be read and match a filter, in an order.

        Args:
            label: The filter's label.
            after: Name of the previous page's last model; empty for the first page.
        """
        given = {
            "readable": _expression(),
            "search": wanted.search or None,
            "team": f"{wanted.team}/" if wanted.team else None,
            "alias": wanted.alias,
            "target": wanted.target or None,
            "key": label.key if label else None,
            "value": label.value if label else None,
            "after": after,
            "most": limit,
        }
        return [
            ListedModel(row.id, row.name, row.newest_id, row.newest, _production(row))
            for row in self._session.execute(_STATEMENTS[order], given)
        ]

    def regressions(self, models: Sequence[int]) -> dict[str, Regression]:
        """Return the worst regression that each model still has, by the model's name."""
        rows = self._session.execute(_REGRESSIONS, {"models": list(models)})
        return {row.name: regression(row) for row in rows}

    def last_builds(self, models: Iterable[ListedModel]) -> dict[str, LastBuild]:
        """Return the build of each model's newest version that says most, by the model's name."""
        named = {model.newest_id: model for model in models if model.newest_id is not None}
        rows = self._session.execute(_BUILDS, {"versions": list(named)})
        return {
            named[row.id].name: LastBuild(
                row.build, named[row.id].newest or 0, row.target, BuildState(row.state).value, stamp(row.at)
            )
            for row in rows
        }

    def choices(self) -> FilterChoices:
        """Return values to filter by."""
        teams = self._session.scalars(_TEAMS, {"readable": _expression(), "most": _MAX_CHOICES})
        targets = self._session.scalars(_TARGETS, {"most": _MAX_CHOICES})
        return FilterChoices(tuple(teams), tuple(targets))


def regression(row: Any) -> Regression:
    """Return the regression in a row of `in_force` with the model's name."""
    return Regression(
        model=row.name,
        number=row.number,
        before=row.before,
        production=row.production,
        metric=row.metric,
        unit=row.unit,
        target=row.target,
        batch=row.batch or None,
        ratio=row.ratio,
        at=stamp(row.at),
        others=row.others,
    )


def _production(row: Any) -> Production | None:
    if row.number is None:
        return None
    return Production(row.alias, row.number, optional_stamp(row.at), row.by or "")


def _expression() -> str | None:
    limit = readable()
    return None if limit.everything else limit.expression
