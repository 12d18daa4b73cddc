"""Builds: states, steps, attempts and claims."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from pt2hub.domain.digests import Digest
from pt2hub.domain.principals import Principal
from pt2hub.domain.publishing.spec_settings import strip_settings
from pt2hub.domain.targets import Target


class BuildState(StrEnum):
    """State of a build. The last three are final."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Whether the state is final."""
        return self in (BuildState.SUCCEEDED, BuildState.FAILED, BuildState.CANCELLED)


UNFINISHED = tuple(state for state in BuildState if not state.final)
"""States of builds that wait or run."""


class BuildKind(StrEnum):
    """Kind of a build. Jobs of the other kinds publish no artifact, but go through the same queue and states."""

    BUILD = "build"
    MEASURE = "measure"
    """Benchmarks an artifact again; compiles nothing."""
    REBUILD = "rebuild"
    """Builds a published artifact again, to replace its damaged files."""


def name_kind(kind: str) -> str:
    """Return what people call a build of a kind: `build`, `measuring job` or `rebuild`."""
    return "measuring job" if kind == BuildKind.MEASURE else kind


class Outcome(StrEnum):
    """Outcome of an attempt. An attempt may end without ending its build.

    `retried`: transient failure, the build waits for another attempt. `lost`: the worker's heartbeat timed out.
    `handed_back`: the worker stopped gracefully, or an operator queued the build again. `postponed`: a measuring
    job gave its slot to a waiting build.
    """

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    RETRIED = "retried"
    LOST = "lost"
    HANDED_BACK = "handed_back"
    POSTPONED = "postponed"


class Readiness(StrEnum):
    """Readiness of a version, derived from the builds of its first-submitted targets."""

    PENDING = "pending"
    PARTIAL = "partial"
    READY = "ready"
    FAILED = "failed"
    CANCELLED = "cancelled"


STEPS = ("fetch", "export", "key", "compile", "reuse", "pack", "verify", "upload", "publish")
"""Steps of a build, in order; either `compile` or `reuse` runs."""
MEASURING_STEPS = ("fetch", "measure", "publish")
"""Steps of a measuring job, in order."""


MAX_FAILURES = 5
"""Number of attempts that may end in a transient failure or a lost worker since the submission or the last `retry`;
then the build fails with the last error. This stops builds that kill every worker."""
LOWEST_PRIORITY, HIGHEST_PRIORITY = -100, 100
MEASURE_PRIORITY = -10
"""Default priority of measuring jobs, below that of builds."""
PUBLICATION = "publication"
"""Requester of measuring jobs that are queued when an artifact is published."""
MAX_REPEAT = 20
"""Maximum number of runs per measuring job; each holds the device for several seconds."""
_PAUSES = (1.0, 4.0, 10.0, 20.0)
"""Seconds. Storage and networks recover within seconds; builds continue at most 30 s after recovery."""


def backoff(failures: int) -> timedelta:
    """Return the delay before a build's next attempt.

    Args:
        failures: Number of consecutive failed attempts, at least 1.
    """
    return timedelta(seconds=_PAUSES[min(failures, len(_PAUSES)) - 1])


def readiness(states: list[BuildState]) -> Readiness:
    """Return a version's readiness.

    Args:
        states: Build states, one per first-submitted target; later targets never revoke readiness.
    """
    succeeded = sum(state is BuildState.SUCCEEDED for state in states)
    if states and succeeded == len(states):
        return Readiness.READY
    if succeeded:
        return Readiness.PARTIAL
    if not states or not all(state.final for state in states):
        return Readiness.PENDING
    return Readiness.FAILED if BuildState.FAILED in states else Readiness.CANCELLED


class BuildOrder(StrEnum):
    """Order of a list of builds; the last two list only those that ended."""

    NEWEST = "newest"
    OLDEST = "oldest"
    ENDED = "ended"
    LONGEST = "longest"


@dataclass(frozen=True, slots=True)
class BuildFilter:
    """Filter for builds; None matches everything.

    Attributes:
        number: Version number.
        days: Ended within this number of days, or open.
    """

    model: str | None = None
    number: int | None = None
    state: BuildState | None = None
    target: str | None = None
    kind: BuildKind | None = None
    days: int | None = None
    order: BuildOrder = BuildOrder.NEWEST


@dataclass(frozen=True, slots=True)
class Claim:
    """A build claimed by a worker, with everything that the attempt needs.

    Attributes:
        build: The build's id.
        attempt: Number of this attempt, from 1; checked on publication (fencing).
        worker: Id of the worker.
        version_id: Database id of the version.
        model: The model's name.
        number: The version's number.
        identity: The version's identity.
        spec: The canonical spec merged with `settings`.
        request: The requested target with its overrides (`TargetSpec` as JSON); for measuring jobs a `MeasureRequest`,
            for rebuilds a `RebuildRequest`.
        target: The target to build for.
        pins: Digests and versions that the submission was resolved to.
        weights: The version's weights blob, None until the first build records it.
        golden: The version's golden blob, None until the first build records it.
        kind: Build or measuring job.
        settings: `limits`, `measure` and `compile.debug` of the version's latest submission.
        published_by: Who published the version, recorded in the artifact's provenance; None if unknown.
        requested_by: Who requested the build, with the version or as a further target; None if unknown.
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
    published_by: Principal | None = None
    requested_by: Principal | None = None

    @property
    def version_spec(self) -> dict[str, Any]:
        """The canonical spec without `settings`, as recorded in artifacts."""
        return strip_settings(self.spec, self.settings)

    @property
    def holder(self) -> str:
        """Holder of the leases on blobs that the attempt stores, until it publishes."""
        return f"build:{self.build}:{self.attempt}"


@dataclass(frozen=True, slots=True)
class MeasureRequest:
    """Request for a measuring job.

    Attributes:
        target: The target's name.
        artifact: Manifest digest of the artifact to measure.
        repeat: Number of runs, each with fresh processes.
        by: Name of the requesting token, or `publication`.
        baseline: Manifest digest of the artifact to compare with; None for that of the previous version.
        single_process: Whether one short run suffices if both artifacts have the same code.
    """

    target: str
    artifact: Digest
    repeat: int = 1
    by: str = ""
    baseline: Digest | None = None
    single_process: bool = False


@dataclass(frozen=True, slots=True)
class RebuildRequest:
    """Request for a rebuild.

    Attributes:
        target: The target's name.
        artifact: Manifest digest of the artifact whose damaged files are replaced.
        request: The request of the build that published it (`TargetSpec` as JSON).
    """

    target: str
    artifact: Digest
    request: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepReport:
    """A worker's report of a step.

    Attributes:
        name: One of `STEPS`.
        state: `running`, `done` or `failed`.
        started: Seconds since the epoch, by the worker's estimate of the database's clock.
        seconds: Wall time excluding waits for the device, None while it runs.
        detail: Short progress or result text; the latest one is kept.
        waited: Seconds spent waiting for the device, or None.
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
        level: `info`, `warning`, `error`; `output` for output of the model's own code; `compiler` for noise,
            which summaries omit.
        text: The line without its newline.
    """

    seq: int
    at: float
    step: str
    level: str
    text: str
