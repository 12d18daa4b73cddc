"""Plain calls of Triton kernels in exported programs, in a form that can be saved.

A strict export writes such a call with the kernel's number in a table of its process. torch cannot save that (2.11 and 2.13
raise SerializeError), and the number means nothing elsewhere. While a program is saved, each call is that of an operator
which names the kernel by module and name; after loading, the kernel is imported and the call restored.
"""

from __future__ import annotations

import importlib
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from pt2hub.errors import BadProgram, ExportFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch.export import ExportedProgram
    from torch.fx import Node

OPERATOR = "pt2hub::triton_kernel"
_SCHEMA = "(str kernel, str launch, Tensor(a!)[] tensors, SymInt[] numbers) -> ()"
_CONFIG_FIELDS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
_TUNER_HOOKS = ("user_defined_pre_hook", "user_defined_post_hook", "early_config_prune", "perf_model")
_CURE = (
    "Make the function that calls the kernel an operator with torch.library.triton_op and torch.library.wrap_triton, or "
    'publish the source: publish(..., code="folder", entry="module:function").'
)
_kept: list[Any] = []
"""A torch Library undoes its declarations when it is collected."""


def declare_operator() -> None:
    """Declare the operator that stands for a kernel's call; it has a name and no implementation. Idempotent."""
    if not _kept:
        library: Any = torch.library.Library("pt2hub", "DEF")  # type: ignore[no-untyped-call]
        library.define(OPERATOR.partition("::")[2] + _SCHEMA)
        _kept.append(library)


@contextmanager
def savable_kernel_calls(program: ExportedProgram) -> Iterator[None]:
    """Write the program's calls of kernels by name within the block; afterwards the program is as before.

    Raises:
        ExportFailed: A kernel cannot be named, or its launch not be written.
    """
    calls = list(_calls(program, _mutation()))
    if any(True for _ in _calls(program, torch.ops.higher_order.triton_kernel_wrapper_functional)):
        raise _unsavable(
            "the program was decomposed after its export", "Publish it as torch.export returned it."
        )
    written = [(node, _write(node)) for node in calls]
    before = [(node, node.target, node.args, node.kwargs) for node in calls]
    if written:
        declare_operator()
    try:
        for node, args in written:
            node.target, node.kwargs, node.args = torch.ops.pt2hub.triton_kernel.default, {}, args
        yield
    finally:
        for node, target, args, kwargs in before:
            node.target, node.args, node.kwargs = target, args, kwargs


def kernel_modules(program: ExportedProgram) -> list[str]:
    """Return the modules of the kernels that a program calls plainly."""
    return sorted({_name_kernel(_kernel(node))["module"] for node in _calls(program, _mutation())})


def restore_kernel_calls(program: ExportedProgram) -> None:
    """Turn calls that were written by name into calls of the kernels, which are imported.

    Raises:
        BadProgram: A kernel's module cannot be imported or lacks the kernel.
    """
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    declare_operator()
    for node in list(_calls(program, torch.ops.pt2hub.triton_kernel.default)):
        kernel, launch, tensors, numbers = node.args
        described = json.loads(str(launch))
        values = dict(zip(described["tensors"], tensors, strict=True))  # type: ignore[arg-type]  # a list of nodes
        values |= dict(zip(described["numbers"], numbers, strict=False))  # type: ignore[arg-type]  # the grids follow
        constants = {name: _read_constant(value) for name, value in described["constants"].items()}
        node.kwargs, node.args, node.target = {}, (), _mutation()
        node.kwargs = {
            "kernel_idx": kernel_side_table.add_kernel(_find_kernel(json.loads(str(kernel)))),
            "constant_args_idx": kernel_side_table.add_constant_args(constants),
            "grid": list(_grids(described["grid"], numbers[len(described["numbers"]) :])),  # type: ignore[index]
            "tma_descriptor_metadata": {},
            "kwargs": {name: values[name] for name in described["order"]},
        }
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            module.recompile()


def _mutation() -> Any:
    return torch.ops.higher_order.triton_kernel_wrapper_mutation


def _calls(program: ExportedProgram, target: Any) -> Iterator[Node]:
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            yield from (node for node in module.graph.nodes if node.target is target)


def _kernel(node: Node) -> Any:
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    return kernel_side_table.get_kernel(node.kwargs["kernel_idx"])  # type: ignore[arg-type]  # a number


def _write(node: Node) -> tuple[Any, ...]:
    """Return the operator's arguments for a call."""
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    kernel = _name_kernel(_kernel(node))
    if node.kwargs["tma_descriptor_metadata"]:
        raise _unsavable(f"the kernel {kernel['name']} takes TMA descriptors", _CURE)
    given: Mapping[str, Any] = node.kwargs["kwargs"]  # type: ignore[assignment]  # as the operator has it
    grids: Any = node.kwargs["grid"]
    constants = kernel_side_table.get_constant_args(node.kwargs["constant_args_idx"])  # type: ignore[arg-type]
    tensors = {name: value for name, value in given.items() if _is_tensor(value)}
    numbers = {name: value for name, value in given.items() if name not in tensors}
    for name, value in numbers.items():
        if not _is_integer(value):
            raise _unsavable(
                f"the kernel {kernel['name']} takes {name}, which is neither a tensor nor an integer", _CURE
            )
    launch = {
        "order": list(given),
        "tensors": list(tensors),
        "numbers": list(numbers),
        "grid": [len(grid) for grid in grids],
        "constants": {
            name: _write_constant(kernel["name"], name, value) for name, value in constants.items()
        },
    }
    sizes = [*numbers.values(), *(size for grid in grids for size in grid)]
    return json.dumps(kernel), json.dumps(launch), list(tensors.values()), sizes


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.fx.Node) and isinstance(value.meta.get("val"), torch.Tensor)


