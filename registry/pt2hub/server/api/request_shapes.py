"""Request parameters and bodies."""

import functools
from typing import Annotated, Any

from flask_openapi3.models.tag import Tag
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError, ValidationError

from pt2hub.domain.audit import Action
from pt2hub.domain.builds import HIGHEST_PRIORITY, LOWEST_PRIORITY, BuildKind, BuildState
from pt2hub.domain.compatibility.hosts import host_schema
from pt2hub.domain.debug_logs import DEBUG_LOGS
from pt2hub.domain.digests import DIGEST_PATTERN
from pt2hub.domain.labels import KEY_PATTERN, MAX_KEY_CHARS, MAX_LABELS, MAX_VALUE_CHARS
from pt2hub.domain.limits import MAX_REASON_CHARS
from pt2hub.domain.names import ALIAS_PATTERN, COMPONENT_PATTERN, MAX_NAME, MODEL_PATTERN, REFERENCE_PATTERN
from pt2hub.domain.publishing.spec_base import whole
from pt2hub.domain.tokens import PATTERN as TOKEN_MODELS
from pt2hub.domain.tokens import Scope
from pt2hub.server.services.publishing.catalog import DEFAULT_LIMIT, MAX_DESCRIPTION_CHARS, MAX_LIMIT
from pt2hub.server.services.publishing.descriptions import LINE_PATTERN, REASON_PATTERN, TEXT_PATTERN
from pt2hub.server.services.publishing.search import DEFAULT_HITS, MAX_HITS, MAX_SEARCH_CHARS
from pt2hub.wire.documents import JSON_TYPE

DigestText = Annotated[str, Field(pattern=f"^{DIGEST_PATTERN}$", description="sha256: and 64 hex digits")]
MAX_WAIT_S = 50.0
"""Longest wait of a request: proxies give up after a minute."""


def document_pattern(pattern: str) -> dict[str, Any]:
    """Return a pattern for the OpenAPI document only: services check it, with an error that says what is wrong."""
    return {"pattern": whole(pattern)}


NameText = Annotated[
    str,
    Field(
        max_length=MAX_NAME,
        description=f"Part of the model's name, `team/name`, which has at most {MAX_NAME} characters",
        json_schema_extra=document_pattern(COMPONENT_PATTERN),
    ),
]
ModelText = Annotated[str, Field(max_length=MAX_NAME, json_schema_extra=document_pattern(MODEL_PATTERN))]
ModelPatternText = Annotated[
    str, Field(max_length=MAX_NAME, json_schema_extra=document_pattern(TOKEN_MODELS.pattern))
]
AliasText = Annotated[
    str,
    Field(
        max_length=200,
        description="Name of the alias, such as `prod`",
        json_schema_extra=document_pattern(ALIAS_PATTERN),
    ),
]
ID_PATTERN = "^[A-Za-z0-9-]+$"
IdText = Annotated[str, Field(pattern=ID_PATTERN, max_length=64, description="Id of the build")]

LimitNumber = Annotated[int, Field(ge=1, le=MAX_LIMIT, description="Maximum number of results")]
ReasonText = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_REASON_CHARS,
        description="Reason, recorded in the history",
        json_schema_extra=document_pattern(REASON_PATTERN),
    ),
]
ReferenceText = Annotated[
    str,
    Field(
        max_length=400,
        description="`team/name@<number, alias or digest>`",
        json_schema_extra=document_pattern(REFERENCE_PATTERN),
    ),
]
WaitSeconds = Annotated[
    float,
    Field(
        ge=0,
        le=MAX_WAIT_S,
        allow_inf_nan=False,
        description="Seconds to wait for a change; with `If-None-Match` where the answer has an ETag",
    ),
]
_NO_NUL = "^[^\\x00]*$"


