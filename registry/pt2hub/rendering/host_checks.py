"""Checks of artifacts against machines as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.renderable import Sheet
from pt2hub.rendering.promotions import yank_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.wire.host_checks import HostCheck


def host_check(check: HostCheck) -> Sheet:
    """Return the artifacts of a version with their compatibility, and what to do."""
    rows = tuple((item.target, item.state, "; ".join(item.reasons)) for item in check.artifacts)
    return Sheet(f"{check.model}@{check.number}", rows, tuple(conclude(check)))


def conclude(check: HostCheck) -> Iterator[str]:
    """Yield which artifact the machine gets and what speaks against it, or how to build one."""
    if check.yanked:
        yield f"The version is {yank_text(check.yanked)}"
    if check.selected is None:
        yield "No artifact of the version runs on this machine."
        if check.build_command:
            yield f"To build it for this machine: {check.build_command}"
        return
    selected = next(item for item in check.artifacts if item.digest == check.selected)
    yield f"Selected: {selected.target}" + (" (degraded)" if selected.state == "degraded" else "")
    for name in check.passed_over:
        yield f"It stands in for {name}, which does not run on this machine."
