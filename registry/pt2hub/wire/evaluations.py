"""Evaluations: measurements of versions on data of their users."""

from __future__ import annotations

from dataclasses import dataclass

from pt2hub.domain.digests import Digest


@dataclass(frozen=True, slots=True)
class EvaluationView:
    """An evaluation of a version.

    Attributes:
        model: Name of the model.
        number: Number of the version.
        metric: Name of the metric, such as `accuracy`.
        value: The value.
        unit: Its unit; `1` for plain numbers.
        data_digest: Digest of the data set.
        data_set: Name of the data set; empty where only its digest is known.
        count: How many examples of the data set were evaluated.
        reporter: Name of the token that reported it.
        measured_at: When it was measured, ISO 8601, UTC.
    """

    model: str
    number: int
    metric: str
    value: float
    unit: str
    data_digest: Digest
    data_set: str
    count: int
    reporter: str
    measured_at: str


@dataclass(frozen=True, slots=True)
class EvaluationPage:
    """Evaluations of a model's versions.

    Attributes:
        evaluations: Newest first.
        next: Cursor for the next page; None at the end.
    """

    evaluations: tuple[EvaluationView, ...]
    next: int | None = None


@dataclass(frozen=True, slots=True)
class EvaluationComparison:
    """A metric of two versions on one data set.

    Attributes:
        metric: Name of the metric.
        data_digest: Digest of the data set.
        data_set: Name of the data set.
        outcome: `better`, `worse`, `same` or `inconclusive`.
        reason: Why it is inconclusive; empty otherwise.
        before: Newest evaluation of the first version; None if it was not evaluated on this data set.
        after: Newest evaluation of the second version.
        difference: `after` minus `before`; None where they cannot be compared.
    """

    metric: str
    data_digest: Digest
    data_set: str
    outcome: str
    reason: str = ""
    before: EvaluationView | None = None
    after: EvaluationView | None = None
    difference: float | None = None