def _is_integer(value: object) -> bool:
    value = value.meta.get("val") if isinstance(value, torch.fx.Node) else value
    return isinstance(value, int | torch.SymInt) and not isinstance(value, bool)


def _grids(lengths: list[int], sizes: Any) -> Iterator[tuple[Any, ...]]:
    begin = 0
    for length in lengths:
        yield tuple(sizes[begin : begin + length])
        begin += length


def _write_constant(kernel: str, name: str, value: Any) -> Any:
    """Return a constant argument as JSON; types of Triton by their names."""
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    kind, inner = type(value).__name__, getattr(value, "value", None)
    if kind == "constexpr":
        return {"constexpr": _write_constant(kernel, name, inner)}
    if kind == "dtype" and isinstance(getattr(value, "name", None), str):
        return {"dtype": value.name}
    raise _unsavable(f"the kernel {kernel} takes {name}, a constant of type {kind}", _CURE)


def _read_constant(written: Any) -> Any:
    if "value" in written:
        return written["value"]
    language: Any = importlib.import_module("triton.language")
    return (
        language.dtype(written["dtype"])
        if "dtype" in written
        else language.constexpr(_read_constant(written["constexpr"]))
    )


def _name_kernel(kernel: Any) -> dict[str, Any]:
    """Return a kernel's module and name, with the configurations of an autotuner that is not found under the name.

    Tracing puts an autotuner of its own into the table where a call or heuristics decide more.
    """
    function = _innermost(kernel)
    module, name = function.fn.__module__, function.fn.__qualname__
    found = getattr(importlib.import_module(module), name, None) if module != "__main__" else None
    if found is None:
        raise _unsavable(
            f"the kernel {name} of the module {module} cannot be imported by that name",
            f"Move it to the top of a module in a folder of its own, and publish with that folder: code=. {_CURE}",
        )
    if found is kernel:
        return {"module": module, "name": name}
    if _innermost(found) is not function:
        raise _unsavable(f"{module}.{name} is another kernel than the one that the model calls", _CURE)
    return {
        "module": module,
        "name": name,
        "tuner": None if kernel is function else _write_tuner(kernel, name),
    }


def _innermost(kernel: Any) -> Any:
    """Return the kernel below autotuning and heuristics."""
    while not hasattr(kernel, "src") and hasattr(kernel, "fn"):
        kernel = kernel.fn
    return kernel


def _write_tuner(tuner: Any, name: str) -> dict[str, Any]:
    hooks = [hook for hook in _TUNER_HOOKS if getattr(tuner, hook, None)]
    if type(tuner).__name__ != "Autotuner" or hooks or any(item.pre_hook for item in tuner.configs):
        raise _unsavable(f"the kernel {name} is autotuned with functions", _CURE)
    configs = [
        {"kwargs": item.kwargs} | {field: getattr(item, field, None) for field in _CONFIG_FIELDS}
        for item in tuner.configs
    ]
    written = {"configs": configs, "key": list(tuner.keys)}
    try:
        json.dumps(written)
    except (TypeError, ValueError) as error:
        raise _unsavable(f"the kernel {name} has a configuration that is no JSON: {error}", _CURE) from error
    return written | {"reset_to_zero": tuner.reset_to_zero, "restore_value": tuner.restore_value}


def _find_kernel(named: Mapping[str, Any]) -> Any:
    module, name = named["module"], named["name"]
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:  # the module is the user's and may raise anything
        raise BadProgram(
            f"the Triton kernel {module}.{name} cannot be imported: {type(error).__name__}: {error}",
            where="source.program",
            hint="Publish the folder that contains its module beside the program: `pt2hub publish --program FILE --code FOLDER`.",
        ) from error
    if "tuner" not in named:
        return found
    function = _innermost(found)
    return function if named["tuner"] is None else _read_tuner(named["tuner"], function)


def _read_tuner(written: Mapping[str, Any], function: Any) -> Any:
    triton: Any = importlib.import_module("triton")
    configs = [
        triton.Config(item["kwargs"], **{key: item[key] for key in _CONFIG_FIELDS if item[key] is not None})
        for item in written["configs"]
    ]
    more = {key: written[key] for key in ("reset_to_zero", "restore_value") if written[key]}
    return triton.autotune(configs=configs, key=written["key"], **more)(function)


def _unsavable(problem: str, cure: str) -> ExportFailed:
    return ExportFailed(f"The program cannot be saved: {problem}", where="model", hint=cure)
