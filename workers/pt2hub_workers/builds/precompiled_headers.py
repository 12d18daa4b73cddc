"""PyTorch's precompiled headers on the worker's side: compiled once, read by every build of this machine.

Compiling them takes half the time of a small model's build, and they have some hundred megabytes. No build may write
what another one reads, so a separate child process compiles them, confined like a build and without users' code. The
files lie in one directory that builds can only read, under Inductor's names, which identify their contents. Each
toolchain has a list of its files, written when they are complete. The answers of Inductor's probes of the CPU's
instruction sets are next to them: six probes take as long as a small model.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import sys
import time
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import structlog

from pt2hub.domain.codec import encode
from pt2hub.domain.digests import digest_json, hex_of
from pt2hub.errors import Pt2hubError
from pt2hub_workers.children.child import ChildDied, ChildHung
from pt2hub_workers.operations.cancellation import CancellationToken
from pt2hub_workers.sandbox import workspaces

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pt2hub_workers.builds.toolchains import Toolchain
    from pt2hub_workers.operations.device_lock import DeviceLock
    from pt2hub_workers.operations.machine import Machine
    from pt2hub_workers.sandbox.workspaces import Workspace

VARIABLE = "PT2HUB_HEADERS"
"""Variable with the directory, for the worker and its children (`inside.builds.compile.precompiled_headers.PREPARED`)."""
UNUSED_SECONDS = 30 * 86400.0
"""Age after which the headers of a toolchain are removed if no worker used them."""
NEEDED_BYTES = 2 << 30
"""Free disk space required to compile: three headers of 0.15 GB each (torch 2.13), and space for the builds."""
COMPILE_SECONDS = 900.0
"""Time limit of the child, and of other workers that wait for it: many times what two busy cores need."""
_SHAPING = ("CXX", "CPATH", "CPLUS_INCLUDE_PATH", "CUDA_HOME", "CUDA_PATH", "ATEN_CPU_CAPABILITY")
"""Variables that change the compiler's options or inputs, in addition to Inductor's own."""
_INDUCTORS = "TORCHINDUCTOR_"
_POLL_SECONDS = 0.2
_log = structlog.get_logger()


class PrecompiledHeaders:
    """Precompiled headers of one toolchain, in the shared directory."""

    def __init__(self, folder: Path, toolchain: Toolchain, environ: Mapping[str, str]) -> None:
        self._folder = folder
        self._toolchain = toolchain
        self._machine = toolchain.machine()
        self._list = folder / f"{hex_of(digest_json(identity(self._machine, environ)))[:16]}.json"
        self._held: int | None = None

    def ensure(self, device: DeviceLock) -> None:
        """Compile the headers unless they exist, and keep other workers from removing them until `close`.

        Failures are only logged: builds then compile without them and take longer.
        """
        try:
            with _alone(self._folder):
                self._remove_unused()
                if not self._whole():
                    self._compile(device)
                self._hold()
        except (Pt2hubError, ChildDied, ChildHung, OSError) as error:
            _log.warning(
                "cannot prepare PyTorch's precompiled headers; every build compiles without them and takes longer",
                error=str(error),
            )

    def close(self) -> None:
        """Allow other workers to remove the headers."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def _whole(self) -> bool:
        """Return whether every file exists: other programs clean directories of temporary files, file by file."""
        files = _read_list(self._list)
        return bool(files) and all(_size(self._folder / name) == size for name, size in files.items())

    def _compile(self, device: DeviceLock) -> None:
        free = shutil.disk_usage(self._folder).free
        if free < NEEDED_BYTES:
            why = f"less than {NEEDED_BYTES >> 30} GiB of disk space are free"
            raise OSError(errno.ENOSPC, why, str(self._folder))
        _log.info("compiling PyTorch's headers for this toolchain", folder=str(self._folder))
        began = time.monotonic()
        with (
            device.shared(CancellationToken()),
            contextlib.closing(self._toolchain.take("headers")) as child,
        ):
            answer = child.work(
                {"directory": str(child.workspace.inside), "target": encode(self._machine.target)},
                on_event=_ignore,
                on_output=_ignore,
                seconds=COMPILE_SECONDS,
                token=CancellationToken(),
            )
            files = {PurePosixPath(name).name: self._keep(child.workspace, name) for name in answer["files"]}
        self._write_list(files)
        seconds, megabytes = time.monotonic() - began, sum(files.values()) / 1e6
        _log.info("compiled PyTorch's headers", seconds=round(seconds, 1), megabytes=round(megabytes))

    def _keep(self, workspace: Workspace, named: str) -> int:
        """Move a file into the directory unless another toolchain's list has it; return its size.

        Compilers give equal texts files of different sizes: replacing a file would invalidate the other list, and its
        worker would replace the file in turn.
        """
        held = workspace.take(named)
        name = PurePosixPath(named).name
        there = _size(self._folder / name)
        if there is not None and there in {
            _read_list(path).get(name) for path in self._folder.glob("*.json")
        }:
            return there
        part = self._folder / ".part"  # one at a time: the directory is locked
        part.unlink(missing_ok=True)
        try:
            os.link(held, part)
        except OSError:  # another filesystem
            shutil.copyfile(held, part)
        part.chmod(0o444)
        part.replace(self._folder / name)
        return held.stat().st_size

    def _write_list(self, files: Mapping[str, int]) -> None:
        part = self._folder / ".part"
        part.write_text(json.dumps(files, indent=1))
        part.replace(self._list)

    def _hold(self) -> None:
        self._held = os.open(self._list, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(self._held, fcntl.LOCK_SH)
        os.utime(self._held)

    def _remove_unused(self) -> None:
        """Remove the files of toolchains that have not been used for long and have no running worker."""
        lists = set(self._folder.glob("*.json"))
        unused = {path for path in lists - {self._list} if _is_unused(path)}
        kept = {name for path in lists - unused for name in _read_list(path)}
        for path in unused:
            for name in _read_list(path).keys() - kept:
                (self._folder / PurePosixPath(name).name).unlink(missing_ok=True)
            path.unlink()


def prepare(folder: Path) -> None:
    """Create the directory for this user only: code in it runs in every build."""
    workspaces.prepare(folder, setting=VARIABLE)


def identity(machine: Machine, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return what is known to determine a toolchain's headers; anything unknown costs only a miss."""
    toolchain = machine.toolchain
    shaping = (key for key in environ if key in _SHAPING or key.startswith(_INDUCTORS))
    return {
        "contents": ["headers", "answers of probes"],
        "target": machine.target.name,
        "versions": [toolchain.torch, toolchain.python, toolchain.compiler, toolchain.pt2hub],
        "prefix": sys.prefix,
        "cpu_flags": list(machine.cpu_flags),
        "environ": {key: environ[key] for key in sorted(shaping)},
    }


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock the directory against other workers; the kernel releases the lock with its process."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    deadline = time.monotonic() + COMPILE_SECONDS
    logged = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(errno.ETIMEDOUT, "another worker holds its lock", str(folder)) from None
            if not logged:
                _log.info("waiting for another worker that compiles PyTorch's headers", folder=str(folder))
            logged = True
            time.sleep(_POLL_SECONDS)
        else:
            return


def _is_unused(path: Path) -> bool:
    """Return whether a toolchain was not used for long and no worker holds it."""
    try:
        with path.open("rb") as file:
            if time.time() - os.fstat(file.fileno()).st_mtime < UNUSED_SECONDS:
                return False
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _read_list(path: Path) -> dict[str, int]:
    """Return the files of a toolchain and their sizes; empty without a list."""
    try:
        files: dict[str, int] = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return files


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _ignore(message: object) -> None:
    """Ignore messages and output: the error has what matters of a failure."""
    del message
