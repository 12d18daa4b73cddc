"""Request parameters and bodies about deletion and retention."""

from typing import Annotated

from pydantic import Field

from pt2hub.domain.limits import MAX_REASON_CHARS
from pt2hub.domain.names import COMPONENT_PATTERN, MAX_NAME
from pt2hub.server.api.request_shapes import Body, Parameters, document_pattern
from pt2hub.server.services.retention.policies import MAX_DAYS, MAX_LAST

_Reason = Annotated[
    str,
    Field(
        max_length=MAX_REASON_CHARS,
        description="Reason, which the tombstone keeps; required unless `dry_run`",
    ),
]
_DryRun = Annotated[bool, Field(description="Only return what would be done")]
ScopeText = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_NAME,
        description="`team/name`, or `team` for all its models",
        json_schema_extra=document_pattern(f"{COMPONENT_PATTERN}(?:/{COMPONENT_PATTERN})?"),
    ),
]


class DeletionQuery(Parameters):
    """Parameters of a deletion."""

    reason: _Reason = ""
    dry_run: _DryRun = False


class VersionDeletionQuery(DeletionQuery):
    """Parameters of the deletion of a version."""

    force: Annotated[
        bool, Field(description="Remove its bytes at once and refuse their digests from then on")
    ] = False
    also: Annotated[
        list[str], Field(description="With `force`: further versions, `team/name@4`, that share its bytes")
    ] = []  # noqa: RUF012  # pydantic copies it
    also_sharing: Annotated[
        bool,
        Field(
            description="With `force`: delete every version that shares its bytes, and those that share theirs"
        ),
    ] = False
    keep_shared: Annotated[
        bool, Field(description="With `force`: leave blobs served that other versions need")
    ] = False


class BlobDeletionQuery(Parameters):
    """Parameters of the deletion of a blob."""

    dry_run: _DryRun = False


class RetentionQuery(Parameters):
    """A model or a team."""

    scope: ScopeText


class RetentionOrder(Body):
    """A retention policy of a model or a team; without `last`, everything is kept."""

    scope: ScopeText
    last: Annotated[
        int | None,
        Field(ge=1, le=MAX_LAST, description="How many of the newest versions are kept; null for all"),
    ] = None
    pulled_within_days: Annotated[
        int | None, Field(ge=1, le=MAX_DAYS, description="Versions pulled within so many days are kept too")
    ] = None
