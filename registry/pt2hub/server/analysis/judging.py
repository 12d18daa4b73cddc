"""Whether two figures differ by more than their noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.domain.performance import Judgement, Threshold


def judge_paired(ratios: Sequence[float], threshold: Threshold) -> Judgement:
    """Judges an artifact that ran beside another one in the same fresh processes.

    Args:
        ratios: Its figure over the other's, one of each process.
        threshold: What counts.
    """
    raise NotImplementedError


def judge_replicates(before: Sequence[float], after: Sequence[float], threshold: Threshold) -> Judgement:
    """Judges figures of two separate runs, each of several fresh processes.

    Args:
        before: The earlier artifact's, one of each process.
        after: The later one's.
        threshold: What counts.
    """
    raise NotImplementedError


def judge_single(before: float, after: float, usual: Sequence[float], threshold: Threshold) -> Judgement:
    """Judges two single figures by what is usual between neighbours of their series.

    Args:
        before: The earlier artifact's figure.
        after: The later one's.
        usual: Figures of the series before them, by version.
        threshold: What counts.
    """
    raise NotImplementedError


def judge_exact(before: float, after: float, threshold: Threshold) -> Judgement:
    """Judges figures without noise, such as sizes."""
    raise NotImplementedError
