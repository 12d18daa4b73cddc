"""API responses as frozen dataclasses; `domain.codec` converts them to JSON and back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pt2hub.domain.digests import Digest
from pt2hub.domain.principals import Principal
from pt2hub.renderable import Renderable
from pt2hub.wire.evaluations import EvaluationView
from pt2hub.wire.files import FileView
from pt2hub.wire.lineage import DerivationView
from pt2hub.wire.resolution import Yank

MAX_COUNTED_VERSIONS = 1000
"""Versions of a model are counted up to this number; counting a hundred thousand took 40 ms per request."""


@dataclass(frozen=True, slots=True)
class StepView:
    """A step of a build.

    Attributes:
        name: `fetch`, `export`, `key`, `compile` or `reuse`, `pack`, `verify`, `upload` or `publish`; for a measuring
            job `fetch`, `measure` or `publish`.
        state: `running`, `done` or `failed`; if the attempt ended for another reason, `cancelled`, `lost` (heartbeat
            timeout of the worker), `handed_back` or `postponed`.
        started_at: ISO 8601, UTC.
        seconds: Wall time excluding waits for the device, None while it runs.
        detail: Short progress or result text, or None.
        waited: Seconds spent waiting for the device, or None.
    """

    name: str
    state: str
    started_at: str
    seconds: float | None = None
    detail: str | None = None
    waited: float | None = None


@dataclass(frozen=True, slots=True)
class AttemptView:
    """An attempt of a build.

    Attributes:
        number: Number of the attempt, from 1.
        worker: Id of the worker.
        started_at: ISO 8601, UTC.
        ended_at: ISO 8601, UTC; None while it runs.
        outcome: `succeeded`, `failed`, `cancelled`, `retried` (after a transient failure), `lost` (heartbeat timeout of
            the worker), `handed_back` or `postponed` (a measuring job that gave way to a build); None while it runs.
        code: Error code, or None.
        message: Error message, or None.
        log: Digest of the complete log once it is archived; else None.
        log_removed_after_days: Age at which its log was removed, since the server keeps logs for a limited time; else
            None.
    """

    number: int
    worker: str
    started_at: str
    ended_at: str | None = None
    outcome: str | None = None
    code: str | None = None
    message: str | None = None
    log: Digest | None = None
    log_removed_after_days: int | None = None


@dataclass(frozen=True, slots=True)
class MeasurementStatus:
    """Measurement status of an artifact.

    Attributes:
        state: `not_measured`, `waiting` (its measuring job is queued), `measuring`, `measured` or `failed`.
        job: Id of the measuring job (running before queued before latest); None if there is none.
        job_state: State of that job. A measured artifact stays `measured` during further jobs.
        reason: Why that job failed or who cancelled it; else None.
    """

    state: str
    job: str | None = None
    job_state: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class WaitReason:
    """Reason why a queued build waits.

    Attributes:
        code: `never_offered` (no worker ever offered its target), `no_live_worker` or `next_attempt`.
        last_seen: Latest heartbeat of a worker of its target, ISO 8601, UTC; None if there was none.
        suggestions: Known targets with similar names, if no worker ever offered its target.
        until: Earliest start of the next attempt.
        attempt: Number of the previous attempt.
        error: Error code of the previous attempt.
    """

    code: str
    last_seen: str | None = None
    suggestions: tuple[str, ...] = ()
    until: str | None = None
    attempt: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class BuildView(Renderable):
    """A build.

    Attributes:
        id: Id of the build.
        model: Name of the model.
        number: Number of the version.
        target: Name of the target.
        state: `queued`, `running`, `succeeded`, `failed` or `cancelled`.
        attempt: Number of attempts so far.
        created_at: ISO 8601, UTC, like all times.
        started_at: Start of the latest attempt, or None.
        finished_at: When it reached a final state, or None.
        steps: Steps of the latest attempt, in order.
        error: Why it failed: the fields of a problem document, with `message` instead of `detail`; else None.
        artifact: Manifest digest of the result, or None.
        wait: Why it is not started; None if it only waits for its turn in the queue.
        cancellation: Who cancelled it, or None.
        priority: Higher priorities start first; equal priorities start in queue order.
        position: Position among the queued builds of its target, from 1; None unless queued.
        not_before: Earliest start of the next attempt after a transient failure; else None.
        worker: Id of the current or last worker, or None.
        failures: Attempts that ended in a transient failure or a lost worker since submission or the last retry.
        attempts: All attempts, oldest first; empty in lists.
        kind: `build`, `measure` for a measuring job, or `rebuild`.
        measures: Manifest digest of the artifact that a measuring job measures, else None.
        baseline: Manifest digest of the artifact to compare with; None for that of the previous version.
        rebuilds: Manifest digest of the artifact whose damaged files a rebuild replaces, else None.
        measurement: Measurement status of its artifact; None without an artifact, for measuring jobs, and from older
            servers.
        requested_by: Who requested it: with the version, as a further target or as a measuring job; None where an
            artifact's publication queued it, and if that was before it was recorded.
        retried_by: Who last had it queued again, or None.
        cancelled_by: Who cancelled it, or None.
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
    wait: WaitReason | None = None
    cancellation: str | None = None
    priority: int = 0
    position: int | None = None
    not_before: str | None = None
    worker: str | None = None
    failures: int = 0
    attempts: tuple[AttemptView, ...] = ()
    kind: str = "build"
    measures: Digest | None = None
    baseline: Digest | None = None
    measurement: MeasurementStatus | None = None
    requested_by: Principal | None = None
    retried_by: Principal | None = None
    cancelled_by: Principal | None = None
    rebuilds: Digest | None = None


