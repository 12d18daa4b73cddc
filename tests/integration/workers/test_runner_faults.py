"""Faults of the worker itself, over real services: its builds go to others and do not fail for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub_workers.builds.job import WorkerContext
from pt2hub_workers.builds.noop_toolchain import NoopToolchain
from pt2hub_workers.operations.device_lock import DeviceLock
from pt2hub_workers.operations.heartbeat import HeartbeatMonitor
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
    context = WorkerContext(
        services,
        toolchain.machine(),
        toolchain,
        DeviceLock(tmp_path / "device"),
        (),
        verification_seconds=10.0,
    )
    monitor = HeartbeatMonitor(
        services, a_registration("w1"), database_url=registry.database_url, every=60.0, on_refused=print
    )
    monitor.start()
    build = registry.submit().builds[0].id
    try:
        BuildRunner(context, monitor).run(build)
    finally:
        monitor.stop()

    view = services.builds.view(build)
    assert (view.state, view.failures, view.attempts[0].code) == ("queued", 1, "worker_lost")
    said = [line.text for line in services.logs.lines(build)[1]]
    assert f"PT2HUB_SCRATCH: the worker is misconfigured: cannot create {scratch}: File exists" in said
    assert "  Set a directory that you own." in said
