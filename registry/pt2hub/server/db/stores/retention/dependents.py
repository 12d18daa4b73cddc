"""What depends on versions and builds, what needs them, and the removal of their rows.

`Doomed` names what is to be deleted. Its rows are locked in the order models, aliases, builds, versions, as publishes and
alias moves lock them; rows of blobs come last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import JSONB

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy.orm import Session

_LOCK_MODEL = text("SELECT id FROM models WHERE name = :name FOR UPDATE")
_LOCK_ALIASES = text("SELECT id FROM aliases WHERE model_id = :model ORDER BY id FOR UPDATE")
_LOCK_BUILDS = text("SELECT id FROM builds WHERE version_id = ANY(:versions) ORDER BY id FOR UPDATE")
_LOCK_VERSIONS = text("SELECT id FROM versions WHERE id = ANY(:versions) ORDER BY id FOR UPDATE")
_VERSIONS = text("""
    SELECT versions.id, versions.number FROM versions JOIN models ON models.id = versions.model_id
    WHERE models.name = :model AND (CAST(:number AS integer) IS NULL OR versions.number = :number)
    ORDER BY versions.number""")
_BUILDS = text("""
    SELECT builds.id, builds.version_id, builds.target, builds.kind, builds.state, artifacts.digest
    FROM builds LEFT JOIN artifacts ON artifacts.build_id = builds.id
    WHERE builds.version_id = ANY(:versions) ORDER BY builds.version_id, builds.position, builds.id""")
_BUILD = text("""
    SELECT models.name, versions.id, versions.number FROM builds
    JOIN versions ON versions.id = builds.version_id JOIN models ON models.id = versions.model_id
    WHERE builds.id = :build""")
_LOGS = text("SELECT build_id, attempt FROM build_attempts WHERE build_id = ANY(:builds)")
_MEASUREMENTS = text("SELECT count(*) FROM measurements WHERE artifact = ANY(:artifacts)")
# Who needs a version: aliases on it, builds that run.
_ALIASES = text("""
    SELECT aliases.version_id, aliases.name FROM aliases WHERE aliases.version_id = ANY(:versions)
    ORDER BY aliases.name""")
# The artifacts that an alias's version was compared with are the evidence of its promotion.
_BASELINES = text("""
    SELECT DISTINCT pairs.baseline, models.name, versions.number FROM measurement_pairs AS pairs
    JOIN artifacts ON artifacts.digest = pairs.artifact JOIN builds ON builds.id = artifacts.build_id
    JOIN versions ON versions.id = builds.version_id JOIN models ON models.id = versions.model_id
    WHERE pairs.baseline = ANY(:artifacts) AND NOT versions.id = ANY(:versions)
    AND EXISTS (SELECT FROM aliases WHERE aliases.version_id = versions.id)
    ORDER BY models.name, versions.number""")
_MEASURED = text("""
    SELECT builds.request ->> 'baseline', builds.id FROM builds
    WHERE builds.state IN ('queued', 'running') AND builds.kind = 'measure'
    AND builds.request ->> 'baseline' = ANY(:artifacts) AND NOT builds.version_id = ANY(:versions)""")
_TOUCH = text("""
    WITH held AS MATERIALIZED (
        SELECT blobs.kind, blobs.digest FROM blobs
        WHERE (blobs.kind, blobs.digest) IN (
            SELECT kind, digest FROM blob_references WHERE owner = ANY(:owners))
        ORDER BY blobs.kind, blobs.digest FOR UPDATE)
    UPDATE blobs SET changed_at = now() FROM held
    WHERE (blobs.kind, blobs.digest) = (held.kind, held.digest) AND blobs.state IN ('pending', 'stored')""")
_UNREFER = text("DELETE FROM blob_references WHERE owner = ANY(:owners)")
_LEAVE = text("UPDATE aliases SET version_id = NULL WHERE version_id = ANY(:versions) RETURNING name")
_FORGET_MARK = text("DELETE FROM journal_outbox WHERE kind = 'alias' AND key = :key").bindparams(
    bindparam("key", type_=JSONB)
)
_FORGET_SERIES = text("""
    UPDATE series SET newest_at = points.newest, changed_at = clock_timestamp()
    FROM (
        SELECT touched.id, max(series_points.measured_at) AS newest FROM series AS touched
        LEFT JOIN series_points ON series_points.series_id = touched.id
        WHERE touched.id = ANY(:series) GROUP BY touched.id
    ) AS points WHERE series.id = points.id""")
_SERIES_OF = text("SELECT DISTINCT series_id FROM measurements WHERE artifact = ANY(:artifacts)")
# In this order: what refers to a row goes before it. Rows below artifacts and builds go with them. What the journal keeps
# goes before its version or model, whose name the journal's triggers look up.
_ROWS_OF_VERSIONS = tuple(
    map(
        text,
        (
            """DELETE FROM performance_events USING versions
            WHERE versions.id = ANY(:versions) AND performance_events.model_id = versions.model_id
            AND performance_events.number = versions.number""",
            "DELETE FROM artifacts WHERE digest = ANY(:artifacts)",
            "DELETE FROM builds WHERE id = ANY(:builds)",
            "DELETE FROM version_yanks WHERE version_id = ANY(:versions)",
            "DELETE FROM labels WHERE version_id = ANY(:versions)",
            "DELETE FROM derivations WHERE version_id = ANY(:versions)",
            "DELETE FROM evaluations WHERE version_id = ANY(:versions)",
            "DELETE FROM versions WHERE id = ANY(:versions)",
        ),
    )
)
_ROWS_OF_BUILD = tuple(
    map(
        text,
        (
            """DELETE FROM performance_events USING series_points, series
            WHERE series_points.artifact = ANY(:artifacts) AND series.id = series_points.series_id
            AND performance_events.series_id = series.id
            AND performance_events.number = series_points.number""",
            "DELETE FROM artifacts WHERE digest = ANY(:artifacts)",
            "DELETE FROM builds WHERE id = ANY(:builds)",
        ),
    )
)
_ROWS_OF_MODEL = tuple(
    map(
        text,
        (
            "DELETE FROM performance_events WHERE model_id = :model",
            "DELETE FROM series WHERE model_id = :model",
            "DELETE FROM policies WHERE model_id = :model",
            "DELETE FROM alias_moves USING aliases WHERE aliases.id = alias_id AND aliases.model_id = :model",
            "DELETE FROM aliases WHERE model_id = :model",
            "DELETE FROM labels WHERE model_id = :model",
            "DELETE FROM retention_policies USING models WHERE models.id = :model AND scope = models.name",
            "DELETE FROM models WHERE id = :model",
        ),
    )
)


@dataclass(frozen=True, slots=True)
class DoomedBuild:
    """A build that is to be deleted.

    Attributes:
        artifact: Digest of its artifact, or None.
    """

    id: str
    version: int
    target: str
    kind: str
    state: str
    artifact: str | None


@dataclass(frozen=True, slots=True)
class Doomed:
    """What is to be deleted.

    Attributes:
        versions: Numbers of versions by id; for a single build that of its version, which stays.
        builds: Their builds and measuring jobs.
        logs: Build and attempt of each log.
        whole: Whether the versions go, and not only builds of theirs.
    """

    model: str
    model_id: int
    versions: dict[int, int]
    builds: tuple[DoomedBuild, ...]
    logs: tuple[tuple[str, int], ...]
    whole: bool = True

    @property
    def artifacts(self) -> list[str]:
        """The digests of their artifacts."""
        return [build.artifact for build in self.builds if build.artifact]

    @property
    def owners(self) -> list[str]:
        """The owners of their references to blobs."""
        kinds = ("version", "documentation") if self.whole else ()
        own = [f"{kind}:{version}" for kind in kinds for version in self.versions]
        artifacts = [f"artifact:{artifact}" for artifact in self.artifacts]
        return [*own, *artifacts, *(f"log:{build}:{attempt}" for build, attempt in self.logs)]


@dataclass(frozen=True, slots=True)
class Needs:
    """What needs versions, by the version's id, and artifacts, by their digest.

    Attributes:
        aliases: Aliases on a version.
        rollbacks: Aliases that would roll back to it.
        baselines: Versions with an alias that were compared with an artifact.
        measured: Unfinished measuring jobs that compare others with an artifact.
    """

    aliases: dict[int, list[str]]
    rollbacks: dict[int, list[str]]
    baselines: dict[str, list[str]]
    measured: dict[str, list[str]]


class DependentStore:
    """Rows that go with versions and builds."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def lock_model(self, name: str) -> int | None:
        """Lock a model and its aliases until the transaction ends; None where it does not exist."""
        model: int | None = self._session.scalar(_LOCK_MODEL, {"name": name})
        if model is not None:
            self._session.execute(_LOCK_ALIASES, {"model": model})
        return model

    def find(self, model: str, model_id: int, number: int | None = None, *, lock: bool = False) -> Doomed:
        """Return a version of a model with all that goes with it, or all versions.

        Args:
            lock: Lock the rows until the transaction ends.
        """
        rows = self._session.execute(_VERSIONS, {"model": model, "number": number})
        versions: dict[int, int] = {row.id: row.number for row in rows}
        if lock:
            given = {"versions": list(versions)}
            self._session.execute(_LOCK_BUILDS, given)
            locked = set(self._session.scalars(_LOCK_VERSIONS, given))
            versions = {version: each for version, each in versions.items() if version in locked}
        return self._doomed(model, model_id, versions, whole=True)

    def find_build(self, build_id: str, *, lock: bool = False) -> Doomed | None:
        """Return a build with what goes with it; None where it does not exist."""
        row = self._session.execute(_BUILD, {"build": build_id}).first()
        model_id = self.lock_model(row[0]) if row else None
        if row is None or model_id is None:
            return None
        if lock:
            self._session.execute(_LOCK_BUILDS, {"versions": [row[1]]})
        found = self._doomed(row[0], model_id, {row[1]: row[2]}, whole=False, only=build_id)
        return found if found.builds else None

    def siblings(self, version: int) -> int:
        """Return the number of a version's builds, without measuring jobs."""
        builds = self._session.execute(_BUILDS, {"versions": [version]})
        return sum(row.kind == "build" for row in builds)

    def needs(self, doomed: Doomed, rollbacks: Mapping[str, int]) -> Needs:
        """Return what needs versions and artifacts besides themselves.

        Args:
            rollbacks: Numbers of the versions that a rollback leads to, by alias.
        """
        given = {"versions": list(doomed.versions), "artifacts": doomed.artifacts}
        return Needs(
            self._grouped(_ALIASES, given),
            {
                version: aliases
                for version, number in doomed.versions.items()
                if (aliases := sorted(alias for alias, back in rollbacks.items() if back == number))
            },
            self._grouped(_BASELINES, given),
            self._grouped(_MEASURED, given),
        )

    def measurements(self, doomed: Doomed) -> int:
        """Return the number of measurements that go."""
        return int(self._session.execute(_MEASUREMENTS, {"artifacts": doomed.artifacts}).scalar_one())

    def unlink(self, owners: Sequence[str]) -> None:
        """Remove all references of owners; the grace of what nothing else needs begins now."""
        self._session.execute(_TOUCH, {"owners": list(owners)})
        self._session.execute(_UNREFER, {"owners": list(owners)})

    def remove(self, doomed: Doomed) -> None:
        """Remove the rows, with measurements, points of series, logs and yanks; moves of aliases stay."""
        given = {
            "versions": list(doomed.versions),
            "artifacts": doomed.artifacts,
            "builds": [build.id for build in doomed.builds],
        }
        series = list(self._session.scalars(_SERIES_OF, {"artifacts": doomed.artifacts}))
        for statement in _ROWS_OF_VERSIONS if doomed.whole else _ROWS_OF_BUILD:
            self._session.execute(statement, given)
        self._session.execute(_FORGET_SERIES, {"series": series})

    def leave(self, doomed: Doomed) -> None:
        """Take aliases off versions that were deleted in a later database, without a move of their own.

        The moves that came later are in the journal, which follows the last one that an alias has. So the journal is
        not to hear of this either.
        """
        for alias in self._session.scalars(_LEAVE, {"versions": list(doomed.versions)}).all():
            self._session.execute(_FORGET_MARK, {"key": [doomed.model, alias]})

    def remove_model(self, model_id: int) -> None:
        """Remove a model without versions, with its aliases, their history, its policies, labels and empty series."""
        for statement in _ROWS_OF_MODEL:
            self._session.execute(statement, {"model": model_id})

    def _doomed(
        self, model: str, model_id: int, versions: dict[int, int], *, whole: bool, only: str | None = None
    ) -> Doomed:
        rows = self._session.execute(_BUILDS, {"versions": list(versions)})
        builds = tuple(DoomedBuild(*row) for row in rows if only in {None, row.id})
        logs = self._session.execute(_LOGS, {"builds": [build.id for build in builds]})
        return Doomed(model, model_id, versions, builds, tuple((row[0], row[1]) for row in logs), whole)

    def _grouped(self, statement: Any, given: dict[str, Any]) -> dict[Any, list[str]]:
        found: dict[Any, list[str]] = {}
        for key, *names in self._session.execute(statement, given):
            found.setdefault(key, []).append("@".join(map(str, names)))
        return found
