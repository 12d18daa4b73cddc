"""Tensors of an exported program: raw bytes in members, described by a JSON document.

torch.export.save writes each storage once; several names, and views into it, may refer to one member.
"""

from __future__ import annotations

import json
import math
import mmap
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pt2hub.archive.safetensors_header import WIDTHS
from pt2hub.archive.strides import gather, is_contiguous, row_major
from pt2hub.archive.zip import records
from pt2hub.archive.zip.validation import printable_name
from pt2hub.domain.digests import CHUNK
from pt2hub.errors import BadProgram, NotFound, UnsupportedTensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from pt2hub.archive.zip.reader import Archive

STRIDED = 7
"""torch's number for the dense layout."""
SCALARS = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32", 8: "float64",
    9: "complex32", 10: "complex64", 11: "complex128", 12: "bool", 13: "bfloat16", 28: "uint16",
    29: "float8_e4m3fn", 30: "float8_e5m2", 31: "float8_e4m3fnuz", 32: "float8_e5m2fnuz",
    33: "float8_e8m0fnu", 34: "uint32", 35: "uint64",
}  # fmt: skip
"""torch's numbers for dtypes in saved programs (`torch._export.serde.schema.ScalarType`, schema 8)."""
MAX_DIMENSIONS = 64
_LARGEST = 1 << 62
_FEW_CONTAINERS = 10_000
_BYTES_OF_CONTAINER = 10
"""Fewest bytes of JSON for each object and list in it: torch writes 40, and `[],[],` would take 25 times its length."""
VIEW_AS_REAL = "Weights are real numbers: keep torch.view_as_real(t) instead, and call torch.view_as_complex on it in forward."
SAVE_AGAIN = "Save the program again with torch.export.save; `pt2hub publish --program FILE` splits it."


@dataclass(frozen=True, slots=True)
class Payload:
    """A tensor of a program and the position of its bytes.

    Attributes:
        member: The member with the bytes, without its folder.
        offset: Elements before the first.
    """

    name: str
    member: str
    is_param: bool
    trains: bool
    scalar: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @property
    def dtype(self) -> str:
        """The dtype's name in torch, without the prefix."""
        return SCALARS[self.scalar]

    @property
    def width(self) -> int:
        """Size of an element in bytes."""
        return WIDTHS[self.dtype]

    @property
    def size(self) -> int:
        """Size of the contiguous tensor in bytes."""
        return math.prod(self.shape) * self.width

    @property
    def contiguous(self) -> bool:
        """Whether the tensor is contiguous."""
        return is_contiguous(self.shape, self.strides)

    @property
    def memory(self) -> tuple[object, ...]:
        """Key that is equal for tensors sharing memory; unique for empty tensors."""
        if not self.size:
            return (self.name,)
        return (self.member, self.scalar, self.shape, self.strides, self.offset)

    @property
    def reach(self) -> int:
        """Size of the member in bytes, up to the tensor's last element."""
        if not self.size:
            return 0
        last = sum((size - 1) * step for size, step in zip(self.shape, self.strides, strict=True))
        return (self.offset + last + 1) * self.width

    def compact(self, member: str) -> Payload:
        """Return the same tensor, contiguous in a separate member."""
        return replace(self, member=member, strides=row_major(self.shape), offset=0)


def read_payloads(archive: Archive, config: str) -> tuple[Payload, ...]:
    """Return the tensors in a document of the program, in order.

    Raises:
        BadProgram: It is malformed, or holds what only unpickling could read.
        UnsupportedTensor: A tensor is complex or not dense.
    """
    document = read_json(archive, config)
    items = document.get("config") if isinstance(document, dict) else None
    if not isinstance(items, dict):
        raise malformed_member(config)
    return tuple(_payload(name, item) for name, item in items.items())


def payload_config(payloads: Iterable[Payload], device: str = "cpu") -> bytes:
    """Return the document for `read_payloads`, for contiguous tensors.

    Args:
        device: Where torch puts them when it loads them.
    """
    return dump({"config": {item.name: _describe(item, device) for item in payloads}})


def make_contiguous(payloads: Iterable[Payload], prefix: str) -> tuple[Payload, ...]:
    """Return every tensor, contiguous in a separate member and in order; tensors sharing memory share a member."""
    members: dict[tuple[object, ...], str] = {}
    return tuple(
        item.compact(members.setdefault(item.memory, f"{prefix}{len(members)}")) for item in payloads
    )


def payload_chunks(source: Path, archive: Archive, folder: str, payload: Payload) -> Iterator[bytes]:
    """Yield a tensor's bytes in element order, in chunks.

    Args:
        folder: Where the members are.

    Raises:
        BadProgram: Its member is missing, too short or compressed.
        CorruptArchive: The member's bytes are damaged.
    """
    if not payload.size:
        return
    try:
        entry = archive.entry(f"{folder}{payload.member}")
    except NotFound as error:
        raise BadProgram(
            f"the bytes of {printable_name(payload.name)} are missing", hint=SAVE_AGAIN
        ) from error
    if payload.reach > entry.size:
        why = "the program was exported with fake tensors" if not entry.size else "they are truncated"
        raise BadProgram(f"the bytes of {printable_name(payload.name)}: {why}", hint=SAVE_AGAIN)
    if payload.contiguous and payload.size == entry.size:
        yield from archive.chunks(entry)
        return
    if entry.method != records.STORED:
        raise BadProgram(
            f"the bytes of {printable_name(payload.name)} are compressed: the file was repacked",
            hint=SAVE_AGAIN,
        )
    for _ in archive.chunks(entry):  # for the member's CRC
        pass
    with source.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole:
        yield from _gather_elements(whole, entry.data_offset, payload)


