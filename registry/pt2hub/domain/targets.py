"""Build targets and their names."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pt2hub.errors import UnknownTarget

CPU_LEVELS: dict[str, frozenset[str]] = {
    # x86-64 psABI, "microarchitecture levels"; names as the Linux kernel prints them in /proc/cpuinfo.
    "x86_64": frozenset({"cmov", "cx8", "fpu", "fxsr", "mmx", "syscall", "sse", "sse2"}),
    "x86_64_v2": frozenset({"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"}),
    "x86_64_v3": frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}),
    "x86_64_v4": frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
}
"""CPU flags that each level adds to the previous one, lowest first."""

_NAME = re.compile(
    r"torch(?P<torch>\d+\.\d+)-(?:(?P<cpu>cpu)-(?P<level>[a-z0-9_]+)|cu(?P<cuda>\d{2,4})-sm(?P<sm>\d{2,3}a?))"
)


@dataclass(frozen=True, slots=True)
class Target:
    """A build target.

    Attributes:
        torch: Release line, such as `2.13`; artifacts load with all its patch releases.
        device: `cpu` or `cuda`.
        arch: CPU level (`x86_64_v4`) or compute capability (`sm90`).
        cuda: CUDA release without the dot (`130`), None on CPU.
        os: Operating system; only `linux` is offered.
        machine: Output of `uname -m`.
    """

    torch: str
    device: str
    arch: str
    cuda: str | None = None
    os: str = "linux"
    machine: str = "x86_64"

    @property
    def name(self) -> str:
        """The target's name, such as `torch2.13-cpu-x86_64_v4` or `torch2.11-cu130-sm90`."""
        middle = f"cu{self.cuda}" if self.device == "cuda" else "cpu"
        return f"torch{self.torch}-{middle}-{self.arch}"

    @property
    def is_portable(self) -> bool:
        """Whether its code runs on newer GPUs of the same family (major compute capability).

        From sm90 on PyTorch and Triton compile for the architecture alone (`sm_90a`, `sm_100a`: torch 2.11 to 2.13).
        """
        return self.device == "cuda" and self.arch.removeprefix("sm").rstrip("a").zfill(3) < "090"

    @property
    def exists(self) -> bool:
        """Whether machines of this target exist: torch 0.0, used by the no-op toolchain, was never released."""
        return self.torch != "0.0"

    def __str__(self) -> str:
        return self.name


def parse_target(name: str) -> Target:
    """Parse a target name.

    Raises:
        UnknownTarget: The name is malformed or has an unknown CPU level.
    """
    match = _NAME.fullmatch(name)
    if match and match["cuda"]:
        return Target(torch=match["torch"], device="cuda", arch=f"sm{match['sm']}", cuda=match["cuda"])
    if match and match["level"] in CPU_LEVELS:
        return Target(torch=match["torch"], device="cpu", arch=match["level"])
    raise UnknownTarget(
        f"unknown target {name[:80]!r}",
        where="targets",
        hint="Use auto or a name such as torch2.13-cpu-x86_64_v4 or torch2.11-cu130-sm90; "
        f"CPU levels: {', '.join(CPU_LEVELS)}.",
    )


def cpu_level(flags: frozenset[str]) -> str | None:
    """Return the highest CPU level that `flags` satisfies, including all lower levels; None if there is none."""
    reached = None
    for level, added in CPU_LEVELS.items():
        if not added <= flags:
            break
        reached = level
    return reached


def flags_of_level(level: str) -> frozenset[str]:
    """Return all flags of a CPU level, including those of lower levels."""
    needed: set[str] = set()
    for name, added in CPU_LEVELS.items():
        needed |= added
        if name == level:
            return frozenset(needed)
    raise UnknownTarget(f"unknown CPU level {level!r}", hint=f"Known: {', '.join(CPU_LEVELS)}.")
