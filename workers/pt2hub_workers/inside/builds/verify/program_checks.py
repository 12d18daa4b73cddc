"""Checks an exported program against the model in eager mode, before anything is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from pt2hub.client.publishing.live_models.unread_inputs import operator_name
from pt2hub.errors import Detail, InputRefused, ProgramDiffers, RandomOperators, UnusedInput
from pt2hub_workers.inside.builds import differences
from pt2hub_workers.inside.builds.export import eager
from pt2hub_workers.inside.builds.export.call import order_arguments
from pt2hub_workers.inside.builds.export.source_positions import display_path, is_models

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub_workers.inside.builds.export.eager import Outputs
    from pt2hub_workers.inside.builds.export.inputs import Tensors
    from pt2hub_workers.inside.builds.verify.golden import GoldenInputs

RANDOM_PREFIX, UNUSED_PREFIX = "random:", "unused:"
"""Prefixes of entries of `checks.accept` that name an operator or an input."""
_UNTAGGED = ("dropout", "rrelu", "philox", "rng", "seed")
"""Parts of names of torch's own operators that draw random numbers without the tag for it."""
_TORCHS = ("aten", "prims", "inductor", "inductor_prims", "rngprims")
_PROBABILITIES = ("p", "dropout_p", "dropout")
_OFF = ("train", "training")


def check_random(program: torch.export.ExportedProgram, accept: list[str]) -> tuple[str, ...]:
    """Refuse a program that draws random numbers, unless the spec accepts the operators by name.

    Eager calls may be equal because forward sets a seed, which an artifact does not do.
    """
    accepted = {item.removeprefix(RANDOM_PREFIX) for item in accept if item.startswith(RANDOM_PREFIX)}
    found = dict(_random_operators(program.graph_module))
    refused = {name: line for name, line in found.items() if name not in accepted}
    if not refused:
        return tuple(
            f"{name} draws random numbers, as the spec accepts: calls on the same inputs may differ within the tolerance, and "
            "their distribution is not proven"
            for name in sorted(found)
        )
    name, line = next(iter(refused.items()))
    raise RandomOperators(
        f"the exported program draws random numbers with {name}{f' at {line}' if line else ''}",
        where="source",
        details=tuple(Detail(name, line or "in the program") for name, line in refused.items()),
        hint="An artifact draws different numbers in each call, even if forward sets a seed. Pass them as an input, or build "
        f"the model without randomness. To publish anyway, write checks: {{accept: ['{RANDOM_PREFIX}{name}']}}.",
    )


def _random_operators(graph_module: torch.fx.GraphModule) -> Iterator[tuple[str, str]]:
    for module in graph_module.modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        for node in module.graph.nodes:
            if node.op == "call_function" and _is_random(node):
                yield operator_name(node.target), _model_line(node)


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
    # Only for operators that drop elements.
    return not (chances and all(isinstance(chance, int | float) and chance == 0 for chance in chances))


def _arguments(node: torch.fx.Node) -> dict[str, Any]:
    schema = node.target._schema.arguments  # type: ignore[union-attr]  # noqa: SLF001  # of an OpOverload
    return {
        entry.name: node.args[place]
        if place < len(node.args)
        else node.kwargs.get(entry.name, entry.default_value)
        for place, entry in enumerate(schema)
    }


def _model_line(node: torch.fx.Node) -> str:
    """Return the innermost line of the model's own code that led to a node; empty if torch recorded none."""
    lines = str(node.meta.get("stack_trace") or "").splitlines()
    found = ""
    for line in lines:
        parts = line.strip().split('"')
        if line.strip().startswith("File") and len(parts) > 2 and is_models(parts[1]):  # noqa: PLR2004  # File "...", line n
            number = parts[2].partition("line ")[2].partition(",")[0]
            found = f"{display_path(parts[1])}:{number}"
    return found


def check_unused_inputs(
    unread: list[str],
    accept: list[str],
    *,
    module: torch.nn.Module | None,
    given: GoldenInputs,
    other: Tensors,
) -> tuple[str, ...]:
    """Distinguish inputs that the model itself ignores from those that the export lost.

    Args:
        module: The model; None if the source is a program, which may have lost the input before.

    Raises:
        UnusedInput: The program never reads an input that the model uses, or may use.
    """
    accepted = {item.removeprefix(UNUSED_PREFIX) for item in accept if item.startswith(UNUSED_PREFIX)}
    notes = []
    for name in unread:
        if name not in accepted:
            _check_ignored(name, module, given, other)
        why = "as the spec accepts" if name in accepted else "as the model does"
        notes.append(f"input {name} is unused: the artifact takes it and ignores it, {why}")
    return tuple(notes)


