"""Removal of damaged bytes that were put away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.storage import QUARANTINE
from pt2hub.server.blobs.keys import StorageKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pt2hub.server.blobs.ports import NamedObjects


def empty_quarantine(storage: NamedObjects, keys: Iterable[StorageKey]) -> None:
    """Remove what was put away of blobs, in all their generations, which the database need not know.

    Raises:
        StorageUnavailable: The storage does not answer.
    """
    wanted = {StorageKey(key.kind, key.digest) for key in keys}
    folders = {key.quarantine_path.rpartition("/")[0] for key in wanted}
    for folder in sorted(folders):
        for path, _ in list(storage.list_objects(f"{folder}/")):
            key = StorageKey.from_path(path.removeprefix(f"{QUARANTINE}/"))
            if key and StorageKey(key.kind, key.digest) in wanted:
                storage.delete_object(path)
