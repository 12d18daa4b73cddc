"""Call signatures of exported programs, read from their JSON without torch, and their check against specs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from pt2hub.archive.payloads import MAX_DIMENSIONS, SCALARS, whole_number
from pt2hub.archive.zip.validation import printable_name
from pt2hub.domain.publishing.paths import NAME_PATTERN
from pt2hub.errors import DimensionSpecialised, InputRefused, UnknownInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pt2hub.domain.publishing.spec import DimSpec, Spec

_TREE_VERSION = 1
_CONTAINERS = {"builtins.dict": ".{}", "builtins.list": "[{}]", "builtins.tuple": "({})"}
"""Containers that a spec's paths can enter (`domain.publishing.paths`)."""
_NAME = re.compile(NAME_PATTERN)
_MAX_NAME_CHARS = 200
"""Maximum depth of an argument in a spec (`domain.publishing.inputs`); longer paths are truncated."""
_MAX_ARGUMENTS = 4096
"""Limit on arguments, far above that of a spec."""
_NAMED = 10
"""Maximum number of arguments named in an error."""
_MAX_VALUE_CHARS = 200
_SYMBOL = re.compile(r"(?:Symbol\('(?P<long>\w+)'[^()]*\)|(?P<short>[a-z]+\d+))")
_PRODUCT = re.compile(rf"Mul\(Integer\((?P<factor>[1-9]\d{{0,8}})\), (?P<symbol>{_SYMBOL.pattern})\)")
_SHORT_PRODUCT = re.compile(rf"(?P<factor>[1-9]\d{{0,8}})\*(?P<symbol>{_SYMBOL.pattern})")
_MIN_TRACED_SIZE = 2
"""torch's minimum for a dimension without a given range; torch does not enforce it."""
_EXPORT = "Export the program again with the required sizes and values, or change the spec."


@dataclass(frozen=True, slots=True)
class Dynamic:
    """A dynamic size of a program.

    Attributes:
        symbol: What the program calls it; equal symbols are equal sizes. Empty for a formula of several terms.
        most: Largest size, None without a bound.
    """

    symbol: str
    factor: int
    least: int
    most: int | None

    def __str__(self) -> str:
        """Return the range as text."""
        sizes = f"{self.least} to {self.most}" if self.most else f"{self.least} or more"
        return f"{sizes}, multiples of {self.factor}" if self.factor > 1 else sizes


@dataclass(frozen=True, slots=True)
class ProgramInput:
    """A tensor input of the program.

    Attributes:
        name: Its path in the call, as a spec names inputs (`domain.publishing.paths`).
    """

    name: str
    dtype: str
    shape: tuple[int | Dynamic, ...]


@dataclass(frozen=True, slots=True)
class ProgramCall:
    """Call signature of a program.

    Attributes:
        inputs: Its tensors, in order.
        fixed: Its other arguments by path, and the only values it takes.
    """

    inputs: tuple[ProgramInput, ...]
    fixed: Mapping[str, Any]
    others: tuple[str, ...]


def read_call(program: Mapping[str, Any]) -> ProgramCall:
    """Return a program's call signature.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: It is not as torch writes it.
    """
    module = program["graph_module"]
    signature = module["module_call_graph"][0]["signature"]
    version, tree = json.loads(signature["in_spec"])
    if version != _TREE_VERSION:
        raise ValueError(version)
    kinds = ("user_input", "constant_input")
    leaves = [item for item in module["signature"]["input_specs"] if next(iter(item)) in kinds]
    paths = list(islice(_paths(tree, signature.get("forward_arg_names")), _MAX_ARGUMENTS))
    inputs, fixed, others = [], {}, []
    for (path, nameable), leaf in zip(paths, leaves, strict=True):
        if not nameable or "as_tensor" not in leaf.get("user_input", {}).get("arg", {"as_tensor": 0}):
            others.append(path)
        elif "constant_input" in leaf:
            fixed[path] = _value(leaf["constant_input"]["value"])
        else:
            tensor = module["graph"]["tensor_values"][leaf["user_input"]["arg"]["as_tensor"]["name"]]
            if len(tensor["sizes"]) > MAX_DIMENSIONS:
                raise ValueError(path)
            shape = tuple(_size(size, program["range_constraints"]) for size in tensor["sizes"])
            inputs.append(ProgramInput(path, SCALARS[tensor["dtype"]], shape))
    return ProgramCall(tuple(inputs), fixed, tuple(others))


