"""People who signed in: their lists, and the end of their access at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.audit import Action
from pt2hub.errors import Ambiguous, NotFound
from pt2hub.server.db.stores.access.people import PeopleStore
from pt2hub.server.db.stores.access.tokens import TokenStore
from pt2hub.server.services.access import audit_log

if TYPE_CHECKING:
    from pt2hub.domain.people import Person
    from pt2hub.domain.tokens import Actor
    from pt2hub.server.db.engine import Sessions


class PeopleService:
    """People who signed in with the provider."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def all(self) -> tuple[Person, ...]:
        """Return all people, by name."""
        with self._sessions.begin() as session:
            return PeopleStore(session).all()

    def one(self, person_id: int) -> Person | None:
        """Return a person; None if there is none."""
        with self._sessions.begin() as session:
            return PeopleStore(session).one(person_id)

    def end(self, name_or_id: str, *, by: Actor) -> Person:
        """End a person's sessions, revoke their tokens and forget their groups, at once.

        The provider still knows them: if it lets them sign in again, they have what its groups give them.

        Raises:
            NotFound: There is no such person.
            Ambiguous: Several people have that name.
        """
        with self._sessions.begin() as session:
            store = PeopleStore(session)
            person = _select(store.all(), name_or_id)
            tokens = store.tokens(person.id)
            for token in tokens:
                TokenStore(session).revoke(token, by=by.principal)
            store.end(person.id)
            audit_log.record(session, by, Action.PERSON_END, person.name, id=person.id, tokens=tokens)
        return person


def _select(people: tuple[Person, ...], name_or_id: str) -> Person:
    found = [one for one in people if str(one.id) == name_or_id] or [
        one for one in people if one.name == name_or_id
    ]
    if len(found) > 1:
        raise Ambiguous(
            f"{len(found)} people are named {name_or_id[:80]!a}",
            where="person",
            hint=f"Use an id: {', '.join(str(one.id) for one in found)}.",
        )
    if not found:
        raise NotFound(
            f"Person {name_or_id[:80]!a} not found",
            where="person",
            hint="pt2hub admin people lists those who signed in.",
        )
    return found[0]
