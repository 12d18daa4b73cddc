"""Parameters and answers about performance, as OpenAPI describes them."""

from typing import Annotated, Any, Literal

from flask_openapi3.models.tag import Tag
from pydantic import BaseModel, ConfigDict, Field, RootModel

from pt2hub.domain.builds import MAX_REPEAT, MEASURE_PRIORITY
from pt2hub.server.api.shapes import LimitNumber, Parameters, PriorityNumber
from pt2hub.server.services.catalog import DEFAULT_LIMIT
from pt2hub.server.services.performance import DEFAULT_FRONT, DEFAULT_POINTS, MAX_FRONT, MAX_POINTS
from pt2hub.server.services.policy_spec import PolicySpec
from pt2hub.wire import performance
from pt2hub.wire.tabular import CSV_TYPE

PERFORMANCE = Tag(name="performance", description="How fast artifacts are, where, and since when.")


# -- measuring jobs ---------------------------------------------------------------------------------------


class MeasureOrder(BaseModel):
    """What is to be measured again."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    reference: Annotated[
        str, Field(min_length=1, max_length=400, description="`team/name@<number, alias or digest>`")
    ]
    target: Annotated[
        str | None, Field(max_length=200, description="Of the version's artifacts only this target's")
    ] = None
    repeat: Annotated[
        int, Field(ge=1, le=MAX_REPEAT, description="Runs of each job, each with fresh processes")
    ] = 1
    priority: Annotated[
        PriorityNumber, Field(description="Higher comes first. It raises that of a job that waits already.")
    ] = MEASURE_PRIORITY
    beside: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=400,
            description="A reference of the same team: what it names for the target is timed in the same processes, "
            "so that the two can be compared. The version before where omitted.",
        ),
    ] = None


class Measuring(RootModel[performance.MeasuringJobs]):
    """The jobs that will time artifacts again."""


# -- histories --------------------------------------------------------------------------------------------


class HistoryQuery(Parameters):
    """Which figures of a model."""

    metric: Annotated[str, Field(max_length=200, description="What is measured, such as `latency_p50`")]
    target: Annotated[str | None, Field(max_length=200, description="On this target")] = None
    batch: Annotated[int | None, Field(ge=1, lt=2**63, description="At this batch size")] = None
    subject: Annotated[
        str,
        Field(max_length=200, description="`artifact`, or what ran beside it: `eager` or `torch_compile`"),
    ] = "artifact"
    environment: Annotated[
        str | None,
        Field(
            max_length=71,
            description="In this environment class: `class_digest` of a series, or its beginning",
        ),
    ] = None
    before: Annotated[
        int | None,
        Field(ge=1, lt=2**31, description="Of versions below this number; the newest where omitted"),
    ] = None
    limit: Annotated[
        int, Field(ge=1, le=MAX_POINTS, description="At most so many versions of each series")
    ] = DEFAULT_POINTS
    format: Annotated[
        Literal["json", "csv"] | None,
        Field(description="How it is written; where omitted, as the header `Accept` asks, else JSON"),
    ] = None


class FrontQuery(Parameters):
    """Which models a front page shows."""

    after: Annotated[str | None, Field(max_length=200, description="`next` of the page before")] = None
    limit: Annotated[int, Field(ge=1, le=MAX_FRONT, description="At most so many models")] = DEFAULT_FRONT


class History(RootModel[performance.HistoryView]):
    """How a metric of a model moved over its versions; as CSV a row for each point."""

    # flask-openapi3 reads this key; pydantic knows nothing of it.
    model_config = ConfigDict(openapi_extra={"content": {CSV_TYPE: {"schema": {"type": "string"}}}})  # type: ignore[typeddict-unknown-key]


class SeriesOfModel(RootModel[performance.SeriesList]):
    """What is measured of a model."""


class Front(RootModel[performance.SparklineList]):
    """Models with the newest figures first, and a sparkline for each of their targets."""


# -- policies ---------------------------------------------------------------------------------------------


class _Revised(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    revision: Annotated[
        int, Field(ge=0, lt=2**31 - 1, description="The one it is at, as you know it; 0 where there is none")
    ]


class PolicyChange(_Revised):
    """What the change of a policy must say; the service reads the document, and says what is wrong with it."""

    document: dict[str, Any]


class PolicyForm(_Revised):
    """What the change of a policy must say, with the document's form."""

    document: Annotated[PolicySpec, Field(description="The whole policy")]


class Policy(RootModel[performance.PolicyView]):
    """A model's policy; revision 0, which demands nothing, where it never had one."""


# -- comparing --------------------------------------------------------------------------------------------


class CompareQuery(Parameters):
    """Which artifacts to compare."""

    before: Annotated[
        str,
        Field(
            min_length=1, max_length=400, description="`team/name@<number, alias or digest>`: compared with"
        ),
    ]
    after: Annotated[
        str,
        Field(min_length=1, max_length=400, description="`team/name@<number, alias or digest>`: judged"),
    ]
    target: Annotated[
        str | None,
        Field(max_length=200, description="Whose artifacts; the one that both have where omitted"),
    ] = None
    with_target: Annotated[
        str | None, Field(max_length=200, description="The second one's target, where it is another")
    ] = None


class ChangesQuery(Parameters):
    """Which flagged changes."""

    model: Annotated[str | None, Field(max_length=200, description="Of this model, `team/name`")] = None
    target: Annotated[str | None, Field(max_length=200, description="For this target")] = None
    verdict: Annotated[Literal["better", "worse"] | None, Field(description="Only these")] = None
    after: Annotated[str | None, Field(max_length=200, description="`next` of the page before")] = None
    limit: LimitNumber = DEFAULT_LIMIT


class Comparison(RootModel[performance.ComparisonView]):
    """Two artifacts side by side."""


class Changes(RootModel[performance.EventPage]):
    """Flagged changes, newest first."""


# -- reports ----------------------------------------------------------------------------------------------


class ReportAnswer(RootModel[performance.Reported]):
    """What became of reported figures."""
