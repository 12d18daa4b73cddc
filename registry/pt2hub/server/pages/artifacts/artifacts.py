"""Page of an artifact: measurements, files, config, kernels and autotuning."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from flask import redirect, request, url_for

from pt2hub.domain.artifacts import (
    AUTOTUNE_TYPE,
    BASELINE_PROFILE_TYPE,
    DEBUG_LOGS_TYPE,
    FUSION_TYPE,
    LOG_TYPE,
    MEASUREMENT_RUN_TYPE,
    PROFILE_TYPE,
    SOURCES_TYPE,
    TRACE_TYPE,
)
from pt2hub.domain.builds import HIGHEST_PRIORITY, LOWEST_PRIORITY, MAX_REPEAT, MEASURE_PRIORITY
from pt2hub.domain.debug_logs import DEBUG_LOGS, member_name
from pt2hub.domain.performance import autotune as autotuning
from pt2hub.domain.verification_reports import VerificationReport
from pt2hub.errors import Pt2hubError
from pt2hub.rendering.regions import region_lines
from pt2hub.rendering.sheets import compile_text, isolation_text, state_text
from pt2hub.server.api.context import container
from pt2hub.server.api.problems import status_of
from pt2hub.server.pages import sessions
from pt2hub.server.pages.artifacts import (
    documents,
    file_tree,
    kernel_table,
    measurements,
    runs,
    step_bars,
    time_breakdown,
)
from pt2hub.server.pages.artifacts.source_highlights import highlight
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.numbers import parse_whole_number, query_number
from pt2hub.server.pages.templates import page

if TYPE_CHECKING:
    from flask import Response
    from werkzeug.wrappers import Response as WerkzeugResponse

    from pt2hub.server.views.inspection import InspectionView
    from pt2hub.wire.kernels import KernelsView

_DONE = {"measuring": "Measuring job queued; it is listed below."}
_REFERRERS = {
    SOURCES_TYPE: ("Generated sources", "sources.zip"),
    FUSION_TYPE: ("Exported graph and kernels", "fusion.json"),
    DEBUG_LOGS_TYPE: ("Debug logs of the compile", "debug-logs.zip"),
    AUTOTUNE_TYPE: ("Timings of autotuning", "autotune.json"),
    MEASUREMENT_RUN_TYPE: ("Measurements of one run", "measurements.json"),
    LOG_TYPE: ("Log of the build", "build.log.jsonl"),
    PROFILE_TYPE: ("Time breakdown of a call", "profile.json"),
    BASELINE_PROFILE_TYPE: ("Time breakdown of a call of torch.compile", "profile-torch_compile.json"),
    TRACE_TYPE: ("Trace of some calls, for Perfetto and chrome://tracing", "trace.json.gz"),
}
"""Label and file name of referrers, by media type."""
_FORM_DEFAULTS = {"repeat": "1", "baseline": "", "priority": str(MEASURE_PRIORITY)}
_LINES_BEFORE = 10
_MAX_NUMBER = 10**18
"""Upper bound of line and row numbers."""


@routes.get("/artifacts/<digest>")
def artifact(digest: str) -> Response:
    """Show an artifact."""
    return _page(digest, done=_DONE.get(request.args.get("done", "")))


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
        return _page(digest, error=error, typed=typed)
    done = url_for("pages.artifact", digest=digest, done="measuring", _anchor="measure")
    return redirect(done, HTTPStatus.SEE_OTHER)


def _first_line() -> int:
    """Return the number of the first line to show."""
    return query_number("from", 0, _MAX_NUMBER, hint="Lines are numbered from 1.") or 1


def _page(
    digest: str,
    *,
    done: str | None = None,
    error: Pt2hubError | None = None,
    typed: dict[str, str] | None = None,
) -> Response:
    after = query_number("tuned", 0, _MAX_NUMBER, hint="Follow the link below the table.") or 0
    found = container().inspection.artifact(digest, tuned_after=after)
    view = found.artifact
    kernels, no_kernels = container().kernels.shown(digest)
    return page(
        "artifact.html",
        section="models",
        status=status_of(type(error)) if error else HTTPStatus.OK,
        found=found,
        view=view,
        model=_model(view.model),
        reference=f"{view.model}@{view.digest}",
        compiled=compile_text(view) or None,
        regions=region_lines(view.regions),
        isolation=isolation_text(str(view.provenance.get("isolation") or "unknown")),
        done=done,
        error=error,
        typed=typed or _FORM_DEFAULTS,
        first_candidates=not after,
        damaged=container().damage.parts([view.digest]).get(view.digest, ()),
        kernels=kernel_table.tabulate(kernels) if kernels else None,
        no_kernels=no_kernels,
        limits={"repeat": MAX_REPEAT, "lowest": LOWEST_PRIORITY, "highest": HIGHEST_PRIORITY},
        jobs=[(job, state_text(job)) for job in found.jobs],
        **_sections(found, kernels),
    )


def _sections(found: InspectionView, kernels: KernelsView | None) -> dict[str, Any]:
    """Return the template values of the page's sections."""
    view, parsed = found.artifact, found.parsed
    groups = measurements.groups(found.measurements, found.environments)
    return {
        "report": VerificationReport.of(view.verification),
        "bar": step_bars.bar(view.steps),
        "time_breakdown": time_breakdown.break_down(view.profile, view.torch_compile_profile, kernels)
        if view.profile
        else None,
        "trace": next((item.digest for item in view.referrers if item.artifact_type == TRACE_TYPE), None),
        "operations": autotuning.operations(view.autotune),
        "tree": file_tree.tree(view.members),
        "blob": parsed.constants.blob_member if parsed else "",
        "groups": [group for group in groups if not group.is_permanent],
        "lasting": [group for group in groups if group.is_permanent],
        "sections": documents.sections(found.config.value) if found.config.problem is None else [],
        "manifest": documents.whole(found.manifest.value) if found.manifest.problem is None else None,
        "referrers": [(item, *_REFERRERS.get(item.artifact_type, (None, "file"))) for item in view.referrers],
        "runs": runs.runs(found.measurements),
        "width": {
            "bar": step_bars.WIDTH,
            "measurement": measurements.WIDTH,
            "time_breakdown": time_breakdown.WIDTH,
        },
    }


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
