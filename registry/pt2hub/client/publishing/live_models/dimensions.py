"""Conversion of torch's `dynamic_shapes`, in all its forms, to a spec's dimensions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch
from torch.export import Dim

from pt2hub.archive.calls import Dynamic
from pt2hub.errors import DimensionSpecialised, ExampleOutOfRange, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import TypeAlias

    from pt2hub.client.publishing.live_models.arguments import Call

    Wanted: TypeAlias = "dict[str, dict[int, Any]]"
    Sizes: TypeAlias = "Mapping[str, Sequence[int | Dynamic]]"

_DERIVED = re.compile(r"(?:(?P<factor>\d+)\*)?(?P<root>[A-Za-z_]\w*)")
"""torch's text of a dimension: `batch` or `8*batch`."""
_LONGEST_NAME = 32
_LEAST_TRACED = 2
"""torch's minimum for a dimension without a given range; torch does not enforce it."""
_FORMS = 'Write it as for torch.export: {"x": {0: Dim("batch", max=64)}}, by the arguments\' names or in their order.'


def wanted_dims(shapes: Any, call: Call) -> Wanted:
    """Return the dynamic dimensions by path and axis.

    Args:
        shapes: `dynamic_shapes`: by argument name or in argument order; arguments may be omitted.

    Raises:
        InvalidInput: It does not fit the arguments.
        DimensionSpecialised: An example has size 1 there, which torch.export makes a constant.
    """
    found: Wanted = {}
    for name, said in _by_name(shapes, call):
        for path, axis, dim in _iter_dimensions(name, call.values[name], said):
            if _changes(path, axis, dim):
                _check_example(path, axis, dim, call.tensors[path])
                found.setdefault(path, {})[axis] = dim
    return found


