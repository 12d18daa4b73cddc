"""The targets of a model on the front page: what somebody must look at stands first."""

from __future__ import annotations

from pt2hub.domain.digests import Digest
from pt2hub.server.pages.front import lines_of
from pt2hub.wire.overview import ModelGlance, Trend
from pt2hub.wire.performance import ChangeView, SeriesSummary
from pt2hub.wire.shapes import ModelView

ANY = Digest(f"sha256:{'0' * 64}")


def trend(target: str, ratio: float = 1.0, *, newest: int = 9) -> Trend:
    series = SeriesSummary("latency_p50", "ms", target, "artifact", ANY, newest, 1.0, "2026-11-22T10:00:00Z")
    verdict = "worse" if ratio > 1 else "better"
    return Trend(series, ChangeView(newest, newest - 1, verdict, ratio), 1) if ratio != 1 else Trend(series)


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
    lines = lines_of(ModelGlance(model, "partial", trends=trends, failed=("broken", "never-built")))
    shown = [line.target for line in lines if line.current]
    assert shown == ["broken", "never-built", "slowest", "slower", "steady", "faster"]
    assert [line.failed for line in lines if line.current] == [True, True, False, False, False, False]
    assert [line.target for line in lines if not line.current] == ["given-up"]
