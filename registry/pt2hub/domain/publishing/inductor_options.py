"""Inductor options that specs may set, with their types and allowed values."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    Options = Mapping[str, Any]

MULTI_ARCH = "aot_inductor.emit_multi_arch_kernel"
CHANNELS_LAST = "force_layout_optimization"
"""Option that computes all convolutions in channels_last; their weights are then stored in that layout too."""
GRAPHS = frozenset({"triton.cudagraphs", "triton.cudagraph_trees", "cudagraphs"})
"""torch.compile's options for CUDA graphs: modes stand for them."""


@dataclass(frozen=True, slots=True)
class OptionType:
    """The values that an option takes.

    Attributes:
        text: The values, for errors and the reference.
    """

    text: str
    accepts: Callable[[Any], bool]


def _switch() -> OptionType:
    return OptionType("true or false", lambda value: isinstance(value, bool))


def _number(least: int, most: int) -> OptionType:
    return OptionType(
        f"a whole number from {least} to {most}",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value <= most,
    )


def _one_of(*names: str) -> OptionType:
    return OptionType(" or ".join(names), lambda value: value in names)


def _some_of(*names: str) -> OptionType:
    """Return the type of a list in one text: Inductor reads it without regard to case, and ignores unknown names."""

    def accepts(value: Any) -> bool:
        given = [item.strip().upper() for item in value.split(",")] if isinstance(value, str) else []
        return bool(given) and len(given) == len(set(given)) and set(given) <= set(names)

    return OptionType(f"one or more of {', '.join(names)}, separated by commas", accepts)


OPTION_TYPES: Mapping[str, OptionType] = {
    MULTI_ARCH: _switch(),
    "benchmark_epilogue_fusion": _switch(),
    "benchmark_fusion": _switch(),
    "conv_1x1_as_mm": _switch(),
    "coordinate_descent_check_all_directions": _switch(),
    "coordinate_descent_search_radius": _number(1, 8),
    "coordinate_descent_tuning": _switch(),
    "epilogue_fusion": _switch(),
    CHANNELS_LAST: _switch(),
    "layout_optimization": _switch(),
    "max_autotune": _switch(),
    "max_autotune_conv_backends": _some_of("ATEN", "TRITON"),
    "max_autotune_gemm": _switch(),
    "max_autotune_gemm_backends": _some_of("ATEN", "CPP", "CUTLASS", "TRITON"),
    "max_autotune_gemm_search_space": _one_of("DEFAULT", "EXHAUSTIVE"),
    "max_autotune_pointwise": _switch(),
    "prologue_fusion": _switch(),
    "shape_padding": _switch(),
    "split_reductions": _switch(),
}
"""Options that a spec may set. Others are fixed by the recipe or would name programs to run."""

TUNING_OPTIONS = ("coordinate_descent_tuning", "max_autotune", "max_autotune_gemm", "max_autotune_pointwise")
"""Options that make Inductor choose by timing."""
TUNED_TEMPLATES = ("max_autotune", "max_autotune_gemm")
"""Those of `TUNING_OPTIONS` that choose between templates; the others tune Triton kernels."""


def is_autotuned(options: Mapping[str, Any]) -> bool:
    """Return whether options turn autotuning on."""
    return any(options.get(name) for name in TUNING_OPTIONS)


def describe_options() -> str:
    """Return the options by the values that they take."""
    by_values: dict[str, list[str]] = {}
    for name, kind in OPTION_TYPES.items():
        by_values.setdefault(kind.text, []).append(f"`{name}`")
    return "; ".join(f"{', '.join(names)}: {text}" for text, names in by_values.items())


def suggest_option(name: str) -> str:
    """Return advice for an option that cannot be set; empty if none is similar."""
    if name in GRAPHS:
        return "CUDA graphs belong to the mode: compile.mode is reduce-overhead or max-autotune"
    tails = {option.rpartition(".")[2]: option for option in OPTION_TYPES}
    similar = difflib.get_close_matches(name.rpartition(".")[2], tails, n=1, cutoff=0.7)
    return f"did you mean {tails[similar[0]]}?" if similar else ""
