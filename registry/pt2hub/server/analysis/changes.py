"""Where a long series changed its level, and how much its neighbours usually differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.domain.performance import Threshold


@dataclass(frozen=True, slots=True)
class Change:
    """A change of level.

    Attributes:
        at: Index of the first value of the new level.
        ratio: New level over old level.
    """

    at: int
    ratio: float


def change_points(values: Sequence[float], threshold: Threshold) -> list[Change]:
    """The changes of level in a series, first to last; none where it is too short to tell.

    Args:
        values: Figures by version, oldest first.
        threshold: The least change that counts.
    """
    raise NotImplementedError


def usual_noise(values: Sequence[float]) -> float | None:
    """Relative spread between neighbours of a series; None where there are too few."""
    raise NotImplementedError
