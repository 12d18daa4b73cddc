"""Request parameters and bodies about performance."""

from typing import Annotated, Any, Literal

from flask_openapi3.models.tag import Tag
from pydantic import ConfigDict, Field, RootModel

from pt2hub.domain.builds import MAX_REPEAT, MEASURE_PRIORITY
from pt2hub.domain.performance.data_sets import DATA_SET_PATTERN
from pt2hub.domain.performance.metrics import METRIC_PATTERN
from pt2hub.domain.publishing.spec_base import whole
from pt2hub.rendering.tabular import CSV_TYPE
from pt2hub.server.api.request_shapes import (
    Body,
    LimitNumber,
    ModelText,
    Parameters,
    PriorityNumber,
    ReferenceText,
    document_pattern,
)
from pt2hub.server.services.performance.history import DEFAULT_POINTS, MAX_POINTS
from pt2hub.server.services.promotion.policy_spec import PolicySpec
from pt2hub.server.services.publishing.catalog import DEFAULT_LIMIT
from pt2hub.wire import performance

PERFORMANCE = Tag(name="performance", description="Measurements, comparisons, changes and policies.")


# -- measuring jobs ---------------------------------------------------------------------------------------


class MeasureOrder(Body):
    """Request for measuring jobs."""

    reference: ReferenceText
    target: Annotated[
        str | None, Field(max_length=200, description="Measure only the artifact for this target")
    ] = None
    repeat: Annotated[
        int, Field(ge=1, le=MAX_REPEAT, description="Number of runs per job, each with fresh processes")
    ] = 1
    priority: Annotated[
        PriorityNumber,
        Field(
            description="Priority, higher starts first. Raises the priority of jobs that are already queued."
        ),
    ] = MEASURE_PRIORITY
    baseline: Annotated[
        ReferenceText | None,
        Field(
            description="Reference of the same team; its artifact for the target is timed in the same processes, so that the two "
            "can be compared. By default the previous version.",
        ),
    ] = None


# -- histories --------------------------------------------------------------------------------------------


class EvaluationsQuery(Parameters):
    """Filter for the evaluations of a model's versions."""

    metric: Annotated[str | None, Field(max_length=200, description="Name of the metric")] = None
    data_set: Annotated[
        str | None,
        Field(
            max_length=300,
            description="Data set, `sha256:...` or `name@sha256:...`",
            json_schema_extra={"pattern": whole(DATA_SET_PATTERN)},
        ),
    ] = None
    before: Annotated[int | None, Field(ge=1, lt=2**63, description="`next` of the previous page")] = None
    limit: LimitNumber = DEFAULT_LIMIT


class HistoryQuery(Parameters):
    """Filter for a model's measurements."""

    metric: Annotated[
        str,
        Field(
            max_length=200,
            description="Name of the metric, such as `latency_p50`",
            json_schema_extra=document_pattern(METRIC_PATTERN),
        ),
    ]
    target: Annotated[str | None, Field(max_length=200, description="Name of the target")] = None
    batch: Annotated[int | None, Field(ge=1, lt=2**53, description="Batch size")] = None
    implementation: Annotated[
        str,
        Field(
            max_length=200,
            description="`artifact`, or a baseline: `eager` or `torch_compile`",
            json_schema_extra=document_pattern("[!-~]*"),
        ),
    ] = "artifact"
    environment: Annotated[
        str | None,
        Field(
            max_length=71,
            description="Environment class: `class_digest` of a series, or a prefix of it",
            json_schema_extra=document_pattern("sha256:[0-9a-f]{1,64}"),
        ),
    ] = None
    before: Annotated[
        int | None,
        Field(ge=1, lt=2**31, description="Only versions below this number; by default the newest"),
    ] = None
    limit: Annotated[int, Field(ge=1, le=MAX_POINTS, description="Maximum number of versions per series")] = (
        DEFAULT_POINTS
    )
    format: Annotated[
        Literal["json", "csv"] | None,
        Field(description="Format; by default according to the `Accept` header, else JSON"),
    ] = None


class History(RootModel[performance.HistoryView]):
    """History of a metric over a model's versions; as CSV, one row per point."""

    # This key is for flask-openapi3, not for pydantic.
    model_config = ConfigDict(openapi_extra={"content": {CSV_TYPE: {"schema": {"type": "string"}}}})  # type: ignore[typeddict-unknown-key]


# -- policies ---------------------------------------------------------------------------------------------


class _Revised(Body):
    revision: Annotated[
        int, Field(ge=0, lt=2**31 - 1, description="The expected current revision; 0 if there is no policy")
    ]


class PolicyChange(_Revised):
    """Change of a policy; the service validates the document."""

    document: dict[str, Any]


class PolicyForm(_Revised):
    """Change of a policy, with the schema of the document."""

    document: Annotated[PolicySpec, Field(description="The whole policy")]


# -- comparing --------------------------------------------------------------------------------------------


class CompareQuery(Parameters):
    """Selection of artifacts to compare."""

    before: Annotated[
        ReferenceText,
        Field(
            description="`team/name@<number, alias or digest>`: the base of the comparison",
        ),
    ]
    after: Annotated[
        ReferenceText,
        Field(
            description="`team/name@<number, alias or digest>`: the one to compare with it",
        ),
    ]
    target: Annotated[
        str | None,
        Field(max_length=200, description="Name of the target; by default the one that both have"),
    ] = None
    with_target: Annotated[
        str | None, Field(max_length=200, description="Target of the second artifact if different")
    ] = None


class ChangesQuery(Parameters):
    """Filter for flagged changes."""

    model: Annotated[ModelText | None, Field(description="Model, `team/name`")] = None
    target: Annotated[str | None, Field(max_length=200, description="Name of the target")] = None
    outcome: Annotated[
        Literal["better", "worse"] | None, Field(description="Only changes with this outcome")
    ] = None
    after: Annotated[str | None, Field(max_length=200, description="`next` of the previous page")] = None
    limit: LimitNumber = DEFAULT_LIMIT
