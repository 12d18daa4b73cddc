"""How quick an artifact is, in the words of `pt2hub show` and of its view at a prompt."""

from __future__ import annotations

from pt2hub.rendering import speeds
from pt2hub.wire.artifacts import MeasurementView


def taken(
    value: float,
    day: int,
    metric: str = "latency_p50",
    implementation: str = "artifact",
    source: str = "build",
) -> MeasurementView:
    unit = "1" if metric == "speedup" else "ms"
    return MeasurementView(
        metric, value, unit, implementation, f"2026-11-{day:02}T10:00:00Z", 8, source=source
    )


def test_its_figure_is_that_of_the_latest_run_and_not_a_middle_of_several() -> None:
    twice = [taken(4.0, 9), taken(2.0, 8, source="again"), taken(100.0, 20, source="report")]
    assert speeds.line(twice) == "4 ms at batch 8"
    reported = (taken(value, 1, source="report") for value in (1.0, 7.0, 3.0))
    assert speeds.latest_value(reported) == 3.0


def test_what_ran_beside_it_is_told_with_its_own_time_of_that_process() -> None:
    own, eager = taken(12.5, 2), taken(8.0, 1, implementation="eager")
    ratio = taken(2.0, 1, "speedup", "eager")
    assert speeds.line([own, eager, ratio]) == (
        "12.5 ms at batch 8; eager 8 ms (this artifact 4 ms in the same process at batch 8, 2 times faster)"
    )
    assert speeds.rows([own, eager, ratio]) == (
        ("latency_p50", "12.5 ms", "batch 8"),
        ("eager", "8 ms", "this artifact 4 ms in the same process at batch 8, 2 times faster"),
    )
    assert speeds.line([own, eager]) == "12.5 ms at batch 8"  # nobody kept the ratio
    assert speeds.line([]) == ""


def test_first_calls_of_torch_compile_are_told_beside_the_artifacts() -> None:
    own = taken(2.0, 1, "first_inference")
    cold, warm = (
        taken(value, 1, metric, "torch_compile")
        for value, metric in ((5000.0, "first_inference"), (500.0, "first_inference_warm"))
    )
    assert speeds.rows([own, cold, warm])[1:] == (
        (
            "torch.compile, first call",
            "5 s",
            "with cold caches, 500 ms with warm ones, this artifact 2,500 times faster",
        ),
    )
    assert speeds.rows([cold])[-1] == ("torch.compile, first call", "5 s", "with cold caches")
    assert speeds.line([own, cold, warm]) == ""


def test_a_ratio_says_which_of_the_two_is_slower() -> None:
    assert speeds.against(0.7446, "eager") == "1.34 times slower than eager"
    assert speeds.against(1.52, "eager") == "1.52 times faster than eager"
    assert speeds.against(1.004, "torch.compile") == "as fast as torch.compile"
    assert speeds.against(1e-320).endswith("times slower")
