"""Measurements as they are taken, and what makes two of them comparable: the machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from pt2hub.domain.artifacts import Environment
from pt2hub.domain.builds import BuildState
from pt2hub.domain.codec import encode
from pt2hub.domain.digests import Digest, digest_json

RunSource: TypeAlias = Literal["build", "again", "report"]
"""Where figures are from: the build (sizes, its own seconds), a measuring job, or somebody's own measurement."""

RUN_SCHEMA = 1
MEASURED_BY = "latency_p50"
"""The metric that every run of fresh processes has: an artifact with it is measured."""
NO_BATCH = 0
"""Stands for no batch in a series, so that an index can tell series apart."""


class MeasurementState(StrEnum):
    """Whether an artifact is measured. An artifact is proven and ready before it is."""

    NOT_MEASURED = "not_measured"
    WAITING = "waiting"
    MEASURING = "measuring"
    MEASURED = "measured"
    FAILED = "failed"

    @property
    def open(self) -> bool:
        """Whether a measuring job will still change it."""
        return self in (MeasurementState.WAITING, MeasurementState.MEASURING)


_BY_JOB = {
    BuildState.QUEUED: MeasurementState.WAITING,
    BuildState.RUNNING: MeasurementState.MEASURING,
    BuildState.SUCCEEDED: MeasurementState.MEASURED,
    BuildState.FAILED: MeasurementState.FAILED,
    BuildState.CANCELLED: MeasurementState.NOT_MEASURED,
}


def measurement_state(*, measured: bool, job: BuildState | None) -> MeasurementState:
    """Return the state of an artifact; one that is measured stays so while it is measured again.

    Args:
        measured: Whether it has the figures of a run.
        job: State of its measuring job: the one that runs, else one that waits, else the latest; None without any.
    """
    if measured:
        return MeasurementState.MEASURED
    return _BY_JOB[job] if job else MeasurementState.NOT_MEASURED


@dataclass(frozen=True, slots=True)
class Measurement:
    """A figure of a metric.

    Attributes:
        metric: What was measured (`latency_p50`).
        value: The figure.
        unit: Its unit (`ms`).
        subject: `artifact`, or `eager` or `torch_compile` beside it.
        batch: Batch size, or None where there is none.
        samples: The single calls behind it, a list of each fresh process; None where they are not kept.
        replicates: The same figure of each fresh process: what a test may take as independent. None without such.
    """

    metric: str
    value: float
    unit: str
    subject: str
    batch: int | None = None
    samples: list[Any] | None = None
    replicates: list[float] | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """The artifact beside another one, in the same fresh processes.

    Attributes:
        metric: What was measured.
        unit: Its unit.
        ratios: The artifact's figure over the other's, one of each process.
        batch: Batch size, or None where there is none.
    """

    metric: str
    unit: str
    ratios: list[float]
    batch: int | None = None


@dataclass(frozen=True, slots=True)
class MeasurementRun:
    """Everything measured at one time on one machine, as the referrer of `MEASUREMENT_RUN_TYPE` holds it.

    Attributes:
        schema: `RUN_SCHEMA`.
        id: `<build>:<attempt>` of whoever measured.
        source: `build` or `again`.
        measured_at: ISO 8601, UTC, by the database's clock.
        environment: The machine's fingerprint.
        conditions: What else may explain a figure: threads, clocks before and after, load, processes.
        measurements: Of the artifact, and of eager and `torch.compile` beside it.
        baseline: The other artifact that ran in the same processes, or None.
        beside: What was measured of it.
        pairs: The artifact against it.
        note: Why there is no baseline, or what else its reader must know; None mostly.
    """

    schema: int
    id: str
    source: RunSource
    measured_at: str
    environment: Environment
    conditions: dict[str, Any]
    measurements: list[Measurement]
    baseline: Digest | None = None
    beside: list[Measurement] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    note: str | None = None


_APART = ("memory_bytes",)
"""Fields that differ between machines of one kind and make no figure incomparable."""
OF_TARGET = ("torch", "cuda", "triton", "gpu", "cpu_level")
"""Fields that two targets differ in by what they are."""


def class_fields(environment: Environment) -> dict[str, Any]:
    """What makes timings in an environment comparable with those of another one; what is unknown is left out."""
    fields = encode(environment)
    return {name: value for name, value in fields.items() if value is not None and name not in _APART}


def environment_class(environment: Environment) -> Digest:
    """Same class, comparable figures: the part of a series that is the machine."""
    return digest_json(class_fields(environment))


def differing(one: dict[str, Any], other: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The fields of two environment classes that differ, each with both values; None where one does not know it."""
    names = sorted({*one, *other})
    return {name: (one.get(name), other.get(name)) for name in names if one.get(name) != other.get(name)}
