"""Performance in API responses: histories, comparisons, events, policies and reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pt2hub.domain.digests import Digest
from pt2hub.domain.principals import Principal
from pt2hub.renderable import Renderable
from pt2hub.wire.evaluations import EvaluationComparison
from pt2hub.wire.responses import BuildView


@dataclass(frozen=True, slots=True)
class PointView:
    """A version's point in a series.

    Attributes:
        number: Number of the version.
        artifact: Manifest digest.
        value: Value of the latest run; if there are only reports, the median of the latest 200.
        low: Lowest replicate among at most 200 latest measurements; lowest value if there are no replicates.
        high: Highest replicate or value among them.
        count: Number of measurements.
        measured_at: Time of the latest measurement, ISO 8601, UTC.
    """

    number: int
    artifact: Digest
    value: float
    low: float
    high: float
    count: int
    measured_at: str


@dataclass(frozen=True, slots=True)
class ChangeView:
    """A change in a series.

    Attributes:
        number: The version that changed; for a change point the first one of the new level.
        before: The version it is compared with; for a change point the last one of the old level.
        outcome: `better` or `worse`; `same` if the metric's direction is unknown.
        ratio: New value or level divided by the old one.
        kind: `change_point` of a long series, or `comparison` with the previous version.
        method: Method of comparison; a `paired` ratio is from the same processes, not a ratio of medians.
    """

    number: int
    before: int
    outcome: str
    ratio: float
    kind: str = "change_point"
    method: str = "series"


@dataclass(frozen=True, slots=True)
class SeriesView:
    """A series of comparable measurements: one target, batch size, implementation and environment class.

    Attributes:
        metric: Name of the metric.
        unit: The unit.
        target: Name of the target.
        implementation: `artifact`, or a baseline.
        class_digest: Digest of the environment class.
        environment: Fields of the environment class.
        better: `lower`, `higher`, or None if unknown.
        batch: Batch size, or None if not applicable.
        noise: Usual relative spread between neighbouring versions, None if there are too few.
        points: Points by version, oldest first.
        changes: Changes within the points, oldest first.
        more: Whether there are older points; get them with `before` set to the first point's number.
        reported: Whether all measurements were reported from outside pt2hub.
    """

    metric: str
    unit: str
    target: str
    implementation: str
    class_digest: Digest
    environment: dict[str, Any]
    better: str | None = None
    batch: int | None = None
    noise: float | None = None
    points: tuple[PointView, ...] = ()
    changes: tuple[ChangeView, ...] = ()
    more: bool = False
    reported: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class HistoryView(Renderable):
    """History of a metric over a model's versions.

    Attributes:
        model: Name of the model.
        metric: The requested metric.
        series: One series per target, batch size, implementation and environment class, most recently measured first.
        more: Whether older series were omitted; filter by target, batch or environment to get them.
    """

    model: str
    metric: str
    series: tuple[SeriesView, ...]
    more: bool = False


@dataclass(frozen=True, slots=True)
class SeriesSummary:
    """A series without its points, for lists and sparklines.

    Attributes:
        metric: Name of the metric.
        unit: The unit.
        target: Name of the target.
        implementation: `artifact`, or a baseline.
        class_digest: Digest of the environment class.
        batch: Batch size, or None if not applicable.
        newest: Number of the newest version in the series.
        value: Value of the newest version.
        values: Values of the latest versions, newest last.
        measured_at: Time of the newest measurement.
    """

    metric: str
    unit: str
    target: str
    implementation: str
    class_digest: Digest
    newest: int
    value: float
    measured_at: str
    batch: int | None = None
    values: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class SeriesList:
    """The series of a model.

    Attributes:
        series: Series by metric (known ones first, in their order), target, batch and implementation; of equal ones the most
            recently measured first.
    """

    series: tuple[SeriesSummary, ...]


@dataclass(frozen=True, slots=True)
class SideView:
    """One side of a comparison.

    Attributes:
        reference: The requested reference.
        model: Name of the model.
        number: Number of the version.
        target: Name of the target.
        artifact: Manifest digest.
        created_at: When it was built, ISO 8601, UTC.
        environment: Fields of the environment class of its measurements; empty if there are none.
    """

    reference: str
    model: str
    number: int
    target: str
    artifact: Digest
    created_at: str
    environment: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MetricComparison:
    """Comparison of one metric.

    Attributes:
        metric: Name of the metric.
        unit: The unit.
        outcome: `better`, `worse`, `same` or `inconclusive`: the second side relative to the first.
        batch: Batch size, or None if not applicable.
        before: Value of the first side, or None.
        after: Value of the second side, or None.
        ratio: After divided by before according to the method; None if undefined. Also set if too noisy.
        low: Lower bound of the ratio's confidence interval, or None.
        high: Upper bound of the interval, or None.
        method: `paired`, `replicates`, `series`, `exact` or `code` (both run the same code); None if not compared.
        min_effect: Smallest relative change that counts as better or worse.
        confidence: Confidence of the interval.
        reason: Why the two are not comparable (`environment_differs`, `too_noisy`, `too_few`, `not_measured`, `unit_differs`,
            `no_direction`, `inputs_differ`), else None.
        detail: Explanation of `why`, else None.
        reported: Whether all measurements of both sides were reported from outside pt2hub.
        noise: Relative uncertainty of the change at that confidence, such as 0.032; 0 for exact metrics, None if
            unknown.
        explanation: Explanation of the result: method, smallest change that counts, and noise.
    """

    metric: str
    unit: str
    outcome: str
    batch: int | None = None
    before: float | None = None
    after: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    method: str | None = None
    min_effect: float | None = None
    confidence: float | None = None
    reason: str | None = None
    detail: str | None = None
    reported: bool = False
    noise: float | None = None
    explanation: str = ""


@dataclass(frozen=True, slots=True)
class AutotuneDifference:
    """An operation for which the compiler chose another kernel.

    Attributes:
        op: The operation.
        shapes: Shapes of its inputs.
        before: Template of the first side's kernel, such as `triton_mm`; None if it has no such operation.
        after: Template of the second side's kernel; None if it has no such operation.
        before_ms: Time of the first side's kernel when it was tuned.
        after_ms: Time of the second side's kernel when it was tuned.
        cost_ms: Cost of the change according to the second side's tuning: time of `after` minus time of `before`;
            None if it did not time both.
        before_parameters: Parameters of the first side's kernel, or None.
        after_parameters: Parameters of the second side's kernel, or None.
    """

    op: str
    shapes: list[Any]
    before: str | None = None
    after: str | None = None
    before_ms: float | None = None
    after_ms: float | None = None
    cost_ms: float | None = None
    before_parameters: dict[str, Any] | None = None
    after_parameters: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class CodeComparison:
    """Whether two artifacts run the same code.

    Attributes:
        same: Whether their code layers have the same digest.
        message: Explanation: whose code was reused, or what was recompiled.
        tuning: Why a side has no autotune times to compare; empty if both have them.
    """

    same: bool
    message: str
    tuning: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class ComparisonView(Renderable):
    """Comparison of two artifacts.

    Attributes:
        before: The first artifact, the base of the comparison.
        after: The second artifact.
        metrics: All metrics of either artifact, known ones first, in their order.
        autotune: Operations for which the compiler chose different kernels.
        differs: Fields of the environments that differ, with both values.
        across: Whether the targets differ; then environment fields that are part of the target may differ.
        code: Whether both run the same code; None from older servers.
        evaluations: Evaluations of both versions on the users' data, by metric and data set; empty for one version.
    """

    before: SideView
    after: SideView
    metrics: tuple[MetricComparison, ...]
    autotune: tuple[AutotuneDifference, ...] = ()
    differs: dict[str, list[Any]] = field(default_factory=dict)
    across: bool = False
    code: CodeComparison | None = None
    evaluations: tuple[EvaluationComparison, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class EventView(Renderable):
    """A flagged change: a regression or an improvement.

    Attributes:
        id: Unique number.
        model: Name of the model.
        number: The version that changed.
        before: The version it is compared with; for a change point the last one of the old level.
        target: Name of the target.
        metric: Name of the metric.
        unit: The unit.
        outcome: `better` or `worse`.
        kind: `comparison` with the previous version, or `change_point` of a long series.
        ratio: After divided by before.
        at: When it was flagged, ISO 8601, UTC.
        method: Method of comparison.
        batch: Batch size, or None if not applicable.
        low: Lower bound of the ratio's confidence interval, or None.
        high: Upper bound of the interval, or None.
        points: The version's point in the history divided by that of `before`; differs from `ratio` if that is paired or
            a ratio of levels. None if undefined.
    """

    id: int
    model: str
    number: int
    before: int
    target: str
    metric: str
    unit: str
    outcome: str
    kind: str
    ratio: float
    at: str
    method: str
    batch: int | None = None
    low: float | None = None
    high: float | None = None
    points: float | None = None


@dataclass(frozen=True, slots=True)
class EventPage:
    """Flagged changes, newest first.

    Attributes:
        events: The events of this page.
        next: Cursor: the value of `after` for the next page, None on the last page.
    """

    events: tuple[EventView, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class PolicyView(Renderable):
    """A model's performance policy.

    Attributes:
        model: Name of the model.
        revision: Number of changes so far; 0 if there is no policy.
        document: The policy: `checks` and `metrics`.
        by: Name of the token that changed it last, or None.
        at: Time of the last change, ISO 8601, UTC, or None.
        principal: Who changed it last, with kind and id, or None.
    """

    model: str
    revision: int
    document: dict[str, Any] = field(default_factory=dict)
    by: str | None = None
    at: str | None = None
    principal: Principal | None = None


@dataclass(frozen=True, slots=True)
class MeasuringJobs:
    """Queued measuring jobs.

    Attributes:
        builds: One job of kind `measure` per artifact, including jobs that were already queued.
    """

    builds: tuple[BuildView, ...]


@dataclass(frozen=True, slots=True)
class PromotionCheckResult:
    """Result of a promotion check, one of performance for one target and batch size.

    Attributes:
        check: The promotion check as defined in the policy.
        path: Its path in the policy, such as `checks[0]`.
        passed: Whether the check passed.
        message: The finding, in one sentence.
        target: The checked target, or None.
        missing: Whether the versions could not be compared.
        comparison: Comparison of the alias's current version with the new one; None if an artifact or measurement is
            missing.
        required: Measurement that would make the versions comparable: the reference to measure, and the one to measure
            it with. Empty if none would help.
        jobs: Ids of queued or running measuring jobs that may make the versions comparable.
        kind: `promoter`, `ready`, `verified`, `min_age`, `metric`, `performance`, or `damage` of the version itself.
        found: What was found, in a few words; empty in records of older servers.
        needed: What is needed, in a few words; empty in records of older servers.
    """

    check: dict[str, Any]
    path: str
    passed: bool
    message: str
    target: str | None = None
    missing: bool = False
    comparison: MetricComparison | None = None
    required: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    kind: str = "performance"
    found: str = ""
    needed: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class PromotionPreview(Renderable):
    """What the promotion checks say about an alias move; nothing was moved.

    Attributes:
        model: Name of the model.
        alias: Name of the alias.
        before: The version it is on, None if it does not exist.
        after: The version it would move to.
        allowed: Whether the move passes.
        revision: Revision of the policy, 0 if there is none.
        protected: Whether the policy protects the alias.
        checks: Results of all checks.
        notes: Remarks that belong to no check.
    """

    model: str
    alias: str
    before: int | None
    after: int
    allowed: bool
    revision: int = 0
    protected: bool = False
    checks: tuple[PromotionCheckResult, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reported:
    """Result of a report.

    Attributes:
        accepted: Number of new measurements.
        duplicates: Number of measurements that had been delivered before, according to their keys.
        notes: Notes for the reporter, such as about a wrong clock.
    """

    accepted: int
    duplicates: int
    notes: tuple[str, ...] = ()
