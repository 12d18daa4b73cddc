"""How much workers must confine what they run for others: decided once, for the whole server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.errors import IsolationRefused
from pt2hub.server.db.stores.settings import SettingStore

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from pt2hub.domain.workers import Isolation, Required
    from pt2hub.server.db.engine import Sessions

_SETTING = "isolation"


class IsolationService:
    """The least that workers must do to confine models' code."""

    def __init__(self, sessions: Sessions) -> None:
        """Is built by the container."""
        self._sessions = sessions

    def allow(self, level: Required) -> None:
        """Decides it from now on; workers that do less must register again at their next heartbeat, and are refused.

        Args:
            level: `sandbox`; `process` also lets models' code do whatever a worker's user may do.
        """
        with self._sessions.begin() as session:
            SettingStore(session).put(_SETTING, level)

    def allowed(self) -> Required:
        """What was decided; `sandbox` where nobody did."""
        with self._sessions.begin() as session:
            return _allowed(session)


def is_enough(session: Session, isolation: Isolation) -> bool:
    """Whether a worker confines what it runs as the server demands.

    Args:
        session: The transaction in which it is asked.
        isolation: What it does. One that runs nothing of others (`none`) is always taken.
    """
    return isolation != "process" or _allowed(session) == "process"


def require_isolation(session: Session, isolation: Isolation) -> None:
    """Refuses a worker that confines what it runs less than the server demands.

    Raises:
        IsolationRefused: It has no sandbox, and the server demands one.
    """
    if not is_enough(session, isolation):
        raise IsolationRefused(
            "The server takes only workers that run models' code in a sandbox; this one has none.",
            where="PT2HUB_ISOLATION",
            hint="Install the sandbox on the worker's machine (apt-get install bubblewrap libseccomp2) and start the "
            "worker with PT2HUB_ISOLATION=sandbox, which says what else is missing. Or, where you trust everybody "
            "who may publish, start the API with PT2HUB_ISOLATION=process first.",
        )


def _allowed(session: Session) -> Required:
    return "process" if SettingStore(session).get(_SETTING) == "process" else "sandbox"
