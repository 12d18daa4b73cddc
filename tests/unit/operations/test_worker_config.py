"""The worker's settings about how it confines what it runs, and where headers are kept."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from pt2hub.errors import BadConfiguration
from pt2hub_workers.config import WorkerConfig

DATABASE = {"PT2HUB_DATABASE_URL": "postgresql://user:secret@host/database"}


def read(**environ: str) -> WorkerConfig:
    return WorkerConfig.from_environ(DATABASE | environ)


def test_the_sandbox_is_the_default() -> None:
    sandbox = read().sandbox

    assert (sandbox.isolation, sandbox.bwrap) == ("sandbox", None)
    assert sandbox.limits.memory_bytes < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize("level", ["sandbox", "process", "auto"])
def test_the_levels_are_those_of_the_server_and_auto(level: str) -> None:
    assert read(PT2HUB_ISOLATION=level).sandbox.isolation == level


def test_another_level_is_refused() -> None:
    with pytest.raises(BadConfiguration, match="none") as refused:
        read(PT2HUB_ISOLATION="none")
    assert refused.value.where == "PT2HUB_ISOLATION"


def test_the_sandbox_is_told_its_program_its_limits_and_what_builds_may_read(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()

    sandbox = read(
        PT2HUB_BWRAP="/opt/bwrap",
        PT2HUB_BUILD_DISK="1GiB",
        PT2HUB_SANDBOX_READABLE=f"{tmp_path / 'models'}:/usr/bin:",
        PT2HUB_HEADERS=str(tmp_path / "headers"),
    ).sandbox

    assert sandbox.bwrap == "/opt/bwrap"
    assert sandbox.limits.disk_bytes == 1 << 30
    assert sandbox.readable == (tmp_path / "models", Path("/usr/bin"), tmp_path / "headers")


@pytest.mark.parametrize("path", ["relative", "/nowhere/at/all"])
def test_what_builds_may_read_must_be_there(path: str) -> None:
    with pytest.raises(BadConfiguration, match=path) as refused:
        read(PT2HUB_SANDBOX_READABLE=path)
    assert refused.value.where == "PT2HUB_SANDBOX_READABLE"


def test_headers_are_in_one_place_whatever_the_scratch_directory_is(tmp_path: Path) -> None:
    config = read(PT2HUB_SCRATCH=str(tmp_path))

    assert config.headers == Path(tempfile.gettempdir(), f"pt2hub-headers-{os.getuid()}")
    assert config.headers.parent != config.scratch.parent
    assert config.child_environ["PT2HUB_HEADERS"] == str(config.headers)


def test_children_get_what_is_on_the_list_and_what_the_operator_adds() -> None:
    environ = {"PATH": "/bin", "EDITOR": "vi", "AWS_SECRET_ACCESS_KEY": "s", "OMP_NUM_THREADS": "2"}

    got = read(**environ, PT2HUB_BUILD_ENV="CXX=/bin/false EDITOR=ed").child_environ

    assert {key: got[key] for key in got if key != "PT2HUB_HEADERS"} == {
        "PATH": "/bin",
        "OMP_NUM_THREADS": "2",
        "CXX": "/bin/false",
        "EDITOR": "ed",
    }
