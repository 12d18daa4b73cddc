"""Page of a model: versions, aliases and performance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.rendering.promotions import protection_rows
from pt2hub.server.api.context import container
from pt2hub.server.pages.blueprint import routes
from pt2hub.server.pages.numbers import MAX_VERSION, query_number
from pt2hub.server.pages.performance.change_groups import MAX_EVENTS, group_changes
from pt2hub.server.pages.promotion.alias_forms import AliasForm
from pt2hub.server.pages.promotion.aliases import in_production
from pt2hub.server.pages.publishing.labels import show_labels
from pt2hub.server.pages.templates import page

if TYPE_CHECKING:
    from flask import Response

    from pt2hub.wire.responses import ModelView, VersionPage

VERSIONS = 20
"""Versions per page."""
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
    targets, aliases = _targets(versions), services.aliases.aliases(whole).aliases
    return page(
        "model.html",
        section="models",
        model=view,
        labels=show_labels(view.labels),
        team=team,
        name=name,
        versions=versions,
        upto=upto,
        targets=targets,
        aliases=aliases,
        alias_form=AliasForm.of(aliases, number=str(view.newest_ready or "")),
        trends=services.performance.trends([whole]).get(whole, ()),
        changes=group_changes(
            services.comparisons.events(model=whole, limit=MAX_EVENTS).events, _MAX_CHANGES
        ),
        policy=policy,
        protected=protection_rows(policy.document),
        pulls=_pulls(view, versions),
    )


@dataclass(frozen=True, slots=True)
class Pull:
    """A command that pulls the model."""

    label: str
    command: str
    note: str


def _pulls(model: ModelView, versions: VersionPage) -> list[Pull]:
    """Return commands for the version in production, if an alias names it, and for the newest ready version."""
    found = []
    aliases = sorted(
        (name for name in model.aliases if in_production(name)), key=lambda name: (len(name), name)
    )
    for name in aliases[:1]:
        note = f"{name} is on version {model.aliases[name]}."
        found.append(Pull(name, f"pt2hub pull {model.name}@{name}", note))
    if model.newest_ready:
        is_yanked = any(item.yanked for item in versions.versions if item.number == model.newest)
        hidden = "yanked" if is_yanked else "not ready"
        later = (
            "" if model.newest == model.newest_ready else f" Version {model.newest} is newer but {hidden}."
        )
        note = f"Version {model.newest_ready} is the newest ready version; a name without @ resolves to it.{later}"
        found.append(Pull("newest ready", f"pt2hub pull {model.name}", note))
    return found


def _targets(page: VersionPage) -> list[str]:
    """Return the columns of the table: all targets of the versions shown, those of the newest version first."""
    return list(dict.fromkeys(target for version in page.versions for target in version.targets))
