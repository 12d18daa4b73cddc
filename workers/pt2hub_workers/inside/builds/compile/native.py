"""Machine requirements of compiled libraries, read with binutils (which come with the compiler)."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

from pt2hub.domain.artifacts import NativeCode
from pt2hub.errors import CompileFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_FLAG = re.compile(r"(?<=\s)-m(?!arch=|tune=)([a-z][a-z0-9.\-]*)")
_MARCH = re.compile(r"(?<=\s)-march=(\S+)")
_VECTOR = re.compile(r"avx|fma$|f16c$|bmi")
_KERNEL = re.compile(r'loadKernel\(\s*"([^"]*)"\s*,\s*"[^"]*"\s*,\s*(\d+)')
"""A GPU kernel in a generated wrapper: its file and the shared memory of a block (torch 2.11 to 2.13)."""
_FAT = ".fatbin"
"""Suffix of files with a kernel's machine code and PTX, which `aot_inductor.emit_multi_arch_kernel` asks for."""
_NOT_INSTRUCTIONS = frozenset({"cmodel", "no-red-zone"})


def strip_debug(library: Path) -> None:
    """Remove debug information in place; symbol names stay for profilers."""
    _run("strip", "--strip-debug", str(library))


def inspect_libraries(
    libraries: Iterable[Path], sources: Iterable[str], *, level: str, host_flags: frozenset[str]
) -> NativeCode:
    """Read the requirements of a package's libraries.

    Args:
        host_flags: The worker's CPU flags, all of which a compile with `-march=native` may have used.
    """
    sources = tuple(sources)
    kernels = [found for text in sources for found in _KERNEL.findall(text)]
    commands = "\n".join(
        line
        for text in sources
        for line in text.splitlines()
        if line.startswith("// g++") or "-march=" in line
    )
    flags = {flag for flag in _FLAG.findall(commands) if flag not in _NOT_INSTRUCTIONS}
    if "native" in _MARCH.findall(commands):
        # Host code for exactly this CPU may use all its vector instructions, in the kernel's spelling.
        flags |= {flag for flag in host_flags if _VECTOR.match(flag)}
    needed: set[str] = set()
    symbols: set[str] = set()
    versions: set[str] = set()
    for library in libraries:
        dynamic = _run("objdump", "-p", str(library))
        needed.update(re.findall(r"NEEDED\s+(\S+)", dynamic))
        versions.update(re.findall(r"\b(GLIBC(?:XX)?_[\d.]+)", dynamic))
        symbols.update(
            re.findall(r"\bU (aoti_torch_\w+)", _run("nm", "-D", "--undefined-only", str(library)))
        )
    return NativeCode(
        cpu_level=level,
        cpu_flags=tuple(sorted(flags)),
        needed=tuple(sorted(needed)),
        aoti_symbols=tuple(sorted(symbols)),
        glibc=_newest_version(versions, "GLIBC_"),
        glibcxx=_newest_version(versions, "GLIBCXX_"),
        is_multi_arch=bool(kernels) and all(file.endswith(_FAT) for file, _ in kernels),
        shared_memory_bytes=max((int(size) for _, size in kernels), default=0),
    )


def merge_requirements(parts: Sequence[NativeCode]) -> NativeCode:
    """Return the requirements of several libraries of one target."""
    return NativeCode(
        cpu_level=parts[0].cpu_level,
        cpu_flags=_merge(part.cpu_flags for part in parts),
        needed=_merge(part.needed for part in parts),
        aoti_symbols=_merge(part.aoti_symbols for part in parts),
        glibc=_newest_version({part.glibc for part in parts}, ""),
        glibcxx=_newest_version({part.glibcxx for part in parts}, ""),
        is_multi_arch=all(part.is_multi_arch for part in parts),
        shared_memory_bytes=max(part.shared_memory_bytes for part in parts),
        operators=_merge(part.operators for part in parts),
        operator_libraries={name: text for part in parts for name, text in part.operator_libraries.items()},
    )


def _merge(names: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(sorted({name for some in names for name in some}))


def _newest_version(versions: set[str], prefix: str) -> str:
    numbers = [item.removeprefix(prefix) for item in versions if item.startswith(prefix) and item]
    return max(numbers, key=lambda text: tuple(int(part) for part in text.split(".")), default="")


def _run(*command: str) -> str:
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise CompileFailed(
            f"{command[0]} failed on the compiled library: {error}",
            where="pack",
            hint="The worker needs GNU binutils (strip, objdump, nm), which come with g++.",
        ) from error
