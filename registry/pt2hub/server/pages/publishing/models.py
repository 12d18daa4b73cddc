"""Page of a model: its version in production, aliases, versions and performance."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from pt2hub.domain.attached_files.kinds import FileKind
from pt2hub.domain.builds import BuildState
from pt2hub.domain.performance.measurements import MEASURED_BY
from pt2hub.errors import NotFound, UsageError
from pt2hub.rendering.alias_answers import answer_model, sort_aliases
from pt2hub.rendering.changes import format_change
from pt2hub.rendering.comparison_answers import Answer
from pt2hub.rendering.promotions import protection_rows
from pt2hub.rendering.targets import short_target
from pt2hub.server.api.context import container
from pt2hub.server.api.problems import status_of
from pt2hub.server.pages.blueprint import reads_together, routes
from pt2hub.server.pages.performance.change_groups import MAX_EVENTS, group_changes
from pt2hub.server.pages.promotion.alias_cards import compose_cards, describe_newer, pick_production
from pt2hub.server.pages.promotion.alias_forms import AliasForm
from pt2hub.server.pages.promotion.version_choices import compose_choices
from pt2hub.server.pages.publishing.labels import show_labels
from pt2hub.server.pages.publishing.quality import VERSIONS as EVALUATED_VERSIONS
from pt2hub.server.pages.publishing.quality import compose_trends
from pt2hub.server.pages.publishing.retention import describe_retention
from pt2hub.server.pages.publishing.speed_chart import draw_chart
from pt2hub.server.pages.publishing.version_list_query import STATES, VersionListQuery
from pt2hub.server.pages.publishing.version_rows import compose_heads, compose_rows, pick_targets
from pt2hub.server.pages.templates import page
from pt2hub.wire.responses import FoundVersions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from flask import Response

    from pt2hub.server.views.overview import Regression
    from pt2hub.server.views.version_speeds import VersionSpeeds
    from pt2hub.wire.responses import AliasView, ModelView, VersionSummary

VERSIONS = 20
"""Versions per page."""
_MAX_CHANGES = 6


@routes.get("/models/<team>/<name>")
@reads_together
def model(team: str, name: str) -> Response:
    """Show a model."""
    services, whole = container(), f"{team}/{name}"
    view, query = services.catalog.model(whole), VersionListQuery.read(whole)
    aliases = services.aliases.aliases(whole).aliases
    production = pick_production(aliases)
    found, error = FoundVersions(()), None
    try:
        found = _find_versions(query, view, production)
    except UsageError as caught:
        error = caught
    speeds = _speeds(view, found.versions, aliases, production)
    policy = services.policies.policy(whole)
    return page(
        "model.html",
        section="models",
        status=status_of(type(error)) if error else HTTPStatus.OK,
        error=error,
        model=view,
        answer=_answer(view, aliases, found.versions, speeds),
        labels=show_labels(view.labels),
        team=team,
        name=name,
        query=query,
        states=STATES,
        found=found,
        aliases=aliases,
        cards=compose_cards(aliases, speeds, services.aliases.rollbacks(whole) if aliases else {}),
        alias_form=AliasForm.of(aliases, number=str(view.newest_ready or "")),
        choices=compose_choices(found.versions, speeds, production.number if production else None)
        if query.is_plain
        else (),
        trends=services.performance.trends([whole]).get(whole, ()),
        changes=group_changes(
            services.comparisons.events(model=whole, limit=MAX_EVENTS).events, _MAX_CHANGES
        ),
        documents=_documents(view, production, found.versions),
        **_quality(whole, production, policy.document),
        policy=policy,
        protected=protection_rows(policy.document),
        retention=describe_retention(whole),
        pulls=_pulls(view, production, found.versions),
        **_list_values(found.versions, speeds, aliases, production),
    )


def _find_versions(query: VersionListQuery, view: ModelView, production: AliasView | None) -> FoundVersions:
    catalog = container().catalog
    if query.sort == "speed":
        main = container().performance.main_speeds(view.name, _anchor(view, production), ())
        if main is None:
            return FoundVersions(())
        return catalog.fastest(query.conditions(), main.series, after=query.after, limit=VERSIONS)
    if query.filters:
        return catalog.search(query.conditions(), after=query.after, limit=VERSIONS)
    found = catalog.versions(view.name, before=query.upto and query.upto + 1, limit=VERSIONS)
    return FoundVersions(found.versions, next=found.next)


def _quality(model: str, production: AliasView | None, policy: Mapping[str, Any]) -> dict[str, Any]:
    """Return how the model's evaluations moved over its versions."""
    number = production.number if production else None
    evaluations = container().evaluations.newest(model, EVALUATED_VERSIONS, also=number)
    trends, more = compose_trends(evaluations, number, policy.get("metrics", {}))
    return {"quality": trends, "more_quality": more}


