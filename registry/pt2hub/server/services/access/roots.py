"""Roots: who is an admin of all models. The last one cannot be removed through the API, or nobody could undo it there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.errors import Conflict
from pt2hub.server.db.stores.access.people import PeopleStore
from pt2hub.server.db.stores.access.tokens import GROUPS_BELIEVED, TokenStore

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


def lock_roots(session: Session) -> None:
    """Hold up others who may remove a root, until the end of the transaction: two admins who remove each other."""
    TokenStore(session).lock()


def check_root_remains(session: Session, what: str) -> None:
    """Require that there is an admin of all models after a removal in this transaction, which `lock_roots` began.

    Roots are valid admin tokens of services, and people whose groups have the role admin on all models.

    Args:
        what: What was removed, for the error.

    Raises:
        Conflict: There is none; the caller's transaction ends without the removal.
    """
    if TokenStore(session).count_roots() or PeopleStore(session).count_roots(within=GROUPS_BELIEVED):
        return
    raise Conflict(
        f"{what} is the last that makes somebody an admin of all models",
        where="token",
        hint="Create another admin first, or do it on the server's machine: pt2hub admin revoke, pt2hub admin remove-role",
    )
