"""Page that shows the differences between two artifacts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.rendering.differences import answer_differences, sections
from pt2hub.server.api.context import container
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.performance.artifact_pairs import (
    FORM_ERRORS,
    form,
    pair_command,
    pair_url,
    read_fields,
    selection,
    side,
)
from pt2hub.server.pages.templates import page

if TYPE_CHECKING:
    from flask import Response

_ENDPOINT = "pages.diff"


@routes.get("/diff")
def diff() -> Response:
    """Show how two artifacts differ, or show the form if none are named."""
    given = read_fields()
    if not given["before"] and not given["after"]:
        return form("diff.html", _ENDPOINT, given)
    try:
        view = container().diffs.diff(**selection(given))
    except FORM_ERRORS as error:
        return form("diff.html", _ENDPOINT, given, error)
    before, after = view.comparison.before, view.comparison.after
    return page(
        "diff.html",
        section="compare",
        given=given,
        error=None,
        view=view,
        answer=answer_differences(view),
        before=before,
        after=after,
        sections=sections(view),
        sides=[side("Before", before), side("After", after)],
        swapped=pair_url(after, before, _ENDPOINT),
        comparison=pair_url(before, after, "pages.compare"),
        document=pair_url(before, after, "comparing.diff"),
        command=pair_command("diff", before, after),
    )
