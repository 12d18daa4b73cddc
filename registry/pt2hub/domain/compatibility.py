"""Compatibility of artifacts with machines, per axis."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from pt2hub.domain.targets import CPU_LEVELS, flags_of_level

if TYPE_CHECKING:
    from pt2hub.domain.artifacts import NativeCode
    from pt2hub.domain.targets import Target

_RELEASE = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){0,3}")
_ARCH = re.compile(r"sm([0-9]{1,2})([0-9])")
_MAX_SHOWN_CHARS = 40


class CompatibilityState(StrEnum):
    """Compatibility on one axis or on all axes."""

    COMPATIBLE = "compatible"
    INCOMPATIBLE = "incompatible"


@dataclass(frozen=True, slots=True)
class Host:
    """The properties of a machine that matter for compatibility. None means unknown; unknown axes are not checked.

    Attributes:
        os: `linux`.
        machine: Output of `uname -m`.
        torch: Release line (`2.13`), or None if torch is not installed.
        cpu_flags: Instruction-set flags of the CPU.
        cuda: CUDA release of torch without the dot, or None on a CPU build.
        sm: Compute capability of the GPU (`sm90`), or None without one.
        glibc: Version of the C library (`2.36`), or None.
        shared_memory_bytes: Most shared memory that a block may request on the GPU, or None.
    """

    os: str
    machine: str
    torch: str | None
    cpu_flags: frozenset[str]
    cuda: str | None = None
    sm: str | None = None
    glibc: str | None = None
    shared_memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class AxisFinding:
    """Compatibility on one axis.

    Attributes:
        axis: torch, cuda, compute capability, shared memory, cpu, os, machine or libc.
        state: Compatibility on this axis.
        needs: The artifact's requirement.
        has: The machine's property.
    """

    axis: str
    state: CompatibilityState
    needs: str
    has: str


@dataclass(frozen=True, slots=True)
class Compatibility:
    """Compatibility of an artifact with a machine.

    Attributes:
        findings: One per checked axis.
    """

    findings: tuple[AxisFinding, ...]

    @property
    def failures(self) -> tuple[AxisFinding, ...]:
        """The incompatible axes."""
        return tuple(item for item in self.findings if item.state is CompatibilityState.INCOMPATIBLE)

    @property
    def runs(self) -> bool:
        """Whether the artifact runs on the machine."""
        return not self.failures

    def __str__(self) -> str:
        if self.runs:
            return "runs here"
        return "; ".join(
            f"{item.axis}: needs {item.needs}, this machine has {item.has}" for item in self.failures
        )


def assess_compatibility(target: Target, host: Host, native: NativeCode | None = None) -> Compatibility:
    """Check a target, and the code's own requirements if known, against a machine.

    Args:
        target: The artifact's target.
        host: The machine.
        native: Requirements of the code's libraries; None before the config is read.
    """
    findings = [
        _axis("os", target.os, host.os),
        _axis("machine", target.machine, host.machine),
        _axis("torch", target.torch, host.torch or "no torch"),
    ]
    if target.device == "cuda":
        findings.append(_axis("cuda", target.cuda or "", host.cuda or "a CPU build of torch"))
        findings.append(_compute_capability(target, host, native))
        if native and native.shared_memory_bytes and host.shared_memory_bytes is not None:
            findings.append(_shared_memory(native.shared_memory_bytes, host.shared_memory_bytes))
    findings.append(_cpu(target, host, native))
    if native and native.glibc and _RELEASE.fullmatch(host.glibc or ""):
        findings.append(_libc(native.glibc, str(host.glibc)))
    return Compatibility(tuple(findings))


def may_be_portable(target: Target, host: Host) -> bool:
    """Return whether code for another compute capability could run on a machine's GPU, if it has every kernel as PTX.

    Newer GPUs of the same family (major compute capability) run it. Later families could, but code tuned for one says
    little of another, and from sm90 on PyTorch emits PTX for the architecture alone.
    """
    needs, has = _capability(target.arch), _capability(host.sm or "")
    return target.is_portable and needs is not None and has is not None and needs[0] == has[0] and needs < has


def _compute_capability(target: Target, host: Host, native: NativeCode | None) -> AxisFinding:
    has = host.sm or "no GPU"
    if native is None or not (native.is_multi_arch and target.is_portable):
        return _axis("compute capability", target.arch, has)
    runs = host.sm == target.arch or may_be_portable(target, host)
    return AxisFinding("compute capability", _state_of(runs), f"{target.arch} or newer of its family", has)


def _capability(arch: str) -> tuple[int, int] | None:
    """Return major and minor compute capability: `sm86` is (8, 6)."""
    match = _ARCH.fullmatch(arch)
    return (int(match[1]), int(match[2])) if match else None


def _shared_memory(needs: int, has: int) -> AxisFinding:
    """Compare what the largest kernel requests with what a block may have: 163 KiB on sm80, 99 KiB on sm86."""
    kib = 1024
    return AxisFinding(
        "shared memory", _state_of(needs <= has), f"{needs / kib:g} KiB per block", f"{has / kib:g} KiB"
    )


def _libc(needs: str, has: str) -> AxisFinding:
    """Compare glibc releases; an unreadable requirement counts as incompatible, since the build's claim is untrusted."""
    if not _RELEASE.fullmatch(needs):
        return AxisFinding(
            "libc", CompatibilityState.INCOMPATIBLE, f"glibc {needs[:_MAX_SHOWN_CHARS]!a}", f"glibc {has}"
        )
    enough = _version(needs) <= _version(has)
    return AxisFinding("libc", _state_of(enough), f"glibc {needs} or newer", f"glibc {has}")


def _axis(axis: str, needs: str, has: str) -> AxisFinding:
    return AxisFinding(axis, _state_of(needs == has), needs, has)


def _cpu(target: Target, host: Host, native: NativeCode | None) -> AxisFinding:
    level = native.cpu_level if native else target.arch
    needed = flags_of_level(level) if level in CPU_LEVELS else frozenset[str]()
    if native:
        needed |= frozenset(_KERNEL_SPELLING.get(flag, flag) for flag in native.cpu_flags)
    missing = sorted(needed - host.cpu_flags)
    has = f"no {', '.join(missing)}" if missing else "all of it"
    return AxisFinding(
        "cpu", _state_of(not missing), ", ".join([level, *(native.cpu_flags if native else ())]), has
    )


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


def _state_of(ok: bool) -> CompatibilityState:  # a predicate's result
    return CompatibilityState.COMPATIBLE if ok else CompatibilityState.INCOMPATIBLE


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
