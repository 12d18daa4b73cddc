"""What was measured of the story's artifacts: as a worker would have, with its noise."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from statistics import median
from typing import TYPE_CHECKING

from pt2hub.domain.digests import Digest
from pt2hub.domain.measurements import RUN_SCHEMA, Measurement, MeasurementRun, Pair
from pt2hub.domain.performance import METRICS
from pt2hub.server.demo.machines import quickness
from pt2hub.server.demo.models import chance
from pt2hub.server.demo.plan import Build, Version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.domain.artifacts import Environment

PROCESSES = 5
_SAMPLES = 8
"""Calls kept of each process."""
_TAILS = {"latency_p50": 1.0, "latency_p95": 1.055, "latency_p99": 1.13}
_TIMED = frozenset(("fetch", "export", "key", "compile", "reuse", "pack", "verify"))


@dataclass(frozen=True, slots=True)
class Baseline:
    """The artifact of the version before, on the same target.

    Attributes:
        version: Its version.
        build: Its build.
        artifact: Manifest digest.
    """

    version: Version
    build: Build
    artifact: Digest


@dataclass(frozen=True, slots=True)
class _Day:
    """How the machine was when it measured.

    Attributes:
        mood: By how much everything took longer than usual.
        noise: Standard deviation of a process, as a logarithm.
        luck: For the processes.
    """

    mood: float
    noise: float
    luck: Random

    def around(self, value: float) -> list[float]:
        """A figure of each process."""
        noisy = (value * self.mood * self.luck.lognormvariate(0.0, self.noise) for _ in range(PROCESSES))
        return [rounded(item) for item in noisy]


def measured_run(
    version: Version, build: Build, sizes: dict[str, float], error: float, baseline: Baseline | None
) -> MeasurementRun:
    """The run of a build.

    Args:
        version: Of what.
        build: On which target.
        sizes: Bytes of the artifact's files, by metric.
        error: The gate's.
        baseline: What ran beside it.
    """
    attempt = build.attempts[-1]
    gpu = build.arch.startswith("sm")
    luck = chance(build.id, "figures")
    day = _Day(luck.lognormvariate(0.0, 0.01 if gpu else 0.02), 0.005 if gpu else 0.011, luck)
    calls = list(_calls(version, build, build, day))
    beside = list(_calls(baseline.version, baseline.build, build, day)) if baseline else []
    others = [*_of_processes(version, build, day), *_beside(version, build, calls, luck)]
    exact = [Measurement(name, value, "B", "artifact") for name, value in sizes.items()]
    times = [
        Measurement(f"{name}_time", seconds, "s", "artifact")
        for name, seconds in attempt.steps
        if name in _TIMED
    ]
    return MeasurementRun(
        schema=RUN_SCHEMA,
        id=f"{build.id}:{attempt.number}",
        source="build",
        measured_at=attempt.ended.isoformat(timespec="milliseconds"),
        environment=build.machine.environment,
        conditions=_conditions(build.machine.environment, luck),
        measurements=[*calls, *others, *exact, *times, Measurement("relative_error", error, "1", "artifact")],
        baseline=baseline.artifact if baseline else None,
        beside=beside,
        pairs=list(_pairs(calls, beside)) if baseline else [],
    )


def run_again(version: Version, build: Build, baseline: Baseline, job: str, at: str) -> MeasurementRun:
    """The run of a measuring job, on the machine that built the artifact.

    Args:
        version: Of what.
        build: On which target.
        baseline: What ran beside it.
        job: The measuring job.
        at: When it ran, ISO 8601.
    """
    luck = chance(job, "again")
    day = _Day(luck.lognormvariate(0.0, 0.012), 0.006, luck)
    calls = list(_calls(version, build, build, day))
    beside = list(_calls(baseline.version, baseline.build, build, day))
    return MeasurementRun(
        schema=RUN_SCHEMA,
        id=f"{job}:1",
        source="again",
        measured_at=at,
        environment=build.machine.environment,
        conditions=_conditions(build.machine.environment, luck),
        measurements=[*calls, *_of_processes(version, build, day)],
        baseline=baseline.artifact,
        beside=beside,
        pairs=list(_pairs(calls, beside)),
    )


def error_of(version: Version, build: Build) -> float:
    """The gate's largest error, relative to signal."""
    half = {"bfloat16": 4000.0, "float16": 500.0}.get(build.request.get("dtype", ""), 1.0)
    usual = version.model.error * half * version.model.level(version.number, build.arch, "relative_error")
    return rounded(usual * chance(build.id, "error").lognormvariate(0.0, 0.09))


