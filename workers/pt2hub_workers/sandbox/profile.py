"""What a sandbox is made of, as a value: the same for every child of a worker, with a digest that artifacts name.

bubblewrap builds it: namespaces of its own for everything, an empty root that gets the directories named here
(facts/trust.md, section 6). Namespaces and a lack of capabilities are not all of it: a worker that runs as root has
children that are root to the kernel wherever it asks for the user only, so that what lies in /proc and /sys and is
root's to write is mounted read-only, else a child could write /proc/sys/kernel/core_pattern.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.domain.digests import Digest, digest_json
from pt2hub_workers.rooms import WRITABLE
from pt2hub_workers.sandbox import seccomp
from pt2hub_workers.sandbox.environment import TMPFS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

VERSION = 1
"""Of the document: one more whenever the arguments below change."""
INSIDE = Path("/room")
"""Where a child sees its room. No path that people mount things at: whatever Python and PYTHONPATH name keeps its own
path inside, and may lie anywhere."""
USER = 65534
"""`nobody`, as which a child sees itself."""
HOST = "pt2hub"
NAMESPACES = ("cgroup", "ipc", "mount", "net", "pid", "user", "uts")
PROC_READ_ONLY = ("sys", "irq", "bus", "fs", "acpi", "scsi", "asound", "pressure", "mtrr")
PROC_HIDDEN = (
    *("kcore", "keys", "key-users", "kmsg", "kpagecount", "kpageflags", "kpagecgroup", "latency_stats"),
    *("pagetypeinfo", "sched_debug", "slabinfo", "sysrq-trigger", "timer_list", "vmallocinfo"),
)
SYS_CPU = ("/sys/devices/system/cpu", "/sys/devices/system/node")
"""What libraries count cores and caches by."""
SYS_GPU = ("/sys",)
"""CUDA walks through the buses."""
_READS = "in"


@dataclass(frozen=True, slots=True)
class Profile:
    """A sandbox.

    Attributes:
        bubblewrap: Its version.
        system: Directories of the system: a link's target, or None for a directory.
        readable: Further paths that can be read.
        devices: Device nodes beside those that every program has.
        tmp_bytes: Size of its own /tmp, and of its /dev/shm.
    """

    bubblewrap: str
    system: tuple[tuple[str, str | None], ...]
    readable: tuple[str, ...]
    devices: tuple[str, ...]
    tmp_bytes: int

    @property
    def digest(self) -> Digest:
        """The digest of the document."""
        return digest_json(self.document())

    def document(self) -> dict[str, Any]:
        """The profile as JSON values: what a child can reach, not how much of it, which may follow from a disk's space.

        Equal settings give equal documents, whatever child it is for.
        """
        return {
            "version": VERSION,
            "level": "sandbox",
            "bubblewrap": self.bubblewrap,
            "namespaces": list(NAMESPACES),
            "capabilities": [],
            "user": USER,
            "system": dict(self.system),
            "readable": list(self.readable),
            "devices": list(self.devices),
            "sys": list(self._sys),
            "proc": {"read_only": sorted(PROC_READ_ONLY), "hidden": sorted(PROC_HIDDEN)},
            "tmpfs": list(TMPFS),
            "room": {"path": str(INSIDE), "read_only": [_READS], "writable": sorted(WRITABLE)},
            "system_calls": seccomp.document(),
        }

    def arguments(self, environ: Mapping[str, str], room: Path | None) -> list[str]:
        """The arguments of bwrap, up to those that name descriptors and the program.

        Args:
            environ: The child's whole environment.
            room: Its room, as the worker sees it.
        """
        # No --new-session: the child leads a session without a terminal already, TIOCSTI is refused, and bwrap's
        # processes stay in one group, so that killing the group ends all of them even while they set up.
        fixed = [
            "--unshare-all",
            "--unshare-user",
            "--uid",
            str(USER),
            "--gid",
            str(USER),
            "--hostname",
            HOST,
        ]
        fixed += ["--cap-drop", "ALL", "--die-with-parent", "--clearenv"]
        for name, value in sorted(environ.items()):
            fixed += ["--setenv", name, value]
        for mounts in (self._base(), self._reads(), _room(room), _SEALS):
            for mount in mounts:
                fixed += mount
        return [*fixed, "--chdir", str(INSIDE / "tmp") if room else "/"]

    @property
    def _sys(self) -> tuple[str, ...]:
        return SYS_GPU if self.devices else SYS_CPU

    def _base(self) -> Iterator[tuple[str, ...]]:
        """What other paths may lie below, so that it comes first."""
        for path, target in self.system:
            yield ("--symlink", target, path) if target else ("--ro-bind", path, path)
        yield from _proc()
        yield "--dev", "/dev"
        for path in self.devices:
            yield "--dev-bind", path, path
        for path in self._sys:
            yield "--ro-bind-try", path, path
        for path in TMPFS:
            yield "--size", str(self.tmp_bytes), "--tmpfs", path

    def _reads(self) -> Iterator[tuple[str, ...]]:
        for path in self.readable:
            yield "--ro-bind", path, path


_SEALS = (("--remount-ro", "/dev"), ("--remount-ro", "/"))
"""The directories that everything is mounted in are in memory, and nobody bounds them."""


def _proc() -> Iterator[tuple[str, ...]]:
    yield "--proc", "/proc"
    for name in PROC_READ_ONLY:
        yield "--ro-bind-try", f"/proc/{name}", f"/proc/{name}"
    for name in PROC_HIDDEN:
        if Path("/proc", name).exists():
            yield "--ro-bind", "/dev/null", f"/proc/{name}"


def _room(room: Path | None) -> Iterator[tuple[str, ...]]:
    if room:
        yield "--ro-bind", str(room / _READS), str(INSIDE / _READS)
        for part in WRITABLE:
            yield "--bind", str(room / part), str(INSIDE / part)
