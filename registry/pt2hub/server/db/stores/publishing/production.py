"""SQL of the versions in production and of the regressions that they still have.

Both are common table expressions of several statements. Events are read newest first up to a maximum, so that no
statement depends on how long a server has been running.
"""

from __future__ import annotations

from pt2hub.domain.names import PRODUCTION_PREFIXES

MAX_EVENTS = 10_000
"""Newest flagged regressions that are read."""

IS_PRODUCTION = f"aliases.name ~* '^({'|'.join(PRODUCTION_PREFIXES)})'"
# Of several production aliases, the one with the shortest name.
_PRODUCTION = f"""
    production AS MATERIALIZED (
        SELECT DISTINCT ON (aliases.model_id) aliases.model_id, aliases.id AS alias_id, aliases.name AS alias,
            aliases.moves, versions.id AS version_id, versions.number
        FROM aliases JOIN versions ON versions.id = aliases.version_id
        WHERE {IS_PRODUCTION} {{of_models}}
        ORDER BY aliases.model_id, length(aliases.name), aliases.name
    )
"""  # noqa: S608  # of constants
# The same for each of the models of a statement, which reads only as many as it needs.
PRODUCTION_OF_MODEL = f"""
    SELECT aliases.id AS alias_id, aliases.name AS alias, aliases.moves, versions.id AS version_id, versions.number
    FROM aliases JOIN versions ON versions.id = aliases.version_id
    WHERE aliases.model_id = models.id AND {IS_PRODUCTION} ORDER BY length(aliases.name), aliases.name LIMIT 1
"""  # noqa: S608  # of constants
# A regression counts until a later version, up to the one in production, is flagged as better in the same series. One of
# a series without the version in production does not: the target or its machines were given up.
_FLAGGED = f"""
    flagged AS MATERIALIZED (
        SELECT series_id, model_id, number, before, kind, ratio, at FROM performance_events
        WHERE outcome = 'worse' {{of_models}} ORDER BY at DESC, id DESC LIMIT {MAX_EVENTS}
    )
"""  # noqa: S608  # of constants
_IN_FORCE = """
    in_force AS MATERIALIZED (
        SELECT DISTINCT ON (flagged.series_id) flagged.*, series.metric, series.unit, series.target, series.batch,
            production.number AS production, greatest(flagged.ratio, 1 / flagged.ratio) AS factor
        FROM flagged JOIN series ON series.id = flagged.series_id
        LEFT JOIN production ON production.model_id = flagged.model_id
        WHERE series.implementation = 'artifact' AND flagged.ratio > 0 AND (
            production.number IS NULL OR flagged.number <= production.number AND EXISTS (
                SELECT FROM series_points AS point
                WHERE point.series_id = flagged.series_id AND point.number = production.number
            )
        ) AND NOT EXISTS (
            SELECT FROM performance_events AS later
            WHERE later.series_id = flagged.series_id AND later.outcome = 'better'
                AND later.number > flagged.number
                AND (production.number IS NULL OR later.number <= production.number)
        )
        ORDER BY flagged.series_id, flagged.number DESC, flagged.kind
    )
"""
_OF_FLAGGED = _PRODUCTION.format(of_models="AND aliases.model_id IN (SELECT model_id FROM flagged)")
# Each begins a WITH. The second one has every version in production, the others those of models with flagged regressions.
IN_FORCE = ",".join((_FLAGGED.format(of_models=""), _OF_FLAGGED, _IN_FORCE))
IN_FORCE_AND_PRODUCTION = ",".join(
    (_FLAGGED.format(of_models=""), _PRODUCTION.format(of_models=""), _IN_FORCE)
)
IN_FORCE_OF_MODELS = ",".join(
    (_FLAGGED.format(of_models="AND model_id = ANY(CAST(:models AS bigint[]))"), _OF_FLAGGED, _IN_FORCE)
)
# Latencies first: they are what production is about. `others` is the number of further series.
WORST = """
    SELECT DISTINCT ON (in_force.model_id) in_force.*,
        count(*) OVER (PARTITION BY in_force.model_id) - 1 AS others
    FROM in_force ORDER BY in_force.model_id, in_force.metric <> 'latency_p50', in_force.factor DESC, in_force.series_id
"""
