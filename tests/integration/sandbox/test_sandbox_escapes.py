"""Users' code tries to get out of the sandbox; the same programs succeed without one (docs/facts/sandbox.md#escapes-that-are-tried)."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.errors import OutputRefused
from pt2hub_workers.sandbox import Launcher, SandboxSettings, open_launcher
from pt2hub_workers.sandbox.workspaces import Workspace, Workspaces
from support.escapes import DAEMON, ESCAPES, NARROW, SECRET, WIDE, attempt, environ, hear, surroundings
from support.working import until

if TYPE_CHECKING:
    from collections.abc import Iterator

LEVELS = ("process", "sandbox")


@pytest.fixture(scope="module")
def launchers() -> dict[str, Launcher]:
    bounded, free = SandboxSettings("sandbox", NARROW), SandboxSettings("process", WIDE)
    return {"process": open_launcher(free, environ()), "sandbox": open_launcher(bounded, environ())}


@pytest.fixture(scope="module")
def around(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    with surroundings(tmp_path_factory.mktemp("around")) as found:
        yield found


@pytest.fixture
def workspaces(launchers: dict[str, Launcher], tmp_path: Path) -> Iterator[dict[str, Workspace]]:
    opened = {level: Workspaces(tmp_path / level, inside=launchers[level].inside).open() for level in LEVELS}
    yield opened
    for workspace in opened.values():
        workspace.close()


@pytest.mark.parametrize("name", ESCAPES)
def test_what_works_without_a_sandbox_does_not_work_in_it(
    name: str, launchers: dict[str, Launcher], workspaces: dict[str, Workspace], around: dict[str, Any]
) -> None:
    escape = ESCAPES[name]
    free = attempt(escape, launchers["process"], workspaces["process"], around)
    if not free.startswith("ESCAPED") and escape.needs:
        pytest.skip(f"{escape.needs}: {free}")
    assert free.startswith("ESCAPED"), "a probe that cannot work shows nothing"

    confined = attempt(escape, launchers["sandbox"], workspaces["sandbox"], around)

    assert confined.startswith("STOPPED"), confined


def test_the_metadata_address_of_a_cloud_is_out_of_reach(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "support" / "escapes.py"
    paths = [str(script.parents[2] / name) for name in ("registry", "workers", "tests")]
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", sys.executable, script, tmp_path],
        env={**environ(), "PYTHONPATH": ":".join(paths)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])

    assert said["process"].startswith("ESCAPED"), said
    assert "unreachable" in said["sandbox"], said


def test_a_daemon_outlives_its_job_without_a_sandbox_only(
    launchers: dict[str, Launcher], workspaces: dict[str, Workspace]
) -> None:
    beats = {}
    for level in LEVELS:
        workspace = workspaces[level]
        heart = workspace.host / "out" / "beat"
        started = launchers[level].run(
            [sys.executable, "-c", DAEMON, workspace.seen(heart.parent)],
            environ=environ(),
            workspace=workspace,
        )
        until(partial(_beats, heart))
        started.strike()
        time.sleep(0.3)
        before, deadline = heart.read_text(), time.monotonic() + (20 if level == "process" else 0.3)
        while heart.read_text() == before and time.monotonic() < deadline:
            time.sleep(0.02)
        beats[level] = heart.read_text() != before
        started.kill()  # where control groups are to be had, not even this one outlives it
        started.output.close()

    assert beats == {"process": True, "sandbox": False}


def _beats(heart: Path) -> bool:
    return heart.exists() and bool(heart.read_text())


def test_a_symbolic_link_among_the_outputs_is_followed_by_nobody(
    launchers: dict[str, Launcher], workspaces: dict[str, Workspace], around: dict[str, Any]
) -> None:
    workspace = workspaces["sandbox"]
    program = "import os, sys; os.symlink(sys.argv[1], sys.argv[2] + '/code.zip')"
    started = launchers["sandbox"].run(
        [sys.executable, "-c", program, around["other"], workspace.seen(workspace.host / "out")],
        environ=environ(),
        workspace=workspace,
    )
    assert hear(started)[1] == 0
    assert (workspace.host / "out" / "code.zip").read_text() == SECRET, "it leads out of the room"

    with pytest.raises(OutputRefused, match="regular file"):
        workspace.take("out/code.zip")


def test_no_child_is_given_a_secret_at_either_level(
    launchers: dict[str, Launcher], workspaces: dict[str, Workspace]
) -> None:
    secrets = {"AWS_SECRET_ACCESS_KEY": SECRET, "PT2HUB_DATABASE_URL": SECRET, "PT2HUB_TOKEN": SECRET}
    for level in LEVELS:
        started = launchers[level].run(
            [sys.executable, "-c", "import os; print(dict(os.environ))"],
            environ={**environ(), **secrets, "KEPT": "1"},
            workspace=workspaces[level],
        )
        said, _ = hear(started)
        assert "'KEPT': '1'" in said
        assert SECRET not in said


def test_what_fills_the_temporary_directory_ends_at_its_size(workspaces: dict[str, Workspace]) -> None:
    program = (
        "import os, sys\n"
        "from pt2hub_workers.inside.builds.shortage import find_shortage\n"
        "for folder in ('/tmp', '/dev/shm'):\n"
        "    try:\n"
        "        with open(folder + '/full', 'wb', buffering=0) as file:\n"
        "            while file.write(bytes(1 << 20)) == 1 << 20: pass\n"
        "    except OSError as error:\n"
        "        print(error.strerror, type(find_shortage(error)).__name__, os.path.getsize(folder + '/full'))"
    )
    small = replace(NARROW, tmp_bytes=8 << 20)
    launcher = open_launcher(SandboxSettings("sandbox", small), environ())
    started = launcher.run(
        [sys.executable, "-c", program], environ=environ(), workspace=workspaces["sandbox"]
    )
    said = hear(started)[0].splitlines()

    assert len(said) == 2
    for line in said:
        assert line.startswith("No space left")
        assert "LimitExceeded" in line
        assert int(line.split()[-1]) <= small.tmp_bytes
