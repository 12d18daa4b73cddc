"""Builds: lists, stages and logs as they come, cancel and retry."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from flask import redirect, request, url_for
from pydantic import BaseModel, ConfigDict

from pt2hub.domain.builds import HIGHEST_PRIORITY, LOWEST_PRIORITY, BuildFilter, BuildKind, BuildState
from pt2hub.domain.terminal import plain
from pt2hub.errors import InvalidInput, NotFound, Pt2hubError, UsageError
from pt2hub.rendering.printing import attempts, ordinal
from pt2hub.server.api.context import container
from pt2hub.server.api.problems import status_of
from pt2hub.server.api.shapes import ID_PATTERN
from pt2hub.server.pages import sessions
from pt2hub.server.pages.log_panels import LogQuery, is_over, panel
from pt2hub.server.pages.notes import pieces
from pt2hub.server.pages.numbers import MOST_VERSION, priority, whole
from pt2hub.server.pages.rendering import fragment, page
from pt2hub.server.pages.routes import routes
from pt2hub.server.pages.stages import OPEN, any_open, lasting, since, stages_of
from pt2hub.wire.problems import from_dict
from pt2hub.wire.shapes import BuildPage

if TYPE_CHECKING:
    from flask import Response
    from werkzeug.wrappers import Response as WerkzeugResponse

    from pt2hub.server.pages.log_panels import Panel
    from pt2hub.wire.shapes import BuildView

T = TypeVar("T", BuildState, BuildKind)
_LIMIT = 50
_ATTEMPTS = 20
"""Attempts that a build's page lists: whoever queues it again and again may make hundreds."""
_SPANS = ("1", "7", "30")
_MOST_DAYS = 36_500
_ID = re.compile(ID_PATTERN)
_REPEATABLE = frozenset({BuildState.FAILED, BuildState.CANCELLED})
DONE = {
    "cancelled": "The build was cancelled. If a worker had begun it, it stops.",
    "retried": "The build is queued again.",
}


class BuildsQuery(BaseModel):
    """Which builds the address asks for.

    Attributes:
        model: `team/name`, or `team/name@3`.
        number: The version's number, where the model does not have it.
        state: In this state.
        target: For this target.
        kind: Of this kind.
        days: Submitted within so many days.
        after: Where the page before ended.
    """

    model_config = ConfigDict(frozen=True)

    model: str = ""
    number: str = ""
    state: str = ""
    target: str = ""
    kind: str = ""
    days: str = ""
    after: str = ""

    @property
    def version(self) -> str:
        """The model or version as people write it."""
        return f"{self.model}@{self.number}" if self.number else self.model

    @property
    def chosen(self) -> dict[str, str]:
        """The parameters of an address that chooses the same builds."""
        given = {
            "model": self.version,
            "state": self.state,
            "target": self.target,
            "kind": self.kind,
            "days": self.days,
        }
        return {name: value for name, value in given.items() if value}

    def wanted(self) -> BuildFilter:
        """The filter.

        Raises:
            InvalidInput: One of the values is none.
        """
        model, _, number = self.version.partition("@")
        return BuildFilter(
            model=model or None,
            number=_number(number) if "@" in self.version else None,
            state=_one_of(BuildState, self.state, "state"),
            target=self.target or None,
            kind=_one_of(BuildKind, self.kind, "kind"),
            days=_days(self.days) if self.days else None,
        )

    @classmethod
    def read(cls) -> BuildsQuery:
        """What the current request's address says."""
        given = {name: value.strip() for name, value in request.args.items()}
        return cls.model_validate(given)


@routes.get("/builds")
def builds() -> Response:
    """Builds and measuring jobs, newest first, and a form that chooses among them; a wrong choice comes back.

    With `part` the list alone, for scripts.
    """
    query, services = BuildsQuery.read(), container()
    error: UsageError | None = None
    found = BuildPage(())
    try:
        found = services.catalog.builds(query.wanted(), after=query.after or None, limit=_LIMIT)
    except UsageError as caught:
        error = caught
    shown = {"query": query, "found": found, "open": any_open(found.builds), "noted": _noted, **_WORDS}
    if request.args.get("part") and not error:
        return fragment("builds_list.html", **shown)
    return page(
        "builds.html",
        room="builds",
        status=status_of(type(error)) if error else HTTPStatus.OK,
        error=error,
        states=[state.value for state in BuildState],
        kinds=[kind.value for kind in BuildKind],
        targets=[target.name for target in services.workers.targets()],
        spans=_spans(query.days),
        **shown,
    )


@routes.get("/builds/<build>")
def build(build: str) -> Response | WerkzeugResponse:
    """A build: where it stands, its stages, and a part of its log."""
    view, query = _view(build), LogQuery.read()
    shown = panel(view, query)
    if shown.query != query:  # the first line that holds what is looked for: the address names it from now on
        return redirect(shown.line(shown.query.at or 0), HTTPStatus.SEE_OTHER)
    return _page(view, shown)


@routes.get("/builds/<build>/lines")
def lines(build: str) -> Response:
    """A part of its log, for scripts; with `rows=1` only the lines, which go below those that are there."""
    shown = panel(_view(build), LogQuery.read())
    return fragment("build_rows.html" if request.args.get("rows") else "build_log.html", log=shown)


