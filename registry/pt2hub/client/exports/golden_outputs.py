"""Sizes and dtypes of a version's outputs, from the golden outputs that its first build stored."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pt2hub.archive.safetensors_header import read_safetensors_header
from pt2hub.client.http.remote_blob import RemoteBlob
from pt2hub.errors import BadResponse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pt2hub.client.http.transport import Transport
    from pt2hub.domain.artifacts import ArtifactConfig

_KIND = "single"
"""The outputs of the model itself; `double` are those in float64."""
_FLOATS = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True, slots=True)
class _Source:
    """A blob as a `ByteSource`."""

    blob: RemoteBlob
    size: int

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        return self.blob.read(start, stop)


def read_output_forms(transport: Transport, config: ArtifactConfig) -> list[tuple[tuple[int, ...], str]]:
    """Return sizes and dtype of each output; -1 for a size that differed between the inputs of verification.

    Only the header of the stored outputs is read.

    Raises:
        BadResponse: What the server has is not the outputs of a version.
        Pt2hubError: The server did not answer, or lacks them.
    """
    document: Any = json.loads(transport.read(f"/api/v1/blobs/{config.version.golden}"))
    if not isinstance(document, dict) or not isinstance(document.get("outputs"), str):
        raise BadResponse("The golden values are not a document", where=config.version.golden)
    path = f"/api/v1/blobs/{document['outputs']}"
    size = transport.size(path)
    header = read_safetensors_header(_Source(transport.blob(path, size), size))
    shapes: dict[int, list[tuple[int, ...]]] = {}
    dtypes: dict[int, str] = {}
    for name, entry in header.items():
        _label, kind, index = name.split("/")
        if kind == _KIND:
            shapes.setdefault(int(index), []).append(entry.shape)
            dtypes[int(index)] = _own_dtype(entry.dtype, config.dtype)
    return [(_common(shapes[index]), dtypes[index]) for index in sorted(shapes)]


def _own_dtype(stored: str, override: str | None) -> str:
    """Return the dtype of a target's output: floating-point ones have the target's own."""
    return override if override and stored in _FLOATS else stored


def _common(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sizes[0] if len(set(sizes)) == 1 else -1 for sizes in zip(*shapes, strict=True))
