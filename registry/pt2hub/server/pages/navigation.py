"""Items of the navigation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NavigationItem:
    """An item of the navigation.

    Attributes:
        name: The section that its pages name: `page(..., section=...)`.
        in_menu: Whether it is in the menu at the right; all others stand in the bar where that is wide enough.
        signed_in: Whether it is shown to signed-in readers only.
        admin: Whether it is shown to admins only.
    """

    name: str
    label: str
    endpoint: str
    in_menu: bool = False
    signed_in: bool = False
    admin: bool = False


NAVIGATION = (
    NavigationItem("models", "Models", "pages.front"),
    NavigationItem("versions", "Versions", "pages.versions"),
    NavigationItem("builds", "Builds", "pages.builds"),
    NavigationItem("changes", "Changes", "pages.changes"),
    NavigationItem("compare", "Compare", "pages.compare"),
    NavigationItem("targets", "Targets", "pages.targets"),
    NavigationItem("publish", "Publish", "pages.publish", in_menu=True, signed_in=True),
    NavigationItem("tokens", "Tokens", "pages.tokens", in_menu=True, signed_in=True),
    NavigationItem("teams", "Teams", "pages.teams", in_menu=True, signed_in=True),
    NavigationItem("usage", "Usage", "pages.usage", in_menu=True),
    NavigationItem("audit", "Audit log", "pages.audit", in_menu=True, signed_in=True, admin=True),
)
"""Items in the order shown."""
