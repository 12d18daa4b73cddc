"""Who may do what: one rule for each route, the API's and the pages'.

A rule is a scope and what it is about. A route without a rule is refused, and fails a test before that. What is read
follows `PT2HUB_READ`: a model that a token does not cover in the mode `team` does not exist for it, so routes about one
answer as for a name that was never used, and lists leave it out (`db.reading`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from shlex import quote
from typing import TYPE_CHECKING

from flask import g, request

from pt2hub.domain.names import Reference, parse_model_name
from pt2hub.domain.reading import EVERYTHING, NOTHING, Readable, ReadMode
from pt2hub.domain.tokens import Scope
from pt2hub.errors import Forbidden, InvalidInput, NotFound
from pt2hub.server.api.context import caller, container, context
from pt2hub.server.db.reading import limit_reading, readable
from pt2hub.server.services import not_found

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.domain.tokens import Actor


class About(Enum):
    """What a request is about, so that a token's patterns can be compared with it."""

    NOTHING = auto()
    """No model: the scope alone decides."""
    LIST = auto()
    """Any models: those that may not be read are left out."""
    PATH = auto()
    """The model in the URL."""
    QUERY = auto()
    """The models that the URL's parameters name, if they name any; else as for `LIST`."""
    BUILD = auto()
    """The model of the build in the URL."""
    ARTIFACT = auto()
    """The model of the artifact in the URL."""
    BLOB = auto()
    """Any model that the blob in the URL belongs to."""
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
_REFERENCES = ("reference", "before", "after", "model", "from")
"""Parameters of URLs that name models, alone or in references."""
_FORWARDED = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip")
"""Headers that proxies add."""
_ANYBODY = Rule()
_OPEN = (
    "devices.request",
    "devices.token",
    "docs",
    "meta.healthz",
    "meta.readyz",
    "meta.spec_schema",
    "oidc.exchange",
    "openapi",
    "static",
)
_READING = {
    About.NOTHING: ("meta.targets", "metrics.metrics"),
    About.LIST: ("labels.search", "models.models", "search.search", "usage.usage", "workers.workers"),
    About.PATH: (
        *("aliases.alias", "aliases.aliases", "aliases.moves", "artifacts.manifest", "models.model"),
        *("files.file", "files.files", "labels.labels_of_model"),
        *("lineage.lineage", "performance.evaluations"),
        *("performance.history", "performance.metrics", "policies.policy"),
        *("versions.version", "versions.versions"),
    ),
    About.QUERY: (
        *("artifacts.resolve", "comparing.compare", "comparing.diff", "comparing.events"),
        "versions.builds",
    ),
    About.BUILD: ("streams.build_events", "streams.log", "streams.logs", "versions.build"),
    About.ARTIFACT: (
        *("artifacts.artifact", "artifacts.debug_log", "artifacts.debug_logs", "artifacts.kernels"),
        *("artifacts.profile", "blobs.model"),
    ),
    About.BLOB: ("blobs.check", "blobs.download"),
    About.BODY: ("artifacts.check",),
}
_OPEN_PAGES = ("components", "sign_in", "sign_in_answer", "sign_in_elsewhere", "sign_out")
"""Pages that change nothing but the reader's own cookies."""
_READING_PAGES = {
    About.NOTHING: ("models", "targets"),
    About.LIST: ("front", "search", "team", "usage", "versions"),
    About.PATH: ("alias", "model", "performance", "promotion", "version"),
    About.QUERY: ("builds", "changes", "compare", "diff"),
    About.BUILD: ("build", "lines", "steps"),
    About.ARTIFACT: ("artifact", "debug_logs", "referrer", "sources"),
}
RULES: dict[str, Rule] = dict.fromkeys(_OPEN, _ANYBODY) | {
    "aliases.move": Rule(Scope.PROMOTE, About.PATH),
    "aliases.preview": Rule(Scope.PROMOTE, About.PATH),
    "aliases.remove": Rule(Scope.PROMOTE, About.PATH),
    "audit.entries": Rule(Scope.ADMIN),
    "blobs.upload": Rule(Scope.PUBLISH),
    "labels.label_model": Rule(Scope.PUBLISH, About.PATH),
    "labels.label_version": Rule(Scope.PUBLISH, About.PATH),
    "files.put": Rule(Scope.PUBLISH, About.PATH),
    "files.remove": Rule(Scope.PUBLISH, About.PATH),
    "lineage.change": Rule(Scope.PUBLISH, About.PATH),
    "measuring.measure": Rule(Scope.MEASURE, About.BODY),
    "meta.whoami": Rule(signed_in=True),
    "models.change": Rule(Scope.PUBLISH, About.PATH),
    "policies.put": Rule(Scope.ADMIN, About.PATH),
    "reports.evaluate": Rule(Scope.MEASURE, About.BODY),
    "reports.report": Rule(Scope.MEASURE, About.BODY),
    # The service compares the models that a role is about.
    "roles.assign": Rule(Scope.ADMIN),
    "roles.remove": Rule(Scope.ADMIN),
    "roles.roles": Rule(signed_in=True),
    "retention.delete_blob": Rule(Scope.ADMIN),
    "retention.delete_build": Rule(Scope.ADMIN, About.BUILD),
    "retention.delete_model": Rule(Scope.ADMIN, About.PATH),
    "retention.delete_version": Rule(Scope.ADMIN, About.PATH),
    # The service compares the scope, a model or a team, with the token.
    "retention.preview_retention": Rule(Scope.ADMIN),
    "retention.remove_retention": Rule(Scope.ADMIN),
    "retention.set_retention": Rule(Scope.ADMIN, About.BODY),
    "retention.show_retention": Rule(Scope.ADMIN),
    "tokens.create": Rule(Scope.ADMIN),
    # A token may see, replace and end itself; the service shows others to admins that cover them.
    "tokens.revoke": Rule(signed_in=True),
    "tokens.rotate": Rule(signed_in=True),
    "tokens.tokens": Rule(signed_in=True),
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
    "versions.unyank": Rule(Scope.PROMOTE, About.PATH),
    "versions.yank": Rule(Scope.PROMOTE, About.PATH),
    # The service shows admins the webhooks whose models they cover.
    "webhooks.change": Rule(Scope.ADMIN),
    "webhooks.create": Rule(Scope.ADMIN),
    "webhooks.delete": Rule(Scope.ADMIN),
    "webhooks.deliveries": Rule(Scope.ADMIN),
    "webhooks.redeliver": Rule(Scope.ADMIN),
    "webhooks.rotate": Rule(Scope.ADMIN),
    "webhooks.test": Rule(Scope.ADMIN),
    "webhooks.webhooks": Rule(Scope.ADMIN),
}
RULES |= dict.fromkeys((f"pages.{name}" for name in _OPEN_PAGES), _ANYBODY) | {
    "pages.assign_role": Rule(Scope.ADMIN),
    "pages.add_derivation": Rule(Scope.PUBLISH, About.PATH),
    "pages.audit": Rule(Scope.ADMIN),
    "pages.retention": Rule(Scope.ADMIN),
    "pages.cancel_build": Rule(Scope.BUILD, About.BUILD),
    "pages.check_spec": Rule(Scope.PUBLISH, About.BODY),
    "pages.create_token": Rule(signed_in=True),
    "pages.decide_device": Rule(signed_in=True),
    "pages.describe": Rule(Scope.PUBLISH, About.PATH),
    "pages.device": Rule(signed_in=True),
    "pages.measure": Rule(Scope.MEASURE, About.ARTIFACT),
    "pages.move_alias": Rule(Scope.PROMOTE, About.PATH),
    "pages.publish": Rule(Scope.PUBLISH, About.BODY),
    "pages.remove_alias": Rule(Scope.PROMOTE, About.PATH),
    "pages.remove_role": Rule(Scope.ADMIN),
    "pages.retry_build": Rule(Scope.BUILD, About.BUILD),
    "pages.revoke_token": Rule(signed_in=True),
    "pages.rotate_token": Rule(signed_in=True),
    "pages.teams": Rule(signed_in=True),
    "pages.tokens": Rule(signed_in=True),
    "pages.unyank_version": Rule(Scope.PROMOTE, About.PATH),
    "pages.yank_version": Rule(Scope.PROMOTE, About.PATH),
}
RULES |= {name: Rule(Scope.READ, about) for about, names in _READING.items() for name in names}
RULES |= {
    f"pages.{name}": Rule(Scope.READ, about) for about, names in _READING_PAGES.items() for name in names
}
"""By endpoint."""
_FORM = Rule(Scope.READ, About.QUERY)
"""The rule of a page's form, before it is sent."""