def rounded(value: float) -> float:
    """Six significant digits, as workers tell them."""
    return float(f"{value:.6g}")


def _calls(version: Version, build: Build, where: Build, day: _Day) -> Iterator[Measurement]:
    """Latencies and throughput at each size, on the machine of another build of the same target."""
    model = version.model
    quick = quickness(build.arch, build.machine.target.torch, where.day)
    level = model.level(version.number, build.arch, "latency") * quick
    for batch in model.batches:
        middle = day.around(model.speeds[build.arch].of(batch) * level)
        for metric, tail in _TAILS.items():
            values = [rounded(value * tail * (1 + 0.02 * day.luck.random())) for value in middle]
            values = middle if metric == "latency_p50" else values
            samples = [_samples(value, day) for value in values] if metric == "latency_p50" else None
            yield _replicated(metric, values, batch, samples)
        yield _replicated("throughput", [rounded(985.0 * batch / value) for value in middle], batch)


def _samples(middle: float, day: _Day) -> list[float]:
    return [rounded(middle * day.luck.lognormvariate(0.0, 0.02)) for _ in range(_SAMPLES)]


def _replicated(
    metric: str, values: list[float], batch: int | None, samples: list[list[float]] | None = None
) -> Measurement:
    unit = METRICS[metric].unit
    return Measurement(metric, rounded(median(values)), unit, "artifact", batch, samples, values)


def _of_processes(version: Version, build: Build, day: _Day) -> Iterator[Measurement]:
    model, gpu = version.model, build.arch.startswith("sm")
    first = model.batches[0]
    memory = model.level(version.number, build.arch, "memory")
    load = model.level(version.number, build.arch, "load_time")
    call = model.speeds[build.arch].of(first)
    yield _replicated("first_inference", day.around((140.0 if gpu else 9.0) + 3 * call), first)
    yield _replicated("load_time", day.around((4.0 + model.weights_bytes / 2.4e6) * load), None)
    yield _replicated(
        "host_memory_peak", _whole(day.around((9e7 + 0.3 * model.weights_bytes) * memory)), None
    )
    if gpu:
        half = 0.5 if model.halves else 1.0
        peak = (2.6e7 + half * 1.4 * model.weights_bytes) * memory
        yield _replicated("device_memory_peak", [float(round(peak))] * PROCESSES, None)


def _whole(values: list[float]) -> list[float]:
    return [float(round(value)) for value in values]


def _beside(version: Version, build: Build, calls: list[Measurement], luck: Random) -> Iterator[Measurement]:
    """Eager and, where something was compiled, torch.compile, at the example's size."""
    example = next(iter(version.model.dims.values()))["example"]
    fresh = next(item.value for item in calls if item.metric == "latency_p50" and item.batch == example)
    own = fresh * luck.uniform(0.96, 1.12)  # in another process, which is seldom as quick as fresh ones
    gpu = build.arch.startswith("sm")
    times = {"eager": luck.uniform(2.1, 2.7) if gpu else luck.uniform(1.3, 1.6)}
    if not build.reuses:
        times["torch_compile"] = luck.uniform(1.01, 1.09)
    for subject, ratio in times.items():
        value = rounded(own * ratio)
        samples = [[rounded(value * luck.lognormvariate(0.0, 0.02)) for _ in range(_SAMPLES)]]
        yield Measurement("latency_p50", value, "ms", subject, example, samples, [value])
        yield Measurement("speedup", rounded(ratio), "1", subject, example, None, [rounded(ratio)])


def _pairs(own: list[Measurement], beside: list[Measurement]) -> Iterator[Pair]:
    theirs = {(item.metric, item.batch): item.replicates or [] for item in beside}
    for item in own:
        if others := theirs.get((item.metric, item.batch)):
            both = zip(item.replicates or [], others, strict=True)
            yield Pair(item.metric, item.unit, [rounded(one / other) for one, other in both], item.batch)


def _conditions(environment: Environment, luck: Random) -> dict[str, object]:
    gpu = {"gpu": {"sm_mhz": 1980 - luck.randrange(60), "temperature_c": 41 + luck.randrange(20)}}
    seen = {
        "load_average": round(luck.uniform(0.05, 0.6), 2),
        **(gpu if environment.gpu else {"cpu_mhz": 3400}),
    }
    return {
        "processes": PROCESSES,
        "threads": environment.cores,
        "others_busy": round(luck.uniform(0.0, 0.03), 3),
        "before": seen,
        "after": seen,
    }
