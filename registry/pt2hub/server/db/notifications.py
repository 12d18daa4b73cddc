"""Notifications of changed builds and moved aliases between processes, by LISTEN and NOTIFY.

A notification only says where to look: the tables are the truth, and listeners that must not miss anything also poll.
"""

from __future__ import annotations

import os
import select
import threading
from typing import TYPE_CHECKING

import psycopg
import structlog
from sqlalchemy import text

from pt2hub.server.db import engine as engines

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy.orm import Session

BUILDS = "pt2hub_builds"
"""State changes of builds, for the workers that run them."""
PROGRESS = "pt2hub_progress"
"""Progress of builds, several times a second each, for those who follow builds."""
ALIASES = "pt2hub_aliases"
"""Moves of aliases, for those who wait for one."""
_PAUSE_SECONDS = 1.0
_JOIN_SECONDS = 2.0
"""How long to wait for a thread that is connecting to an unavailable database."""
_NOTIFY = text("SELECT pg_notify(:channel, :topic)")
_log = structlog.get_logger(__name__)


def notify(session: Session, build_id: str) -> None:
    """Notify every listener of a build's state change, when the session's transaction commits."""
    session.execute(_NOTIFY, {"channel": BUILDS, "topic": build_id})


def notify_progress(session: Session, build_id: str) -> None:
    """Notify followers of a build's progress, when the session's transaction commits."""
    session.execute(_NOTIFY, {"channel": PROGRESS, "topic": build_id})


def notify_alias(session: Session, model: str, name: str) -> None:
    """Notify those who wait for an alias of its move, when the session's transaction commits."""
    session.execute(_NOTIFY, {"channel": ALIASES, "topic": alias_topic(model, name)})


def alias_topic(model: str, name: str) -> str:
    """Return what notifications of an alias's moves say; those of builds say the build's id."""
    return f"{model}@{name}"


class Listener:
    """A thread that listens for changes, over a connection of its own.

    Args:
        on_change: Called with what changed, a build's id or an `alias_topic`; with None after a pause in which anything
            may have been missed. It must neither block nor raise.
        channels: What to listen to.
    """

    def __init__(
        self,
        database_url: str,
        on_change: Callable[[str | None], None],
        *,
        channels: Sequence[str] = (BUILDS,),
    ) -> None:
        self._channels = channels
        self._conninfo = engines.conninfo(database_url)
        self._on_change = on_change
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="listener")

    def start(self) -> None:
        """Start listening, through every outage of the database, until `stop`."""
        self._bell, self._rope = os.pipe()
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        if self._thread.is_alive():
            os.close(self._rope)  # which wakes it
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        try:
            self._listen_on()
        finally:
            os.close(self._bell)

    def _listen_on(self) -> None:
        while not self._stopped.is_set():
            try:
                self._listen()
            except psycopg.Error as error:
                _log.warning("the listener lost the database", error=str(error).strip())
                self._stopped.wait(_PAUSE_SECONDS)

    def _listen(self) -> None:
        with psycopg.connect(self._conninfo, autocommit=True) as connection:
            for channel in self._channels:
                connection.execute(f"LISTEN {channel}")
            self._on_change(None)
            heard = select.poll()
            for descriptor in (connection.fileno(), self._bell):
                heard.register(descriptor, select.POLLIN)
            while not self._stopped.is_set():
                for change in connection.notifies(timeout=0):
                    self._on_change(change.payload)
                heard.poll()
