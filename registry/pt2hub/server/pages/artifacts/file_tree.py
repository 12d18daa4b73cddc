"""Files of an archive as a folder tree."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pt2hub.domain.artifacts import Member

if TYPE_CHECKING:
    from collections.abc import Iterable


_MAX_DEPTH = 12
"""Nested folders; deeper files keep the rest of their path in their names."""


@dataclass(slots=True)
class Folder:
    """A folder.

    Attributes:
        size: Bytes of all files below it.
        count: Number of files below it.
        files: Files directly in it, by base name, in the archive's order.
    """

    name: str
    size: int = 0
    count: int = 0
    folders: dict[str, Folder] = field(default_factory=dict)
    files: list[tuple[str, Member]] = field(default_factory=list)


def tree(members: Iterable[Member]) -> Folder:
    """Return the root folder of an archive's members."""
    root = Folder("")
    for member in members:
        *folders, name = member.name.split("/", _MAX_DEPTH)
        _put(root, folders, name, member)
    return _collapse(root)


def _put(root: Folder, folders: Iterable[str], name: str, member: Member) -> None:
    path = [root]
    for folder in folders:
        path.append(path[-1].folders.setdefault(folder, Folder(folder)))
    for parent in path:
        parent.size += member.size
        parent.count += 1
    path[-1].files.append((name, member))


def _collapse(folder: Folder) -> Folder:
    """Merge chains of single folders into one folder."""
    while len(folder.folders) == 1 and not folder.files and folder.name:
        (only,) = folder.folders.values()
        only.name = f"{folder.name}/{only.name}"
        folder = only
    folder.folders = {name: _collapse(inner) for name, inner in folder.folders.items()}
    return folder
