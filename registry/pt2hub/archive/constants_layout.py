"""The compiler's blob of constants, rebuilt from safetensors by the recorded layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from pt2hub.archive.safetensors_header import WIDTHS, TensorEntry, read_safetensors_header
from pt2hub.archive.sources import ByteSource, open_source
from pt2hub.archive.strides import count_rows, is_contiguous, order_in_memory, reorder
from pt2hub.domain.digests import CHUNK
from pt2hub.errors import CorruptArchive, LayoutUnproven, WeightsMismatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pt2hub.domain.artifacts import Constant, Constants

MAX_REORDERED_BYTES = 1 << 30
"""Largest constant with another order in the blob than in its file."""
MAX_ROWS = 1 << 22
"""Maximum number of pieces of such a constant; a second of work."""


def blob_chunks(
    constants: Constants, weights: Path | ByteSource, extra: bytes | None = None
) -> Iterator[bytes]:
    """Yield the blob in chunks: each constant at its offset, zeros in between.

    Args:
        extra: The literal constants, a safetensors file's bytes, where the code has any.

    Raises:
        LayoutUnproven: The layout overlaps, exceeds the blob or asks for strides that no reordering of a
            contiguous tensor has.
        WeightsMismatch: A constant is not in its file, or has another shape or dtype there.
        CorruptArchive: A safetensors file is malformed.
    """
    with open_source(weights) as file, open_source(extra or b"") as literals:
        sources: dict[str, _Source] = {"weights": (file, read_safetensors_header(file))}
        if extra is not None:
            sources["extra"] = (literals, read_safetensors_header(literals))
        # All of it is checked before the first byte leaves: a stream cannot take bytes back.
        for item in list(_plan(constants, sources)):
            yield from _zeros(item.gap)
            yield from _read_constant(item)
        yield from _zeros(constants.blob_size - max((c.offset + c.size for c in constants.table), default=0))


_Source: TypeAlias = tuple[ByteSource, dict[str, TensorEntry]]


class _Piece(NamedTuple):
    gap: int
    source: ByteSource
    entry: TensorEntry
    order: tuple[int, ...] | None


def _plan(constants: Constants, sources: dict[str, _Source]) -> Iterator[_Piece]:
    at = 0
    for constant in sorted(constants.table, key=lambda item: (item.offset, item.size)):
        file, entries = sources.get(constant.source, (sources["weights"][0], {}))
        entry = _match_entry(constant, entries)
        if constant.offset < at:
            raise LayoutUnproven("two constants overlap", where=constant.fqn)
        yield _Piece(constant.offset - at, file, entry, _find_order(constant))
        at = constant.offset + constant.size
    if at > constants.blob_size:
        raise LayoutUnproven("the constants exceed the blob", where=constants.blob_member)


def _match_entry(constant: Constant, entries: dict[str, TensorEntry]) -> TensorEntry:
    entry = entries.get(constant.name_in_file)
    if entry is None:
        raise WeightsMismatch("the constant is missing", where=constant.fqn)
    if (entry.shape, entry.dtype) != (constant.shape, constant.dtype):
        raise WeightsMismatch(
            f"the constant is {entry.dtype}{list(entry.shape)}, "
            f"the code reads {constant.dtype}{list(constant.shape)}",
            where=constant.fqn,
        )
    if entry.end - entry.begin != constant.size:
        raise LayoutUnproven(f"the layout gives it {constant.size} bytes", where=constant.fqn)
    return entry


def _find_order(constant: Constant) -> tuple[int, ...] | None:
    """Return the order of a constant's dimensions in the blob; None for that of its file.

    Raises:
        LayoutUnproven: The blob does not hold each element once, or holds them in too many pieces.
    """
    if is_contiguous(constant.shape, constant.stride):
        return None
    order = order_in_memory(constant.shape, constant.stride)
    if order is None:
        raise LayoutUnproven(f"strides {list(constant.stride)} leave gaps or overlap", where=constant.fqn)
    if not can_reorder(constant.shape, order, constant.size):
        raise LayoutUnproven(
            f"strides {list(constant.stride)} of {list(constant.shape)} take too long to reorder",
            where=constant.fqn,
        )
    return order


def can_reorder(shape: Sequence[int], order: Sequence[int], size: int) -> bool:
    """Return whether a constant may have another order in the blob than in its file: servers reorder it in memory.

    Args:
        order: Of the layout, see `strides.order_in_memory`.
        size: Bytes of the constant.
    """
    return size <= MAX_REORDERED_BYTES and count_rows(shape, order) <= MAX_ROWS


def _zeros(count: int) -> Iterator[bytes]:
    while count:
        piece = min(count, CHUNK)
        yield bytes(piece)
        count -= piece


def _read_constant(item: _Piece) -> Iterator[bytes]:
    chunks = _read_tensor(item.source, item.entry)
    if item.order is None:
        return chunks
    rows = reorder(b"".join(chunks), WIDTHS[item.entry.dtype], item.entry.shape, item.order)
    return iter((b"".join(rows),))


def _read_tensor(source: ByteSource, entry: TensorEntry) -> Iterator[bytes]:
    left = entry.end - entry.begin
    for chunk in source.read(entry.begin, entry.end):
        left -= len(chunk)
        yield chunk
    if left:
        raise CorruptArchive("the weights are truncated")
