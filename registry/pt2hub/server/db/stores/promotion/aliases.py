"""Aliases and their history."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, func, or_, select, true
from sqlalchemy.dialects.postgresql import insert

from pt2hub.domain.codec import encode
from pt2hub.domain.principals import read_principal
from pt2hub.domain.rollbacks import MAX_REPLAYED
from pt2hub.server.db.schema import Alias as SQLAlias
from pt2hub.server.db.schema import AliasMove as SQLAliasMove
from pt2hub.server.db.schema import Model as SQLModel
from pt2hub.server.db.schema import Version as SQLVersion
from pt2hub.server.db.stores.values import moment, stamp
from pt2hub.wire.responses import AliasMove

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Subquery
    from sqlalchemy.orm import Session

    from pt2hub.domain.principals import Principal

MAX_MOVES = 1000
"""Newest moves of an alias per response."""


@dataclass(frozen=True, slots=True)
class StoredAlias:
    """An alias with its last move.

    Attributes:
        number: The version it is on, None if it was removed.
        last: Its last move, None if it was not moved yet.
    """

    id: int
    name: str
    number: int | None
    last: AliasMove | None


@dataclass(frozen=True, slots=True)
class AliasStay:
    """A time without a break that an alias was on a version.

    Attributes:
        length: Until the next move, or until now.
        is_open: Whether the alias is on the version now.
    """

    began: datetime
    length: timedelta
    is_open: bool


class AliasStore:
    """Aliases."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def hold(self, model_id: int, name: str, *, create: bool) -> StoredAlias | None:
        """Lock an alias until the transaction ends.

        Args:
            create: Create it if it does not exist; of two concurrent creators, the second waits for the first.

        Returns:
            The alias, None if it never existed.
        """
        if create:
            row = {"model_id": model_id, "name": name}
            self._session.execute(insert(SQLAlias).values(row).on_conflict_do_nothing())
        mine = (SQLAlias.model_id == model_id, SQLAlias.name == name)
        self._session.execute(select(SQLAlias.id).where(*mine).with_for_update())
        # Read after the lock is acquired: rows joined to a locked row may be from before the wait.
        return self.one(model_id, name)

    def hold_all(self, model_id: int) -> None:
        """Lock every alias of a model until the transaction ends."""
        mine = select(SQLAlias.id).where(SQLAlias.model_id == model_id)
        self._session.execute(mine.order_by(SQLAlias.id).with_for_update())

    def one(self, model_id: int, name: str) -> StoredAlias | None:
        """Return an alias, removed or not."""
        found = self._aliases(model_id, name)
        return found[0] if found else None

    def of_model(self, model_id: int) -> list[StoredAlias]:
        """Return a model's aliases by name, without removed ones."""
        return [alias for alias in self._aliases(model_id) if alias.number is not None]

    def names(self, model_id: int) -> dict[str, int | None]:
        """Return the version number of every alias that a model ever had, None for removed ones."""
        return {alias.name: alias.number for alias in self._aliases(model_id)}

    def move(
        self,
        alias: StoredAlias,
        *,
        number: int | None,
        version_id: int | None,
        reason: str,
        by: Principal,
        forced: dict[str, Any] | None = None,
    ) -> None:
        """Move a locked alias to a version, or remove it, and record that in its history.

        Args:
            alias: As returned by `hold`.
            number: Number of the version, None to remove the alias.
            version_id: Id of the version, None to remove the alias.
            forced: The failed checks that an admin overrode, None if there were none.
        """
        row = self._session.get_one(SQLAlias, alias.id, populate_existing=True)
        row.version_id = version_id
        row.moves += 1
        self._session.add(
            SQLAliasMove(
                alias_id=alias.id,
                sequence=row.moves,
                before=alias.number,
                after=number,
                reason=reason,
                by=by.name,
                principal=encode(by),
                forced=forced,
            )
        )
        self._session.flush()  # the database dates the move

    def history(self, alias: StoredAlias, *, limit: int = MAX_MOVES) -> list[AliasMove]:
        """Return the newest moves of an alias, newest first."""
        rows = self._session.scalars(
            select(SQLAliasMove)
            .where(SQLAliasMove.alias_id == alias.id)
            .order_by(SQLAliasMove.sequence.desc())
            .limit(limit)
        )
        return [_move(row) for row in rows]

    def steps(self, model: str) -> dict[str, list[tuple[int | None, int | None]]]:
        """Return the versions before and after the newest moves of each of a model's aliases, oldest first, by alias.

        As many as say where a rollback leads.
        """
        moves = (
            select(SQLAliasMove.before, SQLAliasMove.after, SQLAliasMove.sequence)
            .where(SQLAliasMove.alias_id == SQLAlias.id)
            .order_by(SQLAliasMove.sequence.desc())
            .limit(MAX_REPLAYED)
            .lateral()
        )
        rows = self._session.execute(
            select(SQLAlias.name, moves.c.before, moves.c.after)
            .join(SQLModel, SQLModel.id == SQLAlias.model_id)
            .join(moves, true())
            .where(SQLModel.name == model, SQLAlias.version_id.is_not(None))
            .order_by(SQLAlias.name, moves.c.sequence)
        )
        found: dict[str, list[tuple[int | None, int | None]]] = {}
        for name, before, after in rows:
            found.setdefault(name, []).append((before, after))
        return found

    def moves_after(self, alias: StoredAlias, sequence: int, *, limit: int = MAX_MOVES) -> list[AliasMove]:
        """Return the moves of an alias after a move, oldest first."""
        rows = self._session.scalars(
            select(SQLAliasMove)
            .where(SQLAliasMove.alias_id == alias.id, SQLAliasMove.sequence > sequence)
            .order_by(SQLAliasMove.sequence)
            .limit(limit)
        )
        return [_move(row) for row in rows]

    def was_accepted(self, model_id: int, name: str, number: int, *, since: str) -> bool:
        """Return whether an alias was on a version at some time since, without being forced there past a failed check.

        Args:
            since: As in `StoredPolicy.at`.
        """
        stays, began = _stays(model_id, name), moment(since)
        found = (
            select(stays.c.at)
            .where(stays.c.after == number, stays.c.forced.is_(None))
            .where(or_(stays.c.until.is_(None), stays.c.until >= began))
            .limit(1)
        )
        return self._session.scalar(found) is not None

    def longest_stay(self, model_id: int, name: str, number: int) -> AliasStay | None:
        """Return the longest time without a break that an alias was on a version; None if it never was.

        The time until now counts as the others do, by the database's clock.
        """
        stays = _stays(model_id, name)
        length = (func.coalesce(stays.c.until, func.clock_timestamp()) - stays.c.at).label("length")
        row = self._session.execute(
            select(stays.c.at, length, stays.c.until.is_(None))
            .where(stays.c.after == number)
            .order_by(length.desc())
            .limit(1)
        ).first()
        return AliasStay(*row) if row else None

    def on_models(self, model_ids: Iterable[int]) -> dict[int, dict[str, int]]:
        """Return the version numbers of aliases by name, by the model's id."""
        rows = self._session.execute(
            select(SQLAlias.model_id, SQLAlias.name, SQLVersion.number)
            .join(SQLVersion, SQLVersion.id == SQLAlias.version_id)
            .where(SQLAlias.model_id.in_(model_ids))
            .order_by(SQLAlias.name)
        )
        found: dict[int, dict[str, int]] = {}
        for model_id, name, number in rows:
            found.setdefault(model_id, {})[name] = number
        return found

    def on_versions(self, version_ids: Iterable[int]) -> dict[int, list[str]]:
        """Return the names of the aliases on several versions, by the version's id."""
        rows = self._session.execute(
            select(SQLAlias.version_id, SQLAlias.name)
            .where(SQLAlias.version_id.in_(version_ids))
            .order_by(SQLAlias.name)
        )
        found: dict[int, list[str]] = {}
        for version_id, name in rows:
            if version_id is not None:
                found.setdefault(version_id, []).append(name)
        return found

    def _aliases(self, model_id: int, name: str | None = None) -> list[StoredAlias]:
        last = and_(SQLAliasMove.alias_id == SQLAlias.id, SQLAliasMove.sequence == SQLAlias.moves)
        statement = (
            select(SQLAlias.id, SQLAlias.name, SQLVersion.number, SQLAliasMove)
            .outerjoin(SQLVersion, SQLVersion.id == SQLAlias.version_id)
            .outerjoin(SQLAliasMove, last)
            .where(SQLAlias.model_id == model_id)
            .order_by(SQLAlias.name)
        )
        if name is not None:
            statement = statement.where(SQLAlias.name == name)
        rows = self._session.execute(statement)
        return [
            StoredAlias(id_, name, number, _move(move) if move else None) for id_, name, number, move in rows
        ]


def _stays(model_id: int, name: str) -> Subquery:
    """Select the moves of an alias, each with the time of the next one (`until`), null for the last."""
    move = SQLAliasMove
    until = func.lead(move.at).over(order_by=move.sequence).label("until")
    return (
        select(move.after, move.at, move.forced, until)
        .join(SQLAlias, SQLAlias.id == move.alias_id)
        .where(SQLAlias.model_id == model_id, SQLAlias.name == name)
        .subquery()
    )


def _move(row: SQLAliasMove) -> AliasMove:
    by = read_principal(row.principal)
    return AliasMove(row.sequence, row.before, row.after, row.reason, row.by, stamp(row.at), row.forced, by)
