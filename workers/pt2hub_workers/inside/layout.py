"""The constants' layout, read from the generated wrapper and proved against the compiler's own blob."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from pt2hub.domain.artifacts import Constant, Constants
from pt2hub.errors import LayoutUnproven

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ALIGNMENT = 64
"""Bytes each constant is padded to, unless every constant is on CUDA (facts/aoti.md, section 16)."""
ITEM_BYTES = {
    **dict.fromkeys(("bool", "int8", "uint8", "float8_e4m3fn", "float8_e5m2"), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64"), 8),
}

_FIELD = re.compile(r"constants_info_\[(\d+)\]\.(\w+) = ([^;]*);")


def read_constants(
    wrapper: str,
    *,
    blob_member: str,
    blob_size: int,
    separate: Iterable[str],
    mutated: Iterable[str],
) -> Constants:
    """The table of constants as the generated code declares it.

    Args:
        wrapper: Source of the generated wrapper.
        blob_member: Path of the blob in the single file.
        blob_size: Its length in bytes.
        separate: Names of the tensors in the weights layer; the others are literals of the code layer.
        mutated: Names of the constants that the model writes to.

    Raises:
        LayoutUnproven: The table is not in the expected form, or does not add up to the blob.
    """
    rows: dict[int, dict[str, str]] = {}
    for index, field, value in _FIELD.findall(wrapper):
        rows.setdefault(int(index), {})[field] = value.strip()
    weights, written = set(separate), set(mutated)
    spaces = _spaces(rows, blob_size)
    table, offset = [], 0
    for index in sorted(rows):
        table.append(_constant(rows[index], offset, weights, written))
        offset += spaces[index]
    if offset != blob_size:
        raise LayoutUnproven(f"the constants take {offset} bytes, the compiler's blob has {blob_size}")
    return Constants(blob_member, blob_size, tuple(table))


def prove(rebuilt: Iterable[bytes], blob: memoryview) -> None:
    """Compares the blob rebuilt by the recorded layout with the compiler's own, byte for byte.

    Args:
        rebuilt: `archive.blob_chunks` of the recorded layout.
        blob: The compiler's blob.

    Raises:
        LayoutUnproven: A byte differs, padding included.
    """
    at = 0
    for chunk in rebuilt:
        if blob[at : at + len(chunk)] != chunk:
            raise LayoutUnproven("the blob rebuilt by the recorded layout differs from the compiler's own")
        at += len(chunk)
    if at != len(blob):
        raise LayoutUnproven(f"the rebuilt blob has {at} bytes, the compiler's {len(blob)}")


def literals(constants: Constants, blob: memoryview) -> dict[str, tuple[Constant, bytes]]:
    """The constants that are not weights, cut from the compiler's blob.

    Their names in the code (`_tensor_constant0`) differ from those in the exported program
    (`lifted_tensor_0`), so the blob is the one place that has them under the name the code asks for.
    """
    return {
        item.fqn: (item, bytes(blob[item.offset : item.offset + item.size]))
        for item in constants.table
        if item.source == "extra"
    }


def _spaces(rows: Mapping[int, Mapping[str, str]], blob_size: int) -> dict[int, int]:
    """Bytes from each constant's start to the next one's.

    The generated code declares sizes with the padding included (seen with torch 2.13 on the CPU); where they
    do not add up to the blob, the padding is added here, and the proof against the blob decides.
    """
    declared = {index: int(row["data_size"]) for index, row in rows.items()}
    if sum(declared.values()) == blob_size:
        return declared
    return {index: -(-size // ALIGNMENT) * ALIGNMENT for index, size in declared.items()}


def _constant(row: Mapping[str, str], offset: int, weights: set[str], mutated: set[str]) -> Constant:
    try:
        fqn = row["original_fqn"].strip('"') or row["name"].strip('"')
        shape, dtype = _integers(row["shape"]), row["dtype"].removeprefix("cached_torch_dtype_")
        return Constant(
            fqn=fqn,
            shape=shape,
            stride=_integers(row["stride"]),
            dtype=dtype,
            offset=offset,
            size=math.prod(shape) * ITEM_BYTES[dtype],
            source="weights" if fqn in weights else "extra",
            mutated=fqn in mutated,
        )
    except (KeyError, ValueError) as error:
        raise LayoutUnproven(
            f"the generated wrapper declares a constant in an unknown form: {error}"
        ) from error


def _integers(braced: str) -> tuple[int, ...]:
    inner = braced.strip().strip("{}").strip()
    return tuple(int(part.strip().rstrip("L")) for part in inner.split(",")) if inner else ()
