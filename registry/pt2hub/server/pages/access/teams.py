"""Page of teams: who has which role by which group, and which tokens act."""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING

from flask import redirect, request, url_for

from pt2hub.domain.people import ROLE_SCOPES, Person, Role, RoleAssignment
from pt2hub.domain.tokens import Scope, TokenInfo, intersect_patterns
from pt2hub.errors import InvalidInput, Pt2hubError, UsageError
from pt2hub.server.api.context import container
from pt2hub.server.api.problems import status_of
from pt2hub.server.pages import sessions
from pt2hub.server.pages.access.tokens import is_valid
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.numbers import MAX_ID
from pt2hub.server.pages.templates import page

if TYPE_CHECKING:
    from flask import Response
    from werkzeug.wrappers import Response as WerkzeugResponse

    from pt2hub.domain.tokens import Actor

_DONE = {"assigned": "The group has the role.", "removed": "The group no longer has the role."}


@dataclass(slots=True)
class Team:
    """Models of a pattern, and who may do something with them.

    Attributes:
        pattern: The pattern; `vision/*` is the team `vision`.
        managed: Whether the reader is an admin of it, and sees its tokens.
        roles: Each assignment with the people of its group.
        tokens: Valid tokens that act on some of these models.
    """

    pattern: str
    managed: bool
    roles: list[tuple[RoleAssignment, list[Person]]] = field(default_factory=list)
    tokens: list[TokenInfo] = field(default_factory=list)


@routes.get("/teams")
def teams() -> Response:
    """List roles by models, with a form for admins."""
    return _page(done=_DONE.get(request.args.get("done", "")))


@routes.post("/teams")
def assign_role() -> Response | WerkzeugResponse:
    """Give a group a role."""
    given = {name: request.form.get(name, "").strip() for name in ("group", "role", "models")}
    try:
        if given["role"] not in set(Role):
            raise InvalidInput("Unknown role", where="role", hint=f"Use one of {', '.join(Role)}.")
        container().roles.assign(given["group"], Role(given["role"]), given["models"], by=sessions.actor())
    except UsageError as error:
        return _page(error=error, given=given)
    return redirect(url_for("pages.teams", done="assigned"), HTTPStatus.SEE_OTHER)


@routes.post(f"/teams/roles/<int(max={MAX_ID}):role>/remove")
def remove_role(role: int) -> WerkzeugResponse:
    """Take a role from a group."""
    container().roles.remove(role, by=sessions.actor())
    return redirect(url_for("pages.teams", done="removed"), HTTPStatus.SEE_OTHER)


def _page(
    *, error: Pt2hubError | None = None, given: dict[str, str] | None = None, done: str | None = None
) -> Response:
    by = sessions.actor()
    person = container().people.one(by.person) if by.person is not None else None
    return page(
        "teams.html",
        section="teams",
        status=status_of(type(error)) if error else HTTPStatus.OK,
        teams=_teams(by),
        actor=by,
        person=person,
        roles={role: ", ".join(sorted(scopes)) for role, scopes in ROLE_SCOPES.items()},
        given=given or {"group": "", "role": Role.READER, "models": ""},
        error=error,
        done=done,
    )


def _teams(by: Actor) -> list[Team]:
    people, found = container().people.all(), dict[str, Team]()
    for item in container().roles.assignments(by):
        team = found.setdefault(item.pattern, Team(item.pattern, by.is_admin_of(item.pattern)))
        team.roles.append((item, [one for one in people if item.group in one.groups]))
    tokens = [each for each in container().token_management.tokens(by) if is_valid(each)]
    for team in found.values():
        if team.managed and by.may(Scope.ADMIN):
            team.tokens = [each for each in tokens if _acts_on(each, team.pattern)]
    return list(found.values())


def _acts_on(token: TokenInfo, pattern: str) -> bool:
    return any(intersect_patterns(own, pattern) for own in token.patterns)
