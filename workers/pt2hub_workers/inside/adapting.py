"""A model as its spec calls it: with the fixed arguments bound, and the chosen outputs alone."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from pt2hub.errors import InputMutated, UnsupportedOutput
from pt2hub_workers.inside import calling, eager

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pt2hub.domain.specs import Spec
    from pt2hub_workers.inside.calling import Call
    from pt2hub_workers.inside.inputs import Tensors

    Forward = Callable[..., Any]
    Steps = tuple[tuple[str | None, int], ...]
    Outputs = tuple[tuple[str, Steps], ...]

_CALL = "pt2hub_call"
_COPIES = "pt2hub_copies"
_WRITES = "pt2hub_writes"
_STEP = re.compile(r"\.(?P<name>\w+)|\[(?P<place>\d+)\]")
_SHOWN = 12
"""Parts of a result that an error lists."""


def adapt(model: torch.nn.Module, spec: Spec) -> torch.nn.Module:
    """The model whose forward takes the spec's tensors, by name, and returns the outputs that the spec keeps.

    Weights keep their names, and a copy of the result is adapted likewise. Mappings and dataclasses among the outputs
    become dicts without their None entries, named tuples plain ones: what a caller can read with torch alone.

    Args:
        model: As the source built it; changed in place.
        spec: For `inputs`, `fixed` and `outputs`.

    Raises:
        UnknownInput: The spec names an argument that forward lacks.
        InputRefused: forward needs an argument that the spec does not give.
    """
    call = calling.plan(model.forward, spec)
    cls, kept = (_plain_graph if isinstance(model, torch.fx.GraphModule) else _own_class)(model)
    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    base = torch.nn.Module if isinstance(model, torch.fx.GraphModule) else cls
    forward = _forward(_inner(model, cls), call, tuple((path, _steps(path)) for path in spec.outputs))
    # The same names: libraries look things up by them, and groups of weights are named by them.
    model.__class__ = type(
        cls.__name__, (_Unannounced, base), {**kept, **names, "forward": forward, _CALL: call}
    )
    setattr(model, _COPIES, frozenset())
    return model


class _Unannounced:
    """Keeps a class from being announced to those above it: some ask for arguments then, or keep a register."""

    def __init_subclass__(cls, **_: object) -> None:
        """Tells nobody."""


def call_of(model: torch.nn.Module) -> Call:
    """How an adapted model is called."""
    found: Call = getattr(model, _CALL)
    return found


def buffers_written(model: torch.nn.Module) -> frozenset[str]:
    """Names of the buffers that an adapted model wrote other values to at the example, as `settle` found."""
    found: frozenset[str] = getattr(model, _WRITES, frozenset())
    return found


def _own_class(model: torch.nn.Module) -> tuple[type, dict[str, Any]]:
    return type(model), {}


def _plain_graph(model: torch.nn.Module) -> tuple[type, dict[str, Any]]:
    """A graph module's class, and what belongs to all copies of it; it is made an ordinary module.

    A copy of a graph module writes its forward anew, and a program's checks its own way of being called first.
    """
    plain = set(torch.nn.Module().__dict__)
    model._forward_pre_hooks.clear()  # noqa: SLF001  # torch.export put them there
    model._forward_pre_hooks_with_kwargs.clear()  # noqa: SLF001
    return type(model), {name: model.__dict__.pop(name) for name in set(model.__dict__) - plain}


def _inner(model: torch.nn.Module, cls: type) -> Forward:
    """The model's own forward as a function of the module, so that a copy calls its own."""
    own = model.__dict__.pop("forward", None)  # set on the instance, which would hide the class's
    if own is None:
        found: Forward = cls.forward  # type: ignore[attr-defined]  # of a module
        return found
    if getattr(own, "__self__", None) is model:
        return own.__func__
    return lambda _, *args, **kwargs: own(*args, **kwargs)


def _forward(inner: Forward, call: Call, outputs: Outputs) -> Forward:
    names, positional, keywords = call.tensors, call.positional, call.keywords

    def forward(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  # as the model's own
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        ordered: list[Any] = []
        for name, how in positional:
            if how[0] == "many":
                ordered += calling.made(how[1], given.get(name))
            else:
                ordered.append(calling.made(how, given.get(name)))
        named = {name: calling.made(how, given.get(name)) for name, how in keywords}
        result = _kept(inner(self, *ordered, **named), outputs)
        copies = getattr(self, _COPIES)
        return _copied(result, copies) if copies else result

    forward.__signature__ = call.signature  # type: ignore[attr-defined]  # as inspect documents it
    return forward


def _steps(path: str) -> tuple[tuple[str | None, int], ...]:
    """The steps of an output's path: each a name, or None and a place."""
    return tuple((step["name"], int(step["place"] or 0)) for step in _STEP.finditer(path))


def _kept(result: Any, outputs: Outputs) -> Any:  # noqa: ANN401  # whatever the model returns
    if not outputs:
        return _normal(result)
    found = {
        path.removeprefix("."): _normal(_picked(result, place, outputs))
        for place, (path, _) in enumerate(outputs)
    }
    return next(iter(found.values())) if len(found) == 1 else found


def _normal(value: Any) -> Any:  # noqa: ANN401  # whatever the model returns
    """The same in plain dicts, lists and tuples."""
    if isinstance(value, torch.Tensor):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, Mapping | type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _normal(item) for key, item in value.items() if item is not None}
    if isinstance(value, tuple):
        return tuple([_normal(item) for item in value])
    return [_normal(item) for item in value] if isinstance(value, list) else value


