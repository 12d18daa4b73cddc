"""Uploaded example tensors, judged by the header of their file: a wrong one is refused before anything waits."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from pt2hub.archive import read_safetensors_header
from pt2hub.domain.digests import Digest
from pt2hub.errors import CorruptArchive, Detail, InvalidInput
from pt2hub.server.blobs.keys import StorageKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pt2hub.archive import TensorEntry
    from pt2hub.domain.inputs import Input
    from pt2hub.domain.specs import Spec
    from pt2hub.server.blobs.ports import Reads

_HINT = "Write it with safetensors.torch.save_file: one tensor of the input's dtype and number of dimensions."


def check_examples(spec: Spec, blobs: Mapping[str, Mapping[str, Any]], storage: Reads) -> None:
    """Refuses example files that are none of their inputs.

    Args:
        spec: What names them.
        blobs: Digest and size of each blob the spec names, by path.
        storage: Holds them; only their headers are read.

    Raises:
        InvalidInput: A file is no safetensors file, or its tensor has another dtype or rank.
    """
    details = []
    for place, item in enumerate(spec.inputs):
        path = f"inputs[{place}].example"
        if item.example is not None:
            file = _Stored(storage, StorageKey.blob(Digest(item.example)), blobs[path]["size"])
            details += _problems(path, item, file)
    if details:
        raise InvalidInput(
            "An uploaded example does not fit its input",
            where=details[0].path,
            hint=_HINT,
            details=tuple(details),
        )


def _problems(path: str, item: Input, file: io.RawIOBase) -> list[Detail]:
    try:
        entries = read_safetensors_header(file)  # type: ignore[arg-type]  # of BinaryIO it only seeks and reads
    except CorruptArchive as exc:
        return [Detail(path, exc.message, given=item.example)]
    entry = entries.get(item.name) or (next(iter(entries.values())) if len(entries) == 1 else None)
    if entry is None:
        names = ", ".join(entries)[:80] or "no tensor"
        return [Detail(path, "the file has no tensor of the input's name", given=names, allowed=item.name)]
    return _differences(path, item, entry)


def _differences(path: str, item: Input, entry: TensorEntry) -> list[Detail]:
    if entry.dtype != item.dtype:
        return [Detail(path, "the tensor has another dtype", given=entry.dtype, allowed=item.dtype)]
    if len(entry.shape) != len(item.shape) or 0 in entry.shape:
        given, allowed = str(list(entry.shape)), str(item.shape)
        return [Detail(path, "the tensor is empty or has another rank", given=given, allowed=allowed)]
    return []


class _Stored(io.RawIOBase):
    """A stored blob as a file that can be sought in."""

    def __init__(self, storage: Reads, key: StorageKey, size: int) -> None:
        super().__init__()
        self._storage, self._key, self._size, self._at = storage, key, size, 0

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (self._size if whence == io.SEEK_END else 0)
        return self._at

    def read(self, size: int = -1) -> bytes:
        stop = self._size if size < 0 else self._at + size
        data = b"".join(self._storage.read(self._key, self._at, stop))
        self._at += len(data)
        return data
