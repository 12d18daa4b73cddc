"""Which two artifacts a comparison is of, where references name whole versions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.domain.digests import Digest
from pt2hub.errors import Ambiguous, Detail, InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.wire.resolution import ArtifactRef, Resolved


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison.

    Attributes:
        reference: As asked.
        model: The model's name.
        number: The version's number.
        target: The target's name.
        digest: Manifest digest.
        created_at: When it was built, ISO 8601, UTC.
    """

    reference: str
    model: str
    number: int
    target: str
    digest: Digest
    created_at: str


def choose(
    before: Resolved, after: Resolved, *, target: str | None, with_target: str | None
) -> tuple[Side, Side]:
    """The two artifacts that are meant.

    Where no target is named, the one that both have; of references that pin an artifact each, these.

    Args:
        before: What the first reference names.
        after: What the second names.
        target: Whose artifacts, or None.
        with_target: The second's, where that is another one, or None.

    Raises:
        InvalidInput: Both are the same artifact.
        NotFound: One has none for the target.
        Ambiguous: Several targets could be meant.
    """
    if target is None and with_target is None:
        one, other = _in_common(before, after)
    else:
        later = with_target or target
        other = _of_target(after, later) if later else after.artifacts[0]
        one = _of_target(before, target) if target else _beside(before, other)
    if one.digest == other.digest:
        raise InvalidInput(
            f"Both sides are the same artifact, {_name(before)} for {one.target}",
            where="after",
            hint=_otherwise(before, one),
        )
    return _side(before, one), _side(after, other)


def _in_common(before: Resolved, after: Resolved) -> tuple[ArtifactRef, ArtifactRef]:
    if len(before.artifacts) == len(after.artifacts) == 1:
        return before.artifacts[0], after.artifacts[0]
    of_after = {item.target: item for item in after.artifacts}
    common = [item for item in before.artifacts if item.target in of_after]
    if len(common) == 1:
        return common[0], of_after[common[0].target]
    if not common:
        raise Ambiguous(
            f"{_name(before)} and {_name(after)} have no target in common",
            where="target",
            hint="Name one of each with target and with_target: "
            f"{_names(before.artifacts)} of the first, {_names(after.artifacts)} of the second.",
            details=tuple(Detail(item.target, f"of {_name(before)}") for item in before.artifacts)
            + tuple(Detail(item.target, f"of {_name(after)}") for item in after.artifacts),
        )
    if _name(before) == _name(after):
        raise Ambiguous(
            f"Both sides are {_name(before)}, which has artifacts for {len(common)} targets",
            where="target",
            hint=f"Choose two of them with target and with_target: {_names(common)}.",
            context={"targets": [item.target for item in common]},
        )
    raise Ambiguous(
        f"{_name(before)} and {_name(after)} have {len(common)} targets in common",
        where="target",
        hint=f"Choose one with target: {_names(common)}.",
        details=tuple(Detail(item.target, "both have an artifact for it") for item in common),
        context={"targets": [item.target for item in common]},
    )


def _beside(before: Resolved, other: ArtifactRef) -> ArtifactRef:
    """The first side where only the second's target is named: the one that is left, or that of a pinned artifact."""
    left = [item for item in before.artifacts if item.digest != other.digest]
    if len(left) == 1:
        return left[0]
    raise Ambiguous(
        f"{_name(before)} has artifacts for {len(left)} other targets"
        if left
        else "Both sides are one artifact",
        where="target",
        hint=f"Name the first side's with target: {_names(before.artifacts)}.",
        context={"targets": [item.target for item in left]},
    )


def _of_target(side: Resolved, target: str) -> ArtifactRef:
    found = next((item for item in side.artifacts if item.target == target), None)
    if found is None:
        raise NotFound(
            f"{_name(side)} has no artifact for {target}",
            where="target",
            hint=f"It has: {_names(side.artifacts)}.",
            context={"targets": [item.target for item in side.artifacts]},
        )
    return found


def _otherwise(side: Resolved, chosen: ArtifactRef) -> str:
    others = [item for item in side.artifacts if item.digest != chosen.digest]
    if others:
        return f"Name another version, or another target of it with with_target: {_names(others)}."
    return f"Name another version: pt2hub versions {side.model} lists them."


def _side(named: Resolved, chosen: ArtifactRef) -> Side:
    return Side(named.reference, named.model, named.number, chosen.target, chosen.digest, chosen.created_at)


def _name(side: Resolved) -> str:
    return f"{side.model}@{side.number}"


def _names(artifacts: Sequence[ArtifactRef]) -> str:
    return ", ".join(item.target for item in artifacts)
