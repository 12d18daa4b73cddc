"""What a database that lacks versions of its storage refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.errors import ReindexDue
from pt2hub.server.db.stores.operations.reindex_state import ReindexState

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

DUE = "The database lacks versions that the storage has"
HINT = "The server's operator restores them: pt2hub admin reindex"


def check_reindexed(session: Session, model: str) -> None:
    """Refuse to number a version while the database lacks others of the storage.

    Raises:
        ReindexDue: It does.
    """
    if ReindexState(session).is_due():
        raise ReindexDue(
            f"{DUE}, so a new version of {model} could get the number of one of them",
            where="model",
            hint=HINT,
        )
