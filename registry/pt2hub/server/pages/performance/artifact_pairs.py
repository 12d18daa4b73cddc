"""Forms and links of pages about two artifacts."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from flask import request, url_for

from pt2hub.errors import Ambiguous, InvalidInput, NotFound, NotReady, UnknownTarget
from pt2hub.server.api.problems import status_of
from pt2hub.server.pages.performance.charts import machine
from pt2hub.server.pages.templates import page

if TYPE_CHECKING:
    from flask import Response

    from pt2hub.errors import Pt2hubError
    from pt2hub.wire.performance import SideView

FORM_ERRORS = (Ambiguous, InvalidInput, NotFound, NotReady, UnknownTarget)
"""Errors that are shown above the form."""
_FIELDS = ("before", "after", "target", "with_target")
_MAX_LENGTH = 400


def read_fields() -> dict[str, str]:
    """Return the fields of the form, empty where they are not given."""
    return {name: request.args.get(name, "").strip()[:_MAX_LENGTH] for name in _FIELDS}


def selection(given: dict[str, str]) -> dict[str, Any]:
    """Return the arguments that select the two artifacts.

    Raises:
        InvalidInput: A reference is missing.
    """
    return {
        "before": _reference(given["before"], "before"),
        "after": _reference(given["after"], "after"),
        "target": given["target"] or None,
        "with_target": given["with_target"] or None,
    }


def form(template: str, endpoint: str, given: dict[str, str], error: Pt2hubError | None = None) -> Response:
    """Return a page's form with what was typed and its error.

    Args:
        endpoint: The page's endpoint, for a link to each target that can be chosen.
    """
    links = _target_links(endpoint, given, error)
    # Links name versions and readers choose a target: an ambiguous reference is a question, not an error.
    failed = None if isinstance(error, Ambiguous) and links else error
    return page(
        template,
        section="compare",
        status=status_of(type(failed)) if failed else HTTPStatus.OK,
        given=given,
        error=failed,
        view=None,
        target_links=links,
    )


def pair_url(before: SideView, after: SideView, endpoint: str) -> str:
    """Return the URL of a page or a document about two artifacts."""
    return url_for(
        endpoint,
        before=f"{before.model}@{before.number}",
        after=f"{after.model}@{after.number}",
        target=before.target,
        with_target=after.target if after.target != before.target else None,
    )


def pair_command(command: str, before: SideView, after: SideView) -> str:
    """Return the command that shows the same as the page."""
    other = f" --with-target {after.target}" if after.target != before.target else ""
    names = f"{before.model}@{before.number} {after.model}@{after.number}"
    return f"pt2hub {command} {names} --target {before.target}{other}"


def side(label: str, view: SideView) -> dict[str, Any]:
    """Return what a page shows of one artifact."""
    team, _, name = view.model.partition("/")
    return {"label": label, "side": view, "team": team, "name": name, "machine": machine(view.environment)}


def common_targets(given: dict[str, str], error: Pt2hubError | None) -> list[str]:
    """Return the targets that both sides have, if that is why the artifacts are ambiguous."""
    targets = error.context.get("targets") if isinstance(error, Ambiguous | NotFound) else None
    if not isinstance(targets, list) or given["before"] == given["after"] or given["with_target"]:
        return []
    return [str(target) for target in targets]


def _target_links(endpoint: str, given: dict[str, str], error: Pt2hubError | None) -> list[tuple[str, str]]:
    """Return a link for each target that both sides have."""
    before, after = given["before"], given["after"]
    return [
        (target, url_for(endpoint, before=before, after=after, target=target))
        for target in common_targets(given, error)
    ]


def _reference(text: str, name: str) -> str:
    if not text:
        raise InvalidInput(
            f"{name.capitalize()} is required",
            where=name,
            hint="Enter team/name@3, team/name@prod, or team/name for the newest ready version.",
        )
    return text
