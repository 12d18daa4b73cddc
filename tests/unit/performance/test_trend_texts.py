"""Texts about series without a flagged change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.digests import Digest
from pt2hub.server.pages.trend_texts import explain_trend, format_trend
from pt2hub.server.views.overview import Trend
from pt2hub.wire.performance import SeriesSummary

if TYPE_CHECKING:
    from pt2hub.domain.performance.metrics import Settled

ANY = Digest(f"sha256:{'0' * 64}")

LEVELS: tuple[Settled, ...] = ("steady", "too_few", "apart")


def test_a_trend_is_called_steady_only_where_its_figures_bear_that() -> None:
    few, many = (
        SeriesSummary(
            "latency_p50",
            "ms",
            "cpu",
            "artifact",
            ANY,
            count,
            1.0,
            "2026-11-22T10:00:00Z",
            values=(1.0,) * count,
        )
        for count in (1, 9)
    )
    words = [format_trend(Trend(series, None, None, level)) for series in (few, many) for level in LEVELS]
    assert words == [*["one version measured"] * 3, "steady", "inconclusive", "inconclusive"]
    whys = [explain_trend(Trend(many, None, None, level)) for level in LEVELS]
    assert whys == [
        "No change was flagged in the last 9 versions",
        "9 versions are too few for a series; comparisons of two versions may still be significant",
        "No change was flagged in the last 9 versions, but version 9 deviates from their level",
    ]