def check_call(call: ProgramCall, spec: Spec) -> None:
    """Refuse a spec whose inputs do not match the program's call signature.

    Raises:
        UnknownInput: The spec names an argument that the program lacks.
        InputRefused: An argument is missing, or has another dtype, rank, size or value.
        DimensionSpecialised: A dimension of the spec is wider than the program's own.
    """
    given = {item.name: item for item in spec.inputs}
    known = [item.name for item in call.inputs] + list(call.fixed)
    if call.others:
        raise InputRefused(
            f"the program has arguments that a spec cannot describe: {_few(call.others)}",
            where="source.program",
            hint="Export it with tensors and fixed values as arguments, alone or in dicts, lists and tuples.",
        )
    for name in (*given, *spec.fixed):
        if name not in known:
            raise UnknownInput(
                f"the program has no argument {name}",
                where=f"inputs.{name}" if name in given else f"fixed.{name}",
                hint=f"It was exported with {_few(known)}.",
            )
    _check_fixed(call.fixed, spec)
    symbols: dict[tuple[str, int], tuple[str, object]] = {}
    for wanted in call.inputs:
        if wanted.name not in given:
            raise InputRefused(
                f"the program needs an input {wanted.name}: {_form(wanted.dtype, wanted.shape)}",
                where="inputs",
                hint=f"Add it. The program was exported with {_few(known)}.",
            )
        item = given[wanted.name]
        if item.dtype != wanted.dtype or len(item.shape) != len(wanted.shape):
            raise InputRefused(
                f"the program takes {_form(wanted.dtype, wanted.shape)}, the spec says {_form(item.dtype, item.shape)}",
                where=f"inputs.{wanted.name}",
                hint=_EXPORT,
            )
        for axis, (own, said) in enumerate(zip(wanted.shape, item.shape, strict=True)):
            where = f"inputs.{wanted.name}.shape[{axis}]"
            _check_size(own, said, spec.dims, where)
            _check_equal(symbols, own, said, where)


def _check_fixed(fixed: Mapping[str, Any], spec: Spec) -> None:
    for name, value in fixed.items():
        written = json.dumps(value)[:_MAX_VALUE_CHARS]
        if name not in spec.fixed:
            raise InputRefused(
                f"the program was exported with {name} = {written} and takes no other value",
                where="fixed",
                hint=f"Write fixed: {{{name}: {written}}}.",
            )
        said = spec.fixed[name]
        if said != value or isinstance(said, bool) != isinstance(value, bool):
            raise InputRefused(
                f"the program was exported with {name} = {written}, the spec says {json.dumps(said)[:_MAX_VALUE_CHARS]}",
                where=f"fixed.{name}",
                hint=_EXPORT,
            )


def _check_size(own: int | Dynamic, said: int | str, dims: Mapping[str, DimSpec], where: str) -> None:
    if isinstance(said, str):
        _check_range(own, dims[said], said, where)
    elif isinstance(own, int):
        if own != said:
            raise InputRefused(
                f"the program takes size {own}, the spec says {said}", where=where, hint=_EXPORT
            )
    elif said % own.factor or said < _least(own) or (own.most is not None and said > own.most):
        raise InputRefused(f"the program takes {own}, the spec says {said}", where=where, hint=_EXPORT)


