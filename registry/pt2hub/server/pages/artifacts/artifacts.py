"""Page of an artifact: measurements, files, config, kernels and autotuning."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from flask import redirect, request, url_for

from pt2hub.domain.builds import HIGHEST_PRIORITY, LOWEST_PRIORITY, MAX_REPEAT, MEASURE_PRIORITY
from pt2hub.domain.debug_logs import DEBUG_LOGS, member_name
from pt2hub.domain.verification_reports import VerificationReport
from pt2hub.errors import Pt2hubError
from pt2hub.server.api.context import container
from pt2hub.server.api.problems import status_of
from pt2hub.server.pages import sessions
from pt2hub.server.pages.artifacts.artifact_answers import answer_artifact
from pt2hub.server.pages.artifacts.artifact_tabs import ArtifactTab, load, parse_tab, tab_values
from pt2hub.server.pages.artifacts.source_highlights import highlight
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.numbers import parse_whole_number, query_number
from pt2hub.server.pages.templates import page

if TYPE_CHECKING:
    from flask import Response
    from werkzeug.wrappers import Response as WerkzeugResponse

_DONE = {"measuring": "Measuring job queued; it is listed below."}
_FORM_DEFAULTS = {"repeat": "1", "baseline": "", "priority": str(MEASURE_PRIORITY)}
_LINES_BEFORE = 10
_MAX_NUMBER = 10**18
"""Upper bound of line and row numbers."""


@routes.get("/artifacts/<digest>")
def artifact(digest: str) -> Response:
    """Show a tab of an artifact's page; addresses from before there were tabs lead to the tab that took over."""
    done = _DONE.get(request.args.get("done", ""))
    if given := request.args.get("view"):
        return _page(digest, parse_tab(given), done=done)
    if "tuned" in request.args:
        return _page(digest, ArtifactTab.AUTOTUNE)
    return _page(digest, ArtifactTab.BENCHMARK if done else ArtifactTab.OVERVIEW, done=done)


@routes.get("/artifacts/<digest>/sources")
def sources(digest: str) -> Response | WerkzeugResponse:
    """Show generated sources, one part of a file at a time; with `find`, redirect to a name's definition."""
    if name := request.args.get("find"):
        position = container().generated_sources.place(digest, name)
        if position is None:
            return redirect(url_for("pages.sources", digest=digest))
        file, line = position
        first = max(1, line - _LINES_BEFORE)
        there: dict[str, Any] = {"file": file, "from": first, "_anchor": f"L{line}"}
        return redirect(url_for("pages.sources", digest=digest, **there))
    view = container().generated_sources.sources(digest, request.args.get("file"), first=_first_line())
    text = view.text
    lines = highlight(text.name, text.lines, commented=text.commented) if text else []
    return page("sources.html", section="models", view=view, lines=lines)


@routes.get("/artifacts/<digest>/debug")
def debug_logs(digest: str) -> Response:
    """Show debug logs, one part of a file at a time."""
    view = container().debug_logs.page(digest, request.args.get("file"), first=_first_line())
    lines = highlight(view.text.name, view.text.lines) if view.text else []
    names = {file.name for file in view.files}
    kinds = [(kind, text) for kind, text in DEBUG_LOGS.items() if member_name(kind) in names]
    return page("debug_logs.html", section="models", view=view, lines=lines, kinds=kinds)


@routes.get("/artifacts/<digest>/referrers/<referrer>")
def referrer(digest: str, referrer: str) -> WerkzeugResponse:
    """Redirect to a referrer's blob."""
    layer = container().inspection.payload(digest, referrer)
    return redirect(url_for("blobs.download", digest=layer.digest))


@routes.post("/artifacts/<digest>/measure")
def measure(digest: str) -> Response | WerkzeugResponse:
    """Queue a measuring job for an artifact."""
    reference = container().inspection.reference(digest)
    typed = {name: request.form.get(name, "").strip() for name in _FORM_DEFAULTS}
    try:
        container().measuring_jobs.measure(
            reference,
            by=sessions.actor(),
            repeat=_typed_number(typed, "repeat", 1, MAX_REPEAT),
            priority=_typed_number(typed, "priority", LOWEST_PRIORITY, HIGHEST_PRIORITY),
            baseline=typed["baseline"] or None,
        )
    except Pt2hubError as error:
        return _page(digest, ArtifactTab.BENCHMARK, error=error, typed=typed)
    address: dict[str, Any] = {"view": ArtifactTab.BENCHMARK, "done": "measuring", "_anchor": "measure"}
    return redirect(url_for("pages.artifact", digest=digest, **address), HTTPStatus.SEE_OTHER)


def _first_line() -> int:
    """Return the number of the first line to show."""
    return query_number("from", 0, _MAX_NUMBER, hint="Lines are numbered from 1.") or 1


def _page(
    digest: str,
    tab: ArtifactTab,
    *,
    done: str | None = None,
    error: Pt2hubError | None = None,
    typed: dict[str, str] | None = None,
) -> Response:
    """Return a tab of an artifact's page."""
    after = query_number("tuned", 0, _MAX_NUMBER, hint="Follow the link below the table.") or 0
    found = load(digest, tab, tuned_after=after)
    view = found.artifact
    report = VerificationReport.of(view.verification)
    damaged = container().damage.parts([view.digest]).get(view.digest, ())
    return page(
        "artifact.html",
        section="models",
        status=status_of(type(error)) if error else HTTPStatus.OK,
        found=found,
        view=view,
        tab=tab,
        tabs=[(item.label, tab_address(digest, item), item is tab) for item in ArtifactTab],
        answer=answer_artifact(found, report, damaged),
        report=report,
        model=_model(view.model),
        reference=f"{view.model}@{view.digest}",
        done=done,
        error=error,
        typed=typed or _FORM_DEFAULTS,
        first_candidates=not after,
        damaged=damaged,
        tab_address=tab_address,
        limits={"repeat": MAX_REPEAT, "lowest": LOWEST_PRIORITY, "highest": HIGHEST_PRIORITY},
        **tab_values(tab, found),
    )


def tab_address(digest: str, tab: str, **parts: Any) -> str:
    """Return the address of a tab; the overview's is the artifact's own."""
    view = None if tab == ArtifactTab.OVERVIEW else str(tab)
    return url_for("pages.artifact", digest=digest, view=view, **parts)


def _model(name: str) -> tuple[str, str]:
    """Split a model's name into team and name."""
    team, _, rest = name.partition("/")
    return team, rest


def _typed_number(typed: dict[str, str], field: str, low: int, high: int) -> int:
    """Parse a number from the form; an empty field means its default.

    Raises:
        InvalidInput: The text is not a number in the range.
    """
    default = _FORM_DEFAULTS[field]
    text = typed[field] or default
    hint = f"Enter a whole number from {low} to {high}; the default is {default}."
    return parse_whole_number(text, field, low, high, what=field, hint=hint)
