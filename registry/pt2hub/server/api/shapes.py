"""Parameters and answers as OpenAPI describes them."""

import functools
from typing import Annotated, Any

from flask_openapi3.models.tag import Tag
from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError, ValidationError

from pt2hub.domain.builds import HIGHEST_PRIORITY, LOWEST_PRIORITY, BuildKind, BuildState
from pt2hub.domain.digests import DIGEST_PATTERN
from pt2hub.domain.names import MODEL_PATTERN
from pt2hub.server.services.aliases import MAX_REASON
from pt2hub.server.services.catalog import DEFAULT_LIMIT, MAX_DESCRIPTION, MAX_LIMIT
from pt2hub.wire import shapes
from pt2hub.wire.artifacts import ArtifactView
from pt2hub.wire.documents import JSON_TYPE
from pt2hub.wire.resolution import Resolved
from pt2hub.wire.workers import WorkerList

DigestText = Annotated[str, Field(pattern=f"^{DIGEST_PATTERN}$", description="sha256: and 64 hex digits")]
NameText = Annotated[str, Field(max_length=200, description="Part of the model's name, `team/name`")]
ID_PATTERN = "^[A-Za-z0-9-]+$"
IdText = Annotated[str, Field(pattern=ID_PATTERN, max_length=64, description="The build's id")]

LimitNumber = Annotated[int, Field(ge=1, le=MAX_LIMIT, description="At most so many")]
ReasonText = Annotated[
    str, Field(min_length=1, max_length=MAX_REASON, description="Why; the alias's history keeps it")
]
_NO_NUL = "^[^\\x00]*$"


def _whole_range(value: Any, check: ValidatorFunctionWrapHandler) -> Any:  # noqa: ANN401  # pydantic's
    """Names both ends, where pydantic names the one that was crossed."""
    try:
        return check(value)
    except ValidationError as exc:
        raise PydanticCustomError(
            "invalid_input", f"A priority is a whole number from {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}"
        ) from exc


PriorityNumber = Annotated[
    int,
    Field(ge=LOWEST_PRIORITY, le=HIGHEST_PRIORITY),
    WrapValidator(_whole_range),
]

AttemptNumber = Annotated[
    int | None, Field(ge=1, lt=2**31, description="Of this attempt; of the latest where omitted")
]
SummaryFlag = Annotated[bool, Field(description="Without the compiler's noise, lines of level `compiler`")]


class Parameters(BaseModel):
    """Parameters in the path or the query."""

    model_config = ConfigDict(frozen=True)

    @classmethod
    def model_json_schema(cls, *arguments: Any, **options: Any) -> dict[str, Any]:  # noqa: ANN401  # pydantic's
        """As pydantic's; kept, since flask-openapi3 asks for the plain one on every request (0.2 ms)."""
        if arguments or options:
            return super().model_json_schema(*arguments, **options)
        return cls._plain_schema()

    @classmethod
    @functools.cache
    def _plain_schema(cls) -> dict[str, Any]:
        return super().model_json_schema()


class ModelPath(Parameters):
    """A model."""

    team: NameText
    name: NameText


class AliasPath(Parameters):
    """An alias of a model."""

    team: NameText
    name: NameText
    alias: Annotated[str, Field(max_length=200, description="The alias's name, such as `prod`")]


class VersionPath(Parameters):
    """A version."""

    team: NameText
    name: NameText
    number: Annotated[int, Field(ge=1, lt=2**31, description="The version's number")]


class ManifestPath(Parameters):
    """A manifest of a model."""

    team: NameText
    name: NameText
    digest: DigestText


class DigestPath(Parameters):
    """A blob or an artifact."""

    digest: DigestText


class BuildPath(Parameters):
    """A build."""

    id: IdText


class LogsQuery(Parameters):
    """Which lines of a log."""

    after: Annotated[int, Field(ge=0, lt=2**63, description="The last line seen; lines after it follow.")] = 0
    attempt: AttemptNumber = None
    summary: SummaryFlag = False


class LogQuery(Parameters):
    """Which log of a build."""

    attempt: AttemptNumber = None


class EventsQuery(Parameters):
    """What is sent to a follower."""

    summary: SummaryFlag = False
    lines: Annotated[
        bool,
        Field(description="False sends how far the log goes, as `lines`, instead of a `log` for each line"),
    ] = True


class SubmitQuery(Parameters):
    """How a submission's builds are queued."""

    priority: Annotated[
        PriorityNumber,
        Field(description="Of the builds it queues; higher comes first. It raises that of one that waits."),
    ] = 0


class RetryQuery(Parameters):
    """How a build is queued again."""

    priority: Annotated[
        PriorityNumber | None, Field(description="Higher comes first; the build's own where omitted")
    ] = None


class WorkersQuery(Parameters):
    """Which workers."""

    gone: Annotated[bool, Field(description="Those too that left or were lost within a day")] = False


class ReferenceQuery(Parameters):
    """A reference to a version."""

    reference: Annotated[str, Field(max_length=400, description="`team/name@<number, alias or digest>`")]


class ModelsQuery(Parameters):
    """Which models."""

    search: Annotated[str, Field(max_length=200, pattern=_NO_NUL, description="A part of the name")] = ""
    after: Annotated[
        str, Field(max_length=200, pattern=f"^({MODEL_PATTERN})?$", description="`next` of the page before")
    ] = ""
    limit: LimitNumber = DEFAULT_LIMIT


