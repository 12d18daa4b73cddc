"""Page of a version: whether it may be promoted, how to load it, where it runs, and everything it consists of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from flask import request, url_for
from markupsafe import Markup

from pt2hub.domain.attached_files.kinds import FileKind
from pt2hub.domain.builds import BuildState
from pt2hub.domain.lineage import Relation
from pt2hub.domain.names import PRODUCTION_PREFIXES
from pt2hub.domain.performance.measurements import MeasurementState
from pt2hub.domain.performance.metric_groups import MAIN_METRICS
from pt2hub.domain.verification_reports import VerificationReport
from pt2hub.errors import BlobDamaged, NotFound, Pt2hubError
from pt2hub.rendering.lineage import ancestor_tree, descendant_tree
from pt2hub.rendering.promotions import check_rows
from pt2hub.rendering.sheets import attempts, isolation_text, state_text
from pt2hub.rendering.targets import name_platforms, short_target
from pt2hub.rendering.waits import Piece, compose_note
from pt2hub.server.api.context import container
from pt2hub.server.api.visitors import visitor
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.pages.blueprint import reads_together, routes
from pt2hub.server.pages.numbers import MAX_VERSION
from pt2hub.server.pages.performance.change_groups import MAX_EVENTS, group_changes
from pt2hub.server.pages.performance.target_comparisons import compare_targets
from pt2hub.server.pages.promotion.alias_forms import AliasForm
from pt2hub.server.pages.publishing.card import MAX_CARD_BYTES, render_card, summarize_card
from pt2hub.server.pages.publishing.labels import show_labels
from pt2hub.server.pages.publishing.version_answers import Standing, answer_version
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

    from pt2hub.server.pages.performance.target_comparisons import TargetOverview
    from pt2hub.wire.responses import AliasView, ModelView, VersionSummary, VersionView

DONE = {
    "published": "Published. The builds below are queued for workers of their targets.",
    "derived": "Lineage recorded.",
    "yanked": "Version yanked. Names without a version and aliases pass it over; its number and digests still resolve.",
    "unyanked": "The yank of the version has ended.",
    "published-again": "A version with this spec and these weights already exists; missing targets were added to it.",
}
_MAX_CHANGES = 20
_MAX_COMPARED = 6
"""Targets compared with production; each takes a few statements."""
_MAX_EARLIER = 10
"""Earlier versions to search for one to compare with."""


@dataclass(frozen=True, slots=True)
class Card:
    """The model card of the version.

    Attributes:
        html: The card; empty if it cannot be shown.
        problem: Why it cannot be shown, else None.
        summary: What it says first, as text; empty if it cannot be shown.
    """

    file: FileView
    html: Markup
    problem: str | None = None
    summary: str = ""

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
    """

    build: BuildView
    state: str
    note: list[Piece]
    error: Pt2hubError | None = None
    artifact: ArtifactSummary | None = None
    report: VerificationReport | None = None
    isolation: str | None = None
    damaged: tuple[DamagedPart, ...] = ()

    @property
    def is_damaged(self) -> bool:
        """Whether its artifact cannot be pulled."""
        return any(part.is_needed for part in self.damaged)

    @property
    def batch(self) -> int | None:
        """Batch size of its artifact's latency; None where there is none."""
        latency = self.artifact.latency if self.artifact else None
        return latency.batch if latency else None

    @property
    def is_unmeasured(self) -> bool:
        """Whether it has an artifact that is not measured yet."""
        status = self.build.measurement
        return status is not None and status.state != MeasurementState.MEASURED


@routes.get(f"/models/<team>/<name>/versions/<int(max={MAX_VERSION}):number>")
def version(team: str, name: str, number: int) -> Response:
    """Show a version."""
    found = _read(team, name, number)
    view: VersionView = found["view"]
    urls = _file_urls(view)
    # The card is read by itself: who meets a damaged file records that.
    card = _card(view, urls)
    summary = found["model"].description.strip().partition("\n")[0] or (card.summary if card else "")
    return page("version.html", section="models", file_urls=urls, card=card, summary=summary, **found)


@reads_together
def _read(team: str, name: str, number: int) -> dict[str, Any]:
    services, whole = container(), f"{team}/{name}"
    view = services.publish.version(whole, number)
    rows = _rows(view)
    aliases = services.aliases.aliases(whole).aliases
    lineage = services.lineage.lineage(whole, number)
    model = services.catalog.model(whole)
    below = services.catalog.versions(whole, before=number, limit=_MAX_EARLIER).versions
    standing, overview = _standing(view, aliases, below)
    speeds = {row.target: row for row in overview.rows} if overview else {}
    qualities = overview.first.evaluations if overview else ()
    standing = replace(standing, damaged=tuple(row.build.target for row in rows if row.is_damaged))
    return {
        "view": view,
        "labels": show_labels({label.key: label.value for label in view.labels}),
        "ancestors": ancestor_tree(f"{whole}@{number}", lineage.ancestors),
        "descendants": descendant_tree(f"{whole}@{number}", lineage.descendants),
        "lineage": lineage,
        "team": team,
        "name": name,
        "reference": f"{whole}@{number}",
        "rows": rows,
        "unmeasured_rows": [row for row in rows if row.is_unmeasured],
        "pulls": _pulls(view, rows),
        "spec": write_document(services.publish.document(whole, number)),
        "aliases": [alias for alias in aliases if alias.number == number],
        "model": model,
        "standing": standing,
        "checks": check_rows(standing.preview.checks if standing.preview else ()),
        "relations": list(Relation),
        "answer": answer_version(standing),
        "speeds": speeds,
        "qualities": {(item.metric, item.data_digest): item for item in qualities},
        "targets": [row.build.target for row in rows],
        "platforms": name_platforms(row.build.target for row in rows if row.artifact),
        "policy": services.policies.policy(whole),
        "alias_form": AliasForm.of(aliases, alias=_alias_to_move(standing), number=str(number)),
        "changes": group_changes(
            services.comparisons.events(model=whole, number=number, limit=MAX_EVENTS).events, _MAX_CHANGES
        ),
        "earlier": _earlier(view, below),
        "neighbours": _neighbours(model, number, below),
        "done": DONE.get(request.args.get("done", "")),
    }


