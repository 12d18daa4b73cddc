"""Page of a model: versions, aliases and performance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.rendering.alias_answers import answer_model, is_production, sort_aliases
from pt2hub.rendering.promotions import protection_rows
from pt2hub.server.api.context import container
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.numbers import MAX_VERSION, query_number
from pt2hub.server.pages.performance.change_groups import MAX_EVENTS, group_changes
from pt2hub.server.pages.promotion.alias_cards import show_cards
from pt2hub.server.pages.promotion.alias_forms import AliasForm, list_choices
from pt2hub.server.pages.publishing.labels import show_labels
from pt2hub.server.pages.publishing.model_rows import (
    MAX_TARGETS,
    Base,
    count_hidden,
    list_rows,
    list_targets,
    read_speeds,
)
from pt2hub.server.pages.templates import page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flask import Response

    from pt2hub.server.views.overview import Trend
    from pt2hub.wire.performance import SeriesSummary
    from pt2hub.wire.responses import ModelView, VersionPage

VERSIONS = 20
"""Versions per page."""
_MAX_TRENDS = 4
_MAX_CHANGES = 6


@routes.get("/models/<team>/<name>")
def model(team: str, name: str) -> Response:
    """Show a model."""
    services, whole = container(), f"{team}/{name}"
    view = services.catalog.model(whole)
    hint = "Versions are numbered from 1."
    upto = query_number("upto", 1, MAX_VERSION, what="version number", hint=hint)
    versions = services.catalog.versions(whole, before=upto and upto + 1, limit=VERSIONS)
    policy = services.policies.policy(whole)
    aliases = sort_aliases(services.aliases.aliases(whole).aliases)
    trends = services.performance.trends([whole]).get(whole, ())
    main = aliases[0] if aliases else None
    base = Base(main.name, main.number) if main and main.number else None
    series = _main_series(whole, base.number if base else view.newest_ready, trends)
    targets = list_targets(versions.versions, series.target if series else None)
    speeds = read_speeds(services.performance, whole, series, versions.versions, base)
    return page(
        "model.html",
        section="models",
        model=view,
        answer=answer_model(view, main, _newest_state(view, versions), speeds.compare(view.newest_ready)),
        labels=show_labels(view.labels),
        team=team,
        name=name,
        versions=versions,
        rows=list_rows(versions.versions, targets, speeds),
        upto=upto,
        targets=targets[:MAX_TARGETS],
        hidden=count_hidden(targets),
        series=series,
        base=base,
        cards=show_cards(aliases),
        choices=list_choices(versions.versions),
        alias_form=AliasForm.of(aliases, number=str(view.newest_ready or "")),
        trends=trends[:_MAX_TRENDS],
        more_trends=max(0, len(trends) - _MAX_TRENDS),
        changes=group_changes(
            services.comparisons.events(model=whole, limit=MAX_EVENTS).events, _MAX_CHANGES
        ),
        policy=policy,
        protected=protection_rows(policy.document),
        pull=_pull(view, versions),
    )


@dataclass(frozen=True, slots=True)
class Pull:
    """The command that pulls the model.

    Attributes:
        note: What it resolves to, and what a name without an alias does.
    """

    command: str
    note: str


def _main_series(model: str, number: int | None, trends: Sequence[Trend]) -> SeriesSummary | None:
    """Return the series on the main target: of the version in use if it was measured, else the newest one."""
    found = container().performance.speeds({model: number}).get(model) if number else None
    trend = found or next(iter(trends), None)
    return trend.series if trend else None


def _newest_state(model: ModelView, versions: VersionPage) -> str | None:
    """Return the readiness of the newest version; None if it is not among those shown."""
    return next((item.readiness for item in versions.versions if item.number == model.newest), None)


def _pull(model: ModelView, versions: VersionPage) -> Pull | None:
    """Return the command for the version in production if an alias names it, else for the newest ready version."""
    names = sorted(
        (name for name in model.aliases if is_production(name)), key=lambda name: (len(name), name)
    )
    if not names and not model.newest_ready:
        return None
    notes = []
    if model.newest_ready:
        is_yanked = any(item.yanked for item in versions.versions if item.number == model.newest)
        hidden = "yanked" if is_yanked else "not ready"
        notes.append(
            f"Version {model.newest_ready} is the newest ready version; a name without @ resolves to it."
        )
        if model.newest != model.newest_ready:
            notes.append(f"Version {model.newest} is newer but {hidden}.")
    reference = f"{model.name}@{names[0]}" if names else model.name
    return Pull(f"pt2hub pull {reference}", " ".join(notes))
