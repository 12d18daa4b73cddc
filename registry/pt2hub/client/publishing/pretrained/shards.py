"""Merging of sharded safetensors files: tensors are copied as bytes, without parsing."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from pt2hub.archive.safetensors_header import Form, read_safetensors_header, safetensors_header
from pt2hub.archive.sources import open_source
from pt2hub.client.publishing.pretrained.names import WHERE
from pt2hub.errors import CorruptArchive, WeightsUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pt2hub.archive import ByteSource, TensorEntry


_OTHER = "Choose another file or revision."


class _Placed(NamedTuple):
    file: ByteSource
    entry: TensorEntry


def shards_of(index: Path) -> dict[str, str]:
    """Return each tensor's file from an index.

    Args:
        index: A file of the form `{"weight_map": {tensor: file}}`.

    Raises:
        WeightsUnavailable: It has another form.
    """
    try:
        document = json.loads(index.read_bytes())
        places = document["weight_map"]
        proper = places and all(file.endswith(".safetensors") for file in places.values())
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as exc:
        raise _malformed_file(index.name) from exc
    if not proper:
        raise _malformed_file(index.name)
    return dict(places)


def merge(places: Mapping[str, str], paths: Mapping[str, Path], out: Path) -> None:
    """Write one safetensors file; equal tensors give equal bytes, however they were sharded.

    Args:
        paths: Where the files are.

    Raises:
        WeightsUnavailable: A file is malformed, or lacks a tensor.
    """
    with ExitStack() as stack:
        files = {name: stack.enter_context(open_source(path)) for name, path in paths.items()}
        headers = {name: _header(name, file) for name, file in files.items()}
        found: dict[str, _Placed] = {}
        for tensor, name in places.items():
            if tensor not in headers[name]:
                raise WeightsUnavailable(
                    f"{name} lacks the tensor {tensor}, which the index lists", where=WHERE, hint=_OTHER
                )
            found[tensor] = _Placed(files[name], headers[name][tensor])
        head, order = safetensors_header(
            {tensor: Form(place.entry.dtype, place.entry.shape) for tensor, place in found.items()}
        )
        with out.open("wb") as written:
            written.write(head)
            for tensor in order:
                file, entry = found[tensor]
                written.writelines(file.read(entry.begin, entry.end))


def _header(name: str, file: ByteSource) -> dict[str, TensorEntry]:
    try:
        return read_safetensors_header(file)
    except CorruptArchive as exc:
        raise WeightsUnavailable(f"{name} is {exc.message}", where=WHERE, hint=_OTHER) from exc


def _malformed_file(name: str) -> WeightsUnavailable:
    return WeightsUnavailable(f"{name} is not a valid index of safetensors files", where=WHERE, hint=_OTHER)
