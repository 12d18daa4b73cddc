"""PyTorch's precompiled headers, the worker's side: compiled once, and read by every build of this machine.

They are half of a small model's build, and some hundred megabytes. A user's job never makes what another one reads: a
child of their own compiles them, in a room and at the isolation of a build, and runs no code of users. What it made lies
in one directory that builds can only read, each file under the name that Inductor gave it, which says all that it holds;
and for every toolchain there is a list of its files, written when they are whole.
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
from pt2hub_workers import rooms
from pt2hub_workers.children import ChildDied, ChildHung
from pt2hub_workers.halting import Halt

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pt2hub_workers.device import Device
    from pt2hub_workers.machine import Machine
    from pt2hub_workers.rooms import Room
    from pt2hub_workers.toolchains import Toolchain

VARIABLE = "PT2HUB_HEADERS"
"""Names the directory, to the worker and to its children (`inside.headers.PREPARED`)."""
UNUSED_SECONDS = 30 * 86400.0
"""Headers of a toolchain for which no worker was started for so long are removed."""
NEEDED_BYTES = 2 << 30
"""Free disk without which nothing is made: three headers of 0.15 GB each (torch 2.13), and room for the builds."""
COMPILE_SECONDS = 900.0
"""How long the child may take, and others may wait for it: many times what two busy cores need."""
_SHAPING = ("CXX", "CPATH", "CPLUS_INCLUDE_PATH", "CUDA_HOME", "CUDA_PATH", "ATEN_CPU_CAPABILITY")
"""Variables that change what the compiler is told or reads, beside Inductor's own."""
_INDUCTORS = "TORCHINDUCTOR_"
_POLL_SECONDS = 0.2
_log = structlog.get_logger()


class Headers:
    """The headers of one toolchain, in the directory of all."""

    def __init__(self, folder: Path, toolchain: Toolchain, environ: Mapping[str, str]) -> None:
        """Makes nothing yet.

        Args:
            folder: The directory, which `prepare` has made.
            toolchain: Whose children compile them, and use them.
            environ: The environment of its children.
        """
        self._folder = folder
        self._toolchain = toolchain
        self._machine = toolchain.machine()
        self._list = folder / f"{hex_of(digest_json(identity(self._machine, environ)))[:16]}.json"
        self._held: int | None = None

    def ensure(self, device: Device) -> None:
        """Compiles them unless they are there, and keeps others from removing them until `close`.

        What goes wrong is told in the log alone: builds then compile their own, and only take longer.

        Args:
            device: Disturbed by a compiler, so that others finish their measurements first.
        """
        try:
            with _alone(self._folder):
                self._remove_unused()
                if not self._whole():
                    self._compile(device)
                self._hold()
        except (Pt2hubError, ChildDied, ChildHung, OSError) as error:
            _log.warning(
                "every build compiles PyTorch's headers for itself, which takes longer", error=str(error)
            )

    def close(self) -> None:
        """Lets others remove them once they are not used any more."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def _whole(self) -> bool:
        """Whether each file is there: a directory for temporary files is tidied by other programs, file by file."""
        files = _listed(self._list)
        return bool(files) and all(_size(self._folder / name) == size for name, size in files.items())

    def _compile(self, device: Device) -> None:
        free = shutil.disk_usage(self._folder).free
        if free < NEEDED_BYTES:
            why = f"less than {NEEDED_BYTES >> 30} GiB are free"
            raise OSError(errno.ENOSPC, why, str(self._folder))
        _log.info("compiling PyTorch's headers once for this toolchain", folder=str(self._folder))
        began = time.monotonic()
        with device.shared(Halt()), contextlib.closing(self._toolchain.take("headers")) as hand:
            answer = hand.work(
                {"directory": str(hand.room.inside), "target": encode(self._machine.target)},
                on_event=_drop,
                on_output=_drop,
                seconds=COMPILE_SECONDS,
                halt=Halt(),
            )
            files = {PurePosixPath(name).name: self._keep(hand.room, name) for name in answer["files"]}
        self._write_list(files)
        seconds, megabytes = time.monotonic() - began, sum(files.values()) / 1e6
        _log.info("PyTorch's headers are compiled", seconds=round(seconds, 1), megabytes=round(megabytes))

    def _keep(self, room: Room, named: str) -> int:
        """Moves a file into the directory, unless it came there with another toolchain's; its size.

        Compilers make as much of the same text, but not the same number of bytes: to replace a file would be to
        break the other list, whose worker would replace it in turn.
        """
        held = room.take(named)
        name = PurePosixPath(named).name
        there = _size(self._folder / name)
        if there is not None and there in {_listed(path).get(name) for path in self._folder.glob("*.json")}:
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
        """Removes what only toolchains have that were not used for long, and of which no worker runs."""
        lists = set(self._folder.glob("*.json"))
        unused = {path for path in lists - {self._list} if _is_unused(path)}
        kept = {name for path in lists - unused for name in _listed(path)}
        for path in unused:
            for name in _listed(path).keys() - kept:
                (self._folder / PurePosixPath(name).name).unlink(missing_ok=True)
            path.unlink()


def prepare(folder: Path) -> None:
    """Makes the directory: code that others put into it would run in every build.

    Raises:
        BadConfiguration: It belongs to someone else or cannot be made.
    """
    rooms.prepare(folder, setting=VARIABLE)


def identity(machine: Machine, environ: Mapping[str, str]) -> dict[str, Any]:
    """What the headers of a toolchain follow from, as far as the worker knows it; the rest only costs a miss.

    Args:
        machine: Target, versions and CPU: torch.compile compiles for the very CPU.
        environ: The environment of the compiler.
    """
    toolchain = machine.toolchain
    shaping = (key for key in environ if key in _SHAPING or key.startswith(_INDUCTORS))
    return {
        "target": machine.target.name,
        "versions": [toolchain.torch, toolchain.python, toolchain.compiler, toolchain.pt2hub],
        "prefix": sys.prefix,
        "cpu_flags": list(machine.cpu_flags),
        "environ": {key: environ[key] for key in sorted(shaping)},
    }


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keeps other workers from changing the directory; a lock that the kernel frees with its process."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    deadline = time.monotonic() + COMPILE_SECONDS
    told = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(errno.ETIMEDOUT, "another worker keeps it locked", str(folder)) from None
            if not told:
                _log.info("another worker compiles PyTorch's headers; waiting", folder=str(folder))
            told = True
            time.sleep(_POLL_SECONDS)
        else:
            return


def _is_unused(path: Path) -> bool:
    """Whether a toolchain was not used for long, and no worker holds it; its clock is the one that stamps files."""
    try:
        with path.open("rb") as file:
            if time.time() - os.fstat(file.fileno()).st_mtime < UNUSED_SECONDS:
                return False
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _listed(path: Path) -> dict[str, int]:
    """The files of a toolchain and their sizes; none where there is no list."""
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


def _drop(said: object) -> None:
    """Nobody follows this child: what matters of a failure is in its error."""
    del said
