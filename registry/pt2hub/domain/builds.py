"""Builds: states, steps and how they move."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from pt2hub.domain.digests import Digest
from pt2hub.domain.targets import Target


class BuildState(StrEnum):
    """Where a build stands. The last three are final."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Whether the build can change no more."""
        return self in (BuildState.SUCCEEDED, BuildState.FAILED, BuildState.CANCELLED)


class BuildKind(StrEnum):
    """What a build is for. A measuring job is one that compiles nothing: it goes through the same queue and states."""

    BUILD = "build"
    MEASURE = "measure"


class Outcome(StrEnum):
    """How an attempt ended. A build's state says how the build stands; an attempt may end without ending it.

    `retried`: a transient failure, the build waits for another attempt. `lost`: its worker went silent.
    `handed_back`: its worker stopped in an orderly way, or an operator queued the build again. `postponed`: a measuring
    job gave its slot to a build that waited.
    """

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    RETRIED = "retried"
    LOST = "lost"
    HANDED_BACK = "handed_back"
    POSTPONED = "postponed"


class Readiness(StrEnum):
    """Where a version stands, by the builds of its first-submitted targets."""

    PENDING = "pending"
    PARTIAL = "partial"
    READY = "ready"
    FAILED = "failed"
    CANCELLED = "cancelled"


STEPS = ("fetch", "export", "key", "compile", "reuse", "pack", "verify", "upload", "publish")
"""The named steps of a build, in order; of `compile` and `reuse` exactly one runs."""
MEASURING_STEPS = ("fetch", "measure", "publish")
"""The named steps of a measuring job, in order."""


MAX_FAILURES = 5
"""Attempts that may end in a transient failure or a lost worker, counted from the submission or the last
`retry`; the last one's error is then the build's. What kills each worker it meets must end some time."""
LOWEST_PRIORITY, HIGHEST_PRIORITY = -100, 100
MEASURE_PRIORITY = -10
"""Of measuring jobs, where nobody says another one: builds come first."""
PUBLICATION = "publication"
"""Who asks for the measuring job of an artifact that was just published."""
MAX_REPEAT = 20
"""Runs of one measuring job: each takes the device for some seconds at a time."""
_PAUSES = (1.0, 4.0, 10.0, 20.0)
"""Seconds. Storage and networks come back in seconds, not at once; and what came back is used within 30 s."""


def backoff(failures: int) -> timedelta:
    """How long a build waits for its next attempt.

    Args:
        failures: Attempts that failed in a row, from 1.
    """
    return timedelta(seconds=_PAUSES[min(failures, len(_PAUSES)) - 1])


def readiness(states: list[BuildState]) -> Readiness:
    """A version's readiness from the states of its first-submitted builds.

    Args:
        states: One state per first-submitted target; later targets never take readiness back.
    """
    succeeded = sum(state is BuildState.SUCCEEDED for state in states)
    if states and succeeded == len(states):
        return Readiness.READY
    if succeeded:
        return Readiness.PARTIAL
    if not states or not all(state.final for state in states):
        return Readiness.PENDING
    return Readiness.FAILED if BuildState.FAILED in states else Readiness.CANCELLED


@dataclass(frozen=True, slots=True)
class BuildFilter:
    """Which builds are meant; None is no filter.

    Attributes:
        model: Of this model.
        number: Of this version of the model.
        state: In this state.
        target: For this target.
        kind: Of this kind.
        days: Submitted within so many days.
    """

    model: str | None = None
    number: int | None = None
    state: BuildState | None = None
    target: str | None = None
    kind: BuildKind | None = None
    days: int | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """A build taken by a worker: everything its attempt needs.

    Attributes:
        build: The build's id.
        attempt: Number of this attempt, from 1; publishing compares it (fencing).
        worker: Id of the worker that holds it.
        version_id: Row of the version.
        model: The model's name.
        number: The version's number.
        identity: The version's identity.
        spec: The canonical spec, and the `settings` merged into it.
        request: The target asked for, with its overrides (`specs.TargetSpec` as JSON).
        target: What to build for.
        pins: What the submission resolved.
        weights: The version's weights blob, None until the first build records it.
        golden: The version's golden blob, None until the first build records it.
        kind: What it is for; a measuring job's request is a `MeasureRequest` as JSON.
        settings: `limits` and `measure` as the version was submitted with last.
    """

    build: str
    attempt: int
    worker: str
    version_id: int
    model: str
    number: int
    identity: Digest
    spec: dict[str, Any]
    request: dict[str, Any]
    target: Target
    pins: dict[str, Any]
    weights: Digest | None = None
    golden: Digest | None = None
    kind: BuildKind = BuildKind.BUILD
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def version_spec(self) -> dict[str, Any]:
        """The canonical spec alone: what makes the version, and what its artifacts say of it."""
        return {name: value for name, value in self.spec.items() if name not in self.settings}

    @property
    def holder(self) -> str:
        """Whose the leases are of what the attempt stores, until it publishes."""
        return f"build:{self.build}:{self.attempt}"


@dataclass(frozen=True, slots=True)
class MeasureRequest:
    """What a measuring job is asked for.

    Attributes:
        target: The target's name.
        artifact: Manifest digest of what to measure.
        repeat: So many runs, each with fresh processes.
        by: Name of the token that asked; `publication` where the artifact's publication did.
        beside: Manifest digest of what it is timed beside; None for that of the version before it.
        brief: One short run suffices where the code is that of what it is timed beside.
    """

    target: str
    artifact: Digest
    repeat: int = 1
    by: str = ""
    beside: Digest | None = None
    brief: bool = False


@dataclass(frozen=True, slots=True)
class StepReport:
    """A step of an attempt, as its worker reports it.

    Attributes:
        name: One of `STEPS`.
        state: `running`, `done` or `failed`.
        started: Seconds since the epoch, by the database's clock as the worker knows it.
        seconds: Wall time without what it waited for the device, None while it runs.
        detail: A short line of progress or result; the last one given stays.
        waited: Seconds that it waited for the device, None where it did not.
    """

    name: str
    state: str
    started: float
    seconds: float | None = None
    detail: str | None = None
    waited: float | None = None


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a build's log.

    Attributes:
        seq: Position in the attempt's log, from 1.
        at: Seconds since the epoch.
        step: The step that wrote it.
        level: `info`, `warning`, `error`; `output` for what the model's own code printed; `compiler` for noise,
            which summaries leave out.
        text: The line without its end.
    """

    seq: int
    at: float
    step: str
    level: str
    text: str
