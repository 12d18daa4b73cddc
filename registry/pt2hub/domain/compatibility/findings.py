"""Findings about an artifact on a machine, one per axis."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CompatibilityState(StrEnum):
    """Compatibility on one axis or on all axes, best first."""

    COMPATIBLE = "compatible"
    DEGRADED = "degraded"
    INCOMPATIBLE = "incompatible"

    @property
    def rank(self) -> int:
        """0 for the best state."""
        return list(CompatibilityState).index(self)


@dataclass(frozen=True, slots=True)
class AxisFinding:
    """Compatibility on one axis.

    Attributes:
        axis: os, machine, device, cpu, libc, libstdc++, torch, cuda, driver, compute capability, shared memory,
            operator libraries or files.
        needs: The artifact's requirement.
        has: The machine's property.
    """

    axis: str
    state: CompatibilityState
    needs: str
    has: str

    def __str__(self) -> str:
        return f"{self.axis}: needs {self.needs}, has {self.has}"


@dataclass(frozen=True, slots=True)
class Compatibility:
    """Compatibility of an artifact with a machine.

    Attributes:
        findings: One per checked axis.
    """

    findings: tuple[AxisFinding, ...]

    @property
    def state(self) -> CompatibilityState:
        """The worst state of all axes."""
        states = (item.state for item in self.findings)
        return max(states, key=lambda state: state.rank, default=CompatibilityState.COMPATIBLE)

    @property
    def failures(self) -> tuple[AxisFinding, ...]:
        """The incompatible axes."""
        return tuple(item for item in self.findings if item.state is CompatibilityState.INCOMPATIBLE)

    @property
    def reasons(self) -> tuple[AxisFinding, ...]:
        """The axes that decide the state: the incompatible ones, else the degraded ones."""
        return tuple(
            item
            for item in self.findings
            if item.state is self.state and item.state is not CompatibilityState.COMPATIBLE
        )

    @property
    def runs(self) -> bool:
        """Whether the artifact runs on the machine, degraded or not."""
        return self.state is not CompatibilityState.INCOMPATIBLE

    def __str__(self) -> str:
        reasons = "; ".join(map(str, self.reasons))
        if not self.runs:
            return reasons
        return f"runs here, degraded: {reasons}" if reasons else "runs here"


def finding(axis: str, *, ok: bool, needs: str, has: str) -> AxisFinding:
    """Return the finding of an axis that is either compatible or not."""
    state = CompatibilityState.COMPATIBLE if ok else CompatibilityState.INCOMPATIBLE
    return AxisFinding(axis, state, needs, has)


DAMAGED = Compatibility((finding("files", ok=False, needs="intact files", has="damaged ones on the server"),))
"""Of an artifact that cannot be loaded from the server, on any machine."""
