"""Who may do what: one rule for each route, the API's and the pages'.

A rule is a scope and what it is about. A route without a rule is refused, and fails a test before that.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from flask import request

from pt2hub.domain.tokens import Scope
from pt2hub.errors import Forbidden
from pt2hub.server.api.context import caller, container

if TYPE_CHECKING:
    from pt2hub.domain.tokens import Actor


class About(Enum):
    """What a request is about, so that a token's patterns can be compared with it."""

    NOTHING = auto()
    """No model: the scope alone decides."""
    PATH = auto()
    """The model in the URL."""
    BUILD = auto()
    """The model of the build in the URL."""
    BODY = auto()
    """The model that the body names: the view calls `require` once it has read it."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What a route requires.

    Attributes:
        scope: What a token must allow; None where nothing.
        signed_in: Whether any valid token is required, where nothing is to be allowed.
    """

    scope: Scope | None = None
    about: About = About.NOTHING
    signed_in: bool = False


_CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_ANYBODY = Rule()
_OPEN = (
    *("aliases.alias", "aliases.aliases"),
    *("artifacts.artifact", "artifacts.check", "artifacts.debug_log", "artifacts.debug_logs"),
    *("artifacts.kernels", "artifacts.manifest", "artifacts.profile", "artifacts.resolve"),
    *("blobs.download", "blobs.model", "comparing.compare", "comparing.diff", "comparing.events"),
    *("docs", "meta.healthz", "meta.readyz", "meta.spec_schema", "meta.targets", "metrics.metrics"),
    *("models.model", "models.models", "openapi", "performance.history", "performance.metrics"),
    *("policies.policy", "streams.build_events", "streams.log", "streams.logs", "static"),
    *("versions.build", "versions.builds", "versions.version", "versions.versions", "workers.workers"),
)
_OPEN_PAGES = (
    *("alias", "artifact", "build", "builds", "changes", "compare", "debug_logs", "diff", "front", "lines"),
    *("model", "models", "performance", "referrer", "sign_in", "sign_out", "sources", "steps", "targets"),
    *("team", "version"),
)
"""Pages that change nothing but the reader's own cookies."""
RULES: dict[str, Rule] = dict.fromkeys(_OPEN, _ANYBODY) | {
    "aliases.move": Rule(Scope.PROMOTE, About.PATH),
    "aliases.remove": Rule(Scope.PROMOTE, About.PATH),
    "blobs.upload": Rule(Scope.PUBLISH),
    "measuring.measure": Rule(Scope.MEASURE, About.BODY),
    "meta.whoami": Rule(signed_in=True),
    "models.change": Rule(Scope.PUBLISH, About.PATH),
    "policies.put": Rule(Scope.ADMIN, About.PATH),
    "reports.report": Rule(Scope.MEASURE, About.BODY),
    "uploads.begin": Rule(Scope.PUBLISH),
    "uploads.cancel": Rule(Scope.PUBLISH),
    "uploads.complete": Rule(Scope.PUBLISH),
    "uploads.sign": Rule(Scope.PUBLISH),
    "uploads.upload": Rule(Scope.PUBLISH),
    "versions.add_target": Rule(Scope.BUILD, About.PATH),
    "versions.cancel": Rule(Scope.BUILD, About.BUILD),
    "versions.preview": Rule(Scope.PUBLISH, About.BODY),
    "versions.retry": Rule(Scope.BUILD, About.BUILD),
    "versions.submit": Rule(Scope.PUBLISH, About.BODY),
}
RULES |= dict.fromkeys((f"pages.{name}" for name in _OPEN_PAGES), _ANYBODY) | {
    "pages.cancel_build": Rule(Scope.BUILD, About.BUILD),
    "pages.check_spec": Rule(Scope.PUBLISH, About.BODY),
    "pages.describe": Rule(Scope.PUBLISH, About.PATH),
    "pages.measure": Rule(Scope.MEASURE, About.BODY),
    "pages.move_alias": Rule(Scope.PROMOTE, About.PATH),
    "pages.publish": Rule(Scope.PUBLISH, About.BODY),
    "pages.remove_alias": Rule(Scope.PROMOTE, About.PATH),
    "pages.retry_build": Rule(Scope.BUILD, About.BUILD),
}
"""By endpoint."""


def needs_token() -> bool:
    """Return whether the current request requires a token.

    A route without a rule does, and so does what would change something if there were such a route: nobody learns without a
    token what there is.
    """
    if request.endpoint is None:
        return request.method in _CHANGING
    rule = RULES.get(request.endpoint, _UNKNOWN)
    return rule.signed_in or rule.scope is not None


def authorise() -> None:
    """Apply the rule of the current request's route, after `g.actor` was set.

    Raises:
        Forbidden: The token does not allow it.
        NotFound: The build in the URL does not exist.
    """
    rule = RULES.get(request.endpoint, _UNKNOWN) if request.endpoint else _ANYBODY
    if rule.scope is None:
        return
    if rule.about is About.BODY:
        _check(caller(), rule.scope, None)  # before the body is read; `require` compares the model
    else:
        _check(caller(), rule.scope, _model(rule.about))


def require(model: object) -> None:
    """Compare the model that a body names with the rule of the route and the token.

    A request that changes nothing, such as for a page's form, requires nothing.

    Args:
        model: As the body names it; what is no text is left to the validation that follows.

    Raises:
        Forbidden: The token does not allow it.
    """
    scope = RULES[request.endpoint or ""].scope
    if request.method in _CHANGING and scope is not None and isinstance(model, str):
        _check(caller(), scope, model)


def _model(about: About) -> str | None:
    given = request.view_args or {}
    if about is About.PATH:
        return f"{given['team']}/{given['name']}"
    if about is About.BUILD:
        return container().builds.view(given.get("id") or given["build"]).model
    return None


def _check(by: Actor, scope: Scope, model: str | None) -> None:
    if by.may(scope, model):
        return
    allowed = ", ".join(["admin"] if by.admin else sorted(by.scopes))
    raise Forbidden(
        f'Permission denied: the token "{by.name}" does not allow {scope} of {model or "anything"}',
        where=model or "token",
        hint=f"It allows {allowed} of {', '.join(by.patterns)}. Ask the server's operator for another one: "
        f"pt2hub admin token --scope {scope} --models {model or '*'}",
    )


_UNKNOWN = Rule(Scope.ADMIN)
"""The rule of a route that has none."""