@routes.get("/builds/<build>/stages")
def stages(build: str) -> Response:
    """Everything else on its page that changes while it runs, for scripts."""
    return fragment("build_live.html", **_shown(_view(build)))


@routes.post("/builds/<build>/cancel")
def cancel_build(build: str) -> Response | WerkzeugResponse:
    """Ends it without a result."""
    view = _view(build)
    try:
        container().builds.cancel(view.id, by=sessions.actor().name)
    except UsageError as error:
        view = _view(build)
        return _page(view, panel(view, LogQuery()), error)
    return redirect(url_for("pages.build", build=view.id, done="cancelled"), HTTPStatus.SEE_OTHER)


@routes.post("/builds/<build>/retry")
def retry_build(build: str) -> Response | WerkzeugResponse:
    """Queues it again."""
    view, typed = _view(build), request.form.get("priority", "").strip()
    try:
        wanted = priority(typed) if typed else None
        container().builds.retry(view.id, by=sessions.actor().name, priority=wanted)
    except UsageError as error:
        view = _view(build)
        return _page(view, panel(view, LogQuery()), error, typed=typed)
    return redirect(url_for("pages.build", build=view.id, done="retried"), HTTPStatus.SEE_OTHER)


def _view(build: str) -> BuildView:
    if not _ID.fullmatch(build):
        raise NotFound(
            f"{build[:80]!a} is no id of a build",
            where="build",
            hint="It has letters, digits and hyphens; the list of builds has them all.",
        )
    return container().builds.view(build)


def _page(
    view: BuildView, shown: Panel, error: UsageError | None = None, *, typed: str | None = None
) -> Response:
    """A build's page.

    Args:
        view: The build.
        shown: The part of its log.
        error: What was wrong with something sent.
        typed: The priority that was sent with it.
    """
    wrong = error or shown.problem
    return page(
        "build.html",
        room="builds",
        status=status_of(type(wrong)) if wrong else HTTPStatus.OK,
        log=shown,
        refused=error,
        done=DONE.get(request.args.get("done", "")),
        **_shown(view, typed),
    )


def _shown(view: BuildView, typed: str | None = None) -> dict[str, Any]:
    """What the page and its live parts show of a build."""
    failed = view.state == BuildState.FAILED
    return {
        "view": view,
        "said": _said(view),
        "error_line": container().log_windows.first_error(view.id, view.attempt) if failed else None,
        "typed": str(view.priority) if typed is None else typed,
        "lowest": LOWEST_PRIORITY,
        "highest": HIGHEST_PRIORITY,
        "failure": _failure(view),
        "stages": stages_of(view),
        "open": view.state in OPEN,
        "repeatable": view.state in _REPEATABLE,
        "most_attempts": _ATTEMPTS,
        "over": is_over(view),
        "lonely": view.state == BuildState.QUEUED and bool(view.note) and not view.not_before,
        **_WORDS,
    }


def _said(view: BuildView) -> str:
    """Where it stands as a sentence, for who only hears the page."""
    what = "The measuring job" if view.kind == BuildKind.MEASURE else "The build"
    if view.state == BuildState.RUNNING:
        return f"{what} runs" + (f": {view.steps[-1].name}." if view.steps else ".")
    if view.state == BuildState.QUEUED:
        return f"{what} waits" + (f", {ordinal(view.position)} in its queue." if view.position else ".")
    return f"{what} {'was ' if view.state == BuildState.CANCELLED else ''}{view.state}."


def _failure(view: BuildView) -> Pt2hubError | None:
    """Why it failed, in what can be seen of the words that its model may have chosen."""
    return from_dict(_readable(view.error)) if view.error else None


def _readable(value: Any) -> Any:  # noqa: ANN401  # any JSON value
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, list):
        return [_readable(item) for item in value]
    if isinstance(value, dict):
        return {name: _readable(item) for name, item in value.items()}
    return value


def _noted(view: BuildView) -> list[str]:
    """What is not as usual: why it waits or who ended it, its priority, further attempts."""
    notes = [view.note, f"priority {view.priority}" if view.priority else None, attempts(view)]
    return [note for note in notes if note]


def _one_of(kind: type[T], text: str, where: str) -> T | None:
    known = ", ".join(kind)
    if text and text not in list(kind):
        raise InvalidInput(
            f"{text[:40]!a} is no {where} of a build", where=where, hint=f"It is one of {known}."
        )
    return kind(text) if text else None


def _days(text: str) -> int:
    return whole(text, "days", 1, _MOST_DAYS, what="number of days", hint="Write digits, such as 7.")


def _spans(chosen: str) -> list[str]:
    """The numbers of days to choose from, with the one that was chosen."""
    return list(dict.fromkeys((*_SPANS, chosen))) if chosen else list(_SPANS)


def _number(text: str) -> int:
    return whole(text, "model", 1, MOST_VERSION, what="number of a version", hint="Write digits, such as 3.")


_WORDS: dict[str, Any] = {
    "ordinal": ordinal,
    "attempts": attempts,
    "lasting": lasting,
    "since": since,
    "pieces": pieces,
    "readable": plain,
}
"""What templates put into words."""
