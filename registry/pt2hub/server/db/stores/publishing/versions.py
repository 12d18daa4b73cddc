"""Models and their versions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import func, select, text, update
from sqlalchemy.dialects.postgresql import insert

from pt2hub.domain.codec import encode
from pt2hub.domain.digests import Digest
from pt2hub.domain.principals import Principal, read_principal
from pt2hub.errors import Conflict
from pt2hub.server.db.reading import readable
from pt2hub.server.db.schema import Model as SQLModel
from pt2hub.server.db.schema import Version as SQLVersion
from pt2hub.server.db.snapshots import recall
from pt2hub.server.db.stores.values import stamp, yank_of
from pt2hub.wire.resolution import Yank

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Table
    from sqlalchemy.orm import Session

    from pt2hub.domain.artifacts import VersionIdentity

_MAX_COMPARED_NAMES = 300
"""Names that are compared letter by letter when a model is not found, which takes some milliseconds."""
# Similar names differ in length by at most half, and most often begin or end with the same letters.
_ALIKE = text("""
    SELECT name FROM (
        SELECT id, name, split_part(name, '/', 1) AS team, split_part(name, '/', 2) AS model FROM models
    ) AS given
    WHERE name ~ :readable
        AND 3 * length(model) >= 2 * length(:model) AND 2 * length(model) <= 3 * length(:model)
    ORDER BY 4 * CAST(model = :model AS integer) + 2 * CAST(team = :team AS integer)
        + CAST(left(model, 3) = left(:model, 3) AS integer) + CAST(right(name, 3) = right(:model, 3) AS integer)
        + CAST(left(name, 3) = left(:team, 3) AS integer) + CAST(right(team, 3) = right(:team, 3) AS integer)
        DESC, id
    LIMIT :most
""")


# Numbers of deleted versions are not used again, not even by another model of that name.
_LAST_NUMBER = text("""
    SELECT greatest(
        (SELECT coalesce(max(number), 0) FROM versions WHERE model_id = :model),
        (SELECT coalesce(max(tombstones.number), 0) FROM tombstones
            JOIN models ON models.name = tombstones.model WHERE models.id = :model))
""")


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """A version's row.

    Attributes:
        settings: `limits`, `measure` and `compile.debug` of the latest submission.
        weights: Digest of the weights blob, None until recorded.
        golden: Digest of the golden blob, None until recorded.
        created_at: ISO 8601, UTC.
        published_by: Who published it; None if that was before it was recorded.
        yanked: Its yank, None if it is not yanked.
    """

    id: int
    model: str
    number: int
    identity: Digest
    spec: dict[str, Any]
    settings: dict[str, Any]
    pins: dict[str, Any]
    weights: Digest | None
    golden: Digest | None
    created_at: str
    published_by: Principal | None = None
    yanked: Yank | None = None


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A version to add."""

    identity: Digest
    spec: dict[str, Any]
    settings: dict[str, Any]
    pins: dict[str, Any]
    weights: str | None
    published_by: Principal


@dataclass(frozen=True, slots=True)
class VersionNumbers:
    """Range of a model's version numbers.

    Attributes:
        below: The highest number below a missing one, None where there is none.
        above: The lowest number above it, None where there is none.
    """

    oldest: int
    newest: int
    below: int | None
    above: int | None


_VERSIONS = cast("Table", SQLVersion.__table__)


