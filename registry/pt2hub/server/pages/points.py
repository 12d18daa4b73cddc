"""Points of charts for the script that draws them: columns, since ten thousand rows of names weigh megabytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pt2hub.server.pages.plots import label_rows, seconds, shared_labels

if TYPE_CHECKING:
    from pt2hub.server.pages.breaks import Break
    from pt2hub.server.pages.charts import Chart, Line, Mark

_DIGITS = 6
"""Of a figure; a chart shows four."""


def document(chart: Chart) -> dict[str, Any]:
    """A chart as JSON.

    Args:
        chart: With its figures, not with relative ones: the script computes these.
    """
    labels = shared_labels(chart)
    return {
        "metric": chart.view.metric,
        "unit": chart.scale.unit,
        "factor": chart.scale.factor,
        "better": chart.view.better,
        "log": chart.is_log,
        "rows": label_rows(chart),
        "lines": [_line(line) for line in chart.lines],
        "marks": [_mark(mark) for mark in chart.marks],
        "breaks": [_break(item, labels[item.number]) for item in chart.breaks],
    }


def _line(line: Line) -> dict[str, Any]:
    points = line.series.points
    return {
        "target": line.series.target,
        "machine": line.machine,
        "colour": line.colour,
        "pattern": line.pattern,
        "age": line.age,
        "note": line.note,
        "noise": line.series.noise,
        "numbers": [point.number for point in points],
        "times": [round(seconds(point.measured_at)) for point in points],
        "values": [_short(point.value) for point in points],
        "lows": [_short(point.low) for point in points],
        "highs": [_short(point.high) for point in points],
        "counts": [point.count for point in points],
        "levels": [[level.first, level.last, _short(level.value)] for level in line.levels],
    }


def _short(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _mark(mark: Mark) -> dict[str, Any]:
    return {
        "line": mark.line,
        "number": mark.point.number,
        "before": mark.change.before,
        "verdict": mark.change.verdict,
        "ratio": mark.change.ratio,
        "said": mark.said,
        "href": mark.href,
    }


def _break(item: Break, labels: tuple[str, str]) -> dict[str, Any]:
    label, short = labels
    return {
        "line": item.line,
        "number": item.number,
        "time": round(seconds(item.at)),
        "said": item.said,
        "label": label,
        "short": short,
    }
