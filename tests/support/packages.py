"""Packages as AOTInductor writes them, and safetensors files, without torch."""

from __future__ import annotations

import json
import math
import struct
from typing import TYPE_CHECKING, Any

from pt2hub.archive.safetensors_header import WIDTHS
from pt2hub.domain.artifacts import Constant, Constants
from support.zips import RawMember, raw_zip

if TYPE_CHECKING:
    from collections.abc import Mapping

BLOB = bytes(range(200)) * 3


def package(
    *,
    root: str = "model",
    library: bytes = b"\x7fELF code debug",
    blob: bytes | None = BLOB,
    comment: bytes = b"// /build/path",
    chance: bytes = b"1" * 40,
    turned: bool = False,
) -> bytes:
    """A package of a small model, members with data descriptors as torch writes them."""
    folder = "data/aotinductor/model/m"
    members: dict[str, bytes | None] = {
        f"{folder}.wrapper.cpp": comment,
        f"{folder}.kernel.cpp": b"// kernel",
        f"{folder}.wrapper_metadata.json": b"{}",
        f"{folder}.wrapper_weights.blob": blob,
        f"{folder}.wrapper.so": library,
        "archive_format": b"pt2",
        ".data/serialization_id": chance,
    }
    raw = [
        RawMember(f"{root}/{name}".encode(), data, flags=0x808)
        for name, data in members.items()
        if data is not None
    ]
    return raw_zip(*(reversed(raw) if turned else raw), wide={})


def safetensors(tensors: Mapping[str, tuple[str, tuple[int, ...], bytes]]) -> bytes:
    """A safetensors file of (dtype, shape, bytes), in the order given."""
    header: dict[str, Any] = {}
    data = b""
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


WEIGHTS = safetensors({"w": ("F32", (1,), bytes(4))})
"""The smallest weights that a submission takes."""


def layout(blob_size: int, *constants: tuple[Any, ...]) -> Constants:
    """A table of constants: (fqn, dtype, shape, offset[, source[, stride]])."""
    return Constants("model/data/m_weights.blob", blob_size, tuple(_constant(*item) for item in constants))


def _constant(  # a row of a table in a test
    fqn: str,
    dtype: str,
    shape: tuple[int, ...],
    offset: int,
    source: str = "weights",
    stride: tuple[int, ...] | None = None,
) -> Constant:
    contiguous = tuple(math.prod(shape[index + 1 :]) for index in range(len(shape)))
    size = math.prod(shape) * WIDTHS[dtype]
    return Constant(fqn, shape, stride or contiguous, dtype, offset, size, source)
