"""Whether a model answers the same whenever it is called: its first call, later ones, and a fresh one called otherwise.

An artifact has no first call: what a model counts or keeps in Python is fixed at the export, or lost.
"""

from __future__ import annotations

import copy
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pt2hub.errors import HiddenState, NondeterministicModel
from pt2hub_workers.inside import adapting, caches, comparing, eager
from pt2hub_workers.inside.eager import Outputs
from pt2hub_workers.inside.forking import Fork

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pt2hub_workers.inside.inputs import Tensors

NEAR = 32.0
"""Two processes on other thread counts may differ by this many times what rounding explains of one operation
(`comparing.rounding`, 2 units in the last place); what differs by more is run again on one thread, and must be equal."""
_WAIT = 60.0
"""Seconds that the fresh copy has in any case, beside `_SLOWER` times what the calls took here."""
_SLOWER = 50.0
_SAME_PROCESS = (
    "the model's first call on other inputs was made by a copy of it in the same process: state in globals and closures is "
    "not compared"
)
_NO_COPY = (
    "the model's first call on other inputs was not tried: it cannot be copied, and its process could not be forked; state "
    "that its very first call alone sets is not ruled out"
)
_SHOWN = 5
"""Attributes that a message lists."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What the first calls of a model showed.

    Attributes:
        example: Outputs of its very first call, on the example.
        other: Outputs on other inputs of the same sizes, in a later call.
        kept: Tensors in plain attributes that it computed from the inputs of its first call.
        notes: What callers should know.
    """

    example: Outputs
    other: Outputs
    kept: frozenset[str]
    notes: tuple[str, ...]


def observe(
    module: torch.nn.Module, example: Tensors, other: Tensors, *, scratch: Path, within: float = 0.0
) -> Observed:
    """Makes a model's first calls and compares them.

    The model stays as they leave it: tables that do not depend on inputs are constants of the program then.

    Args:
        module: Adapted, and never called.
        example: Inputs.
        other: Others of the same sizes.
        scratch: A directory for what the fresh copy returns.
        within: Differences, relative to the outputs' signal, that the spec accepts with its random operators.

    Raises:
        HiddenState: Its answers depend on earlier calls by state that is not in its buffers.
        NondeterministicModel: Two calls on the same inputs differ.
        NanOutput: An output is not finite.
        InputMutated: It writes to an input.
        UnsupportedOutput: It returns something other than dense tensors.
    """
    attributes = caches.Attributes(module)
    fresh = _Fresh(module, example, other, scratch)
    try:
        began = time.monotonic()
        calls = adapting.settle(module, example)
        changed = attributes.changed()
        eager.check_finite(calls.first, example)
        third = eager.run_flat(module, other)
        allowed = [within * comparing.spread(*pair) for pair in zip(calls.first, third, strict=False)]
        _check_repeated(module, example, calls, allowed, changed)
        found = fresh.calls(_WAIT + _SLOWER * (time.monotonic() - began))
        comparison = _Comparison(module, allowed, changed)
        if found is not None:
            comparison.check(example, calls.first, found["example"])
            comparison.check(other, third, found["other"])
    finally:
        fresh.close()
    kept = caches.kept_from_inputs(
        {name: tensor.cpu() for name, tensor in caches.tensors_of(changed).items()},
        {} if found is None else found["kept"],  # what cannot be compared counts as computed from the inputs
    )
    return Observed(calls.first, third, kept, (*calls.notes, *_notes(changed), *fresh.notes))


def check_later(module: torch.nn.Module, example: Tensors, first: Outputs, *, within: float = 0.0) -> None:
    """Refuses a model whose example gives something else after many calls than in the first one.

    Args:
        module: As `observe` had it, called many times since.
        example: The inputs.
        first: Outputs of the first call.
        within: Largest difference that passes, in the outputs' unit.

    Raises:
        HiddenState: It differs.
    """
    now = eager.run_flat(module, example)
    if (place := _differs(first, now, [within] * len(first))) is not None:
        raise _hidden(place, first, now, "after further calls", {})


class _Fresh:
    """The same model before any call, to be called on other inputs first."""

    def __init__(self, module: torch.nn.Module, example: Tensors, other: Tensors, scratch: Path) -> None:
        self.notes: tuple[str, ...] = ()
        self._example = example
        self._other = other
        self._copy = _copied(module)
        on_cpu = all(item.device.type == "cpu" for item in (*module.parameters(), *example.values()))
        # CUDA cannot be used in a forked process; a copy has its own attributes and buffers, but the same globals.
        self._fork = (
            Fork(lambda: _calls(module, example, other), scratch / "fresh-calls.pt") if on_cpu else None
        )

    def calls(self, seconds: float) -> dict[str, Any] | None:
        """Outputs of its first call, on the other inputs, and of its second, on the example; what the first kept.

        None where there is neither a fork nor a copy.
        """
        found = self._fork.result(seconds) if self._fork else None
        if found is None and self._copy is None:
            self.notes = (_NO_COPY,)
        elif found is None and self._copy is not None:
            self.notes = (_SAME_PROCESS,)
            found = _calls(self._copy, self._example, self._other)
        return found

    def close(self) -> None:
        if self._fork:
            self._fork.close()