def _whole_range(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """Report both bounds; pydantic reports only the one that was crossed."""
    try:
        return check(value)
    except ValidationError as exc:
        raise PydanticCustomError(
            "invalid_input", f"priority must be an integer from {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}"
        ) from exc


PriorityNumber = Annotated[
    int,
    Field(ge=LOWEST_PRIORITY, le=HIGHEST_PRIORITY),
    WrapValidator(_whole_range),
]

AttemptNumber = Annotated[
    int | None, Field(ge=1, lt=2**31, description="Number of the attempt; the latest by default")
]
SummaryFlag = Annotated[bool, Field(description="Omit the compiler's noise, lines of level `compiler`")]


class Parameters(BaseModel):
    """Path or query parameters."""

    model_config = ConfigDict(frozen=True)

    @classmethod
    def model_json_schema(cls, *arguments: Any, **options: Any) -> dict[str, Any]:
        """Return pydantic's schema, cached since flask-openapi3 requests it on every request (0.2 ms)."""
        if arguments or options:
            return super().model_json_schema(*arguments, **options)
        return cls._plain_schema()

    @classmethod
    @functools.cache
    def _plain_schema(cls) -> dict[str, Any]:
        return super().model_json_schema()


class Body(BaseModel):
    """A JSON body of a request."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _take_whole_numbers(cls, value: Any) -> Any:
        """Take 3.0 for 3, as JSON does; everything else stays strict."""
        if not isinstance(value, dict):
            return value
        return {
            name: int(item) if isinstance(item, float) and item.is_integer() else item
            for name, item in value.items()
        }


class ReadinessQuery(Parameters):
    """What must work."""

    reads_only: bool = Field(
        False, description="Only what resolves and downloads need: the disks may be full"
    )


class ModelPath(Parameters):
    """A model."""

    team: NameText
    name: NameText


class AliasPath(Parameters):
    """An alias of a model."""

    team: NameText
    name: NameText
    alias: AliasText


class VersionPath(Parameters):
    """A version."""

    team: NameText
    name: NameText
    number: Annotated[int, Field(ge=1, lt=2**31, description="Number of the version")]


class WaitQuery(Parameters):
    """How long to wait for a change."""

    wait: WaitSeconds = 0.0


class MovesQuery(Parameters):
    """Moves of an alias that are not known yet."""

    after: Annotated[
        int | None,
        Field(ge=0, lt=2**31, description="Number of the last known move; without it there is no wait"),
    ] = None
    wait: WaitSeconds = 0.0


class ManifestPath(Parameters):
    """A manifest of a model."""

    team: NameText
    name: NameText
    digest: DigestText


class DigestPath(Parameters):
    """A blob or an artifact."""

    digest: DigestText


class DebugLogPath(Parameters):
    """A debug log of an artifact."""

    digest: DigestText
    kind: Annotated[
        str,
        Field(
            max_length=80,
            description=f"One of {', '.join(DEBUG_LOGS)}",
            json_schema_extra={"enum": list(DEBUG_LOGS)},
        ),
    ]


class BuildPath(Parameters):
    """A build."""

    id: IdText


class LogsQuery(Parameters):
    """Filter for log lines."""

    after: Annotated[int, Field(ge=0, lt=2**53, description="Number of the last line already received")] = 0
    attempt: AttemptNumber = None
    summary: SummaryFlag = False


class LogQuery(Parameters):
    """Selection of a build's log."""

    attempt: AttemptNumber = None


class SubmitQuery(Parameters):
    """Options of a submission."""

    priority: Annotated[
        PriorityNumber,
        Field(
            description="Priority of the queued builds; higher starts first. Raises the priority of builds that are already queued."
        ),
    ] = 0


class RetryQuery(Parameters):
    """Options of a retry."""

    priority: Annotated[
        PriorityNumber | None, Field(description="Priority, higher starts first; by default the build's own")
    ] = None


class WorkersQuery(Parameters):
    """Filter for workers."""

    gone: Annotated[bool, Field(description="Include workers that left or were lost within a day")] = False


class UsageQuery(Parameters):
    """Filter for usage."""

    team: Annotated[str | None, Field(description="Only this team")] = None


class ReferenceQuery(Parameters):
    """A reference to a version."""

    reference: ReferenceText


class ModelsQuery(Parameters):
    """Filter for models."""

    search: Annotated[
        str, Field(max_length=200, pattern=_NO_NUL, description="Part of the model's name to search for")
    ] = ""
    label: Annotated[
        list[
            Annotated[
                str,
                Field(
                    max_length=1200,
                    pattern=_NO_NUL,
                    json_schema_extra=document_pattern(f"{KEY_PATTERN}(?:={LINE_PATTERN})?"),
                ),
            ]
        ],
        Field(description="Labels of the models themselves, `KEY=VALUE` or `KEY`; all must match"),
    ] = []
    after: Annotated[
        str, Field(max_length=200, pattern=f"^({MODEL_PATTERN})?$", description="`next` of the previous page")
    ] = ""
    limit: LimitNumber = DEFAULT_LIMIT


_LABEL_KEY: dict[str, Any] = {"maxLength": MAX_KEY_CHARS, **document_pattern(KEY_PATTERN)}
_LABEL_VALUE: dict[str, Any] = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_VALUE_CHARS,
    **document_pattern(LINE_PATTERN),
}