def read_json(archive: Archive, name: str, *, most: int = 16 << 20) -> Any:
    """Return a member's JSON value.

    Raises:
        BadProgram: It is missing, too long or no JSON, or it would take far more memory than a program's does.
        CorruptArchive: Its bytes are damaged.
    """
    try:
        if archive.entry(name).size > most:
            raise BadProgram(f"{printable_name(name)} is longer than {most >> 20} MiB")
        data = archive.read(name)
        if data.count(b"{") + data.count(b"[") > max(_FEW_CONTAINERS, len(data) // _BYTES_OF_CONTAINER):
            raise malformed_member(name)
        return json.loads(data.decode(), parse_constant=_no_constant)
    except NotFound as error:
        raise BadProgram(f"the file lacks {printable_name(name)}", hint=SAVE_AGAIN) from error
    except (ValueError, RecursionError) as error:
        raise malformed_member(name) from error


def dump(value: object) -> bytes:
    """Return a JSON value in compact form; keys keep their order."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def malformed_member(name: str) -> BadProgram:
    """Return the error for a member with unexpected content."""
    return BadProgram(
        f"{printable_name(name)} has content that torch.export.save does not write", hint=SAVE_AGAIN
    )


def _gather_elements(whole: mmap.mmap, start: int, payload: Payload) -> Iterator[bytes]:
    """Yield the elements row by row, so that the operating system can release pages that were read."""
    width = payload.width
    start += payload.offset * width
    if payload.contiguous:
        for begin in range(start, start + payload.size, CHUNK):
            yield whole[begin : min(begin + CHUNK, start + payload.size)]
        return
    end = start + payload.reach - payload.offset * width
    with memoryview(whole) as bytes_, bytes_[start:end] as own:
        yield from gather(own, width, payload.shape, payload.strides)


def _describe(item: Payload, device: str) -> dict[str, Any]:
    return {
        "path_name": item.member,
        "is_param": item.is_param,
        "use_pickle": False,
        "tensor_meta": {
            "dtype": item.scalar,
            "sizes": [{"as_int": size} for size in item.shape],
            "requires_grad": item.trains,
            "device": {"type": device, "index": None},
            "strides": [{"as_int": step} for step in item.strides],
            "storage_offset": {"as_int": item.offset},
            "layout": STRIDED,
        },
    }


def _payload(name: str, item: Any) -> Payload:
    if isinstance(item, dict) and (item.get("use_pickle") is not False or item.get("tensor_meta") is None):
        raise BadProgram(
            f"{printable_name(name)} is saved as a pickle, which can run code when it is read",
            hint="It is an object or a subclass of Tensor. Replace it with plain tensors before the export (quantised "
            "weights: unwrap them), and save the program again.",
        )
    try:
        return _tensor(name, item, item["tensor_meta"])
    except (KeyError, TypeError, ValueError) as error:
        raise malformed_member(f"the entry of {name}") from error


def _tensor(name: str, item: Mapping[str, Any], meta: Mapping[str, Any]) -> Payload:
    scalar, layout = whole_number(meta["dtype"]), whole_number(meta["layout"])
    dtype = SCALARS.get(scalar, f"of unknown dtype {scalar}")
    if dtype not in WIDTHS or dtype.startswith("complex") or layout != STRIDED:
        what = dtype if layout == STRIDED else "not dense"
        advice = (
            VIEW_AS_REAL
            if dtype.startswith("complex")
            else "Weights must be dense and of a standard torch dtype."
        )
        raise UnsupportedTensor(f"The tensor is {what}", where=printable_name(name), hint=advice)
    shape, strides = (tuple(map(whole_number, meta[key])) for key in ("sizes", "strides"))
    member = item["path_name"]
    if not isinstance(member, str) or not member or "/" in member or len(shape) > MAX_DIMENSIONS:
        raise ValueError(member)
    if len(strides) != len(shape):
        raise ValueError(strides)
    offset = whole_number(meta["storage_offset"])
    return Payload(
        name, member, item["is_param"] is True, meta["requires_grad"] is True, scalar, shape, strides, offset
    )


def whole_number(value: Any) -> int:
    """Return a size from torch's JSON: a number or an object.

    Raises:
        KeyError, ValueError: It is none, or no tensor has so many elements.
    """
    if isinstance(value, dict):
        value = value["as_int"]
    if type(value) is not int or not 0 <= value < _LARGEST:
        raise ValueError(value)
    return value


def _no_constant(text: str) -> float:
    raise ValueError(text)


__all__ = [
    "MAX_DIMENSIONS",
    "SAVE_AGAIN",
    "SCALARS",
    "VIEW_AS_REAL",
    "Payload",
    "dump",
    "make_contiguous",
    "malformed_member",
    "payload_chunks",
    "payload_config",
    "read_json",
    "read_payloads",
    "whole_number",
]
