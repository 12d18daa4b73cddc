"""Items of the navigation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NavigationItem:
    """An item of the navigation.

    Attributes:
        name: The section that its pages name: `page(..., section=...)`.
        signed_in: Whether it is shown to signed-in readers only.
        admin: Whether it is shown to admins only.
    """

    name: str
    label: str
    endpoint: str
    signed_in: bool = False
    admin: bool = False


NAVIGATION = (
    NavigationItem("models", "Models", "pages.front"),
    NavigationItem("builds", "Builds", "pages.builds"),
    NavigationItem("changes", "Changes", "pages.changes"),
    NavigationItem("compare", "Compare", "pages.compare"),
    NavigationItem("targets", "Targets", "pages.targets"),
    NavigationItem("usage", "Usage", "pages.usage"),
    NavigationItem("publish", "Publish", "pages.publish", signed_in=True),
    NavigationItem("audit", "Audit log", "pages.audit", signed_in=True, admin=True),
)
"""Items in the order shown."""
