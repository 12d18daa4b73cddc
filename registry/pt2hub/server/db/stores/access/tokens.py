"""API tokens, by their SHA-256."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy import Interval, any_, cast, func, insert, literal, or_, select, text, update

from pt2hub.domain import people
from pt2hub.domain.codec import encode
from pt2hub.domain.people import OwnToken
from pt2hub.domain.principals import Principal, PrincipalKind, read_principal
from pt2hub.domain.tokens import EVERY_MODEL, Actor, Scope, TokenInfo
from pt2hub.server.db.schema import ApiToken as SQLApiToken
from pt2hub.server.db.schema import Person as SQLPerson
from pt2hub.server.db.stores.access.people import PeopleStore, RoleStore
from pt2hub.server.db.stores.values import optional_stamp, stamp

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import ColumnElement
    from sqlalchemy.orm import Session

GROUPS_BELIEVED = timedelta(days=14)
"""How long after their last sign-in a person's groups are believed; then their tokens wait for the next sign-in."""
_USE_RESOLUTION = timedelta(minutes=1)
"""Last use is recorded once a minute: writing it with every request would make it the busiest row of the database."""
_WITH_OWNER = select(SQLApiToken, SQLPerson.name).outerjoin(SQLPerson, SQLPerson.id == SQLApiToken.person_id)


@dataclass(frozen=True, slots=True)
class StoredToken:
    """A token as it is stored, valid or not.

    Attributes:
        stale: Whether it is of a person who signed in too long ago, or with another provider.
    """

    actor: Actor
    revoked: bool
    expired: bool
    stale: bool = False


