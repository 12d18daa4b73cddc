"""Formatting of build steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.rendering.quantities import format_duration

if TYPE_CHECKING:
    from pt2hub.wire.responses import StepView

_WAITED = "waited "


def remark(step: StepView) -> str:
    """Return a step's latest detail and its wait for the device; empty if there is neither."""
    detail = step.detail or ""
    if step.waited is None or detail.startswith(
        _WAITED
    ):  # which is what its worker says as long as nothing follows
        return detail
    return f"{_WAITED}{format_duration(step.waited)} for the device" + (f"; {detail}" if detail else "")
