"""Compile modes: torch's names for sets of Inductor options, and calls as CUDA graphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

CompileMode = Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]
DEFAULT_MODE: CompileMode = "default"

_TUNED = {"coordinate_descent_tuning": True, "max_autotune": True}


@dataclass(frozen=True, slots=True)
class ModeSettings:
    """What a mode stands for.

    Attributes:
        options: Inductor options, as `torch._inductor.list_mode_options` has them, less `triton.cudagraphs`: it
            configures `torch.compile`, and AOTInductor ignores it.
        is_graphed: Whether loaded artifacts call CUDA graphs by default, which is what `triton.cudagraphs` stands for.
    """

    options: Mapping[str, bool] = field(default_factory=dict)
    is_graphed: bool = False


MODES: Mapping[str, ModeSettings] = {
    "default": ModeSettings(),
    "reduce-overhead": ModeSettings(is_graphed=True),
    "max-autotune": ModeSettings(_TUNED, is_graphed=True),
    "max-autotune-no-cudagraphs": ModeSettings(_TUNED),
}
"""Every `CompileMode`; torch's `lite` is missing, since nothing here falls back to eager."""


def compile_mode(spec: Mapping[str, Any], request: Mapping[str, Any]) -> str:
    """Return the compile mode of an artifact.

    Args:
        spec: The version's canonical spec.
        request: The `TargetSpec` as JSON.
    """
    return str(request.get("mode") or (spec.get("compile") or {}).get("mode") or DEFAULT_MODE)


def requested_options(spec: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Inductor options of an artifact: those of its mode, then its spec's, then its target's.

    Args:
        spec: The version's canonical spec.
        request: The `TargetSpec` as JSON.
    """
    mode = MODES.get(compile_mode(spec, request), ModeSettings())
    return {
        **mode.options,
        **((spec.get("compile") or {}).get("options") or {}),
        **(request.get("options") or {}),
    }


def is_graphed(spec: Mapping[str, Any], request: Mapping[str, Any]) -> bool:
    """Return whether the artifact's mode asks for CUDA graphs by default; on a CPU there are none."""
    mode = MODES.get(compile_mode(spec, request))
    return mode is not None and mode.is_graphed


def contradictions(mode: str, options: Mapping[str, Any]) -> dict[str, bool]:
    """Return the options that a mode sets otherwise, with the mode's values."""
    return {
        name: value
        for name, value in MODES[mode].options.items()
        if name in options and options[name] is not value
    }
