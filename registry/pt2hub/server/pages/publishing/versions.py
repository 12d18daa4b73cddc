"""Page of a version: targets, spec, verification, provenance and pull commands."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from flask import request, url_for
from markupsafe import Markup

from pt2hub.domain.attached_files.kinds import FileKind
from pt2hub.domain.builds import BuildState
from pt2hub.domain.lineage import Relation
from pt2hub.domain.performance.measurements import MeasurementState
from pt2hub.domain.targets import parse_target
from pt2hub.domain.verification_reports import VerificationReport
from pt2hub.errors import NotFound, Pt2hubError
from pt2hub.rendering.changes import format_change
from pt2hub.rendering.comparison_answers import find_speed, summarize_speed
from pt2hub.rendering.comparison_words import outcome_word
from pt2hub.rendering.lineage import ancestor_tree, descendant_tree
from pt2hub.rendering.promotions import check_rows
from pt2hub.rendering.sheets import attempts, isolation_text, state_text
from pt2hub.rendering.targets import explain_target
from pt2hub.rendering.waits import Piece, compose_note
from pt2hub.server.api import permissions
from pt2hub.server.api.context import container
from pt2hub.server.api.visitors import visitor
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.numbers import MAX_VERSION
from pt2hub.server.pages.performance.change_groups import MAX_EVENTS, group_changes
from pt2hub.server.pages.promotion.alias_cards import pick_production
from pt2hub.server.pages.promotion.alias_forms import AliasForm
from pt2hub.server.pages.promotion.speed_texts import SpeedText, describe_speed
from pt2hub.server.pages.publishing.card import MAX_CARD_BYTES, render_card
from pt2hub.server.pages.publishing.labels import show_labels
from pt2hub.server.pages.publishing.load_snippets import compose_snippets
from pt2hub.server.pages.publishing.version_answer import PromotionState, answer_version
from pt2hub.server.pages.templates import page
from pt2hub.server.views.artifact_summaries import ArtifactSummary
from pt2hub.wire.artifacts import DamagedPart
from pt2hub.wire.documents import write_document
from pt2hub.wire.files import FileView
from pt2hub.wire.problems import from_dict
from pt2hub.wire.responses import BuildView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flask import Response

    from pt2hub.rendering.comparison_answers import SpeedFinding
    from pt2hub.server.views.version_speeds import VersionSpeeds
    from pt2hub.wire.performance import PromotionCheckResult
    from pt2hub.wire.responses import AliasView, VersionSummary, VersionView

DONE = {
    "published": "Published. The builds below are queued for workers of their targets.",
    "yanked": "Version yanked. Names without a version and aliases pass it over; its number and digests still resolve.",
    "unyanked": "The yank of the version has ended.",
    "derived": "Lineage recorded.",
    "published-again": "A version with this spec and these weights already exists; missing targets were added to it.",
}
_LATENCY = "latency_p50"
_MAX_CHANGES = 20
_MAX_CHECKED_TARGETS = 12
"""Targets up to which the page evaluates the policy itself; each takes a few statements."""
_MAX_EARLIER = 10
"""Earlier versions to search for one to compare with."""


@dataclass(frozen=True, slots=True)
class Card:
    """The model card of the version.

    Attributes:
        html: The card; empty if it cannot be shown.
        problem: Why it cannot be shown, else None.
    """

    file: FileView
    html: Markup
    problem: str | None = None

    @property
    def is_cut(self) -> bool:
        """Whether only its beginning is shown."""
        return self.file.size > MAX_CARD_BYTES


@dataclass(frozen=True, slots=True)
class Row:
    """A target of the version.

    Attributes:
        state: The build's state as text.
        note: Why the build waits, and its attempts.
        isolation: The build's isolation as text, None without an artifact.
        damaged: Damaged parts of its artifact.
        runs_on: The machines that its artifact runs on.
        speed: Its latency, and how it compares with the version in production.
    """

    build: BuildView
    state: str
    note: list[Piece]
    error: Pt2hubError | None = None
    artifact: ArtifactSummary | None = None
    report: VerificationReport | None = None
    isolation: str | None = None
    damaged: tuple[DamagedPart, ...] = ()
    runs_on: str = ""
    speed: SpeedText = field(default_factory=SpeedText)

    @property
    def is_unmeasured(self) -> bool:
        """Whether it has an artifact that is not measured yet."""
        status = self.build.measurement
        return status is not None and status.state != MeasurementState.MEASURED


@routes.get(f"/models/<team>/<name>/versions/<int(max={MAX_VERSION}):number>")
def version(team: str, name: str, number: int) -> Response:
    """Show a version."""
    services, whole = container(), f"{team}/{name}"
    view = services.publish.version(whole, number)
    aliases = services.aliases.aliases(whole).aliases
    production = pick_production(aliases)
    speeds = services.performance.target_speeds(whole, number, production.number if production else None)
    state = _promotion_state(view, production, speeds)
    rows = _rows(view, speeds, state)
    lineage = services.lineage.lineage(whole, number)
    return page(
        "version.html",
        section="models",
        view=view,
        labels=show_labels({label.key: label.value for label in view.labels}),
        ancestors=ancestor_tree(f"{whole}@{number}", lineage.ancestors),
        descendants=descendant_tree(f"{whole}@{number}", lineage.descendants),
        lineage=lineage,
        team=team,
        name=name,
        reference=f"{whole}@{number}",
        rows=rows,
        unmeasured_rows=[row for row in rows if row.is_unmeasured],
        snippets=compose_snippets(
            f"{whole}@{number}",
            [row.artifact for row in rows if row.artifact],
            site=request.host_url,
            needs_token=permissions.needs_token(),
        ),
        relations=list(Relation),
        targets=[build.target for build in view.builds],
        spec=write_document(services.publish.document(whole, number)),
        aliases=[alias for alias in aliases if alias.number == number],
        model=services.catalog.model(whole),
        policy=services.policies.policy(whole),
        alias_form=AliasForm.of(aliases, number=str(number)),
        changes=group_changes(
            services.comparisons.events(model=whole, number=number, limit=MAX_EVENTS).events, _MAX_CHANGES
        ),
        answer=answer_version(view, state),
        promotion=state,
        checks=check_rows(state.checks),
        earlier=_earlier(view, services.catalog.versions(whole, before=number, limit=_MAX_EARLIER).versions),
        done=DONE.get(request.args.get("done", "")),
        file_urls=(urls := _file_urls(view)),
        card=_card(view, urls),
    )


def _file_urls(view: VersionView) -> dict[str, str]:
    team, _, name = view.model.partition("/")
    place = partial(url_for, "files.file", team=team, name=name, number=view.number)
    return {item.name: place(file=item.name) for item in view.files}


def _card(view: VersionView, urls: dict[str, str]) -> Card | None:
    """Return the model card; the first one if there are several."""
    found = next((item for item in view.files if item.kind == FileKind.CARD), None)
    if found is None:
        return None
    try:
        text = container().version_files.text(found, most=MAX_CARD_BYTES)
    except NotFound as error:  # lost from storage
        return Card(found, Markup(""), error.message)
    return Card(found, render_card(text, tuple(urls.items())))


def _earlier(view: VersionView, below: Sequence[VersionSummary]) -> int | None:
    """Return the newest earlier version that has an artifact for one of this version's built targets."""
    built = {build.target for build in view.builds if build.state == BuildState.SUCCEEDED}
    states = ((item.number, [item.targets.get(target) for target in built]) for item in below)
    return next((number for number, found in states if BuildState.SUCCEEDED in found), None)