def _picked(result: Any, place: int, outputs: Outputs) -> Any:  # noqa: ANN401  # whatever the model returns
    path, steps = outputs[place]
    value = result
    for name, number in steps:
        value = _stepped(value, name, number)
        if value is None:
            raise UnsupportedOutput(
                f"the model returns nothing at {path}",
                where=f"outputs[{place}]",
                hint=f"It returns {', '.join(_parts(result)) or 'nothing'}.",
            )
    return value


def _stepped(value: Any, name: str | None, place: int) -> Any:  # noqa: ANN401  # whatever the model returns
    """One step into a result; None where it does not lead anywhere."""
    if name is not None:
        return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    if isinstance(value, Mapping):  # a ModelOutput counts its entries, as transformers does
        value = tuple(item for item in value.values() if item is not None)
    return value[place] if isinstance(value, list | tuple) and place < len(value) else None


def _parts(result: Any) -> list[str]:  # noqa: ANN401  # whatever the model returns
    """What a result consists of, with the paths that lead there, for errors."""
    return [f"{path or 'one value'} ({_described(item)})" for path, item in _walked(_normal(result), "")][
        :_SHOWN
    ]


def _walked(value: Any, path: str) -> Iterator[tuple[str, Any]]:  # noqa: ANN401  # whatever the model returns
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _walked(item, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from _walked(item, f"{path}[{place}]")
    else:
        yield path, value


def _described(value: Any) -> str:  # noqa: ANN401  # whatever the model returns
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"


def _copied(result: Any, places: frozenset[int]) -> Any:  # noqa: ANN401  # whatever the model returns
    leaves, form = pytree.tree_flatten(result)
    return pytree.tree_unflatten(
        [leaf.clone() if place in places else leaf for place, leaf in enumerate(leaves)], form
    )


@dataclasses.dataclass(frozen=True, slots=True)
class FirstCalls:
    """What two calls of a model on the same inputs showed, from the same buffers.

    Attributes:
        first: Outputs of the first one.
        second: Outputs of the second one.
        notes: What the artifact returns copies of.
    """

    first: eager.Outputs
    second: eager.Outputs
    notes: tuple[str, ...]


def settle(module: torch.nn.Module, inputs: Tensors) -> FirstCalls:
    """Has the model return copies of outputs that share memory with anything else.

    Compiled code would hand out the caller's own tensor, or memory of the weights that every call reads.

    Args:
        module: Adapted, on the device, in the target's dtype.
        inputs: Those of the example, as the target takes them.

    Raises:
        InputMutated: The model writes to an input.
        UnsupportedOutput: The model returns something other than dense tensors.
    """
    setattr(module, _COPIES, frozenset())
    given, also = ({name: tensor.clone() for name, tensor in inputs.items()} for _ in range(2))
    before = {name: buffer.clone() for name, buffer in module.named_buffers(remove_duplicate=False)}
    with eager.buffers_kept(module):
        outputs = eager.check_outputs(eager.run(module, given))
        first = eager.copied(outputs)
        setattr(module, _WRITES, frozenset(_rewritten(module, before)))
    for name, tensor in given.items():
        if not _equal(tensor, inputs[name]):
            raise mutated(name)
    with eager.buffers_kept(module):
        again = eager.check_outputs(eager.run(module, also))
        second = eager.copied(again)
        known = {f"input {name}": tensor for name, tensor in given.items()}
        known |= {f"the weight {name}": tensor.detach() for name, tensor in module.named_parameters()}
        known |= {f"the buffer {name}": tensor for name, tensor in module.named_buffers()}
        shared = dict(_shared(outputs, again, known))
    setattr(module, _COPIES, frozenset(shared))
    notes = (
        f"output {place} shares memory with {what}: the artifact returns a copy"
        for place, what in shared.items()
    )
    return FirstCalls(first, second, tuple(notes))


def mutated(name: str) -> InputMutated:
    """The error of a model that writes to an input."""
    return InputMutated(
        f"the model writes to its input {name}",
        where=f"inputs.{name}",
        hint="Have it work on a copy, such as x = x.clone(), or use the operation that returns a new tensor "
        "(x + 1 for x += 1, relu for relu_).",
    )


def _rewritten(module: torch.nn.Module, before: Mapping[str, torch.Tensor]) -> Iterator[str]:
    """Names of buffers with other values than before; one of another size is a cache, which no caller sees."""
    for name, buffer in module.named_buffers(remove_duplicate=False):
        kept = before.get(name)
        if kept is not None and kept.shape == buffer.shape and not _equal(kept, buffer):
            yield name


def _equal(left: torch.Tensor, right: torch.Tensor) -> bool:
    return bool(((left == right) | ((left != left) & (right != right))).all())  # noqa: PLR0124  # NaN equals NaN here


def _shared(
    outputs: eager.Outputs, again: eager.Outputs, known: Mapping[str, torch.Tensor]
) -> Iterator[tuple[int, str]]:
    """Places of the outputs that share memory, and with what.

    Args:
        outputs: Of one run.
        again: Of another, while the first are kept: what lies in the same memory outlives the calls.
        known: Tensors by what to call them.
    """
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
    """Whether two tensors reach into the same memory; those that interleave count too."""
    if not left.numel() or not right.numel():
        return False
    if left.untyped_storage().data_ptr() != right.untyped_storage().data_ptr():
        return False
    (begin, end), (other, last) = _extent(left), _extent(right)
    return begin < last and other < end


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Where in its storage a tensor begins and ends, in bytes."""
    span = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    begin = int(tensor.storage_offset()) * tensor.element_size()
    return begin, begin + (int(span) + 1) * tensor.element_size()
