"""Makes what generated code calls on a CPU visible to the profiler, in a process that is about to end.

Kernels are plain C functions, and operations of the library are called past its dispatcher, both through the linkage
table of the code's own library (`.got.plt`): no profiler sees them. Compiling with `cpp.enable_kernel_profile` shows
them, and costs every call of every artifact a microsecond a kernel (torch 2.13: 1.1 to 2.2 us, watched or not). So here
the table of the loaded library is changed instead: each entry leads to a function that tells the profiler, calls what
was meant and tells it again. The artifact stays as it is.
"""

from __future__ import annotations

import ctypes
import struct
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    byref,
    c_char_p,
    c_double,
    c_int,
    c_size_t,
    c_uint16,
    c_uint64,
    c_void_p,
)
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_WORDS, _REALS = 64, 8
"""Arguments that are handed on, whatever a function takes: those in general registers and on the stack, and those in
the registers of floating point. What it does not have is whatever lies there, which it does not read. One that takes
more would read what is not its own and may end the process; handing on more makes every watched call dearer."""
_SHOWN = (b"cpp_", b"aoti_torch_cpu_", b"aoti_torch_proxy_")
"""Kernels, operations of the library, and those that it reaches by name."""
_WRAPPER = b"wrapper.so"
_PT_DYNAMIC, _PT_RELRO = 2, 0x6474E552
_DT_PLTRELSZ, _DT_STRTAB, _DT_SYMTAB, _DT_JMPREL = 2, 5, 6, 23
_PHDR, _DYNAMIC, _SYMBOL, _RELOCATION = (
    struct.Struct(form) for form in ("<IIQQQQQQ", "<qQ", "<IBBHQQ", "<QQq")
)
_Looks = CFUNCTYPE(c_int, c_void_p, c_size_t, c_void_p)
_Function = CFUNCTYPE(c_uint64, *[c_double] * _REALS, *[c_uint64] * _WORDS)


class _Info(Structure):
    """`struct dl_phdr_info`, as far as it is read."""

    _fields_ = (("addr", c_uint64), ("name", c_char_p), ("headers", c_void_p), ("count", c_uint16))


@dataclass(frozen=True, slots=True)
class _Slot:
    """An entry of a linkage table.

    Attributes:
        name: The function.
        at: Where the entry is.
    """

    name: bytes
    at: int


_kept: list[object] = []
"""What the tables lead to: it must be there as long as the process."""


def show_calls() -> None:
    """Has the profiler told of each call that generated code makes from now on, as far as it can be."""
    profiler = _profiler()
    for slot in _slots() if profiler else ():
        entry = c_uint64.from_address(slot.at)
        around = _Function(_told(slot.name, _Function(entry.value), *profiler))
        entry.value = ctypes.cast(around, c_void_p).value or entry.value
        _kept.append(around)


def _profiler() -> tuple[Any, Any] | tuple[()]:
    """The functions by which generated code tells the profiler; nothing where this torch has none."""
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        begin, end = library.aoti_record_function_start, library.aoti_record_function_end
    except (OSError, AttributeError):
        return ()
    begin.argtypes = (c_char_p, c_void_p, c_void_p, c_uint64, POINTER(c_void_p))
    end.argtypes = (c_void_p,)
    return begin, end


def _told(name: bytes, meant: Any, begin: Any, end: Any) -> Callable[..., int]:  # noqa: ANN401  # functions of C libraries
    def around(*given: float) -> int:
        guard = c_void_p()
        begin(name, None, None, 0, byref(guard))
        try:
            result: int = meant(*given)
        finally:
            end(guard)
        return result

    return around


def _slots() -> list[_Slot]:
    """What can be shown, in all wrappers that are loaded."""
    found: list[_Slot] = []

    def look(info: int, _size: int, _data: object) -> int:
        item = _Info.from_address(info)
        if (item.name or b"").endswith(_WRAPPER):
            found.extend(_of_library(item.addr, item.headers, item.count))
        return 0

    ctypes.CDLL(None).dl_iterate_phdr(_Looks(look), None)
    return found


def _of_library(base: int, headers: int, count: int) -> Iterator[_Slot]:
    parts = {head[0]: head for head in _records(_PHDR, headers, count)}
    if _PT_DYNAMIC not in parts:
        return
    head = parts[_PT_DYNAMIC]
    entries = _records(_DYNAMIC, base + head[3], head[6] // _DYNAMIC.size)
    dynamic = {entry[0]: entry[1] for entry in entries}
    if not {_DT_JMPREL, _DT_PLTRELSZ, _DT_STRTAB, _DT_SYMTAB} <= dynamic.keys():
        return
    # The dynamic linker of glibc has made addresses of these, others leave them as they are in the file.
    strings, symbols, table = (
        at if at >= base else base + at
        for at in (dynamic[tag] for tag in (_DT_STRTAB, _DT_SYMTAB, _DT_JMPREL))
    )
    sealed = _sealed(parts.get(_PT_RELRO))
    for offset, info, _ in _records(_RELOCATION, table, dynamic[_DT_PLTRELSZ] // _RELOCATION.size):
        at = symbols + (info >> 32) * _SYMBOL.size
        name = ctypes.string_at(strings + _SYMBOL.unpack(ctypes.string_at(at, _SYMBOL.size))[0])
        if name.startswith(_SHOWN) and offset not in sealed:
            yield _Slot(name, base + offset)


def _sealed(header: tuple[int, ...] | None) -> range:
    """What may not be written any more, relative to the library."""
    return range(header[3], header[3] + header[6]) if header else range(0)


def _records(form: struct.Struct, at: int, count: int) -> list[tuple[int, ...]]:
    return list(form.iter_unpack(ctypes.string_at(at, count * form.size)))
