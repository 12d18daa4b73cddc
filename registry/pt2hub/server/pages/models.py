"""A model: its versions, aliases, and how fast it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.server.api.context import container
from pt2hub.server.pages import machines
from pt2hub.server.pages.aliases import in_production
from pt2hub.server.pages.happenings import LOOKED_AT, happenings
from pt2hub.server.pages.moves import Moving
from pt2hub.server.pages.numbers import MOST_VERSION, in_address
from pt2hub.server.pages.rendering import page
from pt2hub.server.pages.routes import routes

if TYPE_CHECKING:
    from flask import Response

    from pt2hub.wire.shapes import ModelView, VersionPage

VERSIONS = 20
"""Versions on a page."""
_CHANGES = 6


@routes.get("/models/<team>/<name>")
def model(team: str, name: str) -> Response:
    """A model."""
    services, whole = container(), f"{team}/{name}"
    view = services.catalog.model(whole)
    hint = "Versions are numbered from 1."
    upto = in_address("upto", 1, MOST_VERSION, what="number of a version", hint=hint)
    versions = services.catalog.versions(whole, before=upto and upto + 1, limit=VERSIONS)
    targets, aliases = _targets(versions), services.aliases.aliases(whole).aliases
    return page(
        "model.html",
        room="models",
        model=view,
        team=team,
        name=name,
        versions=versions,
        upto=upto,
        targets=targets,
        fits={target: machines.fit(target) for target in targets},
        machine=machines.reader(),
        aliases=aliases,
        moving=Moving.of(aliases, number=str(view.newest_ready or "")),
        trends=services.performance.trends([whole]).get(whole, ()),
        changes=happenings(services.comparing.events(model=whole, limit=LOOKED_AT).events, _CHANGES),
        policy=services.policies.policy(whole),
        pulls=_pulls(view),
    )


@dataclass(frozen=True, slots=True)
class Pull:
    """A command that brings the model to somebody.

    Attributes:
        label: What it is, in short.
        command: The command.
        why: Which version it brings and why that one.
    """

    label: str
    command: str
    why: str


def _pulls(model: ModelView) -> list[Pull]:
    """What is in production, if an alias says it, and the newest that is ready."""
    found = []
    aliases = sorted(
        (name for name in model.aliases if in_production(name)), key=lambda name: (len(name), name)
    )
    for name in aliases[:1]:
        why = f"Version {model.aliases[name]}, which {name} is on."
        found.append(Pull(name, f"pt2hub pull {model.name}@{name}", why))
    if model.newest_ready:
        later = (
            "" if model.newest == model.newest_ready else f" Version {model.newest} is newer, and not ready."
        )
        why = f"Version {model.newest_ready}, the newest that is ready: a name without @ means that.{later}"
        found.append(Pull("newest ready", f"pt2hub pull {model.name}", why))
    return found


def _targets(page: VersionPage) -> list[str]:
    """The columns of the table: every target that a version on the page has, those of the newest version first."""
    return list(dict.fromkeys(target for version in page.versions for target in version.targets))