class VersionStore:
    """Models and versions."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def lock_model(self, name: str) -> int:
        """Create a model if missing and lock it, so that its versions are numbered one at a time.

        Returns:
            The model's id.
        """
        self._session.execute(insert(SQLModel).values(name=name).on_conflict_do_nothing())
        return self._session.execute(
            select(SQLModel.id).where(SQLModel.name == name).with_for_update()
        ).scalar_one()

    def model_id(self, name: str) -> int | None:
        """Return the id of the model with this name, or None."""
        statement = select(SQLModel.id).where(SQLModel.name == name)
        return recall(self._session, ("model", name), lambda: self._session.scalar(statement))

    def alike(self, name: str) -> list[str]:
        """Return candidates for suggestions for a misspelled model name that may be read, a bounded number."""
        team, _, model = name.partition("/")
        given = {"team": team, "model": model, "most": _MAX_COMPARED_NAMES}
        return list(self._session.scalars(_ALIKE, given | {"readable": readable().expression}))

    def by_identity(self, model_id: int, identity: Digest) -> StoredVersion | None:
        """Return the version of a model with this content."""
        return self._one(SQLVersion.model_id == model_id, SQLVersion.identity == identity)

    def by_number(self, model: str, number: int) -> StoredVersion | None:
        """Return the version of a model with this number."""
        mine = (SQLModel.name == model, SQLVersion.number == number)
        return recall(self._session, ("version", model, number), lambda: self._one(*mine))

    def neighbours(self, model_id: int, number: int) -> tuple[int | None, int | None]:
        """Return the numbers of the versions before and after a number; numbers of deleted ones are not used again."""
        mine = SQLVersion.model_id == model_id
        before = select(func.max(SQLVersion.number)).where(mine, SQLVersion.number < number).scalar_subquery()
        after = select(func.min(SQLVersion.number)).where(mine, SQLVersion.number > number).scalar_subquery()
        earlier, later = self._session.execute(select(before, after)).one()
        return earlier, later

    def newest(self, model: str) -> StoredVersion | None:
        """Return the newest version of a model, in any state of its builds."""
        return self._one(SQLModel.name == model)

    def page(self, after: int, limit: int) -> list[StoredVersion]:
        """Return the versions of all models by id.

        Args:
            after: Id of the last one of the previous page, 0 to begin.
        """
        statement = select(SQLVersion, SQLModel.name).join(SQLModel).where(SQLVersion.id > after)
        rows = self._session.execute(statement.order_by(SQLVersion.id).limit(limit))
        return [_version(*row) for row in rows]

    def numbers(self, model: str, *, around: int = 0) -> VersionNumbers | None:
        """Return the range of a model's version numbers; None where it has no versions."""
        number = SQLVersion.number
        statement = (
            select(
                func.min(number),
                func.max(number),
                func.max(number).filter(number < around),
                func.min(number).filter(number > around),
            )
            .join(SQLModel)
            .where(SQLModel.name == model)
        )
        oldest, newest, below, above = self._session.execute(statement).one()
        return VersionNumbers(oldest, newest, below, above) if newest else None

    def add(self, model_id: int, new: NewVersion) -> StoredVersion:
        """Add a version under the next number; the model must be locked.

        Returns:
            The new version.
        """
        row = SQLVersion(
            model_id=model_id,
            number=self._session.execute(_LAST_NUMBER, {"model": model_id}).scalar_one() + 1,
            identity=new.identity,
            spec=new.spec,
            settings=new.settings,
            pins=new.pins,
            weights=new.weights,
            published_by=encode(new.published_by),
        )
        self._session.add(row)
        self._session.flush()  # the database numbers and dates the row
        return self._existing(SQLVersion.id == row.id)

    def restore(self, version: VersionIdentity, *, by: Principal | None = None) -> StoredVersion:
        """Add a version from an artifact's config, unless it exists.

        Args:
            by: Who published it, by the artifact's provenance.

        Returns:
            The version.

        Raises:
            Conflict: Its number belongs to other content.
        """
        model_id = self.lock_model(version.model)
        row = {
            "model_id": model_id,
            "number": version.number,
            "identity": version.identity,
            "spec": version.spec,
            "pins": version.pins,
            "weights": version.weights,
            "golden": version.golden,
            "published_by": encode(by),
        }
        self._session.execute(insert(SQLVersion).values(row).on_conflict_do_nothing())
        found = self.by_identity(model_id, version.identity)
        if found is None:
            raise Conflict(
                f"{version.model}@{version.number} has other content in this database",
                where=f"{version.model}@{version.number}",
                hint="Run pt2hub admin reindex before anything is published to an empty database.",
            )
        return found

    def set_settings(self, version_id: int, settings: dict[str, Any]) -> None:
        """Replace a version's settings, for attempts that begin from then on."""
        statement = update(_VERSIONS).where(_VERSIONS.c.id == version_id)
        self._session.execute(statement.values(settings=settings))

    def record_weights(self, version_id: int, digest: Digest) -> Digest:
        """Set the weights blob if none is set.

        Returns:
            The current blob.
        """
        return self._record_digest("weights", version_id, digest)

    def record_golden(self, version_id: int, digest: Digest) -> Digest:
        """Set the golden blob if none is set.

        Returns:
            The current blob.
        """
        return self._record_digest("golden", version_id, digest)

    def _record_digest(self, column: str, version_id: int, digest: Digest) -> Digest:
        statement = update(_VERSIONS).where(_VERSIONS.c.id == version_id)
        value = {column: func.coalesce(_VERSIONS.c[column], digest)}
        return Digest(
            self._session.execute(statement.values(value).returning(_VERSIONS.c[column])).scalar_one()
        )

    def _existing(self, *conditions: ColumnElement[bool]) -> StoredVersion:
        version = self._one(*conditions)
        assert version is not None, "the row was written in this transaction"
        return version

    def _one(self, *conditions: ColumnElement[bool]) -> StoredVersion | None:
        row = self._session.execute(
            select(SQLVersion, SQLModel.name)
            .join(SQLModel)
            .where(*conditions)
            .order_by(SQLVersion.number.desc())
            .limit(1)
            .execution_options(populate_existing=True)  # compare-and-set goes around the identity map
        ).first()
        return _version(*row) if row else None


def _version(row: SQLVersion, model: str) -> StoredVersion:
    return StoredVersion(
        id=row.id,
        model=model,
        number=row.number,
        identity=Digest(row.identity),
        spec=row.spec,
        settings=row.settings,
        pins=row.pins,
        weights=Digest(row.weights) if row.weights else None,
        golden=Digest(row.golden) if row.golden else None,
        created_at=stamp(row.created_at),
        published_by=read_principal(row.published_by),
        yanked=yank_of(row.yanked),
    )
