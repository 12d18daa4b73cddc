"""Hearing of changed builds, over a real connection."""

from __future__ import annotations

import queue
import threading
import time
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from pt2hub.server.db.notifications import BUILDS, Listener

SECONDS = 10.0


@pytest.fixture
def heard() -> queue.Queue[str | None]:
    """What the listener told."""
    return queue.Queue()


def opened() -> set[str]:
    """Sockets and pipes of this process; a collection may close some that other tests left."""
    found = set[str]()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that lists them
            found.add(str(descriptor.readlink()))
    return {name for name in found if name.startswith(("socket:", "pipe:"))}


def test_it_hears_every_change_at_once_and_goes_on_after_a_lost_connection(
    database_url: str, heard: queue.Queue[str | None]
) -> None:
    listener = Listener(database_url, heard.put)
    listener.start()
    with psycopg.connect(database_url, autocommit=True) as connection:
        assert heard.get(timeout=SECONDS) is None
        for name in ("first", "second"):
            connection.execute("SELECT pg_notify(%s, %s)", (BUILDS, name))
            assert heard.get(timeout=SECONDS) == name  # nothing else wakes it
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        assert heard.get(timeout=SECONDS) is None
        connection.execute("SELECT pg_notify(%s, %s)", (BUILDS, "third"))
        assert heard.get(timeout=SECONDS) == "third"
    listener.stop()


def test_it_stops_in_no_time_and_leaves_nothing_open(
    database_url: str, heard: queue.Queue[str | None]
) -> None:
    before = opened()
    listener = Listener(database_url, heard.put)
    listener.start()
    assert heard.get(timeout=SECONDS) is None
    time.sleep(0.1)  # it waits for the first change

    listener.stop()

    assert not [thread for thread in threading.enumerate() if thread.name == "listener"], "it was given up"
    assert opened() <= before


def test_one_that_was_never_started_stops_as_well(database_url: str, heard: queue.Queue[str | None]) -> None:
    Listener(database_url, heard.put).stop()
