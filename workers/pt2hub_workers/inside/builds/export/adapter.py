"""Adapts a model to its spec: binds the fixed arguments and selects the outputs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from pt2hub.errors import InputMutated, UnsupportedOutput
from pt2hub_workers.inside.builds.export import call as calling
from pt2hub_workers.inside.builds.export import eager

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pt2hub.domain.publishing.spec import Spec
    from pt2hub_workers.inside.builds.export.call import Call
    from pt2hub_workers.inside.builds.export.inputs import Tensors

    Forward = Callable[..., Any]
    Steps = tuple[tuple[str | None, int], ...]
    Outputs = tuple[tuple[str, Steps], ...]

_CALL = "pt2hub_call"
_COPIES = "pt2hub_copies"
_WRITES = "pt2hub_writes"
_STEP = re.compile(r"\.(?P<name>\w+)|\[(?P<place>\d+)\]")
_MAX_SHOWN = 12
"""Maximum number of parts of a result that an error lists."""


def adapt_model(model: torch.nn.Module, spec: Spec) -> torch.nn.Module:
    """Make the model's forward take the spec's tensors by name and return the outputs that the spec selects.

    Weights keep their names, and a copy of the result is adapted too. Mappings and dataclasses among the outputs become
    dicts without None entries, and named tuples become plain ones, so that a caller needs torch alone to read them.
    """
    call = calling.plan_call(model.forward, spec)
    cls, kept = (_plain_graph if isinstance(model, torch.fx.GraphModule) else _class_of)(model)
    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    base = torch.nn.Module if isinstance(model, torch.fx.GraphModule) else cls
    forward = _make_forward(
        _own_forward(model, cls), call, tuple((path, _steps(path)) for path in spec.outputs)
    )
    # The same names: libraries look things up by them, and groups of weights are named by them.
    model.__class__ = type(
        cls.__name__, (_WithoutSubclassHook, base), {**kept, **names, "forward": forward, _CALL: call}
    )
    setattr(model, _COPIES, frozenset())
    return model


class _WithoutSubclassHook:
    """Mixin that skips `__init_subclass__` of the base classes: some require arguments there, or keep a registry."""

    def __init_subclass__(cls, **_: object) -> None:
        """Do nothing."""


def get_call(model: torch.nn.Module) -> Call:
    """Return the call of an adapted model."""
    found: Call = getattr(model, _CALL)
    return found


def get_written_buffers(model: torch.nn.Module) -> frozenset[str]:
    """Return the names of the buffers that an adapted model changed on the example, found by `copy_shared_outputs`."""
    found: frozenset[str] = getattr(model, _WRITES, frozenset())
    return found


def _class_of(model: torch.nn.Module) -> tuple[type, dict[str, Any]]:
    return type(model), {}


def _plain_graph(model: torch.nn.Module) -> tuple[type, dict[str, Any]]:
    """Make a graph module an ordinary one; return its class and the attributes that all its copies share.

    A copy of a graph module generates its forward anew, and the program's pre-hooks check the original call first.
    """
    plain = set(torch.nn.Module().__dict__)
    model._forward_pre_hooks.clear()  # noqa: SLF001  # torch.export put them there
    model._forward_pre_hooks_with_kwargs.clear()  # noqa: SLF001
    return type(model), {name: model.__dict__.pop(name) for name in set(model.__dict__) - plain}


def _own_forward(model: torch.nn.Module, cls: type) -> Forward:
    """Return the model's own forward as a function of the module, so that a copy calls its own."""
    own = model.__dict__.pop("forward", None)  # set on the instance, it would hide the one of the class
    if own is None:
        found: Forward = cls.forward  # type: ignore[attr-defined]  # of a module
        return found
    if getattr(own, "__self__", None) is model:
        return own.__func__
    return lambda _, *args, **kwargs: own(*args, **kwargs)


def _make_forward(inner: Forward, call: Call, outputs: Outputs) -> Forward:
    names, positional, keywords = call.tensors, call.positional, call.keywords

    def forward(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        ordered: list[Any] = []
        for name, how in positional:
            if how[0] == "many":
                ordered += calling.make_argument(how[1], given.get(name))
            else:
                ordered.append(calling.make_argument(how, given.get(name)))
        named = {name: calling.make_argument(how, given.get(name)) for name, how in keywords}
        result = _select_outputs(inner(self, *ordered, **named), outputs)
        copies = getattr(self, _COPIES)
        return _copy(result, copies) if copies else result

    forward.__signature__ = call.signature  # type: ignore[attr-defined]  # as inspect documents it
    return forward


def _steps(path: str) -> tuple[tuple[str | None, int], ...]:
    """Return the steps of an output's path: a name, or None and an index."""
    return tuple((step["name"], int(step["place"] or 0)) for step in _STEP.finditer(path))


def _select_outputs(result: Any, outputs: Outputs) -> Any:
    if not outputs:
        return _to_plain(result)
    found = {
        path.removeprefix("."): _to_plain(_select_output(result, place, outputs))
        for place, (path, _) in enumerate(outputs)
    }
    return next(iter(found.values())) if len(found) == 1 else found


def _to_plain(value: Any) -> Any:
    """Convert a value to plain dicts, lists and tuples."""
    if isinstance(value, torch.Tensor):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, Mapping | type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _to_plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, tuple):
        return tuple([_to_plain(item) for item in value])
    return [_to_plain(item) for item in value] if isinstance(value, list) else value


