"""What changed in builds, told between processes by LISTEN and NOTIFY.

A notification only says where to look: the tables are the truth, and whoever may not miss anything also looks
now and then by itself.
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
    from collections.abc import Callable

    from sqlalchemy.orm import Session

CHANNEL = "pt2hub_builds"
"""Builds that changed hands: what a worker that has one must hear."""
PROGRESS = "pt2hub_progress"
"""Builds that went on, several times a second each: what only those hear who follow builds."""
_PAUSE_SECONDS = 1.0
_JOIN_SECONDS = 2.0
"""Patience with a thread that is just connecting to a database which is away."""
_NOTIFY = text("SELECT pg_notify(:channel, :build)")
_log = structlog.get_logger(__name__)


def notify(session: Session, build_id: str) -> None:
    """Tells every listener that a build changed hands, when the session's transaction commits."""
    session.execute(_NOTIFY, {"channel": CHANNEL, "build": build_id})


def notify_progress(session: Session, build_id: str) -> None:
    """Tells who follows builds that one went on, when the session's transaction commits."""
    session.execute(_NOTIFY, {"channel": PROGRESS, "build": build_id})


class Listener:
    """A thread that hears of every change, over a connection of its own."""

    def __init__(
        self, database_url: str, on_change: Callable[[str | None], None], *, progress: bool = False
    ) -> None:
        """Opens nothing before `start`.

        Args:
            database_url: `postgresql://...`.
            on_change: Called with a build's id; with None after a pause in which anything may have been missed.
                It must not block, nor raise.
            progress: Whether to hear of progress too.
        """
        self._channels = (CHANNEL, PROGRESS) if progress else (CHANNEL,)
        self._conninfo = engines.conninfo(database_url)
        self._on_change = on_change
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="listener")

    def start(self) -> None:
        """Begins to listen, and goes on through every outage of the database until `stop`."""
        self._bell, self._rope = os.pipe()
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
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
