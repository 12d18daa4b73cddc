"""Which failures are the machine's, and pass."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from pt2hub.errors import CompileFailed, FactoryFailed, LimitExceeded, WorkerLost
from pt2hub_workers.inside.builds.shortage import OWN_MEMORY, OWN_TMP, check_memory, find_shortage

if TYPE_CHECKING:
    from pathlib import Path


class OutOfMemoryError(RuntimeError):
    """Named as torch's."""


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/scratch/0/tmp/x.o"),
        BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)),
        MemoryError(),
        OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: Error code 12 (Cannot allocate memory)"),
        RuntimeError(
            "C++ compile error\ng++: fatal error: Killed signal terminated program cc1plus\ncompilation ended"
        ),
    ],
)
def test_a_machine_without_room_is_no_fault_of_the_build_wherever_it_shows(error: Exception) -> None:
    assert find_shortage(error) is not None
    wrapped = CompileFailed("AOTInductor failed")
    wrapped.__cause__ = error
    found = find_shortage(wrapped, "compile")

    assert found is not None
    assert found.where == "compile"
    assert len(found.message.splitlines()) == 1


def test_a_full_directory_in_memory_is_the_builds_own_limit_and_a_full_disk_is_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(OWN_TMP, f"{tmp_path}:{tmp_path}/shm")
    (tmp_path / "shm").mkdir()

    def full(path: str) -> object:
        return find_shortage(RuntimeError(f"error writing to {path}: No space left on device"))

    found = full(f"{tmp_path}/x.s")
    assert isinstance(found, LimitExceeded)
    assert f"filled {tmp_path}, a directory in memory" in found.message
    assert "PT2HUB_BUILD_TMP" in (found.hint or "")
    assert isinstance(full("/pt2hub-workspace/tmp/x.s"), WorkerLost)


@pytest.mark.parametrize(
    "error", [FileNotFoundError(2, "No such file"), FactoryFailed("boom"), KeyError("x")]
)
def test_other_failures_are_not_the_machines(error: Exception) -> None:
    assert find_shortage(error) is None


def test_what_never_fits_the_build_is_its_limit_and_no_shortage_of_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(count: int) -> object:
        text = (
            f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {count} bytes. Error code 12"
        )
        return find_shortage(FactoryFailed(f"{text} (Cannot allocate memory)"), "export")

    assert isinstance(refused(3 << 30), WorkerLost)
    monkeypatch.setenv(OWN_MEMORY, str(2 << 30))

    found = refused(3 << 30)
    assert isinstance(found, LimitExceeded)
    assert found.message == "One tensor alone needs more memory than the build may use: 3 GiB of 2 GiB."
    assert found.context == {"what": "memory", "limit": 2 << 30}
    assert "PT2HUB_BUILD_MEMORY" in (found.hint or "")
    assert isinstance(refused(1 << 30), WorkerLost)
    assert check_memory(2 << 30, "The weights file") is None
