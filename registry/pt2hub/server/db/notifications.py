"""What changed in builds, told between processes by LISTEN and NOTIFY.

A notification only says where to look: the tables are the truth, and whoever may not miss anything also looks
now and then by itself.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import psycopg
import structlog
from sqlalchemy import text

from pt2hub.server.db import engine as engines

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.orm import Session

CHANNEL = "pt2hub_builds"
_LISTEN_SECONDS = 1.0
"""How long a listener waits before it looks whether it should stop."""
_PAUSE_SECONDS = 1.0
_NOTIFY = text("SELECT pg_notify(:channel, :build)")
_log = structlog.get_logger(__name__)


def notify(session: Session, build_id: str) -> None:
    """Tells every listener that a build changed, when the session's transaction commits."""
    session.execute(_NOTIFY, {"channel": CHANNEL, "build": build_id})


class Listener:
    """A thread that hears of every change, over a connection of its own."""

    def __init__(self, database_url: str, on_change: Callable[[str | None], None]) -> None:
        """Opens nothing before `start`.

        Args:
            database_url: `postgresql://...`.
            on_change: Called with a build's id; with None after a pause in which anything may have been missed.
                It must not block, nor raise.
        """
        self._conninfo = engines.conninfo(database_url)
        self._on_change = on_change
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="listener")

    def start(self) -> None:
        """Begins to listen, and goes on through every outage of the database until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._listen()
            except psycopg.Error as error:
                _log.warning("the listener lost the database", error=str(error).strip())
                self._stopped.wait(_PAUSE_SECONDS)

    def _listen(self) -> None:
        with psycopg.connect(self._conninfo, autocommit=True) as connection:
            connection.execute(f"LISTEN {CHANNEL}")
            self._on_change(None)
            while not self._stopped.is_set():
                for change in connection.notifies(timeout=_LISTEN_SECONDS):
                    self._on_change(change.payload)
