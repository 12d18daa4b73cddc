"""Where a worker may make control groups for its children.

Version 2 is one tree. A worker may use it where its own group was given to it: systemd's `Delegate=yes` in the
worker's unit says that the unit's part of the tree belongs to the unit, which may then make groups below its own
(https://systemd.io/CGROUP_DELEGATION); in a container it is a tree of its own that is mounted writable. A group with
controllers for its children may hold no processes itself, so that what runs there, the worker included, moves into a
leaf `worker` first. Version 1 has one tree for each controller and no such rule: groups for children are made below the
worker's own wherever it may write.
"""

from __future__ import annotations

import contextlib
import errno
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import structlog

from pt2hub_workers.sandbox.cgroups import Cgroup, Counted, keyed, write

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LEAF = "worker"
"""The group that what runs in a delegated group moves to."""
_MOVES = 10
"""Rounds of moving processes out of a group in which they go on forking."""
_CONTROLLERS: dict[str, Counted] = {"memory": "memory", "pids": "processes"}
_DELEGATE = ("user.delegate", "trusted.delegate")
"""Extended attributes by which systemd marks a delegated group: since its release 251, and before."""
_NO_LIMIT = 1 << 60
"""Version 1 writes the largest number of pages where there is no limit."""
_ROOT = Path("/")
_log = structlog.get_logger()


class _Place(NamedTuple):
    """Where this process is in one tree.

    Attributes:
        folder: Its group's folder.
        below: The same from the uppermost group that the mount shows.
    """

    folder: Path
    below: Path


@cache
def own_places() -> tuple[Cgroup, ...]:
    """Where this process may make groups for its children; empty where it may not. Found once, as it moves processes."""
    found = find_places()
    counted = sorted(what for place in found for what in place.counts)
    _log.info("control groups", counted=counted, folders=[str(place.folder) for place in found])
    return found


def find_places(root: Path = _ROOT) -> tuple[Cgroup, ...]:
    """Finds where groups for children can be made, makes that possible under version 2, and removes forgotten ones.

    Args:
        root: Below which /proc/self and the mounts are looked for.
    """
    found: list[Cgroup] = []
    own = _own_places(root)
    for controller, counted in _CONTROLLERS.items():
        if controller in own and _writable(own[controller].folder):
            found.append(Cgroup(own[controller].folder, 1, frozenset({counted})))
    if "" in own:
        try:
            found.append(_delegated(own[""]))
        except OSError as error:
            _log.info("no control groups of version 2", reason=error.strerror)
    for place in found:
        place.tidy()
    return tuple(found)


def memory_ceiling(root: Path = _ROOT) -> int | None:
    """The least memory limit, in bytes, of the groups that this process is in; None where there is none.

    Args:
        root: As of `find_places`.
    """
    places = _own_places(root)
    limits = []
    if "memory" in places:
        counters = keyed(places["memory"].folder / "memory.stat")
        limits += [count for name, count in counters.items() if name == "hierarchical_memory_limit"]
    if "" in places:
        folder = places[""].folder
        for above in (folder, *folder.parents):
            with contextlib.suppress(OSError, ValueError):  # `max`, or no file: no limit there
                limits.append(int((above / "memory.max").read_text()))
    return min((count for count in limits if count < _NO_LIMIT), default=None)


def _delegated(own: _Place) -> Cgroup:
    """Prepares the group that version 2 gave us for groups below it.

    Raises:
        OSError: It is not ours, lacks the controllers, or what runs there cannot be moved.
    """
    folder, below = own
    if below.name == LEAF and _writable(folder.parent):  # we, or who started us, moved there before
        folder, below = folder.parent, below.parent
    offered = _words(folder / "cgroup.controllers") & set(_CONTROLLERS)
    if not offered:
        raise OSError(errno.ENOTSUP, "its tree has no controllers for memory or processes")
    if not _given(folder, top=below == Path()):
        raise OSError(
            errno.EACCES, "the worker's own group is not delegated: set Delegate=yes in its systemd unit"
        )
    if not offered <= _words(folder / "cgroup.subtree_control"):
        _enable(folder, offered)
    return Cgroup(folder, 2, frozenset(_CONTROLLERS[name] for name in offered))


def _given(folder: Path, *, top: bool) -> bool:
    """Whether a group is ours: root may write everywhere, so that writing alone shows nothing there."""
    if not _writable(folder):
        return False
    return top or os.geteuid() != 0 or any(_attribute(folder, name) == b"1" for name in _DELEGATE)


def _enable(folder: Path, controllers: Iterable[str]) -> None:
    leaf = Cgroup(folder / LEAF, 2, frozenset())
    made = (
        folder / "cgroup.type"
    ).exists() and not leaf.folder.is_dir()  # the tree's own root need not be empty
    if made:
        leaf.folder.mkdir()
    try:
        if leaf.folder.is_dir():
            _move(Cgroup(folder, 2, frozenset()), leaf)
        write(folder / "cgroup.subtree_control", " ".join(f"+{name}" for name in sorted(controllers)))
    except OSError:
        if made:
            _move(leaf, Cgroup(folder, 2, frozenset()))
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


def _own_places(root: Path) -> dict[str, _Place]:
    """This process's group in each tree, by controller; version 2 has the name ''."""
    paths = _own_paths(root)
    found: dict[str, _Place] = {}
    for names, top, mount in _mounts(root):
        for name in names & paths.keys():
            with contextlib.suppress(ValueError):  # the mount shows another part of the tree
                below = Path(paths[name]).relative_to(top)
                found.setdefault(name, _Place(mount / below, below))
    return {name: place for name, place in found.items() if place.folder.is_dir()}


def _own_paths(root: Path) -> dict[str, str]:
    try:
        text = (root / "proc/self/cgroup").read_text()
    except OSError:
        return {}
    lines = [line.split(":", 2) for line in text.splitlines()]
    return {name: path for _, names, path in lines for name in names.split(",")}


def _mounts(root: Path) -> Iterator[tuple[set[str], str, Path]]:
    """Mounted trees: controllers ('' for version 2), the part of the tree that is mounted, and where; proc(5)."""
    try:
        text = (root / "proc/self/mountinfo").read_text()
    except OSError:
        return
    for line in text.splitlines():
        where, _, what = line.partition(" - ")
        kind, _, options = what.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            _, _, _, top, mount, *_ = where.split(" ")
            names = {""} if kind == "cgroup2" else set(options.split(","))
            yield names, top, root / mount.lstrip("/")


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
