"""View models of the performance page."""

from __future__ import annotations

from dataclasses import dataclass

from pt2hub.wire.performance import SeriesView


@dataclass(frozen=True, slots=True)
class ChartView:
    """A metric of a model over its versions.

    Attributes:
        metric: What is measured.
        text: Description of the metric; empty for reported metrics without one.
        unit: Its unit.
        better: `lower`, `higher`, or None if undefined.
        batch: Batch size, or None where there is none.
        implementation: `artifact`, or a baseline.
        series: By target; of one target's that with the newest figures first.
        more: Whether series with older figures were left out.
    """

    metric: str
    text: str
    unit: str
    better: str | None
    batch: int | None
    implementation: str
    series: tuple[SeriesView, ...]
    more: bool = False


@dataclass(frozen=True, slots=True)
class ChartsView:
    """Charts of a model, and the available metrics, targets and batch sizes.

    Attributes:
        model: The model's name.
        charts: What was asked for; of a metric in two units one chart each.
        metrics: Everything that is measured of the model, known metrics first and in their order.
        targets: Targets with figures.
        batches: Batch sizes with figures.
        implementations: `artifact`, and the baselines.
    """

    model: str
    charts: tuple[ChartView, ...]
    metrics: tuple[str, ...]
    targets: tuple[str, ...]
    batches: tuple[int, ...]
    implementations: tuple[str, ...]
