"""Shapes of requests about webhooks; see `request_shapes`."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from pt2hub.domain.webhooks import EventType
from pt2hub.server.api.request_shapes import LimitNumber, ModelPatternText, Parameters, document_pattern
from pt2hub.server.services.webhooks.webhooks import DEFAULT_LIMIT
from pt2hub.system.egress import MAX_ADDRESS_CHARS

_Id = Annotated[int, Field(ge=1, lt=2**63, description="Number of the webhook")]


class WebhookPath(Parameters):
    """A webhook in a URL."""

    id: _Id


class DeliveryPath(Parameters):
    """A delivery of a webhook in a URL."""

    id: _Id
    delivery: Annotated[int, Field(ge=1, lt=2**63, description="Number of the delivery")]


class DeliveryQuery(Parameters):
    """A page of deliveries."""

    after: Annotated[str | None, Field(max_length=200, description="`next` of the previous page")] = None
    limit: LimitNumber = DEFAULT_LIMIT


class WebhookCreation(BaseModel):
    """A webhook to create."""

    model_config = ConfigDict(extra="forbid")

    address: Annotated[
        str,
        Field(
            min_length=1,
            max_length=MAX_ADDRESS_CHARS,
            description="Where events are sent, https",
            json_schema_extra=document_pattern(
                r"https://[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*(?::[0-9]{1,4})?(?:/[!-~]*)?"
            ),
        ),
    ]
    models: Annotated[
        ModelPatternText,
        Field(min_length=1, description="Models whose events are sent, such as `vision/*`"),
    ]
    events: Annotated[
        list[Annotated[str, Field(json_schema_extra={"enum": [str(kind) for kind in EventType]})]],
        Field(max_length=50, description="Types of events, such as `alias.moved`; all where it is empty"),
    ] = []


class WebhookChange(BaseModel):
    """A change of a webhook."""

    model_config = ConfigDict(extra="forbid")

    enabled: Annotated[bool, Field(description="Whether events are sent")]


class SecretRotation(BaseModel):
    """How a webhook's secret is replaced."""

    model_config = ConfigDict(extra="forbid")

    overlap_seconds: Annotated[
        int, Field(ge=0, le=30 * 86_400, description="How long the old secret signs too")
    ] = 86_400
