"""Conversion of a live model to a spec with files: exported here, or source code with weights."""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from pt2hub.archive.exported_programs import split_program
from pt2hub.client.publishing.live_models.arguments import bound, dtype_name, taken_apart
from pt2hub.client.publishing.live_models.dimensions import as_spec, declared_sizes, torch_shapes, wanted_dims
from pt2hub.client.publishing.live_models.export import export, save
from pt2hub.client.publishing.live_models.operator_modules import find_modules
from pt2hub.client.publishing.live_models.program_check import (
    UNUSED,
    check_program,
    check_read,
    distinct,
    ignored_inputs,
)
from pt2hub.client.publishing.live_models.safetensors_writer import state_of, write_tensors
from pt2hub.client.publishing.live_models.trial_call import check_taken
from pt2hub.client.publishing.spec_files import CODE_HINT, SpecFiles, as_path
from pt2hub.errors import ExportFailed, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pt2hub.client.publishing.live_models.arguments import Call
    from pt2hub.client.publishing.live_models.dimensions import Sizes, Wanted
    from pt2hub.client.publishing.options import ModelOptions

_FIELDS = ("targets", "outputs", "dtype", "export", "compile", "checks", "limits", "measure")
"""Options that are fields of the spec; the server validates them."""
_OF_CODE = ("entry", "entry_kwargs", "requirements")


def trace(
    model: object, args: Sequence[Any], kwargs: Mapping[str, Any], options: ModelOptions, scratch: Path
) -> tuple[dict[str, Any], SpecFiles]:
    """Return a live model's spec and the files to upload. The model is not changed.

    Args:
        model: A module in eval mode, a plain function, or an exported program.
        args: Example arguments by position; a program's own where omitted.
        options: See `Client.publish`.
        scratch: An empty directory for the files, which are needed until they are uploaded.

    Raises:
        UsageError: Something of it cannot be published; the error says what, and where.
    """
    if isinstance(model, ExportedProgram):
        _check_decided(options)
        call = taken_apart(_arguments_of(model, args, kwargs))
        check_read(model, call, _accepted_checks(options))
        return _as_program(model, call, {}, options, scratch)
    module = _as_module(model)
    declared = _shapes(
        module, args, kwargs, options
    )  # before the copies: a collection knows tensors themselves
    args, kwargs = distinct(args, kwargs)
    call = taken_apart(bound(module.forward, args, kwargs))
    wanted = wanted_dims(declared, call)
    if options.get("code") is not None and options.get("entry"):
        return _as_code(model, call, wanted, options, scratch)
    _check_no_entry(options)
    strict = bool((options.get("export") or {}).get("strict"))
    if wanted:
        _check_named(module, call)
    shapes = torch_shapes(wanted, call.values) if wanted else None
    try:
        program = export(module, args, kwargs, shapes=shapes, strict=strict)
    except ExportFailed:
        check_taken(
            module, args, kwargs, call
        )  # where the model itself refuses the call, that is what to say
        raise
    accept = _accepted_checks(options)
    if not any(item.startswith("random:") for item in accept):
        check_program(module, program, args, kwargs)
    if ignored := ignored_inputs(module, program, args, kwargs, call):
        unused = [f"{UNUSED}{path}" for path in ignored if f"{UNUSED}{path}" not in accept]
        options = {**options, "checks": {**(options.get("checks") or {}), "accept": [*accept, *unused]}}
    return _as_program(program, call, wanted, options, scratch)


def _as_program(
    program: ExportedProgram, call: Call, wanted: Wanted, options: ModelOptions, scratch: Path
) -> tuple[dict[str, Any], SpecFiles]:
    """Save an exported program and, separately, its weights; `code` goes along for the operators' modules."""
    saved = scratch / "saved.pt2"
    save(program, saved)
    stripped, weights = scratch / "program.pt2", scratch / "weights.safetensors"
    summary = split_program(saved, stripped, weights, where="model")
    known = summary.call
    saved.unlink()  # as large as the model, and needed no more
    folder = as_path(options.get("code"), "code", CODE_HINT)
    modules = find_modules(program, summary.operators, folder)
    if folder is not None and not summary.operators:
        raise _entry_required()
    sizes = {item.name: item.shape for item in known.inputs}
    if sizes.keys() != call.tensors.keys():
        raise InvalidInput(
            f"torch.export has the inputs {', '.join(known.others or sizes)}, the call has {', '.join(call.tensors)}",
            where="args",
            hint="Pass every tensor as a separate argument, or in dicts, lists and tuples.",
        )
    document, examples = _document(options, call, sizes, wanted), _examples(call, scratch)
    if modules:
        document |= {"source": {"operators": modules}}
    return document, SpecFiles(program=stripped, weights=weights, code=folder, examples=examples)


def _accepted_checks(options: ModelOptions) -> list[str]:
    """Return the entries of `checks.accept` if it is a list of text; the server validates it."""
    accept = (options.get("checks") or {}).get("accept")
    return [item for item in accept if isinstance(item, str)] if isinstance(accept, list | tuple) else []


