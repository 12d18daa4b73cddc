"""Rendering of an artifact's regions: `12 calls of encoder.layer.0 ... encoder.layer.11, compiled once`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.names import name_modules
from pt2hub.errors import INVISIBLE_CHARACTERS
from pt2hub.rendering.quantities import format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.wire.artifacts import RegionView

MAX_REGIONS = 12
"""Regions that are listed; the others are counted."""
_SHORT_DIGEST_CHARS = len("sha256:") + 12


def region_lines(regions: Sequence[RegionView]) -> tuple[str, ...]:
    """Return a line for each region, and one for the parts between them; empty for a model compiled as a whole."""
    called = [item for item in regions if item.modules]
    between = [item for item in regions if not item.modules]
    more = (f"{len(called) - MAX_REGIONS} more",) if len(called) > MAX_REGIONS else ()
    lines = (*map(_describe_region, called[:MAX_REGIONS]), *more)
    return (*lines, _describe_between(between)) if between else lines


def describe_calls(calls: int, modules: Sequence[str]) -> str:
    """Return the calls of a part as text: `12 calls of encoder.layer.0 ... encoder.layer.11`."""
    name = " ".join(name_modules(modules).translate(INVISIBLE_CHARACTERS).split()) if modules else ""
    return f"{format_count(calls, 'call')} of {name or 'a part between regions'}"


def _describe_region(item: RegionView) -> str:
    calls = describe_calls(item.calls, item.modules)
    if item.code_reused_from:
        return f"{calls}, reused from {item.code_reused_from[:_SHORT_DIGEST_CHARS]}"
    return f"{calls}, compiled once" if item.calls > 1 else f"{calls}, compiled"


def _describe_between(parts: Sequence[RegionView]) -> str:
    reused = sum(item.code_reused_from is not None for item in parts)
    around = f"{format_count(len(parts), 'part')} around them"
    if reused in (0, len(parts)):
        return f"{around}, {'reused' if reused else 'compiled'}"
    return f"{around}: {len(parts) - reused} compiled, {reused} reused"
