"""Runs behind an artifact's measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pt2hub.rendering.comparisons import metric
from pt2hub.rendering.quantities import quantity
from pt2hub.server.pages.artifacts.measurements import implementation_name
from pt2hub.server.views.inspection import MeasurementRunView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pt2hub.server.views.inspection import MetricView

MAX_RUNS = 10
"""Runs listed."""
_MAIN_METRIC = "latency_p50"


@dataclass(frozen=True, slots=True)
class Run:
    """A run, or the measurements of one report."""

    run: MeasurementRunView
    machine: str
    main: str
    measurements: tuple[tuple[str, str], ...]


def runs(metrics: Iterable[MetricView]) -> list[Run]:
    """Return the runs behind measurements, newest first, followed by reports: production may report thousands."""
    found: dict[tuple[str, str, str], list[tuple[MetricView, MeasurementRunView]]] = {}
    for item in metrics:
        for run in item.runs:
            found.setdefault((run.measured_at, run.job, run.reporter), []).append((item, run))
    listed = sorted(found, key=lambda key: (found[key][0][1].source != "report", key), reverse=True)
    return [_run(found[key]) for key in listed[:MAX_RUNS]]


def common_machine(found: Iterable[Run]) -> str:
    """Return the machine of all runs; empty if they differ."""
    machines = {item.machine for item in found}
    return machines.pop() if len(machines) == 1 else ""


def _run(items: list[tuple[MetricView, MeasurementRunView]]) -> Run:
    own = [
        (item, run) for item, run in items if (item.metric, item.implementation) == (_MAIN_METRIC, "artifact")
    ]
    main = ", ".join(
        quantity(run.value, item.unit) + (f" at batch {item.batch}" if item.batch else "")
        for item, run in own
    )
    first = items[0][1]
    return Run(
        first,
        describe_machine(first.environment),
        main,
        tuple(_describe_measurement(*pair) for pair in items),
    )


def _describe_measurement(item: MetricView, run: MeasurementRunView) -> tuple[str, str]:
    of = f" of {implementation_name(item.implementation)}" if item.implementation != "artifact" else ""
    low, high = quantity(run.low, item.unit), quantity(run.high, item.unit)
    spread = f" ({low} to {high})" if run.low < run.high else ""
    return f"{metric(item.metric, item.batch)}{of}", f"{quantity(run.value, item.unit)}{spread}"


def describe_machine(environment: Mapping[str, Any]) -> str:
    """Return an environment in short: machine, torch and GPU driver."""
    machine = environment.get("gpu") or environment.get("cpu_model") or "an unknown machine"
    texts = [str(machine)]
    texts += [f"{name} {environment[name]}" for name in ("torch", "driver") if environment.get(name)]
    return ", ".join(texts)