def _promotion_state(
    view: VersionView, production: AliasView | None, speeds: Sequence[VersionSpeeds]
) -> PromotionState:
    """Return what is known of a promotion to production; without an artifact, or in production, there is nothing to ask."""
    reader = visitor()
    state = PromotionState(production, has_reader=reader is not None)
    built = any(build.state == BuildState.SUCCEEDED for build in view.builds)
    if not built or view.yanked or state.before == view.number:
        return state
    if len(view.builds) > _MAX_CHECKED_TARGETS:
        return replace(state, is_open=True, speed=_compare_speed(view, state.before, speeds, ()))
    try:
        preview = container().aliases.preview(
            view.model, state.alias, view.number, by=reader.principal if reader else None
        )
    except Pt2hubError:  # a build or a yank ended this moment
        return state
    return replace(
        state, preview=preview, is_open=True, speed=_compare_speed(view, state.before, speeds, preview.checks)
    )


def _compare_speed(
    view: VersionView,
    before: int | None,
    speeds: Sequence[VersionSpeeds],
    checks: Sequence[PromotionCheckResult],
) -> SpeedFinding | None:
    """Compare the speed with that in production where it is slower, else on the main target: a GPU if there is one.

    Args:
        checks: What the policy compared already.
    """
    both = [item for item in speeds if before in item.values]
    if before is None or not both:
        return None
    target = min(
        both,
        key=lambda item: (
            item.outcome(view.number, before) != "worse",
            parse_target(item.target).device != "cuda",
            item.target,
        ),
    ).target
    known = [check.comparison for check in checks if check.target == target and check.comparison]
    if found := [item for item in known if item.metric == _LATENCY]:
        return summarize_speed(target, found)
    try:
        compared = container().comparisons.compare(
            f"{view.model}@{before}", f"{view.model}@{view.number}", target=target
        )
    except Pt2hubError:  # damaged or deleted
        return None
    return find_speed(compared)


def _rows(view: VersionView, speeds: Sequence[VersionSpeeds], state: PromotionState) -> tuple[Row, ...]:
    measured = {item.target: item for item in speeds}
    found = {item.target: item for item in container().artifact_summaries.artifacts(view.model, view.number)}
    damaged = container().damage.parts([item.digest for item in found.values()])
    rows = (
        replace(
            _row(build, found.get(build.target)),
            runs_on=explain_target(build.target),
            speed=_speed_text(view.number, state, measured.get(build.target)),
        )
        for build in view.builds
    )
    return tuple(
        replace(row, damaged=damaged.get(row.artifact.digest, ())) if row.artifact else row for row in rows
    )


def _speed_text(number: int, state: PromotionState, speeds: VersionSpeeds | None) -> SpeedText:
    """Return the speed on a target; what the comparison on the main target says comes before what two values say."""
    text, found = describe_speed(speeds, number, state.before), state.speed
    if speeds is None or found is None or found.item is None or found.target != speeds.target:
        return text
    item = found.item
    exact = format_change(item.ratio or 1.0, item.metric, item.unit)
    change = exact if item.outcome in ("worse", "better") else outcome_word(item)
    return SpeedText(text.value, item.outcome, change, f"{exact} than version {state.before}")


def _note(build: BuildView) -> list[Piece]:
    note, further = compose_note(build), attempts(build)
    return [*note, Piece("; " * bool(note) + further)] if further else note


def _row(build: BuildView, artifact: ArtifactSummary | None) -> Row:
    error = from_dict(build.error) if build.error else None
    if artifact is None:
        return Row(build, state_text(build), _note(build), error)
    isolation = artifact.provenance.get("isolation")
    return Row(
        build=build,
        state=state_text(build),
        note=_note(build),
        error=error,
        artifact=artifact,
        report=VerificationReport.of(artifact.verification),
        isolation=isolation_text(str(isolation)) if isolation else None,
    )