@dataclass(frozen=True, slots=True)
class YankChange:
    """A yank of a version, or the end of one.

    Attributes:
        sequence: Number of the change, from 1.
        yanked: Whether it yanked the version; else it ended a yank.
        reason: Reason given for it.
        by: Name of the token that made it.
        at: ISO 8601, UTC.
    """

    sequence: int
    yanked: bool
    reason: str
    by: str
    at: str


@dataclass(frozen=True, slots=True)
class LabelView:
    """A label of a model or version.

    Attributes:
        key: Its key, such as `git.sha`.
        value: Its value, one line of text.
        by: Who set it.
        at: When it was set, ISO 8601, UTC.
    """

    key: str
    value: str
    by: Principal | None = None
    at: str = ""


@dataclass(frozen=True, slots=True)
class LabelList:
    """The labels of a model or version.

    Attributes:
        labels: The labels, by key.
    """

    labels: tuple[LabelView, ...]


@dataclass(frozen=True, slots=True, repr=False)
class VersionView(Renderable):
    """A version and its builds.

    Attributes:
        model: Name of the model.
        number: Number of the version.
        identity: Digest of the canonical spec.
        readiness: `pending`, `partial`, `ready`, `failed` or `cancelled`.
        created_at: ISO 8601, UTC.
        spec: The canonical spec.
        pins: Digests and versions that the submission was resolved to.
        builds: One build per target, in submission order.
        weights: Digest of the weights blob, None until the first build records it.
        golden: Digest of the golden values, None until the first build records it.
        created: For a submission, whether the version is new (False: a version with the same content existed).
        settings: `limits`, `measure` and `compile.debug` of the latest submission; not part of the version's identity.
        notes: For a submission, modes and options of the spec that change nothing on a target; empty otherwise.
        published_by: Who published it; None if that was before it was recorded.
        yanked: Its yank, or None if it is not yanked.
        yanks: All yanks and their ends, newest first.
        labels: Its labels, by key.
        files: The attached files, by name.
        derived_from: What it is derived from; its whole lineage is an answer of its own.
        derivatives: Versions that are derived from it, the newest few.
        evaluations: Its newest evaluation by each metric on each data set.
        aliases: Names of the aliases that are on it, such as `prod`.
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
    notes: tuple[str, ...] = ()
    published_by: Principal | None = None
    yanked: Yank | None = None
    yanks: tuple[YankChange, ...] = ()
    labels: tuple[LabelView, ...] = ()
    files: tuple[FileView, ...] = ()
    derived_from: tuple[DerivationView, ...] = ()
    derivatives: tuple[DerivationView, ...] = ()
    evaluations: tuple[EvaluationView, ...] = ()
    aliases: tuple[str, ...] = ()

    __repr__ = Renderable.__str__  # what a prompt shows; no list holds them


@dataclass(frozen=True, slots=True, repr=False)
class LogView(Renderable):
    """A line of a build's log.

    Attributes:
        seq: Position in the log, from 1; the cursor for the next lines.
        at: Seconds since the epoch.
        step: The step that wrote it.
        level: `info`, `warning`, `error`; `output` for output of the model's own code; `compiler` for noise,
            which summaries omit.
        text: The line.
    """

    seq: int
    at: float
    step: str
    level: str
    text: str


@dataclass(frozen=True, slots=True)
class LogPage:
    """Lines of a log.

    Attributes:
        lines: The lines of this page, in order.
        attempt: Number of the attempt, 0 if none has started; null from older servers.
        complete: Whether the attempt has ended and no line follows this page; null from older servers.
    """

    lines: tuple[LogView, ...]
    attempt: int | None = None
    complete: bool | None = None


@dataclass(frozen=True, slots=True, repr=False)
class TargetView(Renderable):
    """A target that workers offer or offered.

    Attributes:
        name: Name of the target.
        live_workers: Number of workers with a recent heartbeat.
        queued: Number of queued builds and measuring jobs.
        running: Number of running builds and measuring jobs.
        slots: Number of builds and measuring jobs that its live workers can run at a time.
        oldest: When the oldest queued build was queued, ISO 8601, UTC; None if the queue is empty.
        last_seen: Latest heartbeat of one of its workers; None if no worker ever offered it.
    """

    name: str
    live_workers: int
    queued: int = 0
    running: int = 0
    slots: int = 0
    oldest: str | None = None
    last_seen: str | None = None


@dataclass(frozen=True, slots=True)
class TargetList:
    """The targets that workers offer or offered.

    Attributes:
        targets: The targets, by name.
    """

    targets: tuple[TargetView, ...]


@dataclass(frozen=True, slots=True, repr=False)
class ModelView(Renderable):
    """A model.

    Attributes:
        name: `team/name`.
        created_at: ISO 8601, UTC.
        versions: Number of versions, counted up to 1000; 1000 means 1000 or more.
        newest: Number of the newest version, or None.
        newest_ready: Number of the newest ready version, to which references without `@` resolve, or None.
        aliases: Version numbers of the aliases, by alias name.
        description: Description of the model.
        described_by: Who set the description last, or None.
        labels: Values of the model's own labels, by key.
        damaged: Targets whose artifacts are damaged on the server, by the name of the alias that is on their version.
    """

    name: str
    created_at: str
    versions: int
    newest: int | None = None
    newest_ready: int | None = None
    aliases: dict[str, int] = field(default_factory=dict)
    description: str = ""
    described_by: Principal | None = None
    labels: dict[str, str] = field(default_factory=dict)
    damaged: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelPage:
    """Models in the order of their names.

    Attributes:
        models: The models of this page.
        next: Cursor: the value of `after` for the next page, None on the last page.
    """

    models: tuple[ModelView, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class VersionSummary(Renderable):
    """A version in a list.

    Attributes:
        model: Name of the model.
        number: Number of the version.
        readiness: `pending`, `partial`, `ready`, `failed` or `cancelled`.
        created_at: ISO 8601, UTC.
        targets: State of each target's build, in submission order.
        aliases: Names of the aliases that point to it.
        measurements: Measurement state of each target with an artifact, see `MeasurementStatus`.
        published_by: Who published it; None if that was before it was recorded.
        yanked: Its yank, or None if it is not yanked.
        labels: Values of its labels, by key.
        damaged: Targets whose artifacts are damaged on the server.
    """

    model: str
    number: int
    readiness: str
    created_at: str
    targets: dict[str, str] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    measurements: dict[str, str] = field(default_factory=dict)
    published_by: Principal | None = None
    yanked: Yank | None = None
    labels: dict[str, str] = field(default_factory=dict)
    damaged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VersionPage:
    """Versions of a model, newest first.

    Attributes:
        versions: The versions of this page.
        next: Cursor: the value of `before` for the next page, None on the last page.
    """

    versions: tuple[VersionSummary, ...]
    next: int | None = None


@dataclass(frozen=True, slots=True)
class FoundVersions:
    """Versions that a search found, newest first.

    Attributes:
        versions: The versions of this page.
        next: Cursor: the value of `after` for the next page, None on the last page.
    """

    versions: tuple[VersionSummary, ...]
    next: int | None = None


@dataclass(frozen=True, slots=True)
class BuildPage:
    """Builds, newest first, without their steps.

    Attributes:
        builds: The builds of this page.
        next: Cursor: the value of `after` for the next page, None on the last page.
    """

    builds: tuple[BuildView, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class AliasMove:
    """A move of an alias.

    Attributes:
        sequence: Number of the move, from 1.
        before: The previous version, None if the alias did not exist.
        after: The new version, None if the alias was removed.
        reason: Reason given for the move.
        by: Name of the token that moved it.
        at: ISO 8601, UTC.
        forced: If an admin token forced the move against failed promotion checks: the policy's `revision`, the `count`
            of failed checks, and `refused`, at most 20 of them (`PromotionCheckResult`); else None.
        principal: Who moved it, with kind and id; None if that was before it was recorded.
    """

    sequence: int
    before: int | None
    after: int | None
    reason: str
    by: str
    at: str
    forced: dict[str, Any] | None = None
    principal: Principal | None = None


@dataclass(frozen=True, slots=True, repr=False)
class AliasView(Renderable):
    """An alias: a movable name on a version.

    Attributes:
        model: Name of the model.
        name: Name of the alias, such as `prod`.
        number: The version it points to, None if it was removed.
        last: The latest move.
        history: All moves, newest first, at most 1000; empty in lists.
        notes: Findings of the promotion checks for the move just made; empty otherwise.
    """

    model: str
    name: str
    number: int | None
    last: AliasMove
    history: tuple[AliasMove, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class AliasMoves(Renderable):
    """Moves of an alias after a known one.

    Attributes:
        model: Name of the model.
        name: Name of the alias.
        number: The version it points to, None if it does not exist.
        last: Number of the last of these moves, else of the last known one; 0 if there was none yet.
        moves: The moves, oldest first, at most 1000; empty where no known one was named.
    """

    model: str
    name: str
    number: int | None
    last: int
    moves: tuple[AliasMove, ...] = ()


@dataclass(frozen=True, slots=True)
class AliasList:
    """Aliases of a model, by name, without removed ones.

    Attributes:
        aliases: The aliases, without their histories.
    """

    aliases: tuple[AliasView, ...]
