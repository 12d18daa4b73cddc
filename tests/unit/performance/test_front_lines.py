"""The targets of a model on the front page: what somebody must look at stands first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.digests import Digest
from pt2hub.server.pages.front import lines_of
from pt2hub.server.pages.trend_texts import explain_trend, format_trend
from pt2hub.server.views.overview import ModelOverview, Trend
from pt2hub.wire.performance import ChangeView, SeriesSummary
from pt2hub.wire.responses import ModelView

if TYPE_CHECKING:
    from pt2hub.domain.performance.metrics import Settled

ANY = Digest(f"sha256:{'0' * 64}")

LEVELS: tuple[Settled, ...] = ("steady", "too_few", "apart")


def trend(target: str, ratio: float = 1.0, *, newest: int = 9) -> Trend:
    series = SeriesSummary("latency_p50", "ms", target, "artifact", ANY, newest, 1.0, "2026-11-22T10:00:00Z")
    outcome = "worse" if ratio > 1 else "better"
    return Trend(series, ChangeView(newest, newest - 1, outcome, ratio), 1) if ratio != 1 else Trend(series)


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


def test_what_failed_and_what_became_slowest_comes_before_what_is_well() -> None:
    trends = (
        trend("steady"),
        trend("faster", 0.5),
        trend("slower", 1.1),
        trend("slowest", 1.4),
        trend("broken", 0.9, newest=2),
        trend("given-up", 2.0, newest=2),
    )
    model = ModelView("team/net", "2026-11-22T10:00:00Z", 9, newest=9)
    lines = lines_of(ModelOverview(model, "partial", trends=trends, failed=("broken", "never-built")))
    shown = [line.target for line in lines if line.current]
    assert shown == ["broken", "never-built", "slowest", "slower", "steady", "faster"]
    assert [line.failed for line in lines if line.current] == [True, True, False, False, False, False]
    assert [line.target for line in lines if not line.current] == ["given-up"]
