"""Schema of policies: promotion checks, protected aliases and metric thresholds of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from pt2hub.domain.names import ALIAS_PATTERN
from pt2hub.domain.performance.data_sets import parse_data_set
from pt2hub.domain.performance.metrics import METRIC_PATTERN
from pt2hub.domain.publishing.spec_base import whole
from pt2hub.domain.publishing.target_names import TargetName
from pt2hub.domain.tokens import matches_principal
from pt2hub.errors import InvalidInput
from pt2hub.server.services.publishing.spec_errors import Form, explain_validation_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pt2hub.domain.principals import Principal

MAX_CHECKS = 100
MAX_METRICS = 200
MAX_PROTECTED = 50
_MAX_NAMES = 50
_MAX_LIMITS = 50
_MAX_AGE_HOURS = 8784
"""A leap year."""
_MAX_LIMIT = 1e100
_MAX_BATCH = 2**31 - 1


MetricName = Annotated[str, Field(pattern=whole(METRIC_PATTERN))]
AliasName = Annotated[str, Field(pattern=whole(ALIAS_PATTERN))]
PrincipalPattern = Annotated[str, Field(min_length=1, max_length=100)]
_Change = Annotated[float | None, Field(ge=0, le=_MAX_LIMIT, allow_inf_nan=False)]
_Limit = Annotated[float | None, Field(ge=-_MAX_LIMIT, le=_MAX_LIMIT, allow_inf_nan=False)]


class _Part(BaseModel):
    # Strict: a limit written as "5%" is not a number and must not become one.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class PromotionCheck(_Part):
    """A condition on an alias move: compares the new version with the current one."""

    metric: Annotated[MetricName, Field(description="Metric to compare, such as `latency_p50`.")]
    max_worse: Annotated[
        float, Field(ge=0, le=10, description="How much worse it may become: 0.05 is 5 %.", examples=[0.05])
    ]
    alias: Annotated[
        str | None,
        Field(pattern=whole(ALIAS_PATTERN), description="Only for this alias; null for every alias."),
    ] = None
    target: Annotated[
        TargetName | None,
        Field(description="Only on this target; null for every target that both versions have."),
    ] = None
    batch: Annotated[
        int | None,
        Field(
            ge=1,
            le=_MAX_BATCH,
            description="Only at this batch size; null for every size measured for both versions.",
        ),
    ] = None
    missing: Annotated[
        Literal["refuse", "pass"],
        Field(
            description="What happens if the versions cannot be compared: not measured, too noisy, or measured in "
            "different environments."
        ),
    ] = "refuse"

    @property
    def about(self) -> tuple[str | None, str, str | None, int | None]:
        """What makes two checks the same one."""
        return self.alias, self.metric, self.target, self.batch


class MetricRule(_Part):
    """When a change of a metric counts; omitted fields have pt2hub's defaults."""

    better: Annotated[
        Literal["lower", "higher"] | None, Field(description="Better direction, for a metric of your own.")
    ] = None
    min_effect: Annotated[
        float | None,
        Field(ge=0.0001, le=10, description="Smallest relative change that counts.", examples=[0.05]),
    ] = None
    confidence: Annotated[
        float | None,
        Field(ge=0.5, le=0.9999, description="Required confidence in a change.", examples=[0.99]),
    ] = None


class MinAge(_Part):
    """How long a version must have been on another alias before."""

    alias: Annotated[AliasName, Field(description="The alias that it comes from, such as `staging`.")]
    hours: Annotated[
        float,
        Field(
            gt=0,
            le=_MAX_AGE_HOURS,
            description="Hours that it was on that alias without a break, at any time.",
            examples=[24],
        ),
    ]


