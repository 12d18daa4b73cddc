"""Measurements, runs and environment classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from pt2hub.domain.artifacts import Environment
from pt2hub.domain.builds import BuildState
from pt2hub.domain.codec import decode, encode
from pt2hub.domain.digests import Digest, digest_json

RunSource: TypeAlias = Literal["build", "again", "report"]
"""Source of a measurement: the build (sizes, step times), a measuring job, or an external report."""

RUN_SCHEMA = 2
"""Schema of a `MeasurementRun`. Schema 1 had `subject` for `implementation` and `beside` for `baseline_measurements`."""
MEASURED_BY = "latency_p50"
"""The metric that every benchmark run has; an artifact with it counts as measured."""
NO_BATCH = 0
"""Placeholder for "no batch", so that a unique index can distinguish series."""


class MeasurementState(StrEnum):
    """Measurement state of an artifact. Artifacts are verified and ready before they are measured."""

    NOT_MEASURED = "not_measured"
    WAITING = "waiting"
    MEASURING = "measuring"
    MEASURED = "measured"
    FAILED = "failed"

    @property
    def open(self) -> bool:
        """Whether a measuring job is pending."""
        return self in (MeasurementState.WAITING, MeasurementState.MEASURING)


_BY_JOB = {
    BuildState.QUEUED: MeasurementState.WAITING,
    BuildState.RUNNING: MeasurementState.MEASURING,
    BuildState.SUCCEEDED: MeasurementState.MEASURED,
    BuildState.FAILED: MeasurementState.FAILED,
    BuildState.CANCELLED: MeasurementState.NOT_MEASURED,
}


def measurement_state(*, measured: bool, job: BuildState | None) -> MeasurementState:
    """Return the measurement state of an artifact; a measured one stays measured during further jobs.

    Args:
        measured: Whether it has measurements from a run.
        job: State of its measuring job (running before queued before latest); None if there is none.
    """
    if measured:
        return MeasurementState.MEASURED
    return _BY_JOB[job] if job else MeasurementState.NOT_MEASURED


@dataclass(frozen=True, slots=True)
class Measurement:
    """A measured value of a metric.

    Attributes:
        metric: Name of the metric (`latency_p50`).
        value: The value.
        unit: The unit (`ms`).
        implementation: `artifact`, or the baseline `eager` or `torch_compile`.
        batch: Batch size, or None if not applicable.
        samples: Times of single calls, one list per replicate; None if not kept.
        replicates: The value from each replicate, which tests treat as independent; None without replicates.
    """

    metric: str
    value: float
    unit: str
    implementation: str
    batch: int | None = None
    samples: list[Any] | None = None
    replicates: list[float] | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """A paired comparison of an artifact with another one in the same fresh processes.

    Attributes:
        metric: Name of the metric.
        unit: The unit.
        ratios: The artifact's value divided by the other's, one per process.
        batch: Batch size, or None if not applicable.
    """

    metric: str
    unit: str
    ratios: list[float]
    batch: int | None = None


@dataclass(frozen=True, slots=True)
class MeasurementRun:
    """A run on one machine, the content of a `MEASUREMENT_RUN_TYPE` referrer.

    Attributes:
        schema: `RUN_SCHEMA`.
        id: `<build>:<attempt>` of the measuring attempt.
        source: `build` or `again`.
        measured_at: ISO 8601, UTC, by the database's clock.
        environment: The machine's fingerprint.
        conditions: Other circumstances: threads, clocks before and after, load, processes.
        measurements: Measurements of the artifact and of the baselines eager and `torch.compile`.
        baseline: The other artifact that ran in the same processes, or None.
        baseline_measurements: Measurements of the other artifact.
        pairs: Paired comparisons of the artifact with the other one.
        note: Why there is no other artifact, or another remark; usually None.
    """

    schema: int
    id: str
    source: RunSource
    measured_at: str
    environment: Environment
    conditions: dict[str, Any]
    measurements: list[Measurement]
    baseline: Digest | None = None
    baseline_measurements: list[Measurement] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    note: str | None = None


def read_run(document: Any, *, where: str = "") -> MeasurementRun:
    """Read a run of this or an earlier schema.

    Raises:
        BadResponse: The document is malformed.
    """
    if isinstance(document, dict) and document.get("schema") == 1:
        document = {
            **document,
            "schema": RUN_SCHEMA,
            "measurements": _from_schema_1(document.get("measurements")),
            "baseline_measurements": _from_schema_1(document.get("beside", [])),
        }
    return decode(MeasurementRun, document, where=where)


def _from_schema_1(measurements: Any) -> Any:
    if not isinstance(measurements, list):
        return measurements
    return [
        {**item, "implementation": item.get("subject")} if isinstance(item, dict) else item
        for item in measurements
    ]


_APART = ("memory_bytes",)
"""Fields that may differ between comparable machines."""
OF_TARGET = ("torch", "cuda", "triton", "gpu", "cpu_level")
"""Fields that differ between targets by definition."""


def class_fields(environment: Environment) -> dict[str, Any]:
    """Return the known fields of an environment that must be equal for timings to be comparable."""
    fields = encode(environment)
    return {name: value for name, value in fields.items() if value is not None and name not in _APART}


def environment_class(environment: Environment) -> Digest:
    """Return the digest of the fields that make measurements comparable."""
    return digest_json(class_fields(environment))


def differing(one: dict[str, Any], other: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the differing fields of two environment classes with both values; None if unknown in one."""
    names = sorted({*one, *other})
    return {name: (one.get(name), other.get(name)) for name in names if one.get(name) != other.get(name)}
