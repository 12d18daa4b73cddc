"""Parameters and answers as OpenAPI describes them."""

from typing import Annotated, Any

from flask_openapi3.models.tag import Tag
from pydantic import BaseModel, ConfigDict, Field, RootModel

from pt2hub.domain.digests import DIGEST_PATTERN
from pt2hub.wire import shapes

DigestText = Annotated[str, Field(pattern=f"^{DIGEST_PATTERN}$", description="sha256: and 64 hex digits")]
NameText = Annotated[str, Field(max_length=200)]
IdText = Annotated[str, Field(pattern="^[A-Za-z0-9-]+$", max_length=64)]


class Parameters(BaseModel):
    """Parameters in the path or the query."""

    model_config = ConfigDict(frozen=True)


class VersionPath(Parameters):
    """A version."""

    team: NameText
    name: NameText
    number: Annotated[int, Field(ge=1, lt=2**31)]


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


class ReferenceQuery(Parameters):
    """A reference to a version."""

    reference: Annotated[str, Field(max_length=400, description="team/name@<number, alias or digest>")]


class Lines(BaseModel):
    """Lines of a log."""

    lines: list[shapes.LogView]


class Targets(BaseModel):
    """The targets that workers offer or offered."""

    targets: list[shapes.TargetView]


class Uploaded(BaseModel):
    """A stored blob."""

    digest: str
    size: int


class Problem(BaseModel):
    """An error (RFC 9457)."""

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


class Version(RootModel[shapes.VersionView]):
    """A version and its builds."""


class Build(RootModel[shapes.BuildView]):
    """A build and its steps."""


class ResolvedReference(RootModel[shapes.Resolved]):
    """What a reference names."""


BYTES: dict[str, Any] = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
OBJECT: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}
TOKEN: list[dict[str, list[Any]]] = [{"token": []}]
"""Security of every route that changes something."""

MODELS = Tag(name="models", description="Versions of models and their builds.")
ARTIFACTS = Tag(name="artifacts", description="What builds produced, and the bytes behind it.")
SERVER = Tag(name="server", description="What the server offers, and whether it is well.")
