"""Strict parser of safetensors headers, without the safetensors package.

The file is 8 bytes (length of the header, little-endian), the header as a JSON object, then the tensors' bytes.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pt2hub.archive.sources import open_source
from pt2hub.errors import CorruptArchive

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pt2hub.archive.sources import ByteSource

_LENGTH = 8
_MAX_HEADER_BYTES = 32 << 20
_MAX_DIMENSIONS = 64
_LARGEST = 1 << 63
_DTYPES: dict[str, tuple[str, int]] = {
    "BOOL": ("bool", 1),
    "U8": ("uint8", 1),
    "I8": ("int8", 1),
    "F8_E4M3": ("float8_e4m3fn", 1),
    "F8_E5M2": ("float8_e5m2", 1),
    "F8_E8M0": ("float8_e8m0fnu", 1),
    "F8_E4M3FNUZ": ("float8_e4m3fnuz", 1),
    "F8_E5M2FNUZ": ("float8_e5m2fnuz", 1),
    "U16": ("uint16", 2),
    "I16": ("int16", 2),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "U32": ("uint32", 4),
    "I32": ("int32", 4),
    "F32": ("float32", 4),
    "U64": ("uint64", 8),
    "I64": ("int64", 8),
    "F64": ("float64", 8),
    "C64": ("complex64", 8),
}
"""Dtypes by their name in safetensors: torch's name without the prefix, and bytes per element."""
WIDTHS = dict(_DTYPES.values())
"""Bytes per element, by torch's name of the dtype."""
_ORDER = (
    "uint64", "int64", "float64", "complex64", "float32", "uint32", "int32", "bfloat16", "float16", "uint16", "int16",
    "float8_e5m2fnuz", "float8_e4m3fnuz", "float8_e8m0fnu", "float8_e4m3fn", "float8_e5m2", "int8", "uint8", "bool",
)  # fmt: skip
"""The order in which safetensors 0.8 writes tensors of different dtypes; those of one dtype go by name."""


@dataclass(frozen=True, slots=True)
class Form:
    """Dtype and shape of a tensor."""

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        """Format for messages: `float32[2, 3]`."""
        return f"{self.dtype}{list(self.shape)}"


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A tensor of a safetensors file.

    Attributes:
        dtype: As torch prints it without the prefix (`float32`).
        shape: Sizes; the bytes are contiguous in this order.
        begin: Where its bytes begin, counted from the start of the file.
        end: Where they end.
    """

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def read_safetensors_header(source: Path | bytes | ByteSource) -> dict[str, TensorEntry]:
    """Return the tensors of a safetensors file, in byte order.

    Raises:
        CorruptArchive: The header is malformed, or the tensors do not fill the file exactly.
    """
    with open_source(source) as file:
        length = int.from_bytes(b"".join(file.read(0, min(_LENGTH, file.size))), "little")
        if file.size < _LENGTH or length > min(_MAX_HEADER_BYTES, file.size - _LENGTH):
            raise _malformed_header("its header is longer than the file or the limit")
        start = _LENGTH + length
        document = _parse_header(b"".join(file.read(_LENGTH, start)))
        entries = {
            name: _entry(name, item, start=start) for name, item in document.items() if name != "__metadata__"
        }
        return _tiling(entries, start=start, end=file.size)


def safetensors_header(tensors: Mapping[str, Form]) -> tuple[bytes, list[str]]:
    """Return the header of a safetensors file, as the safetensors package writes it.

    Args:
        tensors: Dtype and shape by name.

    Returns:
        The bytes up to the first tensor's, and the order in which the tensors' bytes follow.
    """
    names = {torch_name: name for name, (torch_name, _) in _DTYPES.items()}
    order = sorted(tensors, key=lambda name: (_ORDER.index(tensors[name].dtype), name))
    document: dict[str, Any] = {}
    at = 0
    for name in order:
        form = tensors[name]
        end = at + WIDTHS[form.dtype] * math.prod(form.shape)
        document[name] = {"dtype": names[form.dtype], "shape": list(form.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _LENGTH)
    return len(text).to_bytes(_LENGTH, "little") + text, order


def _parse_header(raw: bytes) -> dict[str, Any]:
    if not raw.startswith(b"{"):
        raise _malformed_header("its header is not a JSON object")
    try:
        document = json.loads(raw.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise _malformed_header("its header is not valid JSON") from error
    assert isinstance(document, dict)  # it begins with a brace
    _check_metadata(document.get("__metadata__", {}))
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise _malformed_header("its header has the same key twice")
    return document


def _no_constant(text: str) -> float:
    raise ValueError(text)


def _check_metadata(metadata: Any) -> None:
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise _malformed_header("its metadata are not all strings")


def _entry(name: str, item: Any, *, start: int) -> TensorEntry:
    if not isinstance(item, dict) or set(item) != {"dtype", "shape", "data_offsets"}:
        raise _malformed_header("a tensor needs exactly dtype, shape and data_offsets", name)
    dtype = item["dtype"]
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise _malformed_header(f"unknown dtype {str(dtype)[:40]!r}", name)
    shape, offsets = _numbers(item["shape"], name), _numbers(item["data_offsets"], name)
    if len(offsets) != 2 or len(shape) > _MAX_DIMENSIONS:  # noqa: PLR2004  # begin and end
        raise _malformed_header("data_offsets must be begin and end", name)
    torch_name, width = _DTYPES[dtype]
    if offsets[1] - offsets[0] != width * math.prod(shape):
        raise _malformed_header("a tensor's bytes do not fit its shape and dtype", name)
    return TensorEntry(torch_name, shape, start + offsets[0], start + offsets[1])


def _numbers(value: Any, name: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(item) is int and 0 <= item < _LARGEST for item in value):
        raise _malformed_header("shape and data_offsets must be lists of numbers from 0 to 2^63", name)
    return tuple(value)


def _tiling(entries: dict[str, TensorEntry], *, start: int, end: int) -> dict[str, TensorEntry]:
    ordered = dict(sorted(entries.items(), key=lambda pair: (pair[1].begin, pair[1].end)))
    at = start
    for name, entry in ordered.items():
        if entry.begin != at:
            raise _malformed_header("two tensors overlap, or there is a gap between them", name)
        at = entry.end
    if at != end:
        raise _malformed_header("its tensors do not fill the file")
    return ordered


def _malformed_header(problem: str, name: str | None = None) -> CorruptArchive:
    return CorruptArchive(
        f"malformed safetensors file: {problem}",
        where=None if name is None else ascii(name[:200]),
        hint="Write the file again with safetensors.torch.save_file.",
    )
