"""Notes for authors of specs: compile modes, options and debug logs that change nothing on a target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pt2hub.domain.builds import BuildState
from pt2hub.domain.publishing.compile_modes import compile_mode, is_graphed, requested_options
from pt2hub.domain.publishing.compile_options import weights_form
from pt2hub.domain.publishing.inductor_options import MULTI_ARCH, TUNED_TEMPLATES, is_autotuned
from pt2hub.domain.targets import parse_target

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pt2hub.domain.publishing.spec import Spec
    from pt2hub.domain.targets import Target

_SPLIT = (
    "autotuning has nothing to choose: with weights: split a CPU has one kernel for each operation. weights: baked has "
    "several for matrix products."
)
_TRITON = (
    "autotuning has nothing to choose: only max_autotune and max_autotune_gemm have candidates on a CPU."
)

_DONE = (
    "compile.debug records nothing, because the build has succeeded: torch's logs are recorded while code is compiled. "
    "A version whose code is compiled anew has them, such as one with other compile.options."
)


def explain_options(spec: Spec, requests: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return what modes and options of a spec do not change, each note with its targets.

    Args:
        requests: The `TargetSpec` of each target as JSON, `auto` resolved.
    """
    document = spec.canonical()
    found: dict[str, list[str]] = {}
    for request in requests:
        target = parse_target(request["target"])
        for note in _notes(document, request, target):
            found.setdefault(note, []).append(target.name)
    return tuple(f"{', '.join(targets)}: {note}" for note, targets in found.items())


def explain_debug_logs(spec: Spec, states: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return for which targets the requested debug logs are not recorded, since their builds have succeeded.

    Args:
        states: Target and state of each build that the version has.
    """
    done = [target for target, state in states if state == BuildState.SUCCEEDED]
    if not spec.compile.debug or not done:
        return ()
    return (f"{', '.join(done)}: {_DONE}",)


def _notes(spec: Mapping[str, Any], request: Mapping[str, Any], target: Target) -> Iterator[str]:
    options = requested_options(spec, request)
    if target.device == "cpu" and is_autotuned(options):
        if weights_form(spec, request) == "split":
            yield _SPLIT
        elif not any(options.get(name) for name in TUNED_TEMPLATES):
            yield _TRITON
    if target.device == "cpu" and is_graphed(spec, request):
        yield f"mode {compile_mode(spec, request)} makes no CUDA graphs, which only GPUs have."
    if options.get(MULTI_ARCH) and not target.is_portable:
        reason = (
            "there are no GPU kernels"
            if target.device == "cpu"
            else f"PyTorch's code for {target.arch} runs on it alone"
        )
        yield f"{MULTI_ARCH} changes nothing: {reason}."
