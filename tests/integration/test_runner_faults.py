"""Faults of the worker itself, over real services: its builds go to others and do not fail for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub_workers.attempt import Tools
from pt2hub_workers.device import Device
from pt2hub_workers.noop import NoopToolchain
from pt2hub_workers.overseer import Overseer
from pt2hub_workers.runner import BuildRunner
from support.registry import a_registration

if TYPE_CHECKING:
    from pathlib import Path

    from support.registry import Registry


def test_a_worker_without_its_scratch_directory_fails_no_build_for_good(
    registry: Registry, tmp_path: Path
) -> None:
    services, scratch = registry.services, tmp_path / "scratch"
    toolchain = NoopToolchain(scratch)
    scratch.touch()  # in place of the directory that it had when it started
    tools = Tools(
        services, toolchain.machine(), toolchain, Device(tmp_path / "device"), (), gate_seconds=10.0
    )
    overseer = Overseer(
        services, a_registration("w1"), database_url=registry.database_url, every=60.0, on_refused=print
    )
    overseer.start()
    build = registry.submit().builds[0].id
    try:
        BuildRunner(tools, overseer).run(build)
    finally:
        overseer.stop()

    view = services.builds.view(build)
    assert (view.state, view.failures, view.attempts[0].code) == ("queued", 1, "worker_lost")
    said = [line.text for line in services.logs.lines(build)[1]]
    assert f"PT2HUB_SCRATCH: the worker cannot work: {scratch} cannot be made: File exists" in said
    assert "  Name a directory of yours." in said
