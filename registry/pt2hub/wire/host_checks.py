"""Checks of a version's artifacts against a described machine."""

from __future__ import annotations

from dataclasses import dataclass

from pt2hub.domain.digests import Digest
from pt2hub.renderable import Renderable
from pt2hub.wire.resolution import Yank


@dataclass(frozen=True, slots=True)
class FindingView:
    """Compatibility of an artifact on one axis.

    Attributes:
        axis: Such as `cpu`, `torch` or `compute capability`.
        state: `compatible`, `degraded` or `incompatible`.
        needs: The artifact's requirement.
        has: The machine's property.
    """

    axis: str
    state: str
    needs: str
    has: str


@dataclass(frozen=True, slots=True)
class ArtifactCheck:
    """Compatibility of an artifact with a machine.

    Attributes:
        target: Name of the target.
        digest: Manifest digest.
        created_at: ISO 8601, UTC.
        state: The worst state of all axes: `compatible`, `degraded` or `incompatible`.
        findings: One per checked axis.
    """

    target: str
    digest: Digest
    created_at: str
    state: str
    findings: tuple[FindingView, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        """The axes that decide the state, as sentences; empty for a compatible artifact."""
        return tuple(
            f"{item.axis}: needs {item.needs}, has {item.has}"
            for item in self.findings
            if item.state == self.state != "compatible"
        )


@dataclass(frozen=True, slots=True, repr=False)
class HostCheck(Renderable):
    """A resolved reference, and which of its artifacts run on a machine.

    Attributes:
        reference: The requested reference.
        model: Name of the model.
        number: Number of the version.
        artifacts: Artifacts of the version, one per succeeded target.
        selected: Digest of the artifact that suits the machine best; None if none runs on it.
        passed_over: Targets of artifacts that were built for such a machine and do not run on it, although they would be
            preferred.
        build_target: The machine's own target; None if there is none, or the version has an artifact for it.
        alias: The alias in the reference, or None.
        yanked: The version's yank, or None if it is not yanked.
    """

    reference: str
    model: str
    number: int
    artifacts: tuple[ArtifactCheck, ...]
    selected: Digest | None = None
    passed_over: tuple[str, ...] = ()
    build_target: str | None = None
    alias: str | None = None
    yanked: Yank | None = None

    __repr__ = Renderable.__str__  # shown at the Python prompt; never part of lists

    @property
    def build_command(self) -> str | None:
        """The command that builds for the machine; None without a `build_target`."""
        if self.build_target is None:
            return None
        return f"pt2hub build {self.model}@{self.number} --target {self.build_target} --wait"