def _check_ignored(name: str, module: torch.nn.Module | None, given: GoldenInputs, other: Tensors) -> None:
    where, accepting = f"inputs.{name}", f"write checks: {{accept: ['{UNUSED_PREFIX}{name}']}}"
    if module is None:
        raise UnusedInput(
            f"the program never reads input {name!r}",
            where=where,
            hint="torch.export merges two arguments that are the same tensor: export the model again with a separate "
            f"tensor for each argument (x.clone()). If the model ignores {name}, {accepting}.",
        )
    try:
        ignored = _is_ignored(module, name, given, other)
    except InputRefused as error:
        raise UnusedInput(
            f"the exported program never reads input {name!r}, and the model fails with other values of it: {error.message}",
            where=where,
            hint=f"Generate values of {name} that the model accepts. If it ignores them, {accepting}.",
        ) from error
    if not ignored:
        raise UnusedInput(
            f"the exported program never reads input {name!r}, but the model does: its output changes with {name} alone",
            where=where,
            hint="The export fixed its value: forward converts it to a Python number or numpy array, or reads it from a "
            "global. Compute with the tensor itself.",
        )


def _is_ignored(module: torch.nn.Module, name: str, given: GoldenInputs, other: Tensors) -> bool:
    """Return whether the outputs stay the same when only one input changes."""
    changed = (
        other[name]
        if not torch.equal(other[name], given.inputs[name])
        else _change_values(given.inputs[name])
    )
    outputs = eager.run_flat(module, {**given.inputs, name: changed})
    return len(outputs) == len(given.outputs) and all(
        left.shape == right.shape and torch.equal(left, right)
        for left, right in zip(outputs, given.outputs, strict=True)
    )


def _change_values(tensor: torch.Tensor) -> torch.Tensor:
    """Replace a constant's values: zeros by ones, and anything else by zeros."""
    return torch.where(tensor == 0, 1, 0).to(tensor.dtype)


def program_module(program: torch.export.ExportedProgram) -> torch.nn.Module:
    """Return a module that runs the program's graph in eager mode, without size checks."""
    return program.module(check_guards=False)


def check_program(
    runs: torch.nn.Module, module: torch.nn.Module, points: list[GoldenInputs], tolerance: float
) -> None:
    """Refuse a program that differs from the model in eager mode."""
    example = points[0].outputs
    spreads = [differences.rms_difference(*pair) for pair in zip(example, points[1].outputs, strict=False)]
    for point in points:
        sizes = zip(point.outputs, example, strict=False)
        signals = [
            signal * differences.rms_ratio(*pair) for signal, pair in zip(spreads, sizes, strict=False)
        ]
        found = run_program(runs, module, point.inputs)
        if difference := describe_difference(point, found, signals, tolerance):
            raise program_differs(f"{difference} at {point.label}")


def run_program(runs: torch.nn.Module, module: torch.nn.Module, inputs: Tensors) -> Outputs:
    """Return a program's outputs on the CPU, and restore its buffers."""
    args, kwargs = order_arguments(module, {name: tensor.clone() for name, tensor in inputs.items()})
    try:
        with eager.preserve_buffers(runs), torch.inference_mode():
            return eager.copy_outputs(pytree.tree_leaves(runs(*args, **kwargs)))
    except Exception as error:  # operators may raise anything
        raise program_differs(f"it raised {type(error).__name__}: {str(error).strip()[:300]}") from error


def describe_difference(point: GoldenInputs, found: Outputs, signals: list[float], tolerance: float) -> str:
    """Describe how a program's outputs differ from the model's; empty if rounding or the tolerance explains it."""
    if len(found) != len(point.outputs):
        return f"{len(found)} outputs instead of {len(point.outputs)}"
    for index, (own, right) in enumerate(zip(found, point.outputs, strict=True)):
        if own.shape != right.shape or own.dtype != right.dtype:
            return f"output {index} is {own.dtype} {list(own.shape)} instead of {right.dtype} {list(right.shape)}"
        allowed = max(tolerance * signals[index], differences.rounding_limit(right) * 4)
        if not (gap := differences.max_difference(own, right)) <= allowed:
            return f"output {index} is off by {gap:.3g}, allowed are {allowed:.3g}"
    return ""


def program_differs(what: str) -> ProgramDiffers:
    """Return the error for a program that computes something different from the model."""
    return ProgramDiffers(
        f"the exported program, run in eager mode, computes something different from the model: {what}",
        where="source",
        hint="The model behaves differently during export. Look for torch.compiler.is_exporting(), is_compiling() or "
        "is_dynamo_compiling(), torch.jit.is_tracing(), seeds set in forward, and Python values that calls change.",
    )
