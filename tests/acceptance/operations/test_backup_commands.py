"""A server that publishes is backed up, lost, restored and brought up to date, by commands alone."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING

from support.plane import TARGET, Plane
from support.running import Up

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def wait_until(is_so: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Whether something comes true in time: the journal is written once a second."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def test_a_running_server_is_backed_up_lost_and_restored(tmp_path: Path) -> None:
    (tmp_path / "plane").mkdir()
    with Plane(tmp_path / "plane") as plane:
        plane.start_worker()
        plane.await_final(plane.submit("net", seed=1))
        login = {"PT2HUB_TOKEN": plane.token}
        stop = threading.Event()

        def publish() -> None:
            while not stop.wait(0.2):
                plane.submit("net", seed=1000 + len(plane.accepted))

        publishing = threading.Thread(target=publish)
        publishing.start()
        backup = str(tmp_path / "backup")
        try:
            said = json.loads(plane.run("admin", "backup", backup, "--json"))
        finally:
            stop.set()
            publishing.join()
        plane.run("alias", "set", "crash/net@1", "prod", "--reason", "after the backup", **login)
        states = {build: plane.await_final(build) for build in plane.accepted}
        assert set(states.values()) == {"succeeded"}
        before = {build: plane.build(build).artifact for build in plane.accepted}
        token, storage, accepted = plane.token, str(plane.storage), len(plane.accepted)
        journal = plane.storage / "journal"
        assert wait_until(
            lambda: any("after the backup" in path.read_text("utf-8") for path in journal.iterdir())
        )
    # The database is lost; the storage and the backup are not.

    here = {"PT2HUB_DATABASE_URL": "", "PT2HUB_HOME": str(tmp_path / "home"), "PT2HUB_STORAGE": storage}
    restored = json.loads(plane.run("admin", "restore", backup, "--json", **here))
    assert restored == said | {"deleted": [], "unreadable": {}}
    plane.run("admin", "reindex", **here)
    up = Up(tmp_path / "home", environ={"PT2HUB_STORAGE": storage}).wait_ready()
    try:
        found = {}
        for number in range(1, accepted + 1):
            status, version = up.request("GET", f"/api/v1/models/crash/net/versions/{number}", token=token)
            assert status == 200
            found |= {build["id"]: build["artifact"] for build in version["builds"]}
        assert found == before
        status, alias = up.request("GET", "/api/v1/models/crash/net/aliases/prod", token=token)
        assert (status, alias["number"]) == (200, 1)
        there = {"PT2HUB_URL": up.settings["url"], "PT2HUB_TOKEN": token}
        plane.run("pull", "crash/net@prod", "--target", TARGET, **there)
    finally:
        up.end()