def needs_token() -> bool:
    """Return whether the current request requires a token.

    A route without a rule does, and so does what would change something if there were such a route: nobody learns without a
    token what there is.
    """
    if request.endpoint is None:
        return request.method in _CHANGING
    rule = _rule()
    if rule.scope is Scope.READ:
        return _mode() is not ReadMode.PUBLIC
    return rule.signed_in or rule.scope is not None


def may_read_with_cookie() -> bool:
    """Return whether a browser's session suffices: links of pages lead to the API, and reading changes nothing."""
    return _rule().scope is Scope.READ and request.method not in _CHANGING


def begin() -> None:
    """Let nothing be read until `authorise` has decided it."""
    limit_reading(NOTHING)


def end() -> None:
    """Forget what the request could read."""
    limit_reading(EVERYTHING)


def authorise() -> None:
    """Apply the rule of the current request's route, after `g.actor` was set where a token is required.

    Raises:
        Forbidden: The token does not allow it.
        NotFound: What is in the URL does not exist, or not for this token.
    """
    rule = _rule()
    by: Actor | None = g.get("actor")
    limit_reading(_readable(by))
    if rule.scope is None or by is None:
        return
    if rule.scope is Scope.READ:
        _check(by, rule.scope, None)
    _require_visible(rule.about)
    if rule.scope is not Scope.READ:
        # The model of a body is compared by `require`, once the view has read it.
        _check(by, rule.scope, _model(rule.about))


