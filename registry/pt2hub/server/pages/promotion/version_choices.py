"""Versions to choose from in forms that move an alias."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.domain.builds import Readiness
from pt2hub.rendering.changes import SAME
from pt2hub.server.pages.promotion.speed_texts import describe_speed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pt2hub.server.views.version_speeds import VersionSpeeds
    from pt2hub.wire.responses import VersionSummary

MAX_CHOICES = 12
"""Versions to choose from; the number of any other one can be typed."""
_READY = frozenset((Readiness.READY, Readiness.PARTIAL))


@dataclass(frozen=True, slots=True)
class VersionChoice:
    """A version to choose.

    Attributes:
        label: Its number, its aliases and its speed: `17 · prod · 5.1 ms`.
    """

    number: int
    label: str


def compose_choices(
    versions: Iterable[VersionSummary], speeds: VersionSpeeds | None, production: int | None
) -> list[VersionChoice]:
    """Return the newest versions that an alias can move to, in the order given."""
    usable = [item for item in versions if item.readiness in _READY and not item.yanked][:MAX_CHOICES]
    return [VersionChoice(item.number, _label(item, speeds, production)) for item in usable]


def _label(version: VersionSummary, speeds: VersionSpeeds | None, production: int | None) -> str:
    speed = describe_speed(speeds, version.number, production)
    beside = "from" if speed.change == SAME else "than"
    change = f"{speed.change} {beside} {production}" if speed.change else ""
    partly = "partly ready" if version.readiness == Readiness.PARTIAL else ""
    return " · ".join(
        filter(None, (str(version.number), ", ".join(version.aliases), partly, speed.value, change))
    )