def _by_label_key(value: dict[str, Any]) -> dict[str, Any]:
    """Return a schema for the OpenAPI document only: the service checks labels, with errors that name the key."""
    return {"patternProperties": {whole(KEY_PATTERN): value}, "additionalProperties": False}


class LabelChange(Body):
    """A change of labels; those that are not named stay."""

    set: Annotated[
        dict[str, str],
        Field(
            max_length=MAX_LABELS, description="Values by key", json_schema_extra=_by_label_key(_LABEL_VALUE)
        ),
    ] = {}
    remove: Annotated[
        list[Annotated[str, Field(json_schema_extra=_LABEL_KEY)]],
        Field(max_length=MAX_LABELS, description="Keys; missing ones are ignored"),
    ] = []
    expected: Annotated[
        dict[str, Annotated[str, Field(min_length=1, max_length=MAX_VALUE_CHARS)] | None],
        Field(
            max_length=MAX_LABELS,
            description="Values that labels must have now, null where they must be missing; else `label_changed`",
            json_schema_extra=_by_label_key({"anyOf": [_LABEL_VALUE, {"type": "null"}]}),
        ),
    ] = {}


class VersionSearchQuery(Parameters):
    """Conditions for versions."""

    where: Annotated[
        list[Annotated[str, Field(max_length=1200, pattern=_NO_NUL)]],
        Field(
            description="Conditions, all of which must be met: `alias=prod`, `state=ready`, `target=...`, `publisher=...`, "
            "`model=team/name` or `model=team/`, `since=7d`, `until=2026-11-26`; any other name is a label, `owner=search` "
            "with this value, `owner` with any value",
        ),
    ] = []
    after: Annotated[int | None, Field(ge=1, lt=2**63, description="`next` of the previous page")] = None
    limit: LimitNumber = DEFAULT_LIMIT


class SearchQuery(Parameters):
    """A text to search for."""

    q: Annotated[
        str,
        Field(
            max_length=MAX_SEARCH_CHARS,
            pattern=_NO_NUL,
            description="Part of a name, `team/name@3`, or the beginning of a digest or of a build's id (six characters)",
        ),
    ]
    limit: Annotated[int, Field(ge=1, le=MAX_HITS, description="Maximum number of each kind")] = DEFAULT_HITS


class VersionsQuery(Parameters):
    """Filter for versions."""

    before: Annotated[int | None, Field(ge=1, lt=2**31, description="`next` of the previous page")] = None
    limit: LimitNumber = DEFAULT_LIMIT


class BuildsQuery(Parameters):
    """Filter for builds."""

    model: Annotated[ModelText | None, Field(description="Model, `team/name`")] = None
    number: Annotated[int | None, Field(ge=1, lt=2**31, description="Number of the version")] = None
    state: Annotated[BuildState | None, Field(description="State of the builds")] = None
    target: Annotated[str | None, Field(max_length=200, description="Name of the target")] = None
    kind: Annotated[BuildKind | None, Field(description="`build`, or `measure` for measuring jobs")] = None
    after: Annotated[str | None, Field(max_length=200, description="`next` of the previous page")] = None
    limit: LimitNumber = DEFAULT_LIMIT


class TokenPath(Parameters):
    """A token in a URL."""

    id: Annotated[int, Field(ge=1, lt=2**53, description="Number of the token")]


