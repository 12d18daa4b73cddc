"""What `pt2hub up` demands of workers, tries before it starts, and says where models' code is not confined."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import psycopg
import pytest

from pt2hub.server.db.embedded import EmbeddedPostgres
from support.running import Up, processes_of, wait_for_none

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REFUSED = "bwrap: No permissions to create a new namespace"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home; whatever the test leaves running on it is ended."""
    path = tmp_path / "home"
    yield path
    for pid in processes_of(path):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def confined_machine(tmp_path: Path) -> dict[str, str]:
    """Settings of a machine that lets nobody make user namespaces."""
    bwrap = tmp_path / "bwrap"
    bwrap.write_text(
        f"#!/bin/sh\n[ $1 = --version ] && exec echo bubblewrap 0.11.0\necho '{REFUSED}' >&2; exit 1\n"
    )
    bwrap.chmod(0o755)
    return {"PT2HUB_BWRAP": str(bwrap)}


def isolation_of(home: Path) -> str:
    """What the server that runs on a home demands of workers."""
    with psycopg.connect(EmbeddedPostgres(home / "server" / "db").url) as connection:
        row = connection.execute("SELECT value FROM server_settings WHERE name = 'isolation'").fetchone()
    assert row is not None
    return str(row[0])


def test_a_bucket_that_is_not_there_ends_the_start_with_a_sentence(home: Path, s3_url: str) -> None:
    code, stderr = Up(home, environ={"PT2HUB_STORAGE": s3_url.replace("artifacts", "absent")}).wait()
    assert code == 1
    assert "absent" in stderr
    assert "[bad_configuration]" in stderr
    assert "Traceback" not in stderr
    assert wait_for_none(home) == {}


def test_a_machine_without_a_sandbox_is_warned_and_told_how_to_get_one(
    home: Path, confined_machine: dict[str, str]
) -> None:
    up = Up(home, worker=True, environ=confined_machine).wait_ready()
    status, listed = up.request("GET", "/api/v1/workers")
    confined = [(worker["isolation"], worker.get("isolation_profile")) for worker in listed["workers"]]
    assert (status, confined) == (200, [("process", None)])
    assert up.end() == (0, "")
    at = next(number for number, line in enumerate(up.progress) if "WARNING" in line)
    warning, hint, advice = up.progress[at : at + 3]
    assert warning.startswith("up: WARNING: models' code runs with this user's permissions: bwrap: ")
    assert REFUSED in warning
    assert hint.startswith("up:   ")
    assert advice == "up:   Publish only models that you trust."


def test_where_a_sandbox_can_be_had_there_is_no_warning_and_no_worker_comes_with_less(home: Path) -> None:
    up = Up(home, "--port", "0", "--json", worker=True)
    assert up.process.stdout is not None
    started = json.loads(up.process.stdout.readline())
    assert started.get("isolation") == "sandbox", (started, up.end())
    assert isolation_of(home) == "sandbox"
    up.process.send_signal(signal.SIGINT)
    out, err = up.process.communicate(timeout=60)
    assert (up.process.returncode, out) == (0, ""), "for programs stdout holds one value"
    assert "up: starting PostgreSQL" in err
    assert "WARNING" not in err


def test_who_demands_a_sandbox_where_there_is_none_reads_what_is_missing(
    home: Path, confined_machine: dict[str, str]
) -> None:
    strict = {**confined_machine, "PT2HUB_ISOLATION": "sandbox"}
    code, stderr = Up(home, worker=True, environ=strict).wait()
    assert code == 1
    assert "The worker ended with exit code 1" in stderr
    assert REFUSED in stderr
    assert "Traceback" not in stderr
    assert wait_for_none(home) == {}
