"""Roles of the provider's groups."""

from http import HTTPStatus

from flask import Response
from flask_openapi3.blueprint import APIBlueprint
from pydantic import RootModel

from pt2hub.domain.people import RoleAssignment
from pt2hub.server.api.context import body, caller, container, render
from pt2hub.server.api.request_shapes import SERVER, TOKEN, json_body
from pt2hub.server.api.request_shapes_access import RoleGrant, RolePath
from pt2hub.wire.tokens import RoleList

routes = APIBlueprint("roles", __name__, url_prefix="/api/v1/roles", abp_tags=[SERVER])

_MAX_BYTES = 1 << 14
_HINT = 'Send {"group": "vision-team", "role": "publisher", "models": "vision/*"}.'


@routes.get("", responses={200: RootModel[RoleList]}, security=TOKEN)
def roles() -> Response:
    """Return the roles of groups on models that the sender may read."""
    return render(RoleList(container().roles.assignments(caller())))


@routes.post(
    "", responses={201: RootModel[RoleAssignment]}, security=TOKEN, openapi_extensions=json_body(RoleGrant)
)
def assign() -> Response:
    """Give a group of the provider a role on some models, as an admin of these; idempotent."""
    wanted = body(RoleGrant, most=_MAX_BYTES, what="The role", hint=_HINT)
    made = container().roles.assign(wanted.group, wanted.role, wanted.models, by=caller())
    return render(made, HTTPStatus.CREATED)


@routes.delete("/<id>", responses={200: RootModel[RoleAssignment]}, security=TOKEN)
def remove(path: RolePath) -> Response:
    """Take a role from a group, as an admin of its models."""
    return render(container().roles.remove(path.id, by=caller()))
