"""A version: its targets, spec, gate, provenance, and how to pull it; whether it runs on the reader's machine."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from flask import redirect, request, url_for

from pt2hub.domain.builds import BuildState
from pt2hub.domain.measurements import MeasurementState
from pt2hub.errors import Pt2hubError
from pt2hub.rendering.printing import circumstances, confined, standing
from pt2hub.server.api.context import container
from pt2hub.server.pages import machines
from pt2hub.server.pages.happenings import LOOKED_AT, happenings
from pt2hub.server.pages.machines import Fit
from pt2hub.server.pages.moves import Moving
from pt2hub.server.pages.notes import pieces
from pt2hub.server.pages.numbers import MOST_VERSION
from pt2hub.server.pages.proofs import Proof
from pt2hub.server.pages.rendering import page
from pt2hub.server.pages.routes import routes
from pt2hub.server.pages.signing import within
from pt2hub.wire.briefs import ArtifactBrief
from pt2hub.wire.documents import write_document
from pt2hub.wire.machines import Machine
from pt2hub.wire.problems import from_dict
from pt2hub.wire.shapes import BuildView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flask import Response
    from werkzeug.wrappers import Response as WerkzeugResponse

    from pt2hub.wire.shapes import VersionSummary, VersionView

DONE = {
    "published": "Published. The builds below are queued, each for a worker of its target.",
    "published-again": "This version holds the same spec and weights already; targets that it lacked were added.",
}
_CHANGES = 20
_EARLIER = 10
"""Versions below this one among which there is one to compare it with."""


@dataclass(frozen=True, slots=True)
class Row:
    """A target of the version.

    Attributes:
        build: Its build.
        standing: The build's state in words.
        note: Why it waits, which attempt comes or runs.
        error: Why it failed, or None.
        artifact: Its artifact, or None.
        proof: What the gate found of that, likewise.
        isolation: How the build was confined, in words; likewise.
        fit: Whether the artifact runs on the reader's machine; None where that is not known.
    """

    build: BuildView
    standing: str
    note: str
    error: Pt2hubError | None = None
    artifact: ArtifactBrief | None = None
    proof: Proof | None = None
    isolation: str | None = None
    fit: Fit | None = None

    @property
    def is_unmeasured(self) -> bool:
        """Whether it has an artifact that nobody has measured."""
        status = self.build.measurement
        return status is not None and status.state != MeasurementState.MEASURED


@routes.get(f"/models/<team>/<name>/versions/<int(max={MOST_VERSION}):number>")
def version(team: str, name: str, number: int) -> Response:
    """A version."""
    services, whole = container(), f"{team}/{name}"
    view = services.publish.version(whole, number)
    rows = _rows(view)
    aliases = services.aliases.aliases(whole).aliases
    return page(
        "version.html",
        room="models",
        view=view,
        team=team,
        name=name,
        reference=f"{whole}@{number}",
        rows=rows,
        unmeasured_rows=[row for row in rows if row.is_unmeasured],
        pieces=pieces,
        pulls=_pulls(view, rows),
        spec=write_document(services.publish.document(whole, number)),
        machine=machines.reader(),
        aliases=[alias for alias in aliases if alias.number == number],
        model=services.catalog.model(whole),
        policy=services.policies.policy(whole),
        moving=Moving.of(aliases, number=str(number)),
        changes=happenings(
            services.comparing.events(model=whole, number=number, limit=LOOKED_AT).events, _CHANGES
        ),
        earlier=_earlier(view, services.catalog.versions(whole, before=number, limit=_EARLIER).versions),
        done=DONE.get(request.args.get("done", "")),
    )


@routes.get("/machine")
def machine() -> Response | WerkzeugResponse:
    """Keeps the machine that `pt2hub open` tells, and goes on; without one, what is kept."""
    to = within(request.args.get("to", ""))
    if "machine" not in request.args:
        return page("your_machine.html", machine=machines.reader(), to=to)
    found = Machine.parse(request.args["machine"])
    response = redirect(to, HTTPStatus.SEE_OTHER)
    machines.keep(response, found)
    return response


@routes.post("/machine/forget")
def forget_machine() -> WerkzeugResponse:
    """Forgets the machine."""
    response = redirect(url_for("pages.machine", to=within(request.form.get("to", ""))), HTTPStatus.SEE_OTHER)
    machines.forget(response)
    return response


def _earlier(view: VersionView, below: Sequence[VersionSummary]) -> int | None:
    """The newest version below it that has an artifact for a target that it has one for itself."""
    built = {build.target for build in view.builds if build.state == BuildState.SUCCEEDED}
    states = ((item.number, [item.targets.get(target) for target in built]) for item in below)
    return next((number for number, found in states if BuildState.SUCCEEDED in found), None)


def _rows(view: VersionView) -> tuple[Row, ...]:
    found = {item.target: item for item in container().briefs.artifacts(view.model, view.number)}
    return tuple(_row(build, found.get(build.target)) for build in view.builds)


def _row(build: BuildView, artifact: ArtifactBrief | None) -> Row:
    error = from_dict(build.error) if build.error else None
    if artifact is None:
        return Row(build, standing(build), circumstances(build), error)
    isolation = artifact.provenance.get("isolation")
    return Row(
        build=build,
        standing=standing(build),
        note=circumstances(build),
        error=error,
        artifact=artifact,
        proof=Proof.of(artifact.verification),
        isolation=confined(str(isolation)) if isolation else None,
        fit=_fit(artifact),
    )


def _fit(artifact: ArtifactBrief) -> Fit | None:
    if machines.reader() is None:
        return None
    return machines.fit(artifact.target, container().briefs.native(artifact.config))


def _pulls(view: VersionView, rows: tuple[Row, ...]) -> dict[str, str]:
    """Commands that bring an artifact to somebody, by their labels; none where there is nothing to pull."""
    known = [row for row in rows if row.artifact]
    if not known:
        return {}
    name, fits = f"{view.model}@{view.number}", [row.fit for row in known if row.fit]
    elsewhere = bool(fits) and not any(fit.runs for fit in fits)
    target = f" --target {known[0].build.target}" if elsewhere else ""
    return {
        "Into the cache": f"pt2hub pull {name}{target}",
        "As one file": f"pt2hub pull {name}{target} -o model.pt2",
        "Python": f'import pt2hub\nmodel = pt2hub.load("{name}")',
    }