def _check_range(own: int | Dynamic, dim: DimSpec, name: str, where: str) -> None:
    said = f"{dim.min} to {dim.max}" + (f", multiples of {dim.multiple_of}" if dim.multiple_of > 1 else "")
    if isinstance(own, int):
        raise DimensionSpecialised(
            f"the program only takes size {own}; dims.{name} says {said}",
            where=where,
            hint=f"Write {own} in the shape, or export the program with this dimension dynamic.",
        )
    wide = dim.min < _least(own) or (own.most is not None and dim.max > own.most)
    if wide or dim.multiple_of % own.factor:
        raise DimensionSpecialised(
            f"the program takes {own}; dims.{name} says {said}",
            where=where,
            hint=f"Narrow dims.{name} to {own}, or export the program with a wider range.",
        )


def _least(own: Dynamic) -> int:
    return own.factor if own.least <= _MIN_TRACED_SIZE * own.factor else own.least


def _check_equal(
    symbols: dict[tuple[str, int], tuple[str, object]], own: int | Dynamic, said: object, where: str
) -> None:
    """Refuse a spec that gives one size of the program several dimensions."""
    if isinstance(own, int) or not own.symbol:
        return
    place, before = symbols.setdefault((own.symbol, own.factor), (where, said))
    if before != said:
        raise InputRefused(
            f"the program takes the same size here and at {place}; the spec says {said} and {before}",
            where=where,
            hint="Write the same dimension in both shapes.",
        )


def _few(names: Iterable[str]) -> str:
    first = [printable_name(name) for name in islice(names, _NAMED + 1)]
    return ", ".join([*first[:_NAMED], "..."] if len(first) > _NAMED else first)


def _form(dtype: str, shape: tuple[object, ...] | list[Any]) -> str:
    return f"{dtype}[{', '.join(f'({size})' if isinstance(size, Dynamic) else str(size) for size in shape)}]"


def _paths(tree: Mapping[str, Any], names: list[str] | None) -> Iterator[tuple[str, bool]]:
    """Yield the paths of a call's leaves, and whether a spec can describe each."""
    positional, keywords = tree["children_spec"]
    given = names or [f"arg_{place}" for place in range(len(positional["children_spec"]))]
    for name, item in zip(given, positional["children_spec"], strict=False):
        yield from _leaves(name, item, nameable=True)
    for name, item in zip(json.loads(keywords["context"]), keywords["children_spec"], strict=True):
        yield from _leaves(name, item, nameable=True)


def _leaves(path: str, item: Mapping[str, Any], *, nameable: bool) -> Iterator[tuple[str, bool]]:
    if len(path) > _MAX_NAME_CHARS:
        path, nameable = path[:_MAX_NAME_CHARS], False
    kind, children = item["type"], item["children_spec"]
    if kind is None:
        yield path, _NAME.fullmatch(path) is not None and nameable
        return
    keys = json.loads(item["context"]) if kind == "builtins.dict" else range(len(children))
    step = _CONTAINERS.get(kind, "[{}]")
    for key, child in zip(keys, children, strict=True):
        yield from _leaves(path + step.format(key), child, nameable=nameable and kind in _CONTAINERS)


def _size(size: Any, ranges: Mapping[str, Mapping[str, Any]]) -> int | Dynamic:
    if isinstance(size, int) or "as_int" in size:
        return whole_number(size)
    expression = size["as_expr"]["expr_str"]
    product = _PRODUCT.fullmatch(expression) or _SHORT_PRODUCT.fullmatch(expression)
    symbol = _SYMBOL.fullmatch(product["symbol"] if product else expression)
    if symbol is None:
        return Dynamic("", 1, 0, None)
    name, factor = symbol["long"] or symbol["short"], int(product["factor"]) if product else 1
    bounds = ranges.get(name, {})
    least, most = (
        None if bounds.get(end) is None else factor * whole_number(bounds[end])
        for end in ("min_val", "max_val")
    )
    return Dynamic(name, factor, least or 0, most)


def _value(value: Mapping[str, Any]) -> Any:
    ((kind, found),) = value.items()
    if kind != "as_none" and not isinstance(found, bool | int | float | str):
        raise ValueError(kind)
    return None if kind == "as_none" else found


__all__ = ["Dynamic", "ProgramCall", "ProgramInput", "check_call", "read_call"]
