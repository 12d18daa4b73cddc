"""Whether an artifact runs on a machine, and which axis fails."""

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
_SHOWN = 40


class Outcome(StrEnum):
    """The verdict on one axis or on all."""

    RUNS = "runs"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Host:
    """A machine, as far as compatibility goes. None means unknown: that axis is not judged.

    Attributes:
        os: `linux`.
        machine: As `uname -m` says it.
        torch: Release line (`2.13`), or None where torch is not installed.
        cpu_flags: Instruction-set flags of the CPU.
        cuda: CUDA release of torch without the dot, or None on a CPU build.
        sm: Compute capability of the GPU (`sm90`), or None without one.
        glibc: Version of the C library (`2.36`), or None.
    """

    os: str
    machine: str
    torch: str | None
    cpu_flags: frozenset[str]
    cuda: str | None = None
    sm: str | None = None
    glibc: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One axis of a verdict.

    Attributes:
        axis: torch, device, cuda, compute capability, cpu, os, machine or libc.
        outcome: Whether it runs.
        needs: What the artifact needs.
        has: What the machine has.
    """

    axis: str
    outcome: Outcome
    needs: str
    has: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to "does it run here?".

    Attributes:
        findings: One per axis judged.
    """

    findings: tuple[Finding, ...]

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The axes that refuse."""
        return tuple(item for item in self.findings if item.outcome is Outcome.REFUSED)

    @property
    def runs(self) -> bool:
        """Whether no axis refuses."""
        return not self.failures

    def __str__(self) -> str:
        if self.runs:
            return "runs here"
        return "; ".join(
            f"{item.axis}: needs {item.needs}, this machine has {item.has}" for item in self.failures
        )


def judge(target: Target, host: Host, native: NativeCode | None = None) -> Verdict:
    """Judges a target, and where known the code's own needs, against a machine.

    Args:
        target: What the artifact was built for.
        host: The machine.
        native: What the libraries need; None before the config is read.
    """
    findings = [
        _axis("os", target.os, host.os),
        _axis("machine", target.machine, host.machine),
        _axis("torch", target.torch, host.torch or "no torch"),
    ]
    if target.device == "cuda":
        findings.append(_axis("cuda", target.cuda or "", host.cuda or "a CPU build of torch"))
        findings.append(_axis("compute capability", target.arch, host.sm or "no GPU"))
    findings.append(_cpu(target, host, native))
    if native and native.glibc and _RELEASE.fullmatch(host.glibc or ""):
        findings.append(_libc(native.glibc, str(host.glibc)))
    return Verdict(tuple(findings))


def _libc(needs: str, has: str) -> Finding:
    """What the code needs is what its own build said: a release that is none refuses, since nothing can be told."""
    if not _RELEASE.fullmatch(needs):
        return Finding("libc", Outcome.REFUSED, f"glibc {needs[:_SHOWN]!a}", f"glibc {has}")
    enough = _version(needs) <= _version(has)
    return Finding("libc", _outcome(enough), f"glibc {needs} or newer", f"glibc {has}")


def _axis(axis: str, needs: str, has: str) -> Finding:
    return Finding(axis, _outcome(needs == has), needs, has)


def _cpu(target: Target, host: Host, native: NativeCode | None) -> Finding:
    level = native.cpu_level if native else target.arch
    needed = flags_of_level(level) if level in CPU_LEVELS else frozenset[str]()
    if native:
        needed |= frozenset(_KERNEL_SPELLING.get(flag, flag) for flag in native.cpu_flags)
    missing = sorted(needed - host.cpu_flags)
    has = f"no {', '.join(missing)}" if missing else "all of it"
    return Finding(
        "cpu", _outcome(not missing), ", ".join([level, *(native.cpu_flags if native else ())]), has
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
"""g++'s names of instruction sets where the Linux kernel's differ."""


def _outcome(ok: bool) -> Outcome:  # a predicate's result
    return Outcome.RUNS if ok else Outcome.REFUSED


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
