"""Request parameters and bodies about roles and devices."""

from typing import Annotated

from pydantic import Field

from pt2hub.domain.people import Role
from pt2hub.server.api.request_shapes import Body, ModelPatternText, Parameters, document_pattern
from pt2hub.server.services.publishing.descriptions import LINE_PATTERN


class RolePath(Parameters):
    """A role assignment in a URL."""

    id: Annotated[int, Field(ge=1, lt=2**63, description="Number of the assignment")]


class RoleGrant(Body):
    """A role for a group."""

    group: Annotated[
        str,
        Field(
            min_length=1,
            max_length=300,
            description="The group, as the provider's ID tokens spell it",
            json_schema_extra=document_pattern(LINE_PATTERN),
        ),
    ]
    role: Annotated[Role, Field(strict=False, description="What it allows")]
    models: Annotated[ModelPatternText, Field(description="Models on which, `vision/*`")]


class DeviceStart(Body):
    """A device that asks for a token."""

    client: Annotated[
        str, Field(max_length=100, description="What the device says of itself, for the page")
    ] = ""


class DevicePoll(Body):
    """A device that asks whether its request was approved."""

    device_code: Annotated[str, Field(min_length=1, max_length=200, description="As the request returned it")]
