"""`pt2hub admin assign-role`, `roles`, `remove-role`, `people` and `end-person`: groups' roles, and who signed in."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from pt2hub.cli import panels
from pt2hub.cli.output import emit
from pt2hub.domain.people import Role  # noqa: TC001  # typer reads annotations when it runs
from pt2hub.errors import InvalidInput
from pt2hub.rendering.times import format_local_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from pt2hub.domain.people import Person, RoleAssignment
    from pt2hub.server.config import ServerConfig


def _config() -> ServerConfig:
    from pt2hub.server.config import ServerConfig

    return ServerConfig.from_environ(os.environ)


@panels.command(
    None,
    "pt2hub admin assign-role vision-team --team vision --role publisher",
    "pt2hub admin assign-role platform --models '*' --role admin",
    name="assign-role",
)
def assign_role(
    group: Annotated[str, typer.Argument(help="The group, exactly as the provider spells it.")],
    *,
    role: Annotated[Role, typer.Option(help="What its people may do.")],
    team: Annotated[str | None, typer.Option(help="The team on whose models they may do it.")] = None,
    models: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Models instead of a team, such as '*/resnet18'.")
    ] = None,
) -> None:
    """Give a group a role on some models.

    It holds from the next request of its people on.
    """
    from pt2hub.server.admin import assign_role as assign

    if (team is None) == (models is None):
        raise InvalidInput(
            "A role is about a team or about models",
            where="--team",
            hint="Use one of --team vision and --models 'vision/*'.",
        )
    made = assign(_config(), group, role, models or f"{team}/*")
    emit(made, lambda out: out.print(f"The group {made.group} is {made.role} of {made.pattern}."))


@panels.command(None, "pt2hub admin roles")
def roles() -> None:
    """List the roles of groups."""
    from pt2hub.server.admin import list_roles

    found = list_roles(_config())
    emit({"roles": found}, lambda out: _print_roles(out, found))


@panels.command(None, "pt2hub admin remove-role 3", name="remove-role")
def remove_role(
    assignment: Annotated[int, typer.Argument(metavar="ID", help="Number of the role, as listed.")],
) -> None:
    """Take a role from a group.

    Its people lose what it allowed with their next request.
    """
    from pt2hub.server.admin import remove_role as remove

    gone = remove(_config(), assignment)
    emit(gone, lambda out: out.print(f"The group {gone.group} is no longer {gone.role} of {gone.pattern}."))


@panels.command(None, "pt2hub admin people")
def people() -> None:
    """List the people who signed in, and their groups."""
    from pt2hub.server.admin import list_people

    found = list_people(_config())
    emit({"people": found}, lambda out: _print_people(out, found))


@panels.command(None, "pt2hub admin end-person ada@acme.example", name="end-person")
def end_person(
    person: Annotated[str, typer.Argument(metavar="NAME|ID", help="Name or id of the person, as listed.")],
) -> None:
    """End the access of a person at once: sessions, tokens and roles.

    If the provider lets them sign in again, they have the roles of their groups again.
    """
    from pt2hub.server.admin import end_person as end

    ended = end(_config(), person)
    emit(ended, lambda out: out.print(f"{ended.name} is signed out everywhere, and has no valid token."))


def _print_roles(out: Console, roles: Sequence[RoleAssignment]) -> None:
    from pt2hub.cli.tables import print_table

    rows = [
        (str(item.id), item.group, str(item.role), item.pattern, format_local_time(item.created_at))
        for item in roles
    ]
    empty = "No group has a role yet. To give one: pt2hub admin assign-role GROUP --team TEAM --role ROLE"
    print_table(out, ("ID", "GROUP", "ROLE", "MODELS", "SINCE"), rows, empty=empty)


def _print_people(out: Console, found: Sequence[Person]) -> None:
    from pt2hub.cli.tables import print_table

    rows = [
        (str(one.id), one.name, one.full_name, list(one.groups), format_local_time(one.signed_in_at))
        for one in found
    ]
    print_table(
        out, ("ID", "NAME", "FULL NAME", "GROUPS", "SIGNED IN"), rows, empty="Nobody has signed in yet."
    )
