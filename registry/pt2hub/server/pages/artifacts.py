"""An artifact: manifest, files, config, kernels, autotune tables, steps; and having it measured again."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from flask import redirect, request, url_for

from pt2hub.domain import autotuning
from pt2hub.domain.artifacts import (
    AUTOTUNE_TYPE,
    LOG_TYPE,
    MEASUREMENT_RUN_TYPE,
    MEASUREMENTS_TYPE,
    OLD_AUTOTUNE_TYPE,
    PROFILE_TYPE,
    SOURCES_TYPE,
    TRACE_TYPE,
)
from pt2hub.domain.builds import HIGHEST_PRIORITY, LOWEST_PRIORITY, MAX_REPEAT, MEASURE_PRIORITY
from pt2hub.errors import Pt2hubError
from pt2hub.rendering.printing import confined, standing
from pt2hub.server.api.context import container
from pt2hub.server.api.problems import status_of
from pt2hub.server.pages import machines, sessions
from pt2hub.server.pages.exhibits import bars, documents, figures, runs, spent, trees
from pt2hub.server.pages.exhibits.highlighting import highlighted
from pt2hub.server.pages.numbers import in_address, whole
from pt2hub.server.pages.proofs import Proof
from pt2hub.server.pages.rendering import page
from pt2hub.server.pages.routes import routes

if TYPE_CHECKING:
    from flask import Response
    from werkzeug.wrappers import Response as WerkzeugResponse

    from pt2hub.wire.artifacts import ArtifactView
    from pt2hub.wire.inspecting import InspectionView

_DONE = {"measuring": "A job that measures this artifact again is queued: it is listed here."}
_KINDS = {
    SOURCES_TYPE: ("Generated sources", "sources.zip"),
    AUTOTUNE_TYPE: ("Timings of autotuning", "autotune.json"),
    OLD_AUTOTUNE_TYPE: ("Timings of autotuning", "autotune.json"),
    MEASUREMENT_RUN_TYPE: ("Measurements of one run", "measurements.json"),
    MEASUREMENTS_TYPE: ("Measurements of the build", "measurements.json"),
    LOG_TYPE: ("Log of the build", "build.log.jsonl"),
    PROFILE_TYPE: ("Where a call's time goes", "profile.json"),
    TRACE_TYPE: ("Trace of some calls, for Perfetto and chrome://tracing", "trace.json.gz"),
}
"""What referrers are, and how their files are called, by media type."""
_UNTYPED = {"repeat": "1", "beside": "", "priority": str(MEASURE_PRIORITY)}
_LINES_BEFORE = 10
_MOST = 10**18
"""Of lines and rows: no table counts further."""


@routes.get("/artifacts/<digest>")
def artifact(digest: str) -> Response:
    """Everything in an artifact."""
    return _page(digest, done=_DONE.get(request.args.get("done", "")))


@routes.get("/artifacts/<digest>/sources")
def sources(digest: str) -> Response | WerkzeugResponse:
    """The sources that the compiler generated, some lines of one file at a time; or the place where a name is."""
    if name := request.args.get("find"):
        place = container().generated.place(digest, name)
        if place is None:
            return redirect(url_for("pages.sources", digest=digest))
        file, line = place
        first = max(1, line - _LINES_BEFORE)
        there: dict[str, Any] = {"file": file, "from": first, "_anchor": f"L{line}"}
        return redirect(url_for("pages.sources", digest=digest, **there))
    first = in_address("from", 0, _MOST, hint="Lines are numbered from 1.") or 1
    view = container().generated.sources(digest, request.args.get("file"), first=first)
    text = view.text
    lines = highlighted(text.name, text.lines, commented=text.commented) if text else []
    return page("sources.html", room="models", view=view, lines=lines)


@routes.get("/artifacts/<digest>/referrers/<referrer>")
def referrer(digest: str, referrer: str) -> WerkzeugResponse:
    """Sends whoever asks to the blob that a referrer brings."""
    layer = container().inspecting.payload(digest, referrer)
    return redirect(url_for("blobs.download", digest=layer.digest))


@routes.post("/artifacts/<digest>/measure")
def measure(digest: str) -> Response | WerkzeugResponse:
    """Has the artifact measured again."""
    reference = container().inspecting.reference(digest)
    typed = {name: request.form.get(name, "").strip() for name in _UNTYPED}
    try:
        container().measuring.measure(
            reference,
            by=sessions.actor().name,
            repeat=_typed_number(typed, "repeat", 1, MAX_REPEAT),
            priority=_typed_number(typed, "priority", LOWEST_PRIORITY, HIGHEST_PRIORITY),
            beside=typed["beside"] or None,
        )
    except Pt2hubError as error:
        return _page(digest, error=error, typed=typed)
    done = url_for("pages.artifact", digest=digest, done="measuring", _anchor="measure")
    return redirect(done, HTTPStatus.SEE_OTHER)


def _page(
    digest: str,
    *,
    done: str | None = None,
    error: Pt2hubError | None = None,
    typed: dict[str, str] | None = None,
) -> Response:
    after = in_address("tuned", 0, _MOST, hint="Follow the link below the table.") or 0
    found = container().inspecting.artifact(digest, tuned_after=after)
    view = found.artifact
    return page(
        "artifact.html",
        room="models",
        status=status_of(type(error)) if error else HTTPStatus.OK,
        found=found,
        view=view,
        model=_model(view.model),
        reference=f"{view.model}@{view.digest}",
        isolation=confined(str(view.provenance.get("isolation") or "unknown")),
        fit=_fit(view),
        machine=machines.reader(),
        done=done,
        error=error,
        typed=typed or _UNTYPED,
        first_candidates=not after,
        limits={"repeat": MAX_REPEAT, "lowest": LOWEST_PRIORITY, "highest": HIGHEST_PRIORITY},
        jobs=[(job, standing(job)) for job in found.jobs],
        **_exhibits(found),
    )


def _fit(view: ArtifactView) -> machines.Fit | None:
    """Whether it runs on the reader's machine; its libraries' needs are read only where somebody asks."""
    if machines.reader() is None:
        return None
    return machines.fit(view.target, container().briefs.native(view.config_digest))


def _exhibits(found: InspectionView) -> dict[str, Any]:
    """Its parts, arranged."""
    view, parsed = found.artifact, found.parsed
    groups = figures.groups(found.figures, found.environments)
    return {
        "proof": Proof.of(view.verification),
        "bar": bars.bar(view.steps),
        "spending": spent.spending(view.profile) if view.profile else None,
        "trace": next((item.digest for item in view.referrers if item.artifact_type == TRACE_TYPE), None),
        "operations": autotuning.operations(view.autotune),
        "tree": trees.tree(view.members),
        "blob": parsed.constants.blob_member if parsed else "",
        "groups": [group for group in groups if not group.lasting],
        "lasting": [group for group in groups if group.lasting],
        "sections": documents.sections(found.config.value) if found.config.problem is None else [],
        "manifest": documents.whole(found.manifest.value) if found.manifest.problem is None else None,
        "referrers": [(item, *_KINDS.get(item.artifact_type, (None, "file"))) for item in view.referrers],
        "runs": runs.runs(found.figures),
        "width": {"bar": bars.WIDTH, "figure": figures.WIDTH, "spent": spent.WIDTH},
    }


def _model(name: str) -> tuple[str, str]:
    """Team and name."""
    team, _, rest = name.partition("/")
    return team, rest


def _typed_number(typed: dict[str, str], field: str, low: int, high: int) -> int:
    """A whole number that somebody typed; what is left empty is as if the form had not been touched.

    Raises:
        InvalidInput: It is none, or out of its range.
    """
    text, usual = typed[field] or _UNTYPED[field], _UNTYPED[field]
    what, hint = f"whole number from {low} to {high}", f"Type one, or leave it as it was: {usual}."
    return whole(text, field, low, high, what=what, hint=hint)