def _anchor(view: ModelView, production: AliasView | None) -> int | None:
    """Return the version of which the main target is the model's."""
    return production.number if production else view.newest_ready


def _speeds(
    view: ModelView,
    versions: Sequence[VersionSummary],
    aliases: Sequence[AliasView],
    production: AliasView | None,
) -> VersionSpeeds | None:
    """Return the speeds of all versions that the page names."""
    named = {number for alias in aliases for number in (alias.number, alias.last.before) if number}
    named |= {version.number for version in versions} | {view.newest_ready or 0}
    return container().performance.main_speeds(view.name, _anchor(view, production), sorted(named))


def _answer(
    view: ModelView,
    aliases: Sequence[AliasView],
    versions: Sequence[VersionSummary],
    speeds: VersionSpeeds | None,
) -> Answer:
    main = next(iter(sort_aliases(aliases)), None)
    state = next((item.readiness for item in versions if item.number == view.newest), None)
    newest, number = view.newest_ready, main.number if main else None
    is_slower = bool(speeds and newest and number and speeds.outcome(newest, number) == "worse")
    answer = answer_model(view, main, state, describe_newer(speeds, newest, number), is_slower=is_slower)
    regression = container().overview.regression(view.name)
    if regression is None or main is None or regression.production != number:
        return answer
    return Answer("bad", f"{answer.text} {_describe(regression)}")


def _describe(regression: Regression) -> str:
    """Return what got worse in production: `Production is 21.8 % slower at batch 1 since version 3 on H100.`."""
    change = format_change(regression.ratio, regression.metric, regression.unit)
    batch = f" at batch {regression.batch}" if regression.batch else ""
    metric = "" if regression.metric == MEASURED_BY else f"has {regression.metric} "
    what = f"{metric or 'is '}{change}{batch}"
    return f"Production {what} since version {regression.number} on {short_target(regression.target)}."


def _list_values(
    versions: Sequence[VersionSummary],
    speeds: VersionSpeeds | None,
    aliases: Sequence[AliasView],
    production: AliasView | None,
) -> dict[str, Any]:
    targets = pick_targets(versions)
    heads = compose_heads(targets)
    return {
        "speeds": speeds,
        "heads": heads,
        "more_targets": len(targets) - len(heads),
        "rows": compose_rows(versions, targets, speeds, production.number if production else None),
        "production": production,
        "is_open": any(not BuildState(state).final for item in versions for state in item.targets.values()),
        "chart": draw_chart(speeds, [(alias.name, alias.number) for alias in aliases if alias.number]),
    }


@dataclass(frozen=True, slots=True)
class Documents:
    """The licence and the model card of a version, by which a model is judged.

    Attributes:
        license: The label `license`, an SPDX expression; empty without it.
        license_file: Whether the version has a file with a licence.
        card: Whether the version has a model card.
    """

    number: int
    license: str
    license_file: bool
    card: bool


def _documents(
    model: ModelView, production: AliasView | None, versions: Sequence[VersionSummary]
) -> Documents | None:
    """Return the documents of the version in production, else of the newest; None where there are none."""
    number = production.number if production else model.newest
    if not number:
        return None
    found = next((item for item in versions if item.number == number), None)
    if found is None:
        near = container().catalog.versions(model.name, before=number + 1, limit=1).versions
        found = next((item for item in near if item.number == number), None)
    try:
        kinds = {item.kind for item in container().version_files.files(model.name, number).files}
    except NotFound:  # deleted meanwhile
        return None
    license_ = (found.labels if found else {}).get("license") or model.labels.get("license", "")
    shown = Documents(number, license_, FileKind.LICENSE in kinds, FileKind.CARD in kinds)
    return shown if shown.license or shown.license_file or shown.card else None


@dataclass(frozen=True, slots=True)
class Pull:
    """A command that pulls the model."""

    label: str
    command: str
    note: str


def _pulls(model: ModelView, production: AliasView | None, versions: Sequence[VersionSummary]) -> list[Pull]:
    """Return commands for the version in production, if an alias names it, and for the newest ready version."""
    found = []
    if production:
        note = f"{production.name} is on version {production.number}."
        found.append(Pull(production.name, f"pt2hub pull {model.name}@{production.name}", note))
    if model.newest_ready:
        is_yanked = any(item.yanked for item in versions if item.number == model.newest)
        hidden = "yanked" if is_yanked else "not ready"
        later = (
            "" if model.newest == model.newest_ready else f" Version {model.newest} is newer but {hidden}."
        )
        note = f"Version {model.newest_ready} is the newest ready version; a name without @ resolves to it.{later}"
        found.append(Pull("newest ready", f"pt2hub pull {model.name}", note))
    return found
