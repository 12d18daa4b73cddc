"""Location of the control groups that a worker creates for its children.

A worker may use a tree that was delegated to it: with systemd's `Delegate=yes`, its unit may create groups below its own
(https://systemd.io/CGROUP_DELEGATION); in a container it is a separate tree that is mounted writable. A group with
controllers for its children may not have processes itself, so those in it, the worker included, first move to a leaf
`worker`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import structlog

from pt2hub_workers.sandbox.cgroups import Cgroup, Counted, write

if TYPE_CHECKING:
    from collections.abc import Iterable

LEAF = "worker"
"""Group that the processes of a delegated group move to."""
_MOVES = 10
"""Rounds of moving processes out of a group while they keep forking."""
_CONTROLLERS: dict[str, Counted] = {"memory": "memory", "pids": "processes"}
_DELEGATE = ("user.delegate", "trusted.delegate")
"""Extended attributes by which systemd marks a delegated group, since release 251 and before."""
_HIERARCHICAL_LIMIT = re.compile(r"^hierarchical_memory_limit (\d+)$", re.MULTILINE)
_NO_LIMIT = 1 << 60
"""Version 1 writes a number near 2**63 where there is no limit."""
_ROOT = Path("/")
_log = structlog.get_logger()


class _CgroupLocation(NamedTuple):
    """Location of this process in the tree."""

    folder: Path
    below: Path


@cache
def own_cgroup() -> Cgroup | None:
    """Return the group for this process's children; found only once, because that moves processes."""
    found = find_delegated_cgroup()
    counted = sorted(found.counts) if found else []
    _log.info("control groups", counted=counted, folder=str(found.folder) if found else None)
    return found


def find_delegated_cgroup(root: Path = _ROOT) -> Cgroup | None:
    """Find and prepare the group for children's groups, and remove abandoned ones."""
    own = _own_location(root)
    if own is None:
        return None
    try:
        found = _prepare_delegated(own)
    except OSError as error:
        _log.info("no control groups", reason=error.strerror)
        return None
    found.tidy()
    return found


def memory_ceiling(root: Path = _ROOT) -> int | None:
    """Return the lowest memory limit of this process's groups, in bytes; None without a limit.

    Groups of version 1 are read too, because containers on older hosts have their limit there.
    """
    own = _own_location(root)
    limits = []
    for above in (own.folder, *own.folder.parents) if own else ():
        with contextlib.suppress(OSError, ValueError):  # `max` or no file: no limit
            limits.append(int((above / "memory.max").read_text()))
    if older := _memory_location(root):
        with contextlib.suppress(OSError):
            found = _HIERARCHICAL_LIMIT.search((older / "memory.stat").read_text())
            limits += [int(found[1])] if found else []
    return min((limit for limit in limits if limit < _NO_LIMIT), default=None)


def _memory_location(root: Path) -> Path | None:
    """Return the folder of this process's group in the memory tree of version 1; see cgroups(7)."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
        mounts = (root / "proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return None
    fields = (line.split(":", 2) for line in lines)
    path = next((path for _, names, path in fields if "memory" in names.split(",")), None)
    for where, _, what in (line.partition(" - ") for line in mounts):
        _, _, _, top, mount, *_ = where.split(" ")
        kind, *_, options = what.split(" ")
        if path and kind == "cgroup" and "memory" in options.split(",") and Path(path).is_relative_to(top):
            return root / mount.lstrip("/") / Path(path).relative_to(top)
    return None


def _prepare_delegated(own: _CgroupLocation) -> Cgroup:
    """Prepare the delegated group for groups below it.

    Raises:
        OSError: It is not delegated, lacks the controllers, or its processes cannot be moved.
    """
    folder, below = own
    if below.name == LEAF and _writable(folder.parent):  # this process or its parent moved there before
        folder, below = folder.parent, below.parent
    offered = _words(folder / "cgroup.controllers") & set(_CONTROLLERS)
    if not offered:
        raise OSError(errno.ENOTSUP, "the tree has no controllers of memory or processes")
    if not _given(folder, top=below == Path()):
        raise OSError(
            errno.EACCES, "the worker's own group is not delegated: set Delegate=yes in its systemd unit"
        )
    if not offered <= _words(folder / "cgroup.subtree_control"):
        _enable(folder, offered)
    return Cgroup(folder, frozenset(_CONTROLLERS[name] for name in offered))


def _given(folder: Path, *, top: bool) -> bool:
    """Return whether a group is delegated; root may write everywhere, so for root that alone proves nothing."""
    if not _writable(folder):
        return False
    return top or os.geteuid() != 0 or any(_attribute(folder, name) == b"1" for name in _DELEGATE)


def _enable(folder: Path, controllers: Iterable[str]) -> None:
    leaf = Cgroup(folder / LEAF, frozenset())
    made = (
        folder / "cgroup.type"
    ).exists() and not leaf.folder.is_dir()  # the root of the tree need not be empty
    if made:
        leaf.folder.mkdir()
    try:
        if leaf.folder.is_dir():
            _move(Cgroup(folder, frozenset()), leaf)
        write(folder / "cgroup.subtree_control", " ".join(f"+{name}" for name in sorted(controllers)))
    except OSError:
        if made:
            _move(leaf, Cgroup(folder, frozenset()))
            leaf.folder.rmdir()
        raise


def _move(source: Cgroup, target: Cgroup) -> None:
    for _ in range(_MOVES):
        members = source.members()
        if not members:
            return
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                write(target.folder / "cgroup.procs", str(pid))


def _own_location(root: Path) -> _CgroupLocation | None:
    """Return this process's group if the mounted part of the tree contains it; see proc(5)."""
    try:
        path = next(
            line.removeprefix("0::")
            for line in (root / "proc/self/cgroup").read_text().splitlines()
            if line.startswith("0::")
        )
        mounts = (root / "proc/self/mountinfo").read_text().splitlines()
    except (OSError, StopIteration):
        return None
    for where, _, what in (line.partition(" - ") for line in mounts):
        _, _, _, top, mount, *_ = where.split(" ")
        if what.startswith("cgroup2 ") and Path(path).is_relative_to(top):
            below = Path(path).relative_to(top)
            folder = root / mount.lstrip("/") / below
            return _CgroupLocation(folder, below) if folder.is_dir() else None
    return None


def _writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK) and os.access(folder / "cgroup.procs", os.W_OK)


def _attribute(folder: Path, name: str) -> bytes | None:
    try:
        return os.getxattr(folder, name)
    except OSError:
        return None


def _words(path: Path) -> set[str]:
    try:
        return set(path.read_text().split())
    except OSError:
        return set()
