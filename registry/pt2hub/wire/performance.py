"""Performance, as the API answers it: histories, comparisons, events, policies and reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pt2hub.domain.digests import Digest
from pt2hub.printed import Printed
from pt2hub.wire.shapes import BuildView


@dataclass(frozen=True, slots=True)
class PointView:
    """What a series says of one version.

    Attributes:
        number: The version's number.
        artifact: Manifest digest.
        value: The figure of its latest run; where there are reports only, the median of the latest 200.
        low: Lowest replicate of its latest figures, of 200 at most, or lowest figure where there are no replicates.
        high: Likewise the highest.
        count: How many figures that are.
        measured_at: When the latest was taken, ISO 8601, UTC.
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
    """Where a series changed.

    Attributes:
        number: The version that changed, of a long series the first one of the new level.
        before: The version it is compared with, or the last one of the old level.
        verdict: `better`, `worse`; `same` where nobody has said which way is better.
        ratio: New figure or level over the old one.
        kind: `change_point` of a long series, or `comparison` with the version before.
        method: How it was found, as verdicts name it: a `paired` ratio is of both side by side, not of their medians.
    """

    number: int
    before: int
    verdict: str
    ratio: float
    kind: str = "change_point"
    method: str = "series"


@dataclass(frozen=True, slots=True)
class SeriesView:
    """Figures that may be compared with each other: one target, batch, subject and environment class.

    Attributes:
        metric: What is measured.
        unit: Its unit.
        target: The target's name.
        subject: `artifact`, or what ran beside it.
        class_digest: The environment class.
        environment: Its fields.
        better: `lower`, `higher`, or None where nobody has said it.
        batch: Batch size, or None where there is none.
        noise: Relative spread between neighbouring versions that is usual, None where there are too few.
        points: By version, oldest first.
        changes: Where it changed, oldest first; only what lies within the points.
        more: Whether there are older points: ask for those `before` the first one's number.
        reported: Whether all figures are reports from outside, which pt2hub did not measure.
    """

    metric: str
    unit: str
    target: str
    subject: str
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
class HistoryView(Printed):
    """How a metric of a model moved over its versions.

    Attributes:
        model: The model's name.
        metric: What was asked for.
        series: One per target, batch, subject and environment class; never mixed. Those with the newest figures first.
        more: Whether series with older figures were left out: name a target, a batch or an environment.
    """

    model: str
    metric: str
    series: tuple[SeriesView, ...]
    more: bool = False


@dataclass(frozen=True, slots=True)
class SeriesSummary:
    """A series without its points, for lists and sparklines.

    Attributes:
        metric: What is measured.
        unit: Its unit.
        target: The target's name.
        subject: `artifact`, or what ran beside it.
        class_digest: The environment class.
        batch: Batch size, or None where there is none.
        newest: Number of the newest version in it.
        value: That version's figure.
        values: Figures of the last versions, oldest first, the newest last.
        measured_at: When the newest figure was taken.
    """

    metric: str
    unit: str
    target: str
    subject: str
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
        series: By metric (known ones first, in their order), target, batch and subject; of equal ones that with the
            newest figure first.
    """

    series: tuple[SeriesSummary, ...]


@dataclass(frozen=True, slots=True)
class Sparkline:
    """What a front page shows of a model.

    Attributes:
        model: The model's name.
        series: `latency_p50` of its artifacts at the example batch, one per target: that with the newest
            figure, one with nothing but reports only where there is no other.
    """

    model: str
    series: tuple[SeriesSummary, ...]


@dataclass(frozen=True, slots=True)
class SparklineList:
    """Sparklines of models.

    Attributes:
        models: Those with the newest figures first.
        next: What `after` must be for those that follow, None at the end; its form may change.
    """

    models: tuple[Sparkline, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class SideView:
    """One side of a comparison.

    Attributes:
        reference: As asked.
        model: The model's name.
        number: The version's number.
        target: The target's name.
        artifact: Manifest digest.
        created_at: When it was built, ISO 8601, UTC.
        environment: Fields of the environment class that its figures are from; empty where there are none.
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
    """One metric on both sides.

    Attributes:
        metric: What was measured.
        unit: Its unit.
        verdict: `better`, `worse`, `same` or `not_comparable`: the second side against the first.
        batch: Batch size, or None where there is none.
        before: The first side's figure, or None.
        after: The second side's.
        ratio: After over before, by the method; None where there is none. What is too noisy has one too.
        low: Lower end of its confidence interval, or None.
        high: Its upper end, or None.
        method: `paired`, `replicates`, `series`, `exact` or `code` (both run the same code); None where the figures could not be put side by side.
        min_effect: Relative change that it takes to be better or worse.
        confidence: Of the interval.
        why: Why not comparable (`environment_differs`, `too_noisy`, `too_few`, `not_measured`, `unit_differs`,
            `no_direction`, `inputs_differ`), else None.
        detail: That in words, else None.
        reported: Whether the figures are others' reports: pt2hub took none of either side.
        noise: How far the change may be off either way at that confidence, such as 0.032; 0 of what has no noise, None
            where nobody knows.
        because: Why the verdict is that, a sentence for people: what it was judged by, the least change that counts,
            and the noise.
    """

    metric: str
    unit: str
    verdict: str
    batch: int | None = None
    before: float | None = None
    after: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    method: str | None = None
    min_effect: float | None = None
    confidence: float | None = None
    why: str | None = None
    detail: str | None = None
    reported: bool = False
    noise: float | None = None
    because: str = ""


