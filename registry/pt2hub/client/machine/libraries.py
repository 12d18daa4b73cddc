"""Libraries of this machine: libstdc++, the functions of libtorch, packages that register operators. Never imports torch."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import mmap
import re
import struct
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import Distribution

_MAPS = Path("/proc/self/maps")
_LIBSTDCXX = "libstdc++.so.6"
_LIBTORCH = ("libtorch_cpu.so", "libtorch_cuda.so")
_AOTI, _GLIBCXX = b"\0aoti_torch_", b"\0GLIBCXX_"
_VERSION = re.compile(r"GLIBCXX_(\d+(?:\.\d+)*)")
_STRTAB, _ALLOC = 3, 2
"""Type and flag of the section with an ELF file's dynamic names: `SHT_STRTAB`, `SHF_ALLOC`."""
_REQUIRES_TORCH = re.compile(r"torch\b(?![\w.-])")
_EXTRA = "extra =="
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")


@functools.cache
def glibcxx() -> str | None:
    """Return the newest GLIBCXX symbol version of the C++ library in this process, such as `3.4.30`.

    The library is loaded if it is not yet, since only the loader knows which file it is; torch loads it anyway.
    """
    with suppress(OSError):
        ctypes.CDLL(_LIBSTDCXX)
        match = re.search(rf"(/.*/{re.escape(_LIBSTDCXX)}\S*)$", _MAPS.read_text(), re.MULTILINE)
        names = _find_names(Path(match[1]).read_bytes(), _GLIBCXX) if match else []
        versions = [found[1] for name in names if (found := _VERSION.fullmatch(name))]
        return max(versions, key=lambda text: tuple(map(int, text.split("."))), default=None)
    return None


@functools.cache
def aoti_symbols() -> frozenset[str] | None:
    """Return the `aoti_torch_*` functions of the installed libtorch; None if there is none.

    They are read from the names in its files. A file lists the functions that it calls beside those that it defines; but
    only the files of libtorch call each other, so together they define all of them.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    found: set[str] = set()
    for name in _LIBTORCH:
        with suppress(OSError, ValueError, struct.error):
            found.update(_dynamic_names(Path(spec.origin).parent / "lib" / name))
    return frozenset(found) or None


def _dynamic_names(path: Path) -> list[str]:
    """Return the names of an ELF file's dynamic symbols that begin with `aoti_torch_`, without reading the whole file."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
        (table,) = struct.unpack_from("<Q", data, 0x28)
        size, count = struct.unpack_from("<HH", data, 0x3A)
        for index in range(count):
            _, kind, flags, _, offset, length = struct.unpack_from("<IIQQQQ", data, table + index * size)
            if kind == _STRTAB and flags & _ALLOC:
                return _find_names(data[offset : offset + length], _AOTI)
    return []


def _find_names(strings: bytes, prefix: bytes) -> list[str]:
    """Return the null-terminated texts that begin with a prefix; a regular expression takes ten times longer."""
    found, start = [], strings.find(prefix)
    while start >= 0:
        end = strings.find(b"\0", start + 1)
        found.append(strings[start + 1 : end].decode(errors="replace"))
        start = strings.find(prefix, end)
    return found


@functools.cache
def operator_libraries() -> dict[str, str]:
    """Return the versions of the installed packages that require torch, by name; they may register operators."""
    from importlib.metadata import distributions  # takes longer to import than all else here

    found = {}
    for distribution in distributions():
        if any(_REQUIRES_TORCH.match(item) and _EXTRA not in item for item in distribution.requires or ()):
            for name in _modules(distribution):
                found[name] = distribution.version
    return found


def _modules(distribution: Distribution) -> list[str]:
    """Return the names under which a distribution is imported."""
    listed = (distribution.read_text("top_level.txt") or "").split()
    name = distribution.metadata["Name"] or ""
    return [item for item in (*listed, name.replace("-", "_")) if _IDENTIFIER.fullmatch(item)]
