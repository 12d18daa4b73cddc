"""What an exported program is asked before anything is compiled: does it compute what the model does, from its inputs?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from pt2hub.client.tracing.unread import operator_name
from pt2hub.errors import Detail, InputRefused, ProgramDiffers, RandomOperators, UnusedInput
from pt2hub_workers.inside import comparing, eager
from pt2hub_workers.inside.calling import in_order
from pt2hub_workers.inside.places import is_models, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub_workers.inside.eager import Outputs
    from pt2hub_workers.inside.golden import Given
    from pt2hub_workers.inside.inputs import Tensors

RANDOM, UNUSED = "random:", "unused:"
"""What an entry of `checks.accept` begins with that names an operator, or an input."""
_UNTAGGED = ("dropout", "rrelu", "philox", "rng", "seed")
"""Parts of names of torch's own operators that draw numbers without the tag for it."""
_TORCHS = ("aten", "prims", "inductor", "inductor_prims", "rngprims")
_PROBABILITIES = ("p", "dropout_p", "dropout")
_OFF = ("train", "training")


def check_random(program: torch.export.ExportedProgram, accept: list[str]) -> tuple[str, ...]:
    """Refuses a program that draws random numbers, unless the spec accepts the operators by name.

    Eager calls may be equal for a seed set in forward, which no artifact has.

    Args:
        program: The program.
        accept: The spec's `checks.accept`.

    Returns:
        Notes on what was accepted.

    Raises:
        RandomOperators: It does.
    """
    accepted = {item.removeprefix(RANDOM) for item in accept if item.startswith(RANDOM)}
    found = dict(_random_operators(program.graph_module))
    refused = {name: place for name, place in found.items() if name not in accepted}
    if not refused:
        return tuple(
            f"{name} draws random numbers, as the spec accepts: calls on the same inputs may differ by what the tolerance lets "
            "pass, and how they are distributed is not proven"
            for name in sorted(found)
        )
    name, place = next(iter(refused.items()))
    raise RandomOperators(
        f"the exported program draws random numbers by {name}{f' at {place}' if place else ''}",
        where="source",
        details=tuple(Detail(name, place or "in the program") for name, place in refused.items()),
        hint="An artifact draws other numbers in each call, whatever seed forward sets: make them an input, or build the "
        f"model without. To publish it all the same, write checks: {{accept: ['{RANDOM}{name}']}}.",
    )


def _random_operators(graph_module: torch.fx.GraphModule) -> Iterator[tuple[str, str]]:
    for module in graph_module.modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        for node in module.graph.nodes:
            if node.op == "call_function" and _is_random(node):
                yield operator_name(node.target), _place(node)


def _is_random(node: torch.fx.Node) -> bool:
    target: Any = node.target
    if not isinstance(target, torch._ops.OpOverload):  # noqa: SLF001  # torch has no public name for it
        return any(part in operator_name(target) for part in ("rng", "philox"))
    space, _, name = target._schema.name.partition("::")  # noqa: SLF001  # the only way to it
    untagged = space in _TORCHS and any(part in name for part in _UNTAGGED)
    if "backward" in name or not (untagged or torch.Tag.nondeterministic_seeded in target.tags):
        return False
    given = _arguments(node)
    if any(given.get(flag) is False for flag in _OFF):
        return False
    chances = [given[item] for item in _PROBABILITIES if item in given]
    # Of what drops elements, and for these alone: bernoulli with p=0 draws nothing either.
    return not (chances and all(isinstance(chance, int | float) and chance == 0 for chance in chances))


def _arguments(node: torch.fx.Node) -> dict[str, Any]:
    schema = node.target._schema.arguments  # type: ignore[union-attr]  # noqa: SLF001  # of an OpOverload
    return {
        entry.name: node.args[place]
        if place < len(node.args)
        else node.kwargs.get(entry.name, entry.default_value)
        for place, entry in enumerate(schema)
    }


def _place(node: torch.fx.Node) -> str:
    """The innermost line of the model's own code that led to a node; empty where torch kept none."""
    lines = str(node.meta.get("stack_trace") or "").splitlines()
    found = ""
    for line in lines:
        parts = line.strip().split('"')
        if line.strip().startswith("File") and len(parts) > 2 and is_models(parts[1]):  # noqa: PLR2004  # File "...", line n
            number = parts[2].partition("line ")[2].partition(",")[0]
            found = f"{shown(parts[1])}:{number}"
    return found


def check_inputs(
    unread: list[str],
    accept: list[str],
    *,
    module: torch.nn.Module | None,
    given: Given,
    other: Tensors,
) -> tuple[str, ...]:
    """Tells an input that the model itself ignores from one that the program lost.

    Args:
        unread: As `unread_inputs` found.
        accept: The spec's `checks.accept`.
        module: The model; None where all that there is of it is a program, which may have lost the input before.
        given: Inputs and outputs of the model.
        other: Other inputs of the same sizes.

    Returns:
        Notes on inputs that are ignored.

    Raises:
        UnusedInput: The program never reads an input that the model uses, or may use.
    """
    accepted = {item.removeprefix(UNUSED) for item in accept if item.startswith(UNUSED)}
    notes = []
    for name in unread:
        if name not in accepted:
            _check_ignored(name, module, given, other)
        why = "as the spec accepts" if name in accepted else "as the model does"
        notes.append(f"input {name} is unused: the artifact takes it and ignores it, {why}")
    return tuple(notes)


