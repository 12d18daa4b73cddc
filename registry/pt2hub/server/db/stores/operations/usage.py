"""What teams use: versions, artifacts, stored bytes and builds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from pt2hub.domain.reading import EVERYTHING
from pt2hub.server.db.reading import readable
from pt2hub.wire.usage import TeamUsage

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

# `:team` is NULL for all teams, `:readable` a regular expression of models. A team is the part of a model's name before the slash.
_OWN = """
    own AS (
        SELECT id AS model, split_part(name, '/', 1) AS team FROM models
        WHERE (CAST(:team AS text) IS NULL OR split_part(name, '/', 1) = :team) AND name ~ :readable
    ), own_versions AS (SELECT team, versions.id FROM own JOIN versions ON versions.model_id = own.model
    ), own_builds AS (
        SELECT team, builds.id, builds.state FROM own_versions JOIN builds ON builds.version_id = own_versions.id
    ), own_artifacts AS (
        SELECT team, artifacts.digest FROM own_builds JOIN artifacts ON artifacts.build_id = own_builds.id
    ), owners AS (
        SELECT team, 'version:' || id AS owner FROM own_versions
        UNION ALL SELECT team, 'documentation:' || id FROM own_versions
        UNION ALL SELECT team, 'artifact:' || digest FROM own_artifacts
        UNION ALL SELECT team, 'log:' || build_id || ':' || attempt
            FROM own_builds JOIN build_attempts ON build_id = own_builds.id WHERE log IS NOT NULL
    ), held AS (
        SELECT DISTINCT team, kind, digest FROM owners JOIN blob_references USING (owner)
    ), stored AS (
        SELECT team, sum(size) AS bytes FROM held JOIN blobs USING (kind, digest) WHERE state = 'stored' GROUP BY team
    )"""
_TEAMS = text(f"""
    WITH {_OWN}
    SELECT teams.team, models,
        (SELECT count(*) FROM own_versions WHERE own_versions.team = teams.team) AS versions,
        (SELECT count(*) FROM own_artifacts WHERE own_artifacts.team = teams.team) AS artifacts,
        CAST(coalesce(stored.bytes, 0) AS bigint) AS stored_bytes,
        (SELECT count(*) FROM own_builds WHERE own_builds.team = teams.team AND state IN ('queued', 'running')) AS builds
    FROM (SELECT team, count(*) AS models FROM own GROUP BY team) AS teams LEFT JOIN stored USING (team)
    ORDER BY teams.team
""")  # noqa: S608  # no value of a request is in it
_BYTES = text(f"WITH {_OWN} SELECT coalesce(sum(bytes), 0) FROM stored")  # noqa: S608
_BUILDS = text("""
    SELECT count(*) FROM builds
    JOIN versions ON versions.id = builds.version_id JOIN models ON models.id = versions.model_id
    WHERE builds.state IN ('queued', 'running') AND split_part(models.name, '/', 1) = :team
""")
_LOCK = text("SELECT pg_advisory_xact_lock(84000004, hashtext(:team))")


class UsageStore:
    """Usage of teams."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def teams(self, team: str | None = None) -> tuple[TeamUsage, ...]:
        """Return the usage of all teams by name, or of one, as far as their models may be read."""
        given = {"team": team, "readable": readable().expression}
        rows = self._session.execute(_TEAMS, given).mappings()
        return tuple(TeamUsage(**row) for row in rows)

    def lock(self, team: str) -> None:
        """Let no other transaction that asks for it compare the team's usage with a limit before this one ends."""
        self._session.execute(_LOCK, {"team": team})

    def stored_bytes(self, team: str) -> int:
        """Return the size of the blobs that a team's versions, artifacts and logs refer to."""
        given = {"team": team, "readable": EVERYTHING.expression}
        return int(self._session.execute(_BYTES, given).scalar_one())

    def builds(self, team: str) -> int:
        """Return the number of a team's queued and running builds and measuring jobs."""
        return int(self._session.execute(_BUILDS, {"team": team}).scalar_one())
