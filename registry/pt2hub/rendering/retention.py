"""Retention policies in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pt2hub.wire.retention import RetentionView


def describe_kept(view: RetentionView) -> str:
    """Return what a policy keeps: `the last 10 versions are kept, and what an alias pins`."""
    if view.last is None:
        return "everything is kept"
    pulled = (
        f" and those pulled or published within {view.pulled_within_days} days"
        if view.pulled_within_days
        else ""
    )
    last = "version is" if view.last == 1 and not pulled else f"{view.last} versions{pulled} are"
    return f"the last {last} kept, and what an alias pins"


def describe_origin(view: RetentionView) -> str:
    """Return on what a policy is set: `policy of vision`; empty where it is the scope's own."""
    if view.set_on is None:
        return "no policy is set"
    return "" if view.set_on == view.scope else f"policy of {view.set_on}"
