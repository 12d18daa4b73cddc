"""The axes of the host: operating system, C and C++ library, instruction sets, torch, operator libraries."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pt2hub.domain.compatibility.findings import AxisFinding, CompatibilityState, finding
from pt2hub.domain.targets import CPU_LEVELS, flags_of_level

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pt2hub.domain.artifacts import NativeCode
    from pt2hub.domain.compatibility.hosts import Host
    from pt2hub.domain.targets import Target

_RELEASE = re.compile(r"[0-9]{1,5}(\.[0-9]{1,5}){0,3}")
_MAX_SHOWN_CHARS = 40
_MAX_SHOWN = 3
_KERNEL_SPELLING = {
    "avx512vnni": "avx512_vnni",
    "avx512bf16": "avx512_bf16",
    "amx-tile": "amx_tile",
    "amx-bf16": "amx_bf16",
    "amx-int8": "amx_int8",
    "amx-fp16": "amx_fp16",
    "avx512fp16": "avx512_fp16",
}
"""g++ names of instruction sets that differ from those of the Linux kernel."""


def check_host_axes(target: Target, host: Host, native: NativeCode | None) -> Iterator[AxisFinding]:
    """Yield the findings on the axes that every target has."""
    yield finding("os", ok=target.os == host.os, needs=target.os, has=host.os)
    yield finding("machine", ok=target.machine == host.machine, needs=target.machine, has=host.machine)
    yield _cpu(target, host, native)
    if native:
        yield from _symbol_version("libc", "glibc", native.glibc, host.glibc)
        yield from _symbol_version("libstdc++", "GLIBCXX", native.glibcxx, host.glibcxx)
    yield _torch(target, host, native)
    if native and native.operators and host.operator_libraries is not None:
        yield _operator_libraries(native, host.operator_libraries)


def _cpu(target: Target, host: Host, native: NativeCode | None) -> AxisFinding:
    """Compare instruction sets: code that uses one that the CPU lacks ends with SIGILL."""
    level = native.cpu_level if native else target.arch
    needed = flags_of_level(level) if level in CPU_LEVELS else frozenset[str]()
    if native:
        needed |= frozenset(_KERNEL_SPELLING.get(flag, flag) for flag in native.cpu_flags)
    missing = sorted(needed - host.cpu_flags)
    needs = ", ".join([level, *(native.cpu_flags if native else ())])
    if native and level not in CPU_LEVELS:  # the build's claim is untrusted, or of a newer pt2hub
        return finding("cpu", ok=False, needs=needs[:_MAX_SHOWN_CHARS], has="a pt2hub that does not know it")
    return finding(
        "cpu", ok=not missing, needs=needs, has=f"no {', '.join(missing)}" if missing else "all of it"
    )


def _symbol_version(axis: str, library: str, needs: str, has: str | None) -> Iterator[AxisFinding]:
    """Compare the newest symbol version that the code requires with the newest that a library offers.

    Both libraries keep old versions, so newer ones are compatible
    (https://gcc.gnu.org/onlinedocs/libstdc++/manual/abi.html). The loader refuses a library that requires a newer one:
    "version `GLIBCXX_3.4.32' not found". A requirement that cannot be read counts as incompatible, since the build's
    claim is untrusted.
    """
    if not needs or not _RELEASE.fullmatch(has or ""):
        return
    name = f"{library} {has}"
    if not _RELEASE.fullmatch(needs):
        yield finding(axis, ok=False, needs=f"{library} {needs[:_MAX_SHOWN_CHARS]!a}", has=name)
        return
    yield finding(
        axis, ok=_version(needs) <= _version(str(has)), needs=f"{library} {needs} or newer", has=name
    )


def _torch(target: Target, host: Host, native: NativeCode | None) -> AxisFinding:
    """Compare release lines; another line is degraded where libtorch exports every function that the code calls.

    AOTInductor's code calls libtorch only through C functions, `aoti_torch_*`, which PyTorch keeps from release to
    release (torch/csrc/inductor/aoti_torch/c/shim.h); code of 2.11, 2.13 and 2.14 runs on each of them
    (docs/facts/aoti.md#other-releases-of-torch). PyTorch does not test this, hence degraded. Before the config is read, another release counts as
    degraded; where the functions are unknown, as incompatible.
    """
    if host.torch is None or not target.exists:
        return finding("torch", ok=False, needs=target.torch, has=host.torch or "no torch")
    if host.torch == target.torch:
        return finding("torch", ok=True, needs=target.torch, has=host.torch)
    if native is None:
        return AxisFinding("torch", CompatibilityState.DEGRADED, target.torch, host.torch)
    needed = frozenset(native.aoti_symbols)
    if not needed:
        return finding("torch", ok=False, needs=target.torch, has=host.torch)
    if host.aoti_symbols is None:
        return finding(
            "torch", ok=False, needs=target.torch, has=f"{host.torch}, whose functions are unknown"
        )
    if missing := sorted(needed - host.aoti_symbols):
        return finding("torch", ok=False, needs=target.torch, has=f"{host.torch} without {_shorten(missing)}")
    has = f"{host.torch}, which has the {len(needed)} functions that the code calls"
    return AxisFinding("torch", CompatibilityState.DEGRADED, target.torch, has)


def _operator_libraries(native: NativeCode, installed: dict[str, str]) -> AxisFinding:
    """Compare the Python packages that register the operators which the code calls by name.

    Without one, torch's loader fails (docs/facts/aoti.md#operators-of-other-libraries). Another version than the worker's is
    degraded: nothing says whether it computes the same.
    """
    axis = "operator libraries"
    wanted = {name: native.operator_libraries.get(name, "") for name in native.operator_namespaces}
    needs = _shorten(f"{name} {version}".strip() for name, version in wanted.items())
    if missing := [name for name in wanted if name not in installed]:
        return finding(axis, ok=False, needs=needs, has=f"no {_shorten(missing)}")
    other = {name: installed[name] for name, version in wanted.items() if installed[name] != version}
    state = CompatibilityState.DEGRADED if any(other.values()) else CompatibilityState.COMPATIBLE
    has = _shorten(f"{name} {installed[name]}".strip() for name in wanted)
    return AxisFinding(axis, state, needs, has)


def _shorten(names: Iterable[str]) -> str:
    """Return names, at most `_MAX_SHOWN` of them."""
    known = [name[:_MAX_SHOWN_CHARS] for name in names]
    more = len(known) - _MAX_SHOWN
    return ", ".join(known[:_MAX_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