class VersionsQuery(Parameters):
    """Which versions of a model."""

    before: Annotated[int | None, Field(ge=1, lt=2**31, description="`next` of the page before")] = None
    limit: LimitNumber = DEFAULT_LIMIT


class BuildsQuery(Parameters):
    """Which builds."""

    model: Annotated[str | None, Field(max_length=200, description="Of this model, `team/name`")] = None
    number: Annotated[int | None, Field(ge=1, lt=2**31, description="Of this version of the model")] = None
    state: Annotated[BuildState | None, Field(description="In this state")] = None
    target: Annotated[str | None, Field(max_length=200, description="For this target")] = None
    kind: Annotated[
        BuildKind | None, Field(description="`build`, or `measure` for jobs that time artifacts again")
    ] = None
    after: Annotated[str | None, Field(max_length=200, description="`next` of the page before")] = None
    limit: LimitNumber = DEFAULT_LIMIT


class AliasRemoval(Parameters):
    """What the removal of an alias must say."""

    expected: Annotated[int, Field(ge=1, lt=2**31, description="The version it is on, as you know it")]
    reason: ReasonText


class ModelChange(BaseModel):
    """What can be changed of a model."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    description: Annotated[
        str,
        Field(
            description="What it is, for people: plain text, line breaks kept; empty takes it away",
            json_schema_extra={"maxLength": MAX_DESCRIPTION},
        ),
    ]


class AliasChange(BaseModel):
    """What the move of an alias must say."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    number: Annotated[int, Field(ge=1, lt=2**31, description="The version to put it on")]
    expected: Annotated[
        int | None,
        Field(
            ge=1, lt=2**31, description="The version it is on, as you know it; null where it must not exist"
        ),
    ]
    reason: ReasonText
    force: Annotated[
        bool,
        Field(
            description="Even where the model's policy refuses; takes an admin's token, and is kept in the history"
        ),
    ] = False


class Lines(BaseModel):
    """Lines of a log.

    Attributes:
        attempt: The attempt that they are of, 0 where none has begun.
        lines: Some of them, in order.
    """

    attempt: int
    lines: list[shapes.LogView]


class Targets(BaseModel):
    """The targets that workers offer or offered.

    Attributes:
        targets: By name.
    """

    targets: list[shapes.TargetView]


class Uploaded(BaseModel):
    """A stored blob.

    Attributes:
        digest: Its digest.
        size: Its length in bytes.
    """

    digest: str
    size: int


class Problem(BaseModel):
    """An error (RFC 9457).

    Attributes:
        type: `urn:pt2hub:error:` and the code.
        title: What the code means.
        status: The HTTP status.
        detail: What happened, one sentence.
        code: Which error it is; a code that exists keeps its meaning.
        kind: `usage`, `transient` or `fatal`.
        where: The field, step, file or address it happened at, or None.
        hint: What to do next, or None.
        details: Each wrong place of a document: `path`, `message`, `given` and `allowed`.
        context: Further values for programs, by the code.
    """

    type: str
    title: str
    status: int
    detail: str
    code: str
    kind: str
    where: str | None
    hint: str | None
    details: list[dict[str, Any]]
    context: dict[str, Any]


class Model(RootModel[shapes.ModelView]):
    """A model."""


class Models(RootModel[shapes.ModelPage]):
    """Models in the order of their names."""


class Versions(RootModel[shapes.VersionPage]):
    """Versions of a model, newest first."""


class Builds(RootModel[shapes.BuildPage]):
    """Builds, newest first, without their steps."""


class Alias(RootModel[shapes.AliasView]):
    """An alias and its history."""


class Aliases(RootModel[shapes.AliasList]):
    """Aliases of a model, by name."""


class Version(RootModel[shapes.VersionView]):
    """A version and its builds."""


class Build(RootModel[shapes.BuildView]):
    """A build and its steps."""


class Workers(RootModel[WorkerList]):
    """Workers: those that live, then those that went within a day."""


class Artifact(RootModel[ArtifactView]):
    """Everything known of an artifact."""


class ResolvedReference(RootModel[Resolved]):
    """What a reference names."""


BYTES: dict[str, Any] = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
TEXT: dict[str, Any] = {"text/plain": {"schema": {"type": "string"}}}
EVENTS: dict[str, Any] = {"text/event-stream": {"schema": {"type": "string"}}}
OBJECT: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}
TOKEN: list[dict[str, list[Any]]] = [{"token": []}]
"""Security of every route that changes something."""


def json_body(shape: type[BaseModel]) -> dict[str, Any]:
    """What describes a route's body in OpenAPI."""
    schema = shape.model_json_schema()
    parts = schema.pop("$defs", {})  # written where they are used: an OpenAPI document has them elsewhere
    content = {JSON_TYPE: {"schema": _inlined(schema, parts)}}
    return {"requestBody": {"required": True, "content": content}}


def _inlined(value: Any, parts: dict[str, Any]) -> Any:  # noqa: ANN401  # any part of a JSON schema
    if isinstance(value, list):
        return [_inlined(item, parts) for item in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        return _inlined(parts[value["$ref"].rpartition("/")[2]], parts)
    return {name: _inlined(item, parts) for name, item in value.items()}


MODELS = Tag(name="models", description="Models, their versions, and the builds of these.")
ALIASES = Tag(name="aliases", description="Movable names on versions.")
ARTIFACTS = Tag(name="artifacts", description="What builds produced, and the bytes behind it.")
SERVER = Tag(name="server", description="What the server offers, and whether it is well.")
