"""Checks that a model's outputs do not depend on earlier calls: first calls, later calls and a fresh copy must agree.

An artifact has no first call: values that a model counts or keeps in Python are fixed at the export, or lost.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pt2hub.client.publishing.live_models.module_copies import copy_module
from pt2hub.errors import HiddenState, ModelNotCopyable, NondeterministicModel
from pt2hub_workers.inside.builds import differences
from pt2hub_workers.inside.builds.export import adapter, attribute_state, eager
from pt2hub_workers.inside.builds.export.eager import Outputs
from pt2hub_workers.inside.builds.export.fork import Fork

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pt2hub_workers.inside.builds.export.inputs import Tensors

ROUNDING_FACTOR = 32.0
"""Two processes with different thread counts may differ by this many times the rounding of one operation
(`differences.rounding_limit`, 2 units in the last place). If they differ by more, the model runs again on one thread and
must agree."""
_MIN_WAIT_S = 60.0
"""Seconds that the fresh copy gets, in addition to `_SLOWDOWN` times the duration of the calls here."""
_SLOWDOWN = 50.0
_SAME_PROCESS = (
    "the model's first call on other inputs was made by a copy in the same process: state in globals and closures is not "
    "compared"
)
_NO_COPY = (
    "the model's first call on other inputs was not tried, because the model cannot be copied and its process could not be "
    "forked: state that only the very first call sets is not ruled out"
)
_MAX_SHOWN = 5
"""Maximum number of attributes that a message lists."""


@dataclass(frozen=True, slots=True)
class ObservedCalls:
    """Outputs of a model's first calls, with notes."""

    example: Outputs
    other: Outputs
    kept: frozenset[str]
    notes: tuple[str, ...]


def observe_calls(
    module: torch.nn.Module, example: Tensors, other: Tensors, *, scratch: Path, within: float = 0.0
) -> ObservedCalls:
    """Make a model's first calls and compare them.

    The model keeps the state after the calls: tables that do not depend on inputs become constants of the program.

    Args:
        module: Adapted, and never called.
        within: Accepted difference relative to the outputs' signal, for specs that accept random operators.

    Raises:
        HiddenState: The outputs depend on earlier calls through state outside the buffers.
        NondeterministicModel: Two calls on the same inputs differ.
        InputMutated: The model writes to an input.
    """
    attributes = attribute_state.AttributeState(module)
    fresh = _FreshModel(module, example, other, scratch)
    try:
        began = time.monotonic()
        calls = adapter.copy_shared_outputs(module, example)
        changed = attributes.find_changed()
        eager.check_finite(calls.first, example)
        third = eager.run_flat(module, other)
        allowed = [
            within * differences.rms_difference(*pair) for pair in zip(calls.first, third, strict=False)
        ]
        _check_repeated(module, example, calls, allowed, changed)
        found = fresh.observe(_MIN_WAIT_S + _SLOWDOWN * (time.monotonic() - began))
        comparison = _Comparison(module, allowed, changed)
        if found is not None:
            comparison.check(example, calls.first, found["example"])
            comparison.check(other, third, found["other"])
    finally:
        fresh.close()
    kept = attribute_state.find_kept_from_inputs(
        {name: tensor.cpu() for name, tensor in attribute_state.find_tensors(changed).items()},
        {}
        if found is None
        else found["kept"],  # without a comparison, all of it counts as computed from the inputs
    )
    return ObservedCalls(calls.first, third, kept, (*calls.notes, *_describe_changed(changed), *fresh.notes))


def check_repeatable(
    module: torch.nn.Module, example: Tensors, first: Outputs, *, within: float = 0.0
) -> None:
    """Refuse a model whose outputs on the example have changed since its first call."""
    now = eager.run_flat(module, example)
    if (index := _differs(first, now, [within] * len(first))) is not None:
        raise _hidden_state_error(index, first, now, "after further calls", {})


class _FreshModel:
    """The model before any call, to be called on other inputs first."""

    def __init__(self, module: torch.nn.Module, example: Tensors, other: Tensors, scratch: Path) -> None:
        self.notes: tuple[str, ...] = ()
        self._example = example
        self._other = other
        self._copy = _copy_module(module)
        on_cpu = all(item.device.type == "cpu" for item in (*module.parameters(), *example.values()))
        # CUDA cannot be used in a forked process; a copy has its own attributes and buffers, but the same globals.
        self._fork = (
            Fork(lambda: _call_fresh(module, example, other), scratch / "fresh-calls.pt") if on_cpu else None
        )

    def observe(self, seconds: float) -> dict[str, Any] | None:
        """Return the outputs of a first call on the other inputs and a second on the example, and the state that the first kept.

        None if the model can be neither forked nor copied.
        """
        found = self._fork.result(seconds) if self._fork else None
        if found is None and self._copy is None:
            self.notes = (_NO_COPY,)
        elif found is None and self._copy is not None:
            self.notes = (_SAME_PROCESS,)
            found = _call_fresh(self._copy, self._example, self._other)
        return found

    def close(self) -> None:
        if self._fork:
            self._fork.close()


