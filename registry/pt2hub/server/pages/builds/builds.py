"""Pages of builds: lists, live steps and logs, cancel and retry."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from flask import redirect, request, url_for
from pydantic import BaseModel, ConfigDict

from pt2hub.domain.builds import (
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    UNFINISHED,
    BuildFilter,
    BuildKind,
    BuildOrder,
    BuildState,
    name_kind,
)
from pt2hub.domain.terminal import plain
from pt2hub.errors import NotFound, Pt2hubError, UsageError
from pt2hub.rendering.sheets import attempts, ordinal
from pt2hub.rendering.times import count_seconds
from pt2hub.rendering.waits import Piece, compose_note, is_lonely
from pt2hub.server.api.context import container
from pt2hub.server.api.problems import status_of
from pt2hub.server.api.request_shapes import ID_PATTERN
from pt2hub.server.pages import sessions
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.builds.build_answers import answer_build
from pt2hub.server.pages.builds.list_answers import compose_list_answer
from pt2hub.server.pages.builds.log_panels import LogQuery, is_finished, panel
from pt2hub.server.pages.builds.steps import any_open, steps_of
from pt2hub.server.pages.choices import check_choice
from pt2hub.server.pages.numbers import MAX_VERSION, parse_priority, parse_whole_number
from pt2hub.server.pages.templates import fragment, page
from pt2hub.wire.problems import from_dict
from pt2hub.wire.responses import BuildPage

if TYPE_CHECKING:
    from flask import Response
    from werkzeug.wrappers import Response as WerkzeugResponse

    from pt2hub.server.pages.builds.log_panels import Panel
    from pt2hub.wire.responses import BuildView

T = TypeVar("T", BuildState, BuildKind, BuildOrder)
_LIMIT = 50
_MAX_ATTEMPTS = 20
"""Attempts listed on a build's page; a build that is retried often may have hundreds."""
_SPANS = ("1", "7", "30")
_ORDERS = {
    "": "newest",
    BuildOrder.OLDEST.value: "oldest",
    BuildOrder.ENDED.value: "ended last",
    BuildOrder.LONGEST.value: "longest",
}
_MAX_DAYS = 36_500
_ID = re.compile(ID_PATTERN)
_RETRYABLE = frozenset({BuildState.FAILED, BuildState.CANCELLED})
DONE = {
    "cancelled": "Build cancelled. If it was running, its worker stops.",
    "retried": "Build queued again.",
}


class BuildsQuery(BaseModel):
    """Filters of the list of builds.

    Attributes:
        model: `team/name`, or `team/name@3`.
        number: The version's number, if `model` has none.
        after: Cursor from the previous page.
    """

    model_config = ConfigDict(frozen=True)

    model: str = ""
    number: str = ""
    state: str = ""
    target: str = ""
    kind: str = ""
    days: str = ""
    sort: str = ""
    after: str = ""

    @property
    def version(self) -> str:
        """The model or version as a reference."""
        return f"{self.model}@{self.number}" if self.number else self.model

    @property
    def chosen(self) -> dict[str, str]:
        """The query parameters for the same filters, without the order."""
        given = {
            "model": self.version,
            "state": self.state,
            "target": self.target,
            "kind": self.kind,
            "days": self.days,
        }
        return {name: value for name, value in given.items() if value}

    @property
    def kept(self) -> dict[str, str]:
        """The query parameters for the same list."""
        return self.chosen | ({"sort": self.sort} if self.sort else {})

    @property
    def by_end(self) -> bool:
        """Whether the list is about when builds ended, and says so instead of when they were created."""
        return bool(self.days) or self.sort in (BuildOrder.ENDED, BuildOrder.LONGEST)

    def to_filter(self) -> BuildFilter:
        """Return the filter.

        Raises:
            InvalidInput: A filter is invalid.
        """
        model, _, number = self.version.partition("@")
        return BuildFilter(
            model=model or None,
            number=_number(number) if "@" in self.version else None,
            state=_one_of(BuildState, self.state, "state"),
            target=self.target or None,
            kind=_one_of(BuildKind, self.kind, "kind"),
            days=_days(self.days) if self.days else None,
            order=_one_of(BuildOrder, self.sort, "sort") or BuildOrder.NEWEST,
        )

    @classmethod
    def read(cls) -> BuildsQuery:
        """Read the current request's query."""
        given = {name: value.strip() for name, value in request.args.items()}
        return cls.model_validate(given)


@routes.get("/builds")
def builds() -> Response:
    """List builds and measuring jobs, with a form to filter and sort; with `part`, the list alone."""
    query, services = BuildsQuery.read(), container()
    error: UsageError | None = None
    found = BuildPage(())
    try:
        found = services.catalog.builds(query.to_filter(), after=query.after or None, limit=_LIMIT)
    except UsageError as caught:
        error = caught
    shown = {
        "query": query,
        "found": found,
        "open": any_open(found.builds),
        "notes_of": _notes,
        "targets": [target.name for target in services.workers.targets()],
        "answer": compose_list_answer(
            found, services.overview.totals(), is_filtered=bool(query.chosen), is_first=not query.after
        ),
        **_TEXT_FUNCTIONS,
    }
    if request.args.get("part") and not error:
        return fragment("builds_fresh.html", **shown)
    return page(
        "builds.html",
        section="builds",
        status=status_of(type(error)) if error else HTTPStatus.OK,
        error=error,
        states=[state.value for state in BuildState],
        kinds=[kind.value for kind in BuildKind],
        spans=_spans(query.days),
        orders=_ORDERS,
        **shown,
    )


