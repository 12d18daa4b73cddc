"""Regions that a spec asks for: blocks of a model that are compiled once and called several times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pt2hub.domain.publishing.compile_modes import compile_mode
from pt2hub.domain.publishing.compile_options import DEFAULT_REGIONS, weights_form

if TYPE_CHECKING:
    from collections.abc import Mapping

_WHOLE_MODES = frozenset({"max-autotune", "max-autotune-no-cudagraphs"})
"""Modes that optimise across blocks by default: who asks for them prefers the fastest code to the fastest build."""


def requested_regions(
    spec: Mapping[str, Any], request: Mapping[str, Any]
) -> Literal["auto", "none"] | tuple[str, ...]:
    """Return the module paths or class names that become regions of an artifact, or how they are chosen.

    Args:
        spec: The version's canonical spec.
        request: The `TargetSpec` as JSON.

    Returns:
        `none` also where `auto` never chooses any: with baked weights, since weights are bound per call, and in a
        `max-autotune` mode.
    """
    wanted = (spec.get("compile") or {}).get("regions", DEFAULT_REGIONS)
    if wanted == "none" or weights_form(spec, request) == "baked":
        return "none"
    if isinstance(wanted, list):
        return tuple(map(str, wanted))
    return "none" if compile_mode(spec, request) in _WHOLE_MODES else "auto"
