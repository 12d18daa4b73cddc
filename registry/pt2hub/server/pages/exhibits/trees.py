"""The files of an archive as folders."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pt2hub.domain.artifacts import Member

if TYPE_CHECKING:
    from collections.abc import Iterable


_DEEPEST = 12
"""Folders within each other; what lies deeper keeps the rest of its way in its name."""


@dataclass(slots=True)
class Folder:
    """A folder.

    Attributes:
        name: Its name; of folders that hold nothing but one other, the names of all of them.
        size: Bytes of all files below it.
        count: How many these are.
        folders: Those in it, by name.
        files: Files in it with the last part of their names, in the archive's order.
    """

    name: str
    size: int = 0
    count: int = 0
    folders: dict[str, Folder] = field(default_factory=dict)
    files: list[tuple[str, Member]] = field(default_factory=list)


def tree(members: Iterable[Member]) -> Folder:
    """The folder that holds all members.

    Args:
        members: The archive's listing; names are only shown.
    """
    root = Folder("")
    for member in members:
        *folders, name = member.name.split("/", _DEEPEST)
        _put(root, folders, name, member)
    return _joined(root)


def _put(root: Folder, folders: Iterable[str], name: str, member: Member) -> None:
    way = [root]
    for folder in folders:
        way.append(way[-1].folders.setdefault(folder, Folder(folder)))
    for place in way:
        place.size += member.size
        place.count += 1
    way[-1].files.append((name, member))


def _joined(folder: Folder) -> Folder:
    """The folder, chains of single folders made one."""
    while len(folder.folders) == 1 and not folder.files and folder.name:
        (only,) = folder.folders.values()
        only.name = f"{folder.name}/{only.name}"
        folder = only
    folder.folders = {name: _joined(inner) for name, inner in folder.folders.items()}
    return folder