def _neighbours(
    model: ModelView, number: int, below: Sequence[VersionSummary]
) -> tuple[int | None, int | None]:
    """Return the numbers of the versions before and after a version; None where there is none."""
    if model.newest == number:
        return below[0].number if below else None, None
    return container().catalog.neighbours(model.name, number)


def _standing(
    view: VersionView, aliases: Sequence[AliasView], below: Sequence[VersionSummary]
) -> tuple[Standing, TargetOverview | None]:
    """Return what decides whether the version may be promoted, and its comparison with production.

    Args:
        below: Versions before it, newest first.
    """
    production = min(
        (alias for alias in aliases if alias.name.lower().startswith(PRODUCTION_PREFIXES)),
        key=lambda alias: (len(alias.name), alias.name),
        default=None,
    )
    standing = Standing(view, production)
    if production is None or standing.is_in_production or view.yanked:
        return standing, None
    reader = visitor()
    try:
        preview = container().aliases.preview(
            view.model, production.name, view.number, by=reader.principal if reader else None
        )
    except Pt2hubError:  # it has no artifact yet
        return standing, None
    overview = _compare_with(view, production.number, below)
    return Standing(view, production, preview, overview.answer if overview else None), overview


def _compare_with(
    view: VersionView, number: int | None, below: Sequence[VersionSummary]
) -> TargetOverview | None:
    """Compare with another version on the targets that both have artifacts for, None without any."""
    services = container()
    found = next((version for version in below if version.number == number), None)
    if found is None and number:
        near = services.catalog.versions(view.model, before=number + 1, limit=1).versions
        found = next((version for version in near if version.number == number), None)
    states = found.targets if found else {}
    there = {target for target, state in states.items() if state == BuildState.SUCCEEDED}
    both = [build.target for build in view.builds if build.artifact and build.target in there]
    if not both:
        return None
    before, after = f"{view.model}@{number}", f"{view.model}@{view.number}"
    try:
        return compare_targets(before, after, both[:_MAX_COMPARED], services.comparisons, MAIN_METRICS)
    except Pt2hubError:  # deleted meanwhile
        return None


def _alias_to_move(standing: Standing) -> str:
    return standing.production.name if standing.production and standing.can_be_promoted else ""


def _file_urls(view: VersionView) -> dict[str, str]:
    team, _, name = view.model.partition("/")
    place = partial(url_for, "files.file", team=team, name=name, number=view.number)
    return {item.name: place(file=item.name) for item in view.files}


def _card(view: VersionView, urls: dict[str, str]) -> Card | None:
    """Return the model card; the first one if there are several."""
    found = next((item for item in view.files if item.kind == FileKind.CARD), None)
    if found is None:
        return None
    damage = container().damage
    try:
        row, size = damage.open(StorageKey.blob(found.digest))
        data = b"".join(damage.read(row, size, 0, min(size, MAX_CARD_BYTES)))
    except (NotFound, BlobDamaged) as error:
        return Card(found, Markup(""), error.message)
    text = data.decode(errors="replace")
    return Card(found, render_card(text, tuple(urls.items())), summary=summarize_card(text))


def _earlier(view: VersionView, below: Sequence[VersionSummary]) -> int | None:
    """Return the newest earlier version that has an artifact for one of this version's built targets."""
    built = {build.target for build in view.builds if build.state == BuildState.SUCCEEDED}
    states = ((item.number, [item.targets.get(target) for target in built]) for item in below)
    return next((number for number, found in states if BuildState.SUCCEEDED in found), None)


def _rows(view: VersionView) -> tuple[Row, ...]:
    found = {item.target: item for item in container().artifact_summaries.artifacts(view.model, view.number)}
    damaged = container().damage.parts([item.digest for item in found.values()])
    rows = (_row(build, found.get(build.target)) for build in view.builds)
    return tuple(
        replace(row, damaged=damaged.get(row.artifact.digest, ())) if row.artifact else row for row in rows
    )


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


def _pulls(view: VersionView, rows: tuple[Row, ...]) -> dict[str, str]:
    """Return commands that load the version by label, the shortest first; none without an artifact."""
    first = next((row for row in rows if row.artifact), None)
    if first is None or first.artifact is None:
        return {}
    name = f"{view.model}@{view.number}"
    url = url_for("blobs.model", digest=first.artifact.digest, _external=True)
    return {
        "Python": f'import pt2hub\nmodel = pt2hub.load("{name}")',
        "CLI": f"pt2hub pull {name}",
        "As one file": f"pt2hub pull {name} -o model.pt2",
        "Lock": f"pt2hub lock {name}",
        f"curl, for {short_target(first.build.target)}": f"curl --fail --output model.pt2 {url}",
    }