@dataclass(frozen=True, slots=True)
class AutotuneDifference:
    """An operation for which the compiler took another kernel.

    Attributes:
        op: The operation.
        shapes: Shapes of its inputs.
        before: What the first side's kernel is made from, such as `triton_mm`; None where it has no such operation.
        after: That of the second side, likewise.
        before_ms: Its time when the first side was tuned.
        after_ms: That of the other when the second was.
        cost_ms: What the change costs by the second side's own table: time of `after` less that of `before` there; None
            where it did not time both.
        before_parameters: Parameters of the first side's kernel, None where it has none.
        after_parameters: Those of the second side's.
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
        same: Whether their code layers have one digest.
        said: That in a sentence: whose code is reused, or what was compiled anew.
        tuning: Why a side has no times of kernels to compare, a sentence; empty where both have.
    """

    same: bool
    said: str
    tuning: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class ComparisonView(Printed):
    """Two artifacts side by side.

    Attributes:
        before: The first one.
        after: The one that is judged.
        metrics: Every metric that one of them has, those of `domain.performance.METRICS` first and in its order.
        autotune: Where the compiler chose otherwise.
        differs: Fields of the environments that differ, with both values.
        across: Whether the two are for different targets: then fields that the targets name may differ.
        code: Whether both run the same code; None for an older server.
    """

    before: SideView
    after: SideView
    metrics: tuple[MetricComparison, ...]
    autotune: tuple[AutotuneDifference, ...] = ()
    differs: dict[str, list[Any]] = field(default_factory=dict)
    across: bool = False
    code: CodeComparison | None = None


@dataclass(frozen=True, slots=True, repr=False)
class EventView(Printed):
    """A change that was flagged.

    Attributes:
        id: Its number.
        model: The model's name.
        number: The version that changed.
        before: The version it is compared with, or the last of the old level.
        target: The target's name.
        metric: What changed.
        unit: Its unit.
        verdict: `better` or `worse`.
        kind: `comparison` with the version before, or `change_point` of a long series.
        ratio: After over before.
        at: When it was flagged, ISO 8601, UTC.
        method: How it was found.
        batch: Batch size, or None where there is none.
        low: Lower end of the ratio's confidence interval, or None.
        high: Its upper end, or None.
        points: The version's point over that of `before`, as a history has them: another ratio than `ratio` where that
            is of both side by side, or of levels. None where one of them has no point, or there is no such ratio.
    """

    id: int
    model: str
    number: int
    before: int
    target: str
    metric: str
    unit: str
    verdict: str
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
        events: Some of them.
        next: What `after` must be for those that follow, None at the end; its form may change.
    """

    events: tuple[EventView, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class PolicyView(Printed):
    """What a model's owners demand of its performance.

    Attributes:
        model: The model's name.
        revision: Counts its changes from 1; 0 where there is none.
        document: The policy (`services.policy_spec.PolicySpec` as JSON): `gates` and `metrics`.
        by: Name of the token that changed it last, None where there is none.
        at: When, ISO 8601, UTC; likewise None.
    """

    model: str
    revision: int
    document: dict[str, Any] = field(default_factory=dict)
    by: str | None = None
    at: str | None = None


@dataclass(frozen=True, slots=True)
class MeasuringJobs:
    """The jobs that will time artifacts again.

    Attributes:
        builds: One of each artifact, of kind `measure`; one that waited already among them.
    """

    builds: tuple[BuildView, ...]


@dataclass(frozen=True, slots=True)
class GateCheck:
    """What a gate of a policy said to the move of an alias, about one target and batch.

    Attributes:
        gate: The gate, as the policy has it.
        path: Its place in the policy, such as `gates[0]`.
        passed: Whether the move may be made as far as it goes.
        said: What it found, a sentence.
        target: The target that was looked at, None where there was none to look at.
        missing: Whether the versions could not be compared.
        comparison: The version it was on against the one to move to; None where one has no artifact or no figure.
        wanted: What must be measured for that target, so that the two can be compared: a reference, and the one that
            it is measured beside. Empty where that helps nothing.
        jobs: Ids of measuring jobs that are queued or run, after which the two may be compared.
    """

    gate: dict[str, Any]
    path: str
    passed: bool
    said: str
    target: str | None = None
    missing: bool = False
    comparison: MetricComparison | None = None
    wanted: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reported:
    """What became of reported figures.

    Attributes:
        accepted: So many are new.
        duplicates: So many had been delivered before, by their keys.
        notes: What its reporter should know, such as a clock that is off; few.
    """

    accepted: int
    duplicates: int
    notes: tuple[str, ...] = ()