def _copy_module(module: torch.nn.Module) -> torch.nn.Module | None:
    """Copy a model except for its parameters, which no call changes; return None if it cannot be copied."""
    try:
        return copy_module(module, share_parameters=True)
    except ModelNotCopyable:
        return None


def _call_fresh(module: torch.nn.Module, example: Tensors, other: Tensors) -> dict[str, Any]:
    attributes = attribute_state.AttributeState(module)
    first = eager.run_flat(module, {name: tensor.clone() for name, tensor in other.items()})
    kept = {
        name: tensor.detach().cpu().clone()
        for name, tensor in attribute_state.find_tensors(attributes.find_changed()).items()
    }
    second = eager.run_flat(module, {name: tensor.clone() for name, tensor in example.items()})
    return {"other": first, "example": second, "kept": kept}


def _check_repeated(
    module: torch.nn.Module,
    inputs: Tensors,
    calls: adapter.FirstCalls,
    allowed: list[float],
    changed: dict[str, Any],
) -> None:
    index = _differs(calls.first, calls.second, allowed, exact=True)
    if index is None:
        return
    if not _is_random(module, inputs):
        if _differs(calls.first, calls.second, allowed) is None:
            return  # sums in another order in each call, as of scatter_add on CUDA
        raise _hidden_state_error(
            index, calls.first, calls.second, "in a second call on the same inputs", changed
        )
    raise NondeterministicModel(
        f"output {index} differs between two eager runs on the same inputs",
        where="source",
        hint="Dropout or another random layer is active: build the model in eval mode, without randomness. "
        f"{_training_modules(module)}".strip(),
    )


def _is_random(module: torch.nn.Module, inputs: Tensors) -> bool:
    """Return whether further calls keep differing unless seeded equally; counters and kept values ignore seeds."""
    if _differs(eager.run_flat(module, inputs), eager.run_flat(module, inputs), [], exact=True) is None:
        return False
    seeded = []
    for _ in range(2):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            random.seed(0)
            seeded.append(eager.run_flat(module, inputs))
    return _differs(seeded[0], seeded[1], [], exact=True) is None


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Comparison of a model's outputs with those of a fresh copy, which ran on one thread."""

    module: torch.nn.Module
    allowed: list[float]
    changed: dict[str, Any]

    def check(self, inputs: Tensors, own: Outputs, fresh: Outputs) -> None:
        """Refuse outputs that differ by more than rounding explains."""
        index = _differs(own, fresh, self.allowed)
        if index is None:
            return
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            again = eager.run_flat(self.module, inputs)
        finally:
            torch.set_num_threads(threads)
        if _differs(again, fresh, self.allowed) is None:
            return  # another number of threads adds in another order, and the model amplifies it
        when = "if a fresh copy of the model is called on other inputs first"
        raise _hidden_state_error(index, own, fresh, when, self.changed)


def _differs(left: Outputs, right: Outputs, allowed: list[float], *, exact: bool = False) -> int | None:
    """Return the index of the first output that differs by more than allowed; unless exact, rounding is allowed too."""
    if len(left) != len(right):
        return min(len(left), len(right))
    for index, (one, other) in enumerate(zip(left, right, strict=True)):
        if one.shape != other.shape or one.dtype != other.dtype:
            return index
        least = 0.0 if exact else ROUNDING_FACTOR * differences.rounding_limit(one)
        most = max(least, allowed[index] if index < len(allowed) else 0.0)
        if not torch.equal(one, other) and not differences.max_difference(one, other) <= most:
            return index
    return None


def _hidden_state_error(
    index: int, left: Outputs, right: Outputs, when: str, changed: dict[str, Any]
) -> HiddenState:
    gap = ""
    if index < min(len(left), len(right)) and left[index].shape == right[index].shape:
        gap = f" by {differences.max_difference(left[index], right[index]):.3g}"
    names = _format_names(changed)
    return HiddenState(
        f"output {index} differs{gap} {when}: the model keeps state between calls outside its buffers",
        where="source",
        hint="An artifact has no first call. Keep such a value in a registered buffer that is written in place, compute it "
        "in every call, or call the model until the value no longer changes and publish the resulting weights."
        + (f" A call changes {names}." if names else ""),
    )


def _describe_changed(changed: dict[str, Any]) -> tuple[str, ...]:
    """Return a note on Python values that a call changes: no comparison can rule out that outputs depend on them."""
    plain = {name: value for name, value in changed.items() if isinstance(value, bool | int | float | str)}
    if not plain:
        return ()
    return (
        f"a call of the model changes {_format_names(plain)}: Python values that the artifact does not have",
    )


def _format_names(names: Iterable[str]) -> str:
    found = sorted(names)
    more = f" and {len(found) - _MAX_SHOWN} more" if len(found) > _MAX_SHOWN else ""
    return ", ".join(found[:_MAX_SHOWN]) + more


def _training_modules(module: torch.nn.Module) -> str:
    names = [name or "the model" for name, child in module.named_modules() if child.training]
    return f"In training mode: {', '.join(names[:5])}." if names else ""
