"""What a database that lacks versions of its storage refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.errors import ReindexDue
from pt2hub.server.db.stores.operations.reindex_state import ReindexState

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_DUE = "The database lacks versions that the storage has"
_HINT = "The server's operator restores them: pt2hub admin reindex"
_OTHER_WRITER = "Another database wrote to this storage, or this one is an older copy"
_OTHER_HINT = (
    "If another server uses the storage, give it one of its own. Then have this one take over what was written: "
    "pt2hub admin reindex"
)


def explain_reindex_due(session: Session) -> tuple[str, str] | None:
    """Return why a reindex is due and what its operator does; None where none is."""
    state = ReindexState(session)
    if state.has_other_writer():
        return _OTHER_WRITER, _OTHER_HINT
    return (_DUE, _HINT) if state.is_due() else None


def check_reindexed(session: Session, model: str) -> None:
    """Refuse to number a version while the database lacks others of the storage.

    Raises:
        ReindexDue: It does.
    """
    if due := explain_reindex_due(session):
        raise ReindexDue(
            f"{due[0]}: a new version of {model} could get a number that is taken there",
            where="model",
            hint=due[1],
        )