class TokenCreation(BaseModel):
    """A token to create."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[
        str,
        Field(
            min_length=1, max_length=100, description="Its use, for lists and records, in visible characters"
        ),
    ]
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=10, description="What it allows")]
    models: Annotated[
        list[ModelPatternText],
        Field(min_length=1, max_length=100, description="Models for which it allows it, `vision/*`"),
    ]
    expires_seconds: Annotated[
        int | None, Field(ge=1, le=10**9, description="Time until it expires; null for never")
    ] = None


class TokenRotation(BaseModel):
    """How a token is replaced."""

    model_config = ConfigDict(extra="forbid")

    overlap_seconds: Annotated[
        int, Field(ge=0, le=30 * 86_400, description="How long the old token still works")
    ] = 86_400


class IdTokenExchange(BaseModel):
    """An ID token to exchange."""

    model_config = ConfigDict(extra="forbid", strict=True)

    id_token: Annotated[
        str, Field(min_length=1, max_length=1 << 14, description="JSON Web Token of the provider")
    ]


class AuditQuery(Parameters):
    """Filter for the audit log."""

    model: Annotated[ModelText | None, Field(description="Model that was changed, `team/name`")] = None
    principal: Annotated[
        str | None, Field(max_length=200, description="Name of the token or account that did it")
    ] = None
    action: Annotated[Action | None, Field(description="What was done")] = None
    since: Annotated[
        str | None,
        Field(
            max_length=50, description="Earliest time, ISO 8601", json_schema_extra={"format": "date-time"}
        ),
    ] = None
    after: Annotated[str | None, Field(max_length=200, description="`next` of the previous page")] = None
    limit: LimitNumber = DEFAULT_LIMIT


class AliasRemoval(Parameters):
    """Parameters of an alias's removal."""

    expected: Annotated[int, Field(ge=1, lt=2**31, description="The expected current version")]
    reason: ReasonText


class PreviewQuery(Parameters):
    """A version that an alias might move to."""

    number: Annotated[int, Field(ge=1, lt=2**31, description="The version")]


class YankOrder(Body):
    """Yank of a version."""

    reason: ReasonText


class YankEnd(Parameters):
    """Parameters of the end of a yank."""

    reason: ReasonText


class ModelChange(Body):
    """Change of a model."""

    description: Annotated[
        str,
        Field(
            description="Description: plain text with line breaks; an empty text removes it",
            json_schema_extra={"maxLength": MAX_DESCRIPTION_CHARS, **document_pattern(TEXT_PATTERN)},
        ),
    ]


class HostCheckRequest(Body):
    """A reference, and the machine to check its artifacts against."""

    reference: ReferenceText
    host: Annotated[
        dict[str, Any],
        Field(
            description="Description of the machine, as `pt2hub host --json` prints it; `os`, `machine` and `cpu_flags` are "
            "required, unknown fields are ignored",
            json_schema_extra=host_schema(),
        ),
    ]


class TargetAddition(Body):
    """A target to add to a version."""

    target: Annotated[str, Field(max_length=200, description="Name of the target")]


class AliasChange(Body):
    """Move of an alias."""

    number: Annotated[int, Field(ge=1, lt=2**31, description="The new version")]
    expected: Annotated[
        int | None,
        Field(ge=1, lt=2**31, description="The expected current version; null for a new alias"),
    ]
    reason: ReasonText
    force: Annotated[
        bool,
        Field(
            description="Force the move even if promotion checks fail; requires an admin token and is recorded in the history"
        ),
    ] = False


BYTES: dict[str, Any] = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
TEXT: dict[str, Any] = {"text/plain": {"schema": {"type": "string"}}}
EVENTS: dict[str, Any] = {"text/event-stream": {"schema": {"type": "string"}}}
OBJECT: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}
TOKEN: list[dict[str, list[Any]]] = [{"token": []}]
"""Security requirement of routes that change something."""


def json_body(shape: type[BaseModel]) -> dict[str, Any]:
    """Return the OpenAPI description of a route's body."""
    schema = shape.model_json_schema()
    parts = schema.pop("$defs", {})  # inlined, since OpenAPI documents keep definitions elsewhere
    content = {JSON_TYPE: {"schema": _inline(schema, parts)}}
    return {"requestBody": {"required": True, "content": content}}


def _inline(value: Any, parts: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return [_inline(item, parts) for item in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        return _inline(parts[value["$ref"].rpartition("/")[2]], parts)
    return {name: _inline(item, parts) for name, item in value.items()}


MODELS = Tag(name="models", description="Models, versions and builds.")
ALIASES = Tag(name="aliases", description="Movable names on versions.")
ARTIFACTS = Tag(name="artifacts", description="Artifacts and their blobs.")
SERVER = Tag(name="server", description="Targets, workers and health of the server.")
