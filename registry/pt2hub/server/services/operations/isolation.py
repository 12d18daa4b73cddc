"""The isolation level that the server requires of workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.errors import IsolationRefused
from pt2hub.server.db.stores.operations.settings import SettingStore

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from pt2hub.domain.workers import Isolation, Required
    from pt2hub.server.db.engine import Sessions

_SETTING = "isolation"


class IsolationService:
    """The minimum isolation of models' code that workers must have."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def allow(self, level: Required) -> None:
        """Set the required level; workers below it are refused when they next register.

        Args:
            level: `sandbox`; `process` lets models' code do whatever a worker's user may do.
        """
        with self._sessions.begin() as session:
            SettingStore(session).put(_SETTING, level)

    def required_level(self) -> Required:
        """Return the required level, `sandbox` unless set."""
        with self._sessions.begin() as session:
            return _read_level(session)


def is_enough(session: Session, isolation: Isolation) -> bool:
    """Return whether a worker's isolation meets the required level.

    Args:
        isolation: The worker's. One that runs no models' code (`none`) is always accepted.
    """
    return isolation != "process" or _read_level(session) == "process"


def require_isolation(session: Session, isolation: Isolation) -> None:
    """Refuse a worker below the required isolation level.

    Raises:
        IsolationRefused: It has no sandbox, and the server requires one.
    """
    if not is_enough(session, isolation):
        raise IsolationRefused(
            "The server requires workers to run models' code in a sandbox; this worker has none.",
            where="PT2HUB_ISOLATION",
            hint="Install the sandbox on the worker's machine (apt-get install bubblewrap libseccomp2) and start the "
            "worker with PT2HUB_ISOLATION=sandbox, which reports anything else that is missing. If you trust everyone "
            "who can publish, you can instead start the API with PT2HUB_ISOLATION=process first.",
        )


def _read_level(session: Session) -> Required:
    return "process" if SettingStore(session).get(_SETTING) == "process" else "sandbox"