def _check_ignored(name: str, module: torch.nn.Module | None, given: Given, other: Tensors) -> None:
    where, accepting = f"inputs.{name}", f"write checks: {{accept: ['{UNUSED}{name}']}}"
    if module is None:
        raise UnusedInput(
            f"the program never reads its input {name}",
            where=where,
            hint="torch.export makes one of two arguments that are the same tensor: export the model again with another "
            f"tensor for each argument (x.clone()). If the model ignores {name}, {accepting}.",
        )
    try:
        ignored = _ignores(module, name, given, other)
    except InputRefused as error:
        raise UnusedInput(
            f"the exported program never reads {name}, and the model takes no other value of it: {error.message}",
            where=where,
            hint=f"Generate values of {name} that the model takes. If it ignores them, {accepting}.",
        ) from error
    if not ignored:
        raise UnusedInput(
            f"the exported program never reads {name}, and the model does: its output moves when {name} alone changes",
            where=where,
            hint="The export lost it: a value that forward turns into a Python number, numpy or a global is fixed there. "
            "Compute with the tensor itself.",
        )


def _ignores(module: torch.nn.Module, name: str, given: Given, other: Tensors) -> bool:
    """Whether the outputs stay the same when one input alone has other values."""
    changed = other[name] if not torch.equal(other[name], given.inputs[name]) else _moved(given.inputs[name])
    outputs = eager.run_flat(module, {**given.inputs, name: changed})
    return len(outputs) == len(given.outputs) and all(
        left.shape == right.shape and torch.equal(left, right)
        for left, right in zip(outputs, given.outputs, strict=True)
    )


def _moved(tensor: torch.Tensor) -> torch.Tensor:
    """Other values in place of a constant: ones for zeros, and zeros for anything else."""
    return torch.where(tensor == 0, 1, 0).to(tensor.dtype)


def program_module(program: torch.export.ExportedProgram) -> torch.nn.Module:
    """The program as a module that runs its graph in eager mode, without checks of sizes."""
    return program.module(check_guards=False)


def check_program(
    runs: torch.nn.Module, module: torch.nn.Module, points: list[Given], tolerance: float
) -> None:
    """Refuses a program that computes something else than the model, where both run in eager mode.

    Args:
        runs: The program, as `program_module` makes it.
        module: The model, for the order of its arguments.
        points: Inputs and the model's outputs: two of the example's sizes first, for the signal.
        tolerance: Relative to signal.

    Raises:
        ProgramDiffers: It does: the model behaves differently while it is exported.
    """
    example = points[0].outputs
    spreads = [comparing.spread(*pair) for pair in zip(example, points[1].outputs, strict=False)]
    for point in points:
        sizes = zip(point.outputs, example, strict=False)
        signals = [signal * comparing.ratio(*pair) for signal, pair in zip(spreads, sizes, strict=False)]
        found = run_program(runs, module, point.inputs)
        if said := difference(point, found, signals, tolerance):
            raise differing(f"{said} at {point.label}")


def run_program(runs: torch.nn.Module, module: torch.nn.Module, inputs: Tensors) -> Outputs:
    """A program's outputs, on the CPU; its buffers are as before.

    Raises:
        ProgramDiffers: It raised where the model did not.
    """
    args, kwargs = in_order(module, {name: tensor.clone() for name, tensor in inputs.items()})
    try:
        with eager.buffers_kept(runs), torch.inference_mode():
            return eager.copied(pytree.tree_leaves(runs(*args, **kwargs)))
    except Exception as error:  # whatever its operators raise
        raise differing(f"it raised {type(error).__name__}: {str(error).strip()[:300]}") from error


def difference(point: Given, found: Outputs, signals: list[float], tolerance: float) -> str:
    """In what a program's outputs differ from the model's; empty where rounding or the tolerance explains it."""
    if len(found) != len(point.outputs):
        return f"{len(found)} outputs instead of {len(point.outputs)}"
    for place, (own, right) in enumerate(zip(found, point.outputs, strict=True)):
        if own.shape != right.shape or own.dtype != right.dtype:
            return f"output {place} is {own.dtype} {list(own.shape)} instead of {right.dtype} {list(right.shape)}"
        allowed = max(tolerance * signals[place], comparing.rounding(right) * 4)
        if not (gap := comparing.difference(own, right)) <= allowed:
            return f"output {place} is off by {gap:.3g}, where {allowed:.3g} would pass"
    return ""


def differing(what: str) -> ProgramDiffers:
    """The error of a program that is not the model."""
    return ProgramDiffers(
        f"the exported program, run in eager mode, computes something else than the model: {what}",
        where="source",
        hint="The model behaves differently while it is exported. Look for torch.compiler.is_exporting(), is_compiling() or "
        "is_dynamo_compiling(), torch.jit.is_tracing(), seeds set in forward, and Python values that calls change.",
    )