class MetricLimit(_Part):
    """Limits of a metric that users report, such as accuracy."""

    min: Annotated[_Limit, Field(description="Lowest value that passes.", examples=[0.76])] = None
    max: Annotated[_Limit, Field(description="Highest value that passes.")] = None
    max_drop: Annotated[
        _Change,
        Field(
            description="How far the value may be below that of the version that the alias is on, as a difference: both must "
            "be evaluated on the same data set.",
            examples=[0.002],
        ),
    ] = None
    max_rise: Annotated[
        _Change, Field(description="How far it may be above that of the version that the alias is on.")
    ] = None
    data_set: Annotated[
        str | None,
        Field(
            max_length=300,
            description="Only evaluations on this data set count, `sha256:...` or `name@sha256:...`; null for all.",
        ),
    ] = None
    unit: Annotated[
        str,
        Field(
            min_length=1,
            max_length=16,
            description="Unit of the limits; a value that was reported in another one fails.",
        ),
    ] = "1"
    target: Annotated[
        TargetName | None,
        Field(
            description="The artifact for this target must have a value; null for at least one artifact of the version, and "
            "then every reported one must pass."
        ),
    ] = None
    reporters: Annotated[
        list[PrincipalPattern] | None,
        Field(
            min_length=1,
            max_length=_MAX_NAMES,
            description="Names of the tokens whose reports count, with `*` for any characters; null for all.",
        ),
    ] = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if all(bound is None for bound in (self.min, self.max, self.max_drop, self.max_rise)):
            message = "min, max, max_drop or max_rise is required"
            raise PydanticCustomError(
                InvalidInput.code, "{message}", {"message": message, "allowed": "a number"}
            )
        if self.data_set is not None and parse_data_set(self.data_set) is None:
            context = {"message": "a data set needs its digest", "path": "data_set", "given": self.data_set}
            raise PydanticCustomError(InvalidInput.code, "{message}", context)
        if self.target is not None and (self.is_relative or self.data_set is not None):
            message = "evaluations are about versions, so that the limit has no target"
            raise PydanticCustomError(InvalidInput.code, "{message}", {"message": message, "path": "target"})
        if self.min is not None and self.max is not None and self.min > self.max:
            raise PydanticCustomError(
                InvalidInput.code, "{message}", {"message": "min must be at most max", "path": "min"}
            )
        return self

    @property
    def is_relative(self) -> bool:
        """Whether the value is compared with that of the version that the alias is on."""
        return self.max_drop is not None or self.max_rise is not None

    def counts(self, reporter: Principal) -> bool:
        """Return whether the reports of somebody count."""
        return self.reporters is None or any(matches_principal(name, reporter) for name in self.reporters)

    @property
    def data_digest(self) -> str | None:
        """Digest of the only data set that counts; None for all."""
        data = parse_data_set(self.data_set) if self.data_set is not None else None
        return data.digest if data else None


class Protection(_Part):
    """What a protected alias requires of each version that it moves to, and of who moves it."""

    promoters: Annotated[
        list[PrincipalPattern] | None,
        Field(
            min_length=1,
            max_length=_MAX_NAMES,
            description="Names of the tokens that may move or remove it, with `*` for any characters; null for every token "
            "with the scope `promote`.",
            examples=[["release-*"]],
        ),
    ] = None
    ready: Annotated[bool, Field(description="Every target of the version has an artifact.")] = False
    verified: Annotated[
        bool,
        Field(
            description="Every artifact passed a verification that could have failed: one without comparisons or without "
            "power does not count."
        ),
    ] = False
    min_age: Annotated[
        MinAge | None, Field(description="How long the version must have been on another alias.")
    ] = None
    metrics: Annotated[
        dict[MetricName, MetricLimit],
        Field(max_length=_MAX_LIMITS, description="Limits of reported metrics, such as accuracy, by metric."),
    ] = {}


class PolicySpec(_Part):
    """A model's policy."""

    checks: Annotated[
        list[PromotionCheck], Field(max_length=MAX_CHECKS, description="Promotion checks of alias moves.")
    ] = []
    metrics: Annotated[
        dict[MetricName, MetricRule],
        Field(
            max_length=MAX_METRICS,
            description="When a change counts, by metric; also for comparisons and flagged changes.",
        ),
    ] = {}
    protected: Annotated[
        dict[AliasName, Protection],
        Field(max_length=MAX_PROTECTED, description="Protected aliases, by name, and what each requires."),
    ] = {}

    def document(self) -> dict[str, Any]:
        """Return the policy as JSON: checks whole, of metrics and protected aliases what is said."""
        rules = {name: rule.model_dump(exclude_none=True) for name, rule in self.metrics.items()}
        document = {"checks": [check.model_dump() for check in self.checks], "metrics": rules}
        if self.protected:
            document["protected"] = {
                name: rule.model_dump(exclude_defaults=True) for name, rule in self.protected.items()
            }
        return document


FORM = Form(
    "policy",
    PolicySpec,
    'Such as {"checks": [{"alias": "prod", "metric": "latency_p50", "max_worse": 0.05}]}; 0.05 is 5 %.',
)


def parse_policy(document: Mapping[str, Any]) -> PolicySpec:
    """Read a policy, without checking that its metrics exist.

    Raises:
        InvalidInput: Fields are invalid.
        UnknownTarget: Only targets are unknown.
    """
    try:
        return PolicySpec.model_validate(dict(document))
    except ValidationError as exc:
        raise explain_validation_error(exc, document, FORM) from exc
