"""The form of a policy: what a model's owners demand of its performance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from pt2hub.domain.names import ALIAS_PATTERN
from pt2hub.domain.parts import whole
from pt2hub.domain.performance import METRIC_PATTERN
from pt2hub.domain.targets import parse_target
from pt2hub.errors import UnknownTarget
from pt2hub.server.services.spec_errors import Form, explained

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_GATES = 100
MOST_METRICS = 200
_MOST_BATCH = 2**31 - 1


def _is_target(name: str) -> str:
    try:
        return parse_target(name).name
    except UnknownTarget as exc:
        allowed = "such as torch2.13-cpu-x86_64_v4 or torch2.11-cu130-sm90; null for every target"
        raise PydanticCustomError(
            UnknownTarget.code, "there is no such target", {"given": name, "allowed": allowed}
        ) from exc


MetricName = Annotated[str, Field(pattern=whole(METRIC_PATTERN))]


class _Part(BaseModel):
    # Strict: a limit written as "5%" is no number, and must not become one.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Gate(_Part):
    """What an alias demands of the version it moves to, against the version it is on."""

    metric: Annotated[MetricName, Field(description="What is compared, such as `latency_p50`.")]
    max_worse: Annotated[
        float, Field(ge=0, le=10, description="How much worse it may be: 0.05 is 5 %.", examples=[0.05])
    ]
    alias: Annotated[
        str | None, Field(pattern=whole(ALIAS_PATTERN), description="Of this alias; null for every alias.")
    ] = None
    target: Annotated[
        Annotated[str, AfterValidator(_is_target)] | None,
        Field(description="On this target; null for every target that both versions are there for."),
    ] = None
    batch: Annotated[
        int | None,
        Field(
            ge=1,
            le=_MOST_BATCH,
            description="At this batch size; null for every one measured of both versions.",
        ),
    ] = None
    missing: Annotated[
        Literal["refuse", "pass"],
        Field(
            description="What becomes of a move where the two cannot be compared: not measured, too noisy, or on "
            "machines of different kinds."
        ),
    ] = "refuse"

    @property
    def about(self) -> tuple[str | None, str, str | None, int | None]:
        """What makes two gates the same one."""
        return self.alias, self.metric, self.target, self.batch


class MetricRule(_Part):
    """When a change of a metric counts; what is left out is as pt2hub has it."""

    better: Annotated[
        Literal["lower", "higher"] | None, Field(description="Which way is better, of a metric of your own.")
    ] = None
    min_effect: Annotated[
        float | None,
        Field(ge=0.0001, le=10, description="The least relative change that counts.", examples=[0.05]),
    ] = None
    confidence: Annotated[
        float | None,
        Field(ge=0.5, le=0.9999, description="How sure a change must be.", examples=[0.99]),
    ] = None


class PolicySpec(_Part):
    """A policy."""

    gates: Annotated[
        list[Gate], Field(max_length=MOST_GATES, description="What moves of aliases must pass.")
    ] = []
    metrics: Annotated[
        dict[MetricName, MetricRule],
        Field(
            max_length=MOST_METRICS,
            description="When a change counts, by metric: in comparisons and flagged changes too.",
        ),
    ] = {}

    def document(self) -> dict[str, Any]:
        """The policy as JSON: gates whole, of metrics what is said."""
        rules = {name: rule.model_dump(exclude_none=True) for name, rule in self.metrics.items()}
        return {"gates": [gate.model_dump() for gate in self.gates], "metrics": rules}


FORM = Form(
    "policy",
    PolicySpec,
    'Such as {"gates": [{"alias": "prod", "metric": "latency_p50", "max_worse": 0.05}]}; 0.05 is 5 %.',
)


def parse_policy(document: Mapping[str, Any]) -> PolicySpec:
    """Reads a policy; which metrics there are is not its concern.

    Args:
        document: The policy as JSON values.

    Raises:
        InvalidInput: Fields are wrong.
        UnknownTarget: Only the targets are.
    """
    try:
        return PolicySpec.model_validate(dict(document))
    except ValidationError as exc:
        raise explained(exc, document, FORM) from exc
