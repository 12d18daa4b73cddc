"""People who signed in, and the roles of their groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import any_, delete, distinct, func, literal, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from pt2hub.domain.codec import encode
from pt2hub.domain.people import Person, Role, RoleAssignment
from pt2hub.domain.principals import read_principal
from pt2hub.domain.tokens import EVERY_MODEL
from pt2hub.server.db.engine import ISSUER
from pt2hub.server.db.schema import ApiToken as SQLApiToken
from pt2hub.server.db.schema import DeviceRequest as SQLDeviceRequest
from pt2hub.server.db.schema import Person as SQLPerson
from pt2hub.server.db.schema import RoleAssignment as SQLRoleAssignment
from pt2hub.server.db.schema import WebSession as SQLWebSession
from pt2hub.server.db.stores.values import stamp

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from sqlalchemy import ColumnElement
    from sqlalchemy.orm import Session

    from pt2hub.domain.principals import Principal


class PeopleStore:
    """People, by number, and by provider and subject."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def sign_in(
        self, issuer: str, subject: str, *, name: str, full_name: str, email: str, groups: Sequence[str]
    ) -> Person:
        """Add a person or, if they signed in before, store what the provider says of them now."""
        now = {
            "name": name,
            "full_name": full_name,
            "email": email,
            "groups": list(groups),
            "signed_in_at": func.now(),
        }
        statement = (
            upsert(SQLPerson)
            .values(issuer=issuer, subject=subject, **now)
            .on_conflict_do_update(index_elements=["issuer", "subject"], set_=now)
            .returning(SQLPerson)
        )
        found = self._session.scalars(statement, execution_options={"populate_existing": True}).one()
        return _person(found)

    def one(self, person_id: int) -> Person | None:
        """Return a person; None if there is none."""
        row = self._session.get(SQLPerson, person_id, populate_existing=True)
        return _person(row) if row else None

    def current(self, person_id: int, *, within: timedelta) -> Person | None:
        """Return a person whose groups are believed: their last sign-in is recent, and with this server's provider; else None."""
        believed = (SQLPerson.id == person_id, *self._believed(within))
        row = self._session.scalars(select(SQLPerson).where(*believed)).first()
        return _person(row) if row else None

    def all(self) -> tuple[Person, ...]:
        """Return all people, by name."""
        return tuple(
            map(_person, self._session.scalars(select(SQLPerson).order_by(SQLPerson.name, SQLPerson.id)))
        )

    def end(self, person_id: int) -> None:
        """Forget a person's groups, and end their browser sessions and devices' requests; a sign-in gives them groups again."""
        self._session.execute(update(SQLPerson).where(SQLPerson.id == person_id).values(groups=[]))
        for table in (SQLWebSession, SQLDeviceRequest):
            self._session.execute(delete(table).where(table.person_id == person_id))

    def tokens(self, person_id: int) -> list[int]:
        """Return the numbers of a person's tokens that are not revoked."""
        own = (SQLApiToken.person_id == person_id, SQLApiToken.revoked_at.is_(None))
        return list(self._session.scalars(select(SQLApiToken.id).where(*own)))

    def count_roots(self, *, within: timedelta) -> int:
        """Return the number of people who are admins of all models, as far as their groups are believed."""
        counted = (
            select(func.count(distinct(SQLPerson.id)))
            .join(SQLRoleAssignment, SQLRoleAssignment.group_name == any_(SQLPerson.groups))
            .where(
                SQLRoleAssignment.role == Role.ADMIN,
                SQLRoleAssignment.pattern == EVERY_MODEL,
                *self._believed(within),
            )
        )
        return self._session.scalars(counted).one()

    def _believed(self, within: timedelta) -> tuple[ColumnElement[bool], ...]:
        """Return the conditions under which a person's groups count: another provider may use the same names for others."""
        issuer = self._session.info.get(ISSUER)
        return SQLPerson.issuer == issuer, SQLPerson.signed_in_at > func.now() - within


class RoleStore:
    """Roles of groups."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, group: str, role: Role, pattern: str, *, by: Principal) -> tuple[RoleAssignment, bool]:
        """Give a group a role.

        Returns:
            The assignment, and whether it is new.
        """
        values = {"group_name": group, "role": role, "pattern": pattern}
        statement = (
            upsert(SQLRoleAssignment)
            .values(**values, created_by=encode(by))
            .on_conflict_do_nothing()
            .returning(SQLRoleAssignment)
        )
        made = self._session.scalars(statement).first()
        row = made or self._session.scalars(select(SQLRoleAssignment).filter_by(**values)).one()
        return _assignment(row), made is not None

    def one(self, assignment_id: int) -> RoleAssignment | None:
        """Return an assignment; None if there is none."""
        row = self._session.get(SQLRoleAssignment, assignment_id, populate_existing=True)
        return _assignment(row) if row else None

    def all(self) -> tuple[RoleAssignment, ...]:
        """Return all assignments, by models and group."""
        order = (SQLRoleAssignment.pattern, SQLRoleAssignment.group_name, SQLRoleAssignment.id)
        return tuple(map(_assignment, self._session.scalars(select(SQLRoleAssignment).order_by(*order))))

    def of(self, groups: Sequence[str]) -> tuple[RoleAssignment, ...]:
        """Return the assignments of some groups."""
        if not groups:
            return ()
        given = SQLRoleAssignment.group_name == any_(literal(list(groups), SQLPerson.groups.type))
        found = self._session.scalars(select(SQLRoleAssignment).where(given).order_by(SQLRoleAssignment.id))
        return tuple(map(_assignment, found))

    def remove(self, assignment_id: int) -> None:
        """Remove an assignment."""
        self._session.execute(delete(SQLRoleAssignment).where(SQLRoleAssignment.id == assignment_id))


def _person(row: SQLPerson) -> Person:
    return Person(
        id=row.id,
        issuer=row.issuer,
        subject=row.subject,
        name=row.name,
        full_name=row.full_name,
        email=row.email,
        groups=tuple(row.groups),
        signed_in_at=stamp(row.signed_in_at),
    )


def _assignment(row: SQLRoleAssignment) -> RoleAssignment:
    return RoleAssignment(
        id=row.id,
        group=row.group_name,
        role=Role(row.role),
        pattern=row.pattern,
        created_at=stamp(row.created_at),
        created_by=read_principal(row.created_by),
    )
