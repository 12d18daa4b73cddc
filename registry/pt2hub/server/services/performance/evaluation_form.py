"""Schema of reported evaluations."""

from __future__ import annotations

from datetime import MAXYEAR, UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from pt2hub.domain.names import Reference
from pt2hub.domain.performance.data_sets import DataSet, parse_data_set
from pt2hub.domain.performance.metrics import METRIC_PATTERN, METRICS
from pt2hub.errors import InvalidInput
from pt2hub.server.services.performance.report_form import Number, Text, check_iso, check_key, invalid
from pt2hub.server.services.publishing.spec_errors import Form, explain_validation_error

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_EVALUATIONS = 1000
"""Evaluations of one report."""
_OLDEST_YEAR = 2000


def _check_version(text: str) -> str:
    """Accept a version by its number: aliases move."""
    try:
        wanted = Reference.parse(text)
    except InvalidInput as exc:
        raise invalid("invalid version", given=text, allowed="team/name@3") from exc
    if wanted.number is None:
        raise invalid("a version is named by its number, which stays", given=text, allowed="team/name@3")
    return text


def _check_data_set(text: str) -> str:
    """Accept a data set with its digest: names stay the same while data changes."""
    if parse_data_set(text) is None:
        allowed = "sha256:<64 hex digits>, or name@sha256:<64 hex digits>"
        raise invalid("a data set needs its digest", given=text, allowed=allowed)
    return text


def _check_metric(text: str) -> str:
    if text in METRICS:
        message = f"pt2hub measures {text} of artifacts; report it with an artifact and an environment"
        raise invalid(message, given=text, allowed="a metric of your own, such as accuracy")
    return text


def _to_utc(given: datetime) -> datetime:
    """Return a time in UTC: PostgreSQL has fewer zones, and Python has no years before the first."""
    if not _OLDEST_YEAR <= given.year < MAXYEAR:
        raise invalid("the time is in another century", given=given.isoformat())
    return given.astimezone(UTC)


class Evaluation(BaseModel):
    """An evaluation of a version on data of its users."""

    # Strict: "0.76" is not a number, and true is not 1.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    key: Annotated[
        Text, Field(description="Your name for it; the same key and content again is a duplicate.")
    ]
    version: Annotated[str, Field(max_length=400, description="team/name@3."), AfterValidator(_check_version)]
    metric: Annotated[
        str,
        Field(pattern=f"^{METRIC_PATTERN}$", description="A name of your own, such as accuracy."),
        AfterValidator(_check_metric),
    ]
    value: Number
    unit: Annotated[Text, Field(max_length=16, description="`1` for plain numbers, such as 0.761; `%`, ...")]
    data_set: Annotated[
        Text,
        Field(max_length=300, description="Digest of the data set, optionally with a name: name@sha256:..."),
        AfterValidator(_check_data_set),
    ]
    count: Annotated[int, Field(ge=1, le=2**53, description="How many examples were evaluated.")]
    measured_at: Annotated[
        Annotated[AwareDatetime, BeforeValidator(check_iso), AfterValidator(_to_utc)] | None,
        Field(strict=False, description="ISO 8601 with its zone; default: when the report arrives."),
    ] = None

    @property
    def data(self) -> DataSet:
        """The data set."""
        found = parse_data_set(self.data_set)
        assert found is not None, "it was validated"
        return found


class EvaluationReport(BaseModel):
    """Evaluations: all of a report are kept, or none."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    evaluations: Annotated[list[Evaluation], Field(min_length=1, max_length=MAX_EVALUATIONS)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        first: dict[str, int] = {}
        for index in range(len(self.evaluations)):
            check_key("evaluations", self.evaluations, index, first)
        self._check_order()
        return self

    def _check_order(self) -> None:
        """Refuse two different results of the same at the same time: the newest one counts, and neither is newer."""
        first: dict[tuple[object, ...], tuple[int, tuple[object, ...]]] = {}
        for index, item in enumerate(self.evaluations):
            what = (item.version, item.metric, item.data.digest, item.measured_at)
            result = (item.value, item.unit, item.count)
            before, other = first.setdefault(what, (index, result))
            if result != other:
                message = f"evaluations[{before}] is another result on the same data set at the same time"
                allowed = "one of them, or both with their own times (measured_at)"
                raise invalid(message, f"evaluations[{index}]", allowed=allowed)


FORM = Form(
    "report",
    EvaluationReport,
    "Nothing was stored: correct the report and send all of it again. The schema is under POST /evaluations in "
    "/api/v1/docs.",
)


def parse_evaluations(document: Mapping[str, Any]) -> tuple[Evaluation, ...]:
    """Read a report of evaluations.

    Raises:
        InvalidInput: Fields are invalid; at most 100 are listed.
    """
    try:
        report = EvaluationReport.model_validate(dict(document))
    except ValidationError as exc:
        raise explain_validation_error(exc, document, FORM) from exc
    return tuple({item.key: item for item in report.evaluations}.values())