class TokenStore:
    """API tokens."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def names_of_services(self, names: Collection[str]) -> set[str]:
        """Return the names that a token of a service has, or had until it was revoked."""
        mine = (SQLApiToken.name.in_(names), SQLApiToken.person_id.is_(None))
        return set(self._session.scalars(select(SQLApiToken.name).where(*mine)))

    def add(
        self,
        actor: Actor,
        sha256: str,
        *,
        by: Principal,
        lasting: timedelta | None = None,
        person: int | None = None,
    ) -> TokenInfo:
        """Add a token that makes its holder this actor.

        Args:
            lasting: Time until it expires; None for never.
            person: The person whose token it is, and whose roles must allow what it allows.
        """
        values = {
            "name": actor.name,
            "sha256": sha256,
            "admin": actor.admin,
            "scopes": sorted(actor.scopes),
            "patterns": list(actor.patterns),
            "expires_at": None if lasting is None else func.now() + lasting,
            "created_by": encode(by),
            "person_id": person,
        }
        made = self._session.scalars(insert(SQLApiToken).values(values).returning(SQLApiToken.id)).one()
        return self.get(made)

    def use(self, sha256: str, *, recorded: bool = True) -> StoredToken | None:
        """Return a token, and record its use where it is valid.

        Args:
            recorded: Whether to record it; a database that accepts no writes cannot.
        """
        now = func.now()
        found = self._session.execute(
            select(
                SQLApiToken,
                (SQLApiToken.expires_at <= now).label("expired"),
                or_(SQLApiToken.last_used_at.is_(None), SQLApiToken.last_used_at < now - _USE_RESOLUTION),
            ).where(SQLApiToken.sha256 == sha256)
        ).first()
        if found is None:
            return None
        row, expired, stale = found
        revoked = row.revoked_at is not None
        if stale and recorded and not (expired or revoked):
            self._session.execute(
                update(SQLApiToken).where(SQLApiToken.id == row.id).values(last_used_at=now)
            )
        actor = actor_of(row)
        if row.person_id is None:
            return StoredToken(actor, revoked=revoked, expired=bool(expired))
        person = person_actor(
            self._session, row.person_id, OwnToken(row.id, actor.permission, actor.expires_at)
        )
        return StoredToken(person or actor, revoked=revoked, expired=bool(expired), stale=person is None)

    def all(self) -> tuple[TokenInfo, ...]:
        """Return all tokens, oldest first, including revoked ones."""
        return tuple(_info(*row) for row in self._session.execute(_WITH_OWNER.order_by(SQLApiToken.id)))

    def one(self, token_id: int) -> TokenInfo | None:
        """Return a token; None if there is none."""
        found = self._session.execute(
            _WITH_OWNER.where(SQLApiToken.id == token_id), execution_options={"populate_existing": True}
        ).first()
        return _info(*found) if found else None

    def get(self, token_id: int) -> TokenInfo:
        """Return an existing token."""
        found = self.one(token_id)
        assert found is not None, "the caller has found or added it"
        return found

    def lock(self) -> None:
        """Hold up others that call this, until the end of the transaction."""
        self._session.execute(text("SELECT pg_advisory_xact_lock(hashtext('pt2hub.tokens'))"))

    def is_valid(self, token_id: int) -> bool:
        """Return whether a token is neither revoked nor expired."""
        return (
            self._session.scalar(select(SQLApiToken.id).where(SQLApiToken.id == token_id, *_valid()))
            is not None
        )

    def count_roots(self) -> int:
        """Return the number of valid admin tokens of services for all models."""
        every = literal(EVERY_MODEL) == any_(SQLApiToken.patterns)
        own = SQLApiToken.person_id.is_(None)  # a person's is worth what their roles are
        counted = select(func.count()).where(SQLApiToken.admin, every, own, *_valid())
        return self._session.scalars(counted).one()

    def lifetime(self, token_id: int) -> timedelta | None:
        """Return how long after its creation a token expires; None for never."""
        lasting = SQLApiToken.expires_at - SQLApiToken.created_at
        found: timedelta | None = self._session.scalar(
            select(cast(lasting, Interval)).where(SQLApiToken.id == token_id)
        )
        return found

    def end_within(self, token_id: int, rest: timedelta) -> bool:
        """Let a valid token expire after a time, unless it expires earlier; return False if it has ended."""
        until = func.least(SQLApiToken.expires_at, func.now() + rest)
        shortened = update(SQLApiToken).where(SQLApiToken.id == token_id, *_valid()).values(expires_at=until)
        return self._session.scalar(shortened.returning(SQLApiToken.id)) is not None

    def revoke(self, token_id: int, *, by: Principal) -> tuple[TokenInfo, bool]:
        """Revoke an existing token; one that is already revoked keeps its time.

        Returns:
            The token, and whether this revoked it.
        """
        valid = (SQLApiToken.id == token_id, SQLApiToken.revoked_at.is_(None))
        ended = update(SQLApiToken).where(*valid).values(revoked_at=func.now(), revoked_by=encode(by))
        changed = self._session.scalar(ended.returning(SQLApiToken.id)) is not None
        return self.get(token_id), changed


def _valid() -> tuple[ColumnElement[bool], ...]:
    unexpired = or_(SQLApiToken.expires_at.is_(None), SQLApiToken.expires_at > func.now())
    return SQLApiToken.revoked_at.is_(None), unexpired


def person_actor(session: Session, person_id: int, token: OwnToken | None = None) -> Actor | None:
    """Return a person as an actor; None if they signed in too long ago, or with another provider."""
    person = PeopleStore(session).current(person_id, within=GROUPS_BELIEVED)
    return people.actor_of(person, RoleStore(session).of(person.groups), token) if person else None


def actor_of(row: SQLApiToken) -> Actor:
    """Return the actor of a service's token."""
    return Actor(
        row.name,
        row.admin,
        frozenset(map(Scope, row.scopes)),
        tuple(row.patterns),
        optional_stamp(row.expires_at),
        id=row.id,
    )


def _info(row: SQLApiToken, owner: str | None) -> TokenInfo:
    return TokenInfo(
        id=row.id,
        name=row.name,
        created_at=stamp(row.created_at),
        last_used_at=optional_stamp(row.last_used_at),
        revoked_at=optional_stamp(row.revoked_at),
        admin=row.admin,
        scopes=tuple(row.scopes),
        patterns=tuple(row.patterns),
        expires_at=optional_stamp(row.expires_at),
        created_by=read_principal(row.created_by),
        revoked_by=read_principal(row.revoked_by),
        owner=Principal(PrincipalKind.PERSON, owner, str(row.person_id)) if owner is not None else None,
    )