def _copied(module: torch.nn.Module) -> torch.nn.Module | None:
    """A copy that shares the parameters, which no call changes, and nothing else; None of a model that has none.

    Such as one that holds a lock, or a tensor computed from its parameters (torch.nn.utils.weight_norm).
    """
    try:
        return copy.deepcopy(module, {id(parameter): parameter for parameter in module.parameters()})
    except Exception:  # noqa: BLE001  # whatever the model's own parts raise
        return None


def _calls(module: torch.nn.Module, example: Tensors, other: Tensors) -> dict[str, Any]:
    attributes = caches.Attributes(module)
    first = eager.run_flat(module, {name: tensor.clone() for name, tensor in other.items()})
    kept = {
        name: tensor.detach().cpu().clone()
        for name, tensor in caches.tensors_of(attributes.changed()).items()
    }
    second = eager.run_flat(module, {name: tensor.clone() for name, tensor in example.items()})
    return {"other": first, "example": second, "kept": kept}


def _check_repeated(
    module: torch.nn.Module,
    inputs: Tensors,
    calls: adapting.FirstCalls,
    allowed: list[float],
    changed: dict[str, Any],
) -> None:
    place = _differs(calls.first, calls.second, allowed, exact=True)
    if place is None:
        return
    if not _is_random(module, inputs):
        if _differs(calls.first, calls.second, allowed) is None:
            return  # sums in another order in each call, as of scatter_add on CUDA
        raise _hidden(place, calls.first, calls.second, "in a second call on the same inputs", changed)
    raise NondeterministicModel(
        f"output {place} differs between two eager runs on the same inputs",
        where="source",
        hint="Dropout or another random layer is active: build the model in eval mode, "
        f"without randomness. {_training_modules(module)}".strip(),
    )


def _is_random(module: torch.nn.Module, inputs: Tensors) -> bool:
    """Whether further calls go on to differ, and equal seeds end that; counters and kept values do not care for seeds."""
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
    """Compares a model's outputs with those of a fresh one, which ran on one thread."""

    module: torch.nn.Module
    allowed: list[float]
    changed: dict[str, Any]

    def check(self, inputs: Tensors, own: Outputs, fresh: Outputs) -> None:
        """Refuses outputs that differ by more than rounding explains.

        Raises:
            HiddenState: They differ.
        """
        place = _differs(own, fresh, self.allowed)
        if place is None:
            return
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            again = eager.run_flat(self.module, inputs)
        finally:
            torch.set_num_threads(threads)
        if _differs(again, fresh, self.allowed) is None:
            return  # another number of threads adds in another order, and the model makes much of it
        when = "where a fresh copy of the model was called on other inputs first"
        raise _hidden(place, own, fresh, when, self.changed)


def _differs(left: Outputs, right: Outputs, allowed: list[float], *, exact: bool = False) -> int | None:
    """The first output that differs by more than is allowed; unless exactly, what rounding explains is."""
    if len(left) != len(right):
        return min(len(left), len(right))
    for place, (one, other) in enumerate(zip(left, right, strict=True)):
        if one.shape != other.shape or one.dtype != other.dtype:
            return place
        least = 0.0 if exact else NEAR * comparing.rounding(one)
        most = max(least, allowed[place] if place < len(allowed) else 0.0)
        if not torch.equal(one, other) and not comparing.difference(one, other) <= most:
            return place
    return None


def _hidden(place: int, left: Outputs, right: Outputs, when: str, changed: dict[str, Any]) -> HiddenState:
    gap = ""
    if place < min(len(left), len(right)) and left[place].shape == right[place].shape:
        gap = f" by {comparing.difference(left[place], right[place]):.3g}"
    names = _named(changed)
    return HiddenState(
        f"output {place} differs{gap} {when}: the model keeps something of its calls that is not in its buffers",
        where="source",
        hint="An artifact has no first call. Keep such a value in a registered buffer that is written in place, compute it "
        "in every call, or call the model until it no longer changes and publish those weights."
        + (f" A call changes {names}." if names else ""),
    )


def _notes(changed: dict[str, Any]) -> tuple[str, ...]:
    """What is said of Python values that a call changes: no comparison can be sure that nothing ever depends on them."""
    plain = {name: value for name, value in changed.items() if isinstance(value, bool | int | float | str)}
    if not plain:
        return ()
    return (f"a call of the model changes {_named(plain)}, Python values that the artifact does not have",)


def _named(names: Iterable[str]) -> str:
    found = sorted(names)
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(found[:_SHOWN]) + more


def _training_modules(module: torch.nn.Module) -> str:
    names = [name or "the model" for name, child in module.named_modules() if child.training]
    return f"In training mode: {', '.join(names[:5])}." if names else ""