def _as_code(
    model: object, call: Call, wanted: Wanted, options: ModelOptions, scratch: Path
) -> tuple[dict[str, Any], SpecFiles]:
    """Pack source code and the model's current weights."""
    source: dict[str, Any] = {"entry": options["entry"], "kwargs": dict(options.get("entry_kwargs") or {})}
    source["requirements"] = list(options.get("requirements") or ())
    source["entry_is"] = "function" if isinstance(model, FunctionType) else "builder"
    state = state_of(model) if isinstance(model, torch.nn.Module) else {}
    weights = scratch / "weights.safetensors" if state else None
    if weights:
        write_tensors(state, weights)
    document = _document(options, call, declared_sizes(wanted, call), wanted) | {"source": source}
    folder = as_path(options["code"], "code", CODE_HINT)
    return document, SpecFiles(code=folder, weights=weights, examples=_examples(call, scratch))


def _entry_required() -> InvalidInput:
    return InvalidInput(
        "entry is required with code",
        where="entry",
        hint='Set it: entry="net:build" names the function or class `build` in net.py. Only the custom operators of an '
        "exported program need code without an entry.",
    )


def _examples(call: Call, scratch: Path) -> Path:
    path = scratch / "examples.safetensors"
    write_tensors(call.tensors, path)
    return path


def _document(options: ModelOptions, call: Call, sizes: Sizes, wanted: Wanted) -> dict[str, Any]:
    """Return the spec's fields other than source and weights."""
    shapes, dims = as_spec(sizes, wanted, call.tensors)
    inputs = [
        {"name": path, "shape": shape, "dtype": dtype_name(call.tensors[path])}
        for path, shape in shapes.items()
    ]
    own = {name: value for name, value in options.items() if name in _FIELDS and value is not None}
    return {"model": options["name"], "inputs": inputs, "dims": dims, "fixed": dict(call.fixed), **own}


def _as_module(model: object) -> torch.nn.Module:
    """Return the module to export; a function is wrapped in one."""
    if isinstance(model, FunctionType):
        _check_function(model)
        wrapper = torch.nn.Module().eval()
        wrapper.forward = model
        return wrapper
    if isinstance(model, torch.jit.ScriptModule) or not isinstance(model, torch.nn.Module):
        raise _no_model(model)
    module: torch.nn.Module = getattr(model, "_orig_mod", model)  # what torch.compile wrapped
    training = [name for name, part in module.named_modules() if part.training]
    if training:
        which = f": {', '.join(training[:3])}" if training[0] else ""
        raise InvalidInput(
            f"The model is in training mode{which}",
            where="model",
            hint="Call model.eval() first: an artifact is for inference, and training mode would keep dropout.",
        )
    return module


def _no_model(model: object) -> InvalidInput:
    if isinstance(model, type):
        said, hint = f"the class {model.__name__}", f"Pass an instance: {model.__name__}(...).eval()."
    else:
        said = type(model).__name__
        hint = "Wrap it in a function: `def forward(x): ...`, or in a torch.nn.Module; TorchScript cannot be exported."
    return InvalidInput(f"Expected a spec or a model, got {said}", where="model", hint=hint)


def _check_function(function: FunctionType) -> None:
    used = inspect.getclosurevars(function)
    for name, value in {**used.globals, **used.nonlocals}.items():
        if isinstance(value, torch.nn.Module):
            raise InvalidInput(
                f"The function uses the module {name}, whose weights would become constants of the program",
                where="model",
                hint=f"Publish a torch.nn.Module that has {name} as an attribute, or {name} itself.",
            )


def _shapes(
    module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], options: ModelOptions
) -> Any:
    """Return `dynamic_shapes`, with a ShapesCollection resolved."""
    shapes = options.get("dynamic_shapes")
    if shapes is not None and hasattr(shapes, "dynamic_shapes"):
        return shapes.dynamic_shapes(module, tuple(args), dict(kwargs))
    return shapes


def _check_named(module: torch.nn.Module, call: Call) -> None:
    """Refuse calls on which torch.export fails with an internal assertion (as of 2.13)."""
    known = inspect.signature(module.forward).parameters
    for name in call.values:
        if name not in known:
            raise InvalidInput(
                "The model takes this argument by **, for which torch.export does not support dynamic_shapes",
                where=name,
                hint="Name the argument in forward, or publish without dynamic_shapes.",
            )


def _arguments_of(program: ExportedProgram, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a program's arguments by name: those given, else those of its export."""
    call = (tuple(args), dict(kwargs)) if args or kwargs else program.example_inputs
    if call is None:
        raise InvalidInput(
            "The program was saved without example inputs",
            where="args",
            hint="Pass them: pt2hub.publish(program, (x,), name=...).",
        )
    if pytree.tree_structure(call) != program.call_spec.in_spec:
        raise InvalidInput(
            "The example inputs do not match those that the program was exported with",
            where="args",
            hint="Pass the same arguments by position, and the same by name in the same order.",
        )
    signature = program.module_call_graph[0].signature
    names = signature.forward_arg_names if signature else None
    positional = names or [f"arg_{place}" for place in range(len(call[0]))]
    return {**dict(zip(positional, call[0], strict=False)), **call[1]}


def _check_decided(options: ModelOptions) -> None:
    for name in ("dynamic_shapes", *_OF_CODE):
        if options.get(name) is not None:
            raise InvalidInput(
                f"{name} cannot be combined with an exported program",
                where=name,
                hint="Leave it out, or publish the module that the program was exported from.",
            )


def _check_no_entry(options: ModelOptions) -> None:
    for name in _OF_CODE:
        if options.get(name) is None:
            continue
        if options.get("code") is not None:
            raise _entry_required()
        raise InvalidInput(
            f"{name} requires code",
            where=name,
            hint='Set the folder: code="folder".',
        )
