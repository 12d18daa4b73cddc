"""Sizes and dtypes of a version's outputs, from the golden outputs that its first build stored."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pt2hub.archive.safetensors_header import read_safetensors_header
from pt2hub.client.http.remote_blob import RemoteBlob
from pt2hub.domain.codec import decode
from pt2hub.domain.digests import Digest, digest_bytes
from pt2hub.errors import BadResponse, DigestMismatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pt2hub.client.http.transport import Transport
    from pt2hub.domain.artifacts import ArtifactConfig

_NAME = re.compile(r"[^/]+/(?P<kind>[^/]+)/(?P<index>[0-9]{1,6})")
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
        DigestMismatch: The golden values are not those of the version.
        Pt2hubError: The server did not answer, or lacks them.
    """
    path = f"/api/v1/blobs/{_digest_of_outputs(transport, config.version.golden)}"
    size = transport.size(path)
    header = read_safetensors_header(_Source(transport.blob(path, size), size))
    shapes: dict[int, list[tuple[int, ...]]] = {}
    dtypes: dict[int, str] = {}
    for name, entry in header.items():
        match = _NAME.fullmatch(name)
        if match is None:
            raise BadResponse(f"The golden outputs have the name {name[:80]!a}", where=config.version.golden)
        if match["kind"] == _KIND:
            index = int(match["index"])
            shapes.setdefault(index, []).append(entry.shape)
            dtypes[index] = _own_dtype(entry.dtype, config.dtype)
    return [(_common(shapes[index]), dtypes[index]) for index in sorted(shapes)]


def _digest_of_outputs(transport: Transport, golden: Digest) -> Digest:
    """Return the digest of the stored outputs, from the document of the golden values, which is checked."""
    data = transport.read(f"/api/v1/blobs/{golden}")
    found = digest_bytes(data)
    if found != golden:
        raise DigestMismatch(
            f"The golden values have the digest {found}", where=golden, hint="Run the export again."
        )
    try:
        document: Any = json.loads(data)
        return decode(Digest, document["outputs"], where="outputs")
    except (ValueError, RecursionError, KeyError, TypeError) as exc:
        raise BadResponse("The golden values are not a document", where=golden) from exc


def _own_dtype(stored: str, override: str | None) -> str:
    """Return the dtype of a target's output: floating-point ones have the target's own."""
    return override if override and stored in _FLOATS else stored


def _common(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sizes[0] if len(set(sizes)) == 1 else -1 for sizes in zip(*shapes, strict=True))
