"""Layout of the constants, read from the generated wrapper and verified against the compiler's blob."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from pt2hub.domain.artifacts import Constant, Constants
from pt2hub.errors import LayoutUnproven

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ALIGNMENT = 64
"""Alignment of each constant in bytes, unless all constants are on CUDA (docs/facts/aoti.md#layout-of-the-weights-blob)."""
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
    """Return the table of constants that the generated code declares.

    Raises:
        LayoutUnproven: The table has an unexpected form, or its sizes do not add up to the blob's.
    """
    rows: dict[int, dict[str, str]] = {}
    for index, field, value in _FIELD.findall(wrapper):
        rows.setdefault(int(index), {})[field] = value.strip()
    weights, written = set(separate), set(mutated)
    spaces = _padded_sizes(rows, blob_size)
    table, offset = [], 0
    for index in sorted(rows):
        table.append(_constant(rows[index], offset, weights, written))
        offset += spaces[index]
    if offset != blob_size:
        raise LayoutUnproven(f"the constants need {offset} bytes, but the compiler's blob has {blob_size}")
    return Constants(blob_member, blob_size, tuple(table))


def verify_blob(rebuilt: Iterable[bytes], blob: memoryview) -> None:
    """Compare the blob rebuilt by the recorded layout with the compiler's own, byte for byte."""
    at = 0
    for chunk in rebuilt:
        if blob[at : at + len(chunk)] != chunk:
            raise LayoutUnproven("the blob rebuilt by the recorded layout differs from the compiler's own")
        at += len(chunk)
    if at != len(blob):
        raise LayoutUnproven(f"the rebuilt blob has {at} bytes, but the compiler's has {len(blob)}")


def read_literals(constants: Constants, blob: memoryview) -> dict[str, tuple[Constant, bytes]]:
    """Return the constants that are not weights, cut from the compiler's blob.

    Their names in the code (`_tensor_constant0`) differ from those in the exported program (`lifted_tensor_0`), so only
    the blob has them under the names that the code requires.
    """
    return {
        item.fqn: (item, bytes(blob[item.offset : item.offset + item.size]))
        for item in constants.table
        if item.source == "extra"
    }


def _padded_sizes(rows: Mapping[int, Mapping[str, str]], blob_size: int) -> dict[int, int]:
    """Return the bytes from each constant's start to the next one's.

    The generated code declares sizes including the padding (seen with torch 2.13 on the CPU). If they do not add up to
    the blob, the padding is added here, and `verify_blob` decides.
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