def require(model: object) -> None:
    """Compare the model that a body names with the rule of the route and the token.

    A request that changes nothing, such as for a page's form, requires nothing.

    Args:
        model: As the body names it; what is no text is left to the validation that follows.

    Raises:
        Forbidden: The token does not allow it.
        NotFound: The model may not be read.
    """
    scope = RULES[request.endpoint or ""].scope
    if request.method not in _CHANGING or scope is None or not isinstance(model, str):
        return
    # First, whatever the scope: an error says whether a model exists only to those who may read it.
    _require_readable(model)
    if scope is not Scope.READ:
        _check(caller(), scope, model)


def _rule() -> Rule:
    """Return the rule of the current request; unknown URLs have none, and their error says nothing."""
    if request.endpoint is None:
        return _ANYBODY
    rule = RULES.get(request.endpoint, _UNKNOWN)
    route = request.url_rule
    can_be_sent = route is not None and bool(_CHANGING & (route.methods or set()))
    is_form = request.endpoint.startswith("pages.") and can_be_sent and request.method not in _CHANGING
    return _FORM if is_form and rule.scope is not None and rule.scope is not Scope.READ else rule


def _mode() -> ReadMode:
    """Return who may read; unless it is set, a request that came through a proxy is not one of this machine's."""
    config = context().config
    forwarded = config.read is None and any(name in request.headers for name in _FORWARDED)
    return ReadMode.AUTHENTICATED if forwarded else config.reading


