"""What the navigation names. A later feature adds a line here and its pages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Room:
    """A part of the site.

    Attributes:
        name: What pages in it say they belong to (`page(..., room=...)`).
        label: What people read.
        endpoint: Its first page.
        signed_in: Whether only who signed in is shown it.
    """

    name: str
    label: str
    endpoint: str
    signed_in: bool = False


ROOMS = (
    Room("models", "Models", "pages.front"),
    Room("builds", "Builds", "pages.builds"),
    Room("changes", "Changes", "pages.changes"),
    Room("compare", "Compare", "pages.compare"),
    Room("targets", "Targets", "pages.targets"),
    Room("publish", "Publish", "pages.publish", signed_in=True),
)
"""In the order shown. Tokens, audit, webhooks and toolchains will have rooms of their own."""