def torch_shapes(wanted: Wanted, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same for torch.export, which requires an entry for each argument, even for numbers."""

    def form(path: str, value: object) -> Any:
        if isinstance(value, torch.Tensor):
            return wanted.get(path)
        if type(value) is dict:
            return {key: form(f"{path}.{key}", item) for key, item in value.items()}
        if type(value) is list:
            return [form(f"{path}[{place}]", item) for place, item in enumerate(value)]
        if type(value) is tuple:
            return tuple(form(f"{path}({place})", item) for place, item in enumerate(value))
        return None

    return {name: form(name, value) for name, value in values.items()}


def declared_sizes(wanted: Wanted, call: Call) -> dict[str, list[int | Dynamic]]:
    """Return the inputs' declared sizes, for models that are not exported here."""
    return {
        path: [
            _dynamic(path, axis, wanted[path][axis]) if axis in wanted.get(path, ()) else size
            for axis, size in enumerate(tensor.shape)
        ]
        for path, tensor in call.tensors.items()
    }


def as_spec(
    sizes: Sizes, wanted: Wanted, examples: Mapping[str, torch.Tensor]
) -> tuple[dict[str, list[int | str]], dict[str, Any]]:
    """Return a spec's shapes by path, and its `dims`.

    Raises:
        InvalidInput: A dimension has no largest size, or is a formula that no spec can hold.
    """
    names: dict[str, str] = {}
    factors: dict[str, tuple[int, str]] = {}
    shapes: dict[str, list[int | str]] = {}
    dims: dict[str, Any] = {}
    for path, shape in sizes.items():
        shapes[path] = []
        for axis, size in enumerate(shape):
            if isinstance(size, int):
                shapes[path].append(size)
                continue
            place = f"{path}, axis {axis}"
            _check_formula(size, place, factors)
            if size.symbol not in names:
                name = _free(_dimension_name(path, axis, wanted), names.values())
                names[size.symbol] = name
                bounds = _bounds(size, wanted.get(path, {}).get(axis), f'Dim("{name}", max=64)', place)
                dims[name] = bounds | {"example": examples[path].shape[axis]}
            shapes[path].append(names[size.symbol])
    return shapes, dims


def _by_name(shapes: Any, call: Call) -> Iterator[tuple[str, Any]]:
    if shapes is None:
        return
    if isinstance(shapes, list | tuple) and len(shapes) <= len(call.values):
        yield from zip(call.values, shapes, strict=False)
        return
    if not isinstance(shapes, dict):
        raise _misshapen(
            "",
            "dynamic_shapes must be a dict by name, or a sequence no longer than the arguments",
            call.values,
        )
    for name, said in shapes.items():
        if name in call.values:
            yield name, said
        elif said is not None:
            raise _misshapen(str(name), "Unknown argument", call.values)


def _iter_dimensions(path: str, value: Any, said: Any) -> Iterator[tuple[str, int, Any]]:
    """Yield the path, axis and declaration of every declared dimension."""
    if said is None:
        return
    if isinstance(value, torch.Tensor):
        for axis, dim in _axes(path, value, said):
            yield path, axis, dim
    elif type(value) is dict and isinstance(said, dict) and set(said) <= set(value):
        for key, item in said.items():
            yield from _iter_dimensions(f"{path}.{key}", value[key], item)
    elif type(value) in (list, tuple) and isinstance(said, list | tuple) and len(said) <= len(value):
        step = "[{}]" if type(value) is list else "({})"
        for place, item in enumerate(said):
            yield from _iter_dimensions(path + step.format(place), value[place], item)
    else:
        raise InvalidInput(
            f"The argument is a {type(value).__name__}, which does not match {said!r:.80} in dynamic_shapes",
            where=path,
            hint=f"Only sizes of tensors may change. {_FORMS}",
        )


def _axes(path: str, tensor: torch.Tensor, said: Any) -> Iterator[tuple[int, Any]]:
    rank = tensor.dim()
    if isinstance(said, dict) and all(type(axis) is int and 0 <= axis < rank for axis in said):
        yield from said.items()
    elif isinstance(said, list | tuple) and len(said) == rank:
        yield from enumerate(said)
    else:
        raise InvalidInput(
            f"The tensor has {rank} dimensions, which do not match {said!r:.80} in dynamic_shapes",
            where=path,
            hint=_FORMS,
        )


def _changes(path: str, axis: int, dim: object) -> bool:
    """Return whether a declaration makes a size dynamic; numbers, None and Dim.STATIC do not."""
    if dim is None or type(dim) is int:
        return False
    hint = str(getattr(getattr(dim, "type", None), "name", ""))
    if isinstance(dim, Dim) or hint in ("AUTO", "DYNAMIC", "STATIC"):
        return hint != "STATIC"
    raise InvalidInput(f"Invalid dimension {dim!r:.80}", where=f"{path}, axis {axis}", hint=_FORMS)


def _check_example(path: str, axis: int, dim: object, tensor: torch.Tensor) -> None:
    named = _DERIVED.fullmatch(dim.__name__) if isinstance(dim, Dim) else None
    factor = int(named["factor"] or 1) if named else 1
    size, least, most = tensor.shape[axis], *(_upper_bound(getattr(dim, end, None)) for end in ("min", "max"))
    if size < (least or 0) or (most is not None and size > most):
        raise ExampleOutOfRange(
            f"The example has size {size}, outside the range of {dim!r}",
            where=f"{path}, axis {axis}",
            hint="Pass an example input with a declared size.",
        )
    if size <= factor:
        raise DimensionSpecialised(
            f"The example has size {size} where it may change, and torch.export makes sizes 0 and 1 "
            "(times a factor) constants",
            where=f"{path}, axis {axis}",
            hint=f"Pass an example input of size {2 * factor} or more there; smaller ones may still be served.",
        )


def _dynamic(path: str, axis: int, dim: Any) -> Dynamic:
    if not isinstance(dim, Dim):
        least, most = getattr(dim, "min", None), getattr(dim, "max", None)
        return Dynamic(f"{path} {axis}", 1, least or 0, most)
    named = _DERIVED.fullmatch(dim.__name__)
    if named is None:
        return Dynamic("", 1, 0, None)
    root = getattr(dim, "root", dim)
    factor = int(named["factor"] or 1)
    most = _upper_bound(root.max)
    return Dynamic(named["root"], factor, factor * int(root.min), most and factor * most)


def _upper_bound(size: Any) -> int | None:
    try:
        return int(size)
    except (TypeError, ValueError, OverflowError, AttributeError):
        return None


def _check_formula(size: Dynamic, place: str, factors: dict[str, tuple[int, str]]) -> None:
    if not size.symbol:
        raise InvalidInput(
            "The size is a formula of several terms, which specs do not support",
            where=place,
            hint="A size can be independent, equal to another, or a multiple of a number: Dim(...) or 8 * Dim(...).",
        )
    factor, other = factors.setdefault(size.symbol, (size.factor, place))
    if factor != size.factor:
        raise InvalidInput(
            f"The size is a multiple of {other}'s size, which specs do not support",
            where=place,
            hint="Only equal sizes can be declared: let the model take one of the two inputs and compute the other.",
        )


def _bounds(size: Dynamic, dim: Any, write: str, place: str) -> dict[str, int]:
    if size.most is None:
        times = f"{size.factor} * " if size.factor > 1 else ""
        raise InvalidInput(
            "The dimension has no maximum",
            where=place,
            hint=f"Set one in dynamic_shapes, such as {times}{write}: the artifact is verified up to it.",
        )
    least = _upper_bound(getattr(dim, "min", None))
    if least is None:
        least = 0 if size.least <= _LEAST_TRACED * size.factor else size.least
    step = {"multiple_of": size.factor} if size.factor > 1 else {}
    return {"min": max(least, size.factor), "max": size.most} | step


def _dimension_name(path: str, axis: int, wanted: Wanted) -> str:
    """Return the user's name for a dimension, else one made of argument and axis, as a valid spec name."""
    dim = wanted.get(path, {}).get(axis)
    named = _DERIVED.fullmatch(dim.__name__) if isinstance(dim, Dim) else None
    name = named["root"] if named else f"{path}_{axis}"
    plain = re.sub(r"[^a-z0-9_]+", "_", name.lower())
    return (plain if re.match(r"[a-z_]", plain) else f"_{plain}")[:_LONGEST_NAME]


def _free(name: str, taken: Any) -> str:
    """Return the name, with a number appended if it is taken."""
    used, count, free = set(taken), 2, name
    while free in used:
        ending = f"_{count}"
        free, count = name[: _LONGEST_NAME - len(ending)] + ending, count + 1
    return free


def _misshapen(where: str, problem: str, values: Mapping[str, Any]) -> InvalidInput:
    return InvalidInput(
        problem,
        where=f"dynamic_shapes, {where}".removesuffix(", "),
        hint=f"The arguments are {', '.join(values)}. {_FORMS}",
    )