def _readable(by: Actor | None) -> Readable:
    mode = _mode()
    if mode is ReadMode.PUBLIC:
        return EVERYTHING
    if by is None:
        return NOTHING
    return Readable(by.patterns_for(Scope.READ)) if mode is ReadMode.TEAM else EVERYTHING


def _require_visible(about: About) -> None:
    """Answer requests about what may not be read as if it did not exist, before anything is looked up by its name.

    Where the URL has an id or a digest, both what is unknown and what is another team's are refused here, in the same words.
    """
    if readable().everything:
        return
    if about is About.PATH:
        _require_readable(_model(about) or "")
    elif about is About.QUERY:
        for model in _named_models():
            _require_readable(model)
    elif about in _BY_ID:
        name, what = _BY_ID[about]
        given = _argument(name)
        found = container().visibility
        seen = {About.BUILD: found.build, About.ARTIFACT: found.artifact, About.BLOB: found.blob}[about]
        if not seen(given):
            raise NotFound(f"{what} {given[:80]} not found", where=what.lower())


def _named_models() -> Iterator[str]:
    """Yield the models that the URL's parameters name; malformed ones are left to the view, which looks nothing up."""
    for name in _REFERENCES:
        try:
            text = request.args.get(name, "").strip()
            if text:
                yield Reference.parse(text).model
        except InvalidInput:
            continue


def _require_readable(model: str) -> None:
    try:
        parse_model_name(model)
    except InvalidInput:
        return  # the view says what is wrong with it
    not_found.require_readable(model)


def _model(about: About) -> str | None:
    """Return the model in the URL, or of the build or artifact there; None where the request is about none."""
    if about is About.PATH:
        given = request.view_args or {}
        return f"{given['team']}/{given['name']}"
    if about is About.BUILD:
        return container().builds.view(_argument("id")).model
    if about is About.ARTIFACT:
        return Reference.parse(container().inspection.reference(_argument("digest"))).model
    return None


def _argument(name: str) -> str:
    given = request.view_args or {}
    return str(given.get(name) or given.get("build"))


def _check(by: Actor, scope: Scope, model: str | None) -> None:
    if by.may(scope, model):
        return
    if by.person is not None:
        raise _personal_refusal(by, scope, model)
    allowed = ", ".join(["admin"] if by.admin else sorted(by.scopes))
    models = [f"--models {quote(pattern)}" for pattern in ((model,) if model else by.patterns)]
    raise Forbidden(
        f'Permission denied: the token "{by.name}" does not allow {scope} of {model or "anything"}',
        where=model or "token",
        hint=f"It allows {allowed} of {', '.join(by.patterns)}. Ask the server's operator for another one: "
        f"pt2hub admin token --name NAME --scope {scope} {' '.join(models)}",
    )


def _personal_refusal(by: Actor, scope: Scope, model: str | None) -> Forbidden:
    if not by.permissions:
        return Forbidden(
            f"Permission denied: {by.name} has no role on this server",
            where="roles",
            hint="None of your groups at the provider has a role here. Ask an admin of the server for one: "
            "pt2hub admin assign-role GROUP --role reader --team TEAM. It holds at once, a new group after the next sign-in.",
        )
    allowed = "; ".join(
        f"{', '.join(sorted(each.scopes))} of {', '.join(each.patterns)}" for each in by.permissions
    )
    what = "this token of yours allows" if by.id is not None else "your roles allow"
    return Forbidden(
        f"Permission denied: {by.name} may not {scope} {model or 'anything'}",
        where=model or "roles",
        hint=f"What {what}: {allowed}. Ask an admin of the models for a role; the page Teams lists roles.",
    )


_BY_ID = {
    About.BUILD: ("id", "Build"),
    About.ARTIFACT: ("digest", "Artifact"),
    About.BLOB: ("digest", "Blob"),
}
_UNKNOWN = Rule(Scope.ADMIN)
"""The rule of a route that has none."""