@routes.get("/builds/<build>")
def build(build: str) -> Response | WerkzeugResponse:
    """Show a build: its state, steps and a window of its log."""
    view, query = _view(build), LogQuery.read()
    shown = panel(view, query)
    if shown.query != query:  # go to the URL of the first match
        return redirect(shown.line(shown.query.at or 0), HTTPStatus.SEE_OTHER)
    return _page(view, shown)


@routes.get("/builds/<build>/lines")
def lines(build: str) -> Response:
    """Return a window of a build's log, for scripts; with `rows=1` only its lines."""
    shown = panel(_view(build), LogQuery.read())
    return fragment("build_rows.html" if request.args.get("rows") else "build_log.html", log=shown)


@routes.get("/builds/<build>/steps")
def steps(build: str) -> Response:
    """Return the other parts of a build's page that change while it runs, for scripts."""
    return fragment("build_live.html", **_build_context(_view(build)))


@routes.post("/builds/<build>/cancel")
def cancel_build(build: str) -> Response | WerkzeugResponse:
    """Cancel a build."""
    view = _view(build)
    try:
        container().builds.cancel(view.id, by=sessions.actor())
    except UsageError as error:
        view = _view(build)
        return _page(view, panel(view, LogQuery()), error)
    return redirect(url_for("pages.build", build=view.id, done="cancelled"), HTTPStatus.SEE_OTHER)


@routes.post("/builds/<build>/retry")
def retry_build(build: str) -> Response | WerkzeugResponse:
    """Retry a build."""
    view, typed = _view(build), request.form.get("priority", "").strip()
    try:
        wanted = parse_priority(typed) if typed else None
        container().builds.retry(view.id, by=sessions.actor(), priority=wanted)
    except UsageError as error:
        view = _view(build)
        return _page(view, panel(view, LogQuery()), error, typed=typed)
    return redirect(url_for("pages.build", build=view.id, done="retried"), HTTPStatus.SEE_OTHER)


def _view(build: str) -> BuildView:
    if not _ID.fullmatch(build):
        raise NotFound(
            f"Invalid build id {build[:80]!a}",
            where="build",
            hint="An id consists of letters, digits and hyphens. Find it in the list of builds.",
        )
    return container().builds.view(build)


def _page(
    view: BuildView, shown: Panel, error: UsageError | None = None, *, typed: str | None = None
) -> Response:
    """Return a build's page."""
    wrong = error or shown.problem
    return page(
        "build.html",
        section="builds",
        status=status_of(type(wrong)) if wrong else HTTPStatus.OK,
        log=shown,
        refused=error,
        done=DONE.get(request.args.get("done", "")),
        **_build_context(view, typed),
    )


def _build_context(view: BuildView, typed: str | None = None) -> dict[str, Any]:
    """Return the template values of a build's page and its live parts."""
    failed = view.state == BuildState.FAILED
    usual = container().step_durations.earlier(view)
    steps = steps_of(view, usual)
    return {
        "view": view,
        "answer": answer_build(view, steps, usual),
        "state_sentence": _state_sentence(view),
        "error_line": container().log_windows.first_error(view.id, view.attempt) if failed else None,
        "typed": str(view.priority) if typed is None else typed,
        "lowest": LOWEST_PRIORITY,
        "highest": HIGHEST_PRIORITY,
        "failure": _failure(view),
        "steps": steps,
        "waited": count_seconds(view.created_at, view.started_at) if view.attempt == 1 else None,
        "open": view.state in UNFINISHED,
        "can_retry": view.state in _RETRYABLE,
        "max_attempts": _MAX_ATTEMPTS,
        "finished": is_finished(view),
        "has_no_worker": is_lonely(view),
        **_TEXT_FUNCTIONS,
    }


def _state_sentence(view: BuildView) -> str:
    """Return the state as a sentence for screen readers."""
    what = f"The {name_kind(view.kind)}"
    if view.state == BuildState.RUNNING:
        return f"{what} runs" + (f": {view.steps[-1].name}." if view.steps else ".")
    if view.state == BuildState.QUEUED:
        return f"{what} waits" + (f", {ordinal(view.position)} in its queue." if view.position else ".")
    return f"{what} {'was ' if view.state == BuildState.CANCELLED else ''}{view.state}."


def _failure(view: BuildView) -> Pt2hubError | None:
    """Return the build's error with invisible characters removed from its text."""
    return from_dict(_readable(view.error)) if view.error else None


def _readable(value: Any) -> Any:
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, list):
        return [_readable(item) for item in value]
    if isinstance(value, dict):
        return {name: _readable(item) for name, item in value.items()}
    return value


def _notes(view: BuildView) -> list[list[Piece]]:
    """Return notes: why the build waits or who cancelled it, its priority, further attempts."""
    others = (f"priority {view.priority}" if view.priority else "", attempts(view))
    notes = [compose_note(view), *([Piece(text)] for text in others if text)]
    return [note for note in notes if note]


def _one_of(kind: type[T], text: str, where: str) -> T | None:
    known: list[str] = list(kind)
    check_choice(text, ["", *known], where)
    return kind(text) if text else None


def _days(text: str) -> int:
    return parse_whole_number(
        text, "days", 1, _MAX_DAYS, what="number of days", hint="Write digits, such as 7."
    )


def _spans(chosen: str) -> list[str]:
    """Return the time spans to choose from, including the chosen one."""
    return list(dict.fromkeys((*_SPANS, chosen))) if chosen else list(_SPANS)


def _number(text: str) -> int:
    return parse_whole_number(
        text, "model", 1, MAX_VERSION, what="version number", hint="Write digits, such as 3."
    )


_TEXT_FUNCTIONS: dict[str, Any] = {
    "ordinal": ordinal,
    "attempts": attempts,
    "since": count_seconds,
    "pieces": compose_note,
    "readable": plain,
}
"""Functions that templates call."""
