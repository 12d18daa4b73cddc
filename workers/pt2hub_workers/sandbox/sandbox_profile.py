"""Sandbox profile, the same for every child of a worker, with a digest that artifacts record.

bubblewrap applies it: separate namespaces for everything, and an empty root with the directories listed here
(docs/facts/sandbox.md#bubblewrap). Namespaces and missing capabilities are not enough: where the kernel checks only the
user, children of a worker that runs as root are root. So root's files in /proc and /sys are mounted read-only;
otherwise a child could write /proc/sys/kernel/core_pattern.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.domain.digests import Digest, digest_json
from pt2hub_workers.sandbox import seccomp
from pt2hub_workers.sandbox.environment import TMPFS
from pt2hub_workers.sandbox.workspaces import WRITABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

VERSION = 2
"""Version of the document, incremented whenever the arguments below change."""
INSIDE = Path("/pt2hub-workspace")
"""Path of the workspace as a child sees it. It must not collide with other mounts: what Python and PYTHONPATH name keeps
its path inside, and may lie anywhere."""
USER = 65534
"""User id that a child sees, `nobody`."""
HOST = "pt2hub"
NAMESPACES = ("cgroup", "ipc", "mount", "net", "pid", "user", "uts")
PROC_READ_ONLY = ("sys", "irq", "bus", "fs", "acpi", "scsi", "asound", "pressure", "mtrr")
PROC_HIDDEN = (
    *("kcore", "keys", "key-users", "kmsg", "kpagecount", "kpageflags", "kpagecgroup", "latency_stats"),
    *("pagetypeinfo", "sched_debug", "slabinfo", "sysrq-trigger", "timer_list", "vmallocinfo"),
)
SYS_CPU = ("/sys/devices/system/cpu", "/sys/devices/system/node")
"""Files by which libraries count cores and caches."""
SYS_GPU = ("/sys",)
"""Files for CUDA, which walks through the buses."""
ZERO = ("/dev/full", "/dev/zero")
"""A device with zeros to read, but none to map: a shared mapping of /dev/zero stays after a process dropped its pages."""
_READS = "in"


@dataclass(frozen=True, slots=True)
class Profile:
    """Profile of a sandbox.

    Attributes:
        system: Directories of the system, each with its target if it is a link.
    """

    bubblewrap: str
    system: tuple[tuple[str, str | None], ...]
    readable: tuple[str, ...]
    devices: tuple[str, ...]
    tmp_bytes: int

    @property
    def digest(self) -> Digest:
        """Digest of the document."""
        return digest_json(self.document())

    def document(self) -> dict[str, Any]:
        """Return the profile as JSON values: what a child can reach, without its limits, which may depend on free space.

        Equal settings give equal documents for all children.
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
            "workspace": {"path": str(INSIDE), "read_only": [_READS], "writable": sorted(WRITABLE)},
            "system_calls": seccomp.document(gpu=bool(self.devices)),
        }

    def arguments(self, environ: Mapping[str, str], workspace: Path | None) -> list[str]:
        """Return the arguments of bwrap, except descriptors and the program."""
        # No --new-session: the child already leads a session without a terminal, TIOCSTI is refused, and bwrap's
        # processes stay in one group, so that killing the group ends all of them, even during their setup.
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
        for mounts in (self._base(), self._reads(), _workspace(workspace), _SEALS):
            for mount in mounts:
                fixed += mount
        return [*fixed, "--chdir", str(INSIDE / "tmp") if workspace else "/"]

    @property
    def _sys(self) -> tuple[str, ...]:
        return SYS_GPU if self.devices else SYS_CPU

    def _base(self) -> Iterator[tuple[str, ...]]:
        """Yield the mounts that may contain other mounts, which must come first."""
        for path, target in self.system:
            yield ("--symlink", target, path) if target else ("--ro-bind", path, path)
        yield from _proc()
        yield "--dev", "/dev"
        for path in self.devices:
            yield "--dev-bind", path, path
        if not self.devices:
            yield "--dev-bind", *ZERO
        for path in self._sys:
            yield "--ro-bind-try", path, path
        for path in TMPFS:
            yield "--size", str(self.tmp_bytes), "--tmpfs", path

    def _reads(self) -> Iterator[tuple[str, ...]]:
        for path in self.readable:
            yield "--ro-bind", path, path


_SEALS = (("--remount-ro", "/dev"), ("--remount-ro", "/"))
"""Directories of the mount points, which lie in memory without a limit."""


def _proc() -> Iterator[tuple[str, ...]]:
    yield "--proc", "/proc"
    for name in PROC_READ_ONLY:
        yield "--ro-bind-try", f"/proc/{name}", f"/proc/{name}"
    for name in PROC_HIDDEN:
        if Path("/proc", name).exists():
            yield "--ro-bind", "/dev/null", f"/proc/{name}"


def _workspace(workspace: Path | None) -> Iterator[tuple[str, ...]]:
    if workspace:
        yield "--ro-bind", str(workspace / _READS), str(INSIDE / _READS)
        for part in WRITABLE:
            yield "--bind", str(workspace / part), str(INSIDE / part)