def _select_output(result: Any, place: int, outputs: Outputs) -> Any:
    path, steps = outputs[place]
    value = result
    for name, number in steps:
        value = _step(value, name, number)
        if value is None:
            raise UnsupportedOutput(
                f"the model has no output {path}",
                where=f"outputs[{place}]",
                hint=f"It returns {', '.join(_describe_parts(result)) or 'nothing'}.",
            )
    return value


def _step(value: Any, name: str | None, place: int) -> Any:
    """Follow one step into a result; return None if it leads nowhere."""
    if name is not None:
        return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    if isinstance(value, Mapping):  # a ModelOutput is indexed by its entries, as in transformers
        value = tuple(item for item in value.values() if item is not None)
    return value[place] if isinstance(value, list | tuple) and place < len(value) else None


def _describe_parts(result: Any) -> list[str]:
    """Return the parts of a result with their paths, for errors."""
    return [f"{path or 'one value'} ({_describe(item)})" for path, item in _walk(_to_plain(result), "")][
        :_MAX_SHOWN
    ]


def _walk(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _walk(item, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from _walk(item, f"{path}[{place}]")
    else:
        yield path, value


def _describe(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"


def _copy(result: Any, places: frozenset[int]) -> Any:
    leaves, form = pytree.tree_flatten(result)
    return pytree.tree_unflatten(
        [leaf.clone() if place in places else leaf for place, leaf in enumerate(leaves)], form
    )


@dataclasses.dataclass(frozen=True, slots=True)
class FirstCalls:
    """Outputs of two calls of a model on the same inputs, with the same buffers."""

    first: eager.Outputs
    second: eager.Outputs
    notes: tuple[str, ...]


def copy_shared_outputs(module: torch.nn.Module, inputs: Tensors) -> FirstCalls:
    """Make the model return copies of outputs that share memory with anything else.

    Compiled code would return the caller's own tensor, or memory of the weights that every call reads.

    Raises:
        InputMutated: The model writes to an input.
    """
    setattr(module, _COPIES, frozenset())
    given, also = ({name: tensor.clone() for name, tensor in inputs.items()} for _ in range(2))
    before = {name: buffer.clone() for name, buffer in module.named_buffers(remove_duplicate=False)}
    with eager.preserve_buffers(module):
        outputs = eager.check_outputs(eager.run(module, given))
        first = eager.copy_outputs(outputs)
        setattr(module, _WRITES, frozenset(_rewritten_buffers(module, before)))
    for name, tensor in given.items():
        if not _is_equal(tensor, inputs[name]):
            raise input_mutated_error(name)
    with eager.preserve_buffers(module):
        again = eager.check_outputs(eager.run(module, also))
        second = eager.copy_outputs(again)
        known = {f"input {name}": tensor for name, tensor in given.items()}
        known |= {f"the weight {name}": tensor.detach() for name, tensor in module.named_parameters()}
        known |= {f"the buffer {name}": tensor for name, tensor in module.named_buffers()}
        shared = dict(_find_shared_memory(outputs, again, known))
    setattr(module, _COPIES, frozenset(shared))
    notes = (
        f"output {place} shares memory with {what}: the artifact returns a copy"
        for place, what in shared.items()
    )
    return FirstCalls(first, second, tuple(notes))


def input_mutated_error(name: str) -> InputMutated:
    """Return the error for a model that writes to an input."""
    return InputMutated(
        f"the model writes to its input {name}",
        where=f"inputs.{name}",
        hint="Work on a copy (x = x.clone()), or use the operation that returns a new tensor "
        "(x + 1 for x += 1, relu for relu_).",
    )


def _rewritten_buffers(module: torch.nn.Module, before: Mapping[str, torch.Tensor]) -> Iterator[str]:
    """Yield the names of buffers with changed values; a buffer of another size is a cache, which no caller sees."""
    for name, buffer in module.named_buffers(remove_duplicate=False):
        kept = before.get(name)
        if kept is not None and kept.shape == buffer.shape and not _is_equal(kept, buffer):
            yield name


def _is_equal(left: torch.Tensor, right: torch.Tensor) -> bool:
    return bool(((left == right) | ((left != left) & (right != right))).all())  # noqa: PLR0124  # NaN equals NaN here


def _find_shared_memory(
    outputs: eager.Outputs, again: eager.Outputs, known: Mapping[str, torch.Tensor]
) -> Iterator[tuple[int, str]]:
    """Yield the index of each output that shares memory, and with what."""
    for place, output in enumerate(outputs):
        found = next((name for name, tensor in known.items() if _overlap(output, tensor)), None)
        before = next((n for n, other in enumerate(outputs[:place]) if _overlap(output, other)), None)
        if found is not None:
            yield place, found
        elif any(_overlap(output, other) for other in again):
            yield place, "a constant of the model"
        elif before is not None:
            yield place, f"output {before}"


def _overlap(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return whether the memory ranges of two tensors overlap; interleaved tensors count too."""
    if not left.numel() or not right.numel():
        return False
    if left.untyped_storage().data_ptr() != right.untyped_storage().data_ptr():
        return False
    (begin, end), (other, last) = _extent(left), _extent(right)
    return begin < last and other < end


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the start and the end of a tensor in its storage, in bytes."""
    span = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    begin = int(tensor.storage_offset()) * tensor.element_size()
    return begin, begin + (int(span) + 1) * tensor.element_size()
