"""Selection of the artifact that suits a machine best."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pt2hub.domain.compatibility.findings import AxisFinding, Compatibility, CompatibilityState
from pt2hub.domain.digests import Digest
from pt2hub.domain.targets import Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeAlias

    from pt2hub.domain.compatibility.hosts import Host

    Assess: TypeAlias = "Callable[[Candidate], Compatibility]"

_OTHER_MACHINE = frozenset({"os", "machine", "device", "cpu", "torch", "compute capability", "target"})
"""Axes on which an artifact fails that was built for another kind of machine."""
_NEWER_TARGET = Compatibility(
    (AxisFinding("target", CompatibilityState.INCOMPATIBLE, "a newer pt2hub", "one that does not know it"),)
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """An artifact of a version.

    Attributes:
        name: Name of its target.
        target: None if only a newer pt2hub knows such targets.
        created_at: ISO 8601, UTC.
        compatibility: With the machine; as far as it is known.
    """

    name: str
    target: Target | None
    digest: Digest
    created_at: str
    compatibility: Compatibility = _NEWER_TARGET


@dataclass(frozen=True, slots=True)
class Selection:
    """The artifact that suits a machine best.

    Attributes:
        chosen: None if no artifact runs on the machine.
        candidates: All artifacts with what is known about each, in their original order.
        passed_over: Artifacts that were built for such a machine, would have been preferred, and do not run on it.
    """

    chosen: Candidate | None
    candidates: tuple[Candidate, ...]
    passed_over: tuple[Candidate, ...] = ()


def select(candidates: Iterable[Candidate], host: Host, assess: Assess) -> Selection:
    """Select an artifact: by device, by compatibility, then by how well it fits.

    A GPU's artifact comes before a CPU's, because inputs and callers differ between devices; then compatible ones come
    before degraded ones, and of these the one with the fewest degraded axes, the closest torch, the highest CPU level or
    compute capability, and the newest.

    Args:
        candidates: With what their targets say about compatibility.
        assess: Returns the compatibility by the artifact's config, which is never better than by its target. It is
            called for as few artifacts as decide.
    """
    known = list(candidates)
    order = sorted(range(len(known)), key=lambda index: _preference(known[index], host), reverse=True)
    best: Candidate | None = None
    for index in order:
        candidate = known[index]
        if not candidate.compatibility.runs or (
            best and _preference(best, host) >= _preference(candidate, host)
        ):
            break  # the rest is no better
        known[index] = candidate = replace(candidate, compatibility=assess(candidate))
        if candidate.compatibility.runs and (
            best is None or _preference(candidate, host) > _preference(best, host)
        ):
            best = candidate
    passed_over = (item for item in known if best and _is_passed_over(item, best, host))
    return Selection(best, tuple(known), tuple(passed_over))


def _preference(candidate: Candidate, host: Host) -> tuple[bool, bool, int, int, int, tuple[int, ...], str]:
    """Return a sort key; the best sorts highest."""
    compatibility, target = candidate.compatibility, candidate.target
    assert target is not None or not compatibility.runs, "an unknown target never runs"
    return (
        compatibility.runs,
        target is not None and target.device == "cuda",
        -compatibility.state.rank,
        -len(compatibility.reasons),
        -_distance(target.torch if target else "", host.torch or ""),
        _numbers(target.arch if target else ""),
        candidate.created_at,
    )


def _is_passed_over(candidate: Candidate, chosen: Candidate, host: Host) -> bool:
    """Return whether an artifact for such a machine does not run on it, and would have been preferred."""
    target, better = candidate.target, chosen.target
    if candidate.compatibility.runs or target is None or better is None:
        return False
    axes = {item.axis for item in candidate.compatibility.failures}
    if target.device != better.device:  # a machine with a GPU, and torch for it, falls back to its CPU
        return target.device == "cuda" and "device" not in axes and host.cuda is not None
    return not axes & _OTHER_MACHINE and _numbers(target.arch) >= _numbers(better.arch)


def _distance(torch: str, other: str) -> int:
    """Return how far apart two release lines are."""
    first, second = _numbers(torch), _numbers(other)
    return sum(abs(a - b) * weight for a, b, weight in zip(first, second, (1_000, 1), strict=False))


def _numbers(text: str) -> tuple[int, ...]:
    """Return the numbers in a text: `x86_64_v3` sorts above `x86_64`, `sm100` above `sm90`."""
    return tuple(int(number) for number in re.findall(r"[0-9]+", text))
