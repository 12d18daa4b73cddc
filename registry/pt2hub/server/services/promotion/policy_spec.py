"""Schema of policies: promotion checks and metric thresholds of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pt2hub.domain.names import ALIAS_PATTERN
from pt2hub.domain.performance.metrics import METRIC_PATTERN
from pt2hub.domain.publishing.spec_base import whole
from pt2hub.domain.publishing.target_names import TargetName
from pt2hub.server.services.publishing.spec_errors import Form, explain_validation_error

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_CHECKS = 100
MAX_METRICS = 200
_MAX_BATCH = 2**31 - 1


MetricName = Annotated[str, Field(pattern=whole(METRIC_PATTERN))]


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

    def document(self) -> dict[str, Any]:
        """Return the policy as JSON: checks whole, of metrics what is said."""
        rules = {name: rule.model_dump(exclude_none=True) for name, rule in self.metrics.items()}
        return {"checks": [check.model_dump() for check in self.checks], "metrics": rules}


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
