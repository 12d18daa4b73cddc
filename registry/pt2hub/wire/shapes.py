"""What the API answers, as frozen dataclasses; `domain.codec` turns them into JSON and back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pt2hub.domain.digests import Digest
from pt2hub.printed import Printed

MOST_VERSIONS = 1000
"""How far a model's versions are counted: of a hundred thousand the count alone took 40 ms of every look at the model."""


@dataclass(frozen=True, slots=True)
class StepView:
    """A step of a build.

    Attributes:
        name: `fetch`, `export`, `key`, `compile` or `reuse`, `pack`, `verify`, `upload` or `publish`; of a measuring job
            `fetch`, `measure` or `publish`.
        state: `running`, `done` or `failed`; where something else ended it, what: `cancelled`, `lost` (its worker went
            silent), `handed_back` or `postponed`.
        started_at: ISO 8601, UTC.
        seconds: Wall time without what it waited for the device, None while it runs.
        detail: A short line of progress or result, or None.
        waited: Seconds that it waited for the device, None where it did not.
    """

    name: str
    state: str
    started_at: str
    seconds: float | None = None
    detail: str | None = None
    waited: float | None = None


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One attempt at a build.

    Attributes:
        number: Counts the build's attempts from 1.
        worker: The worker that took it.
        started_at: ISO 8601, UTC.
        ended_at: Likewise; None while it runs.
        outcome: `succeeded`, `failed`, `cancelled`, `retried` (a transient failure, tried again later), `lost`
            (its worker went silent), `handed_back` or `postponed` (a measuring job that gave way to a build); None while it
            runs.
        code: The code of the error it ended with, or None.
        message: That error's sentence, or None.
        log: Digest of its whole log, once it was put away; else None.
    """

    number: int
    worker: str
    started_at: str
    ended_at: str | None = None
    outcome: str | None = None
    code: str | None = None
    message: str | None = None
    log: Digest | None = None


@dataclass(frozen=True, slots=True)
class MeasurementStatus:
    """Whether an artifact is measured.

    Attributes:
        state: `not_measured`, `waiting` (its measuring job is queued), `measuring`, `measured` or `failed`.
        job: Id of the measuring job that runs, else of one that waits, else of the latest; None without any.
        job_state: That job's state. An artifact that is measured stays so while a job measures it again.
        reason: Why that job failed, or who cancelled it; else None.
    """

    state: str
    job: str | None = None
    job_state: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class BuildView(Printed):
    """A build.

    Attributes:
        id: The build's id.
        model: The model's name.
        number: The version's number.
        target: The target's name.
        state: `queued`, `running`, `succeeded`, `failed` or `cancelled`.
        attempt: Attempts begun so far.
        created_at: ISO 8601, UTC, as all times here.
        started_at: When the latest attempt began, or None.
        finished_at: When it reached a final state, or None.
        steps: Steps of the latest attempt, in order.
        error: Why it failed, with the fields of a problem document but `message` for `detail`; else None.
        artifact: Manifest digest of the result, or None.
        note: Why it waits ("no live worker offers this target"), or None.
        priority: Higher comes first; builds of one priority come in the order in which they were queued.
        position: Its place among the queued builds of its target, from 1; None unless it is queued.
        not_before: When its next attempt may begin, after a transient failure; else None.
        worker: The worker that has it or had it last, or None.
        failures: Attempts that ended in a transient failure or a lost worker since it was submitted or retried.
        attempts: Every attempt, first to last; empty in lists.
        kind: `build`, or `measure` for a job that times an artifact again.
        measures: Manifest digest of the artifact that a measuring job times, else None.
        beside: Manifest digest of what it was asked to time it beside; None for that of the version before it.
        measurement: Whether its artifact is measured; None without one, of a measuring job, and of an older server.
    """

    id: str
    model: str
    number: int
    target: str
    state: str
    attempt: int
    created_at: str
    started_at: str | None = None
    finished_at: str | None = None
    steps: tuple[StepView, ...] = ()
    error: dict[str, Any] | None = None
    artifact: Digest | None = None
    note: str | None = None
    priority: int = 0
    position: int | None = None
    not_before: str | None = None
    worker: str | None = None
    failures: int = 0
    attempts: tuple[AttemptView, ...] = ()
    kind: str = "build"
    measures: Digest | None = None
    beside: Digest | None = None
    measurement: MeasurementStatus | None = None


@dataclass(frozen=True, slots=True, repr=False)
class VersionView(Printed):
    """A version and its builds.

    Attributes:
        model: The model's name.
        number: The version's number.
        identity: Digest of the canonical spec.
        readiness: `pending`, `partial`, `ready`, `failed` or `cancelled`.
        created_at: ISO 8601, UTC.
        spec: The canonical spec.
        pins: What the submission resolved to digests and versions.
        builds: One build per target, in the order submitted.
        weights: Digest of the weights blob, None until the first build recorded it.
        golden: Digest of the golden inputs and outputs, likewise.
        created: On a submission: whether it made the version (False: the same content was there already).
        settings: `limits` and `measure` of the latest submission: they are no part of what the version is.
    """

    model: str
    number: int
    identity: Digest
    readiness: str
    created_at: str
    spec: dict[str, Any]
    pins: dict[str, Any]
    builds: tuple[BuildView, ...]
    weights: Digest | None = None
    golden: Digest | None = None
    created: bool = False
    settings: dict[str, Any] = field(default_factory=dict)

    __repr__ = Printed.__str__  # what a prompt shows; no list holds them


@dataclass(frozen=True, slots=True, repr=False)
class LogView(Printed):
    """A line of a build's log.

    Attributes:
        seq: Position, from 1; ask for lines after the last one seen.
        at: Seconds since the epoch.
        step: The step that wrote it.
        level: `info`, `warning`, `error`; `output` for what the model's own code printed; `compiler` for noise,
            which summaries leave out.
        text: The line.
    """

    seq: int
    at: float
    step: str
    level: str
    text: str


@dataclass(frozen=True, slots=True, repr=False)
class TargetView(Printed):
    """A target that workers offer or offered.

    Attributes:
        name: The target's name.
        live_workers: Workers with a fresh heartbeat.
        queued: Builds and measuring jobs that wait for it.
        running: Builds and measuring jobs that run on it.
        slots: How many of both its live workers can run at a time.
        oldest: When the one that waits longest was queued, ISO 8601, UTC; None where none waits.
        last_seen: When a worker of it was last heard of, or None: no worker ever offered it.
    """

    name: str
    live_workers: int
    queued: int = 0
    running: int = 0
    slots: int = 0
    oldest: str | None = None
    last_seen: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class ModelView(Printed):
    """A model.

    Attributes:
        name: `team/name`.
        created_at: ISO 8601, UTC.
        versions: How many there are, counted up to 1000: that many stands for any number from there on.
        newest: Number of the newest version, None without any.
        newest_ready: Number of the newest version that is ready, which a reference without `@` names, or None.
        aliases: The number each alias names now.
        description: What it is, for people.
    """

    name: str
    created_at: str
    versions: int
    newest: int | None = None
    newest_ready: int | None = None
    aliases: dict[str, int] = field(default_factory=dict)
    description: str = ""

    @property
    def counted(self) -> str:
        """How many versions there are, for people: `12`, `1,000+`."""
        return f"{self.versions:,}{'+' if self.versions >= MOST_VERSIONS else ''}"


@dataclass(frozen=True, slots=True)
class ModelPage:
    """Models in the order of their names.

    Attributes:
        models: Some of them.
        next: What `after` must be for those that follow, None at the end.
    """

    models: tuple[ModelView, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class VersionSummary(Printed):
    """A version in a list.

    Attributes:
        model: The model's name.
        number: The version's number.
        readiness: `pending`, `partial`, `ready`, `failed` or `cancelled`.
        created_at: ISO 8601, UTC.
        targets: State of the build of each target, in the order submitted.
        aliases: Names of the aliases that are on it now.
        measurements: Of each target that has an artifact, the state of its measurement, see `MeasurementStatus`.
    """

    model: str
    number: int
    readiness: str
    created_at: str
    targets: dict[str, str] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    measurements: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VersionPage:
    """Versions of a model, newest first.

    Attributes:
        versions: Some of them.
        next: What `before` must be for those that follow, None at the end.
    """

    versions: tuple[VersionSummary, ...]
    next: int | None = None


@dataclass(frozen=True, slots=True)
class BuildPage:
    """Builds, newest first, without their steps.

    Attributes:
        builds: Some of them.
        next: What `after` must be for those that follow, None at the end; its form may change.
    """

    builds: tuple[BuildView, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class AliasMove:
    """One change of an alias.

    Attributes:
        sequence: Counts the alias's moves from 1.
        before: The version it was on, None where it did not exist.
        after: The version it is on since, None where it was removed.
        reason: Why, in the words of whoever moved it.
        by: Name of the token that moved it.
        at: ISO 8601, UTC.
        forced: Where an admin's token moved it though the model's policy refused: `revision` of the policy, the
            `count` of refusals, and `refused`, at most 20 of them, each a `wire.performance.GateCheck`; else None.
    """

    sequence: int
    before: int | None
    after: int | None
    reason: str
    by: str
    at: str
    forced: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, repr=False)
class AliasView(Printed):
    """A movable name on a version.

    Attributes:
        model: The model's name.
        name: The alias's name, such as `prod`.
        number: The version it is on, None where it was removed.
        last: The move that put it there.
        history: All moves, newest first, at most 1000; empty in lists.
        notes: What the model's policy said to the move just made, a sentence each; empty otherwise.
    """

    model: str
    name: str
    number: int | None
    last: AliasMove
    history: tuple[AliasMove, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AliasList:
    """Aliases of a model, by name; removed ones are left out.

    Attributes:
        aliases: Each without its history.
    """

    aliases: tuple[AliasView, ...]
