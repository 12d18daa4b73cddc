"""Calls of a model: its arguments, assembled from tensors and fixed values as the spec says."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pt2hub.domain.publishing.paths import Step, nest, parse
from pt2hub.errors import InputRefused, UnknownInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import torch

    from pt2hub.domain.publishing.spec import Spec

T = TypeVar("T")
Parameters = dict[str, inspect.Parameter]
Node = tuple[Any, ...]
"""Recipe of one value: `("given",)`, `("fixed", value)`, or a container with its parts, each with its key, its
index among the given ones and its own recipe. Plain tuples, because TorchDynamo reads them too."""

_ORDERED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def arguments(tensors: Mapping[str, T]) -> dict[str, Any]:
    """Return the arguments of an adapted model.

    Args:
        tensors: Its tensors, or placeholders for them, by path.

    Returns:
        Arguments by name. Lists and tuples contain only the tensors: fixed values are left out.
    """
    names = _close_gaps(tensors)
    return nest({names[path]: value for path, value in tensors.items()})


def order_arguments(
    module: torch.nn.Module, values: Mapping[str, T]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional arguments while they follow forward's own order, and keywords after a gap."""
    given = arguments(values)
    parameters = inspect.signature(module.forward).parameters.values()
    args = [given[item.name] for item in parameters if item.kind is item.POSITIONAL_OR_KEYWORD]
    return tuple(args), {item.name: given[item.name] for item in parameters if item.kind is item.KEYWORD_ONLY}


def _close_gaps(paths: Iterable[str]) -> dict[str, str]:
    """Map each path to one whose indices of lists and tuples are renumbered without gaps."""
    parsed = {path: parse(path) for path in paths}
    places: dict[str, set[int]] = {}
    for root, steps in parsed.values():
        at = root
        for step in steps:
            if isinstance(step.key, int):
                places.setdefault(at, set()).add(step.key)
            at += str(step)
    return {path: _recount(root, steps, places) for path, (root, steps) in parsed.items()}


def _recount(root: str, steps: tuple[Step, ...], places: Mapping[str, set[int]]) -> str:
    at = new = root
    for step in steps:
        key = sorted(places[at]).index(step.key) if isinstance(step.key, int) else step.key
        new += str(Step(step.container, key))
        at += str(step)
    return new


@dataclass(frozen=True, slots=True)
class PassedArgument:
    """Placeholder for a tensor in a call's template."""


@dataclass(frozen=True, slots=True)
class FixedArgument:
    """Fixed value in a call's template."""

    value: Any


@dataclass(frozen=True, slots=True)
class Call:
    """The call of a model's forward.

    Attributes:
        tensors: Names of the arguments that contain tensors, in forward's own order.
        ordered: Number of them that may be passed by position, as in forward itself.
        positional: Recipes of the positional arguments.
        keywords: Recipes of the keyword arguments, by name.
    """

    tensors: tuple[str, ...]
    ordered: int
    arguments: tuple[str, ...]
    fixed: Mapping[str, Any]
    positional: tuple[tuple[str, Node], ...]
    keywords: tuple[tuple[str, Node], ...]

    @property
    def signature(self) -> inspect.Signature:
        """Signature of the adapted forward."""
        plain, keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
        parameters = [
            inspect.Parameter(name, plain if place < self.ordered else keyword)
            for place, name in enumerate(self.tensors)
        ]
        return inspect.Signature([inspect.Parameter("self", plain), *parameters])


def plan_call(forward: Callable[..., Any], spec: Spec) -> Call:
    """Plan the call of a model's forward for a spec."""
    parameters = dict(inspect.signature(forward).parameters)
    tensors = [item.name for item in spec.inputs]
    _check_known(parameters, tensors, spec.fixed)
    template = nest(
        {**dict.fromkeys(tensors, PassedArgument()), **{k: FixedArgument(v) for k, v in spec.fixed.items()}}
    )
    _check_complete(parameters, template)
    nodes = {name: describe_argument(value) for name, value in template.items()}
    positional = tuple(_positional_nodes(parameters, nodes))
    taken = {name for name, _ in positional}
    roots = {parse(name)[0] for name in tensors}
    in_order = [name for name in (*parameters, *nodes) if name in roots]
    names = tuple(dict.fromkeys(in_order))
    return Call(
        tensors=names,
        ordered=_count_leading(parameters, names),
        arguments=tuple(_positional_names(parameters, template)),
        fixed={**spec.fixed, **_defaults(parameters, template)},
        positional=positional,
        keywords=tuple((name, made) for name, made in nodes.items() if name not in taken),
    )


def describe_argument(value: object) -> Node:
    """Return the recipe of a template's value."""
    if isinstance(value, PassedArgument):
        return ("given",)
    if isinstance(value, FixedArgument):
        return ("fixed", value.value)
    assert isinstance(value, dict | list | tuple)
    items = list(value.items() if isinstance(value, dict) else enumerate(value))
    parts, place = [], 0
    for key, item in items:
        made = describe_argument(item)
        own = _holds_tensor(made)
        parts.append((key, (key if isinstance(value, dict) else place) if own else None, made))
        place += own
    return (type(value).__name__, tuple(parts))


def make_argument(how: Node, given: Any) -> Any:
    """Return one argument of the model's own forward.

    Args:
        given: The same argument as passed to the adapted forward; None if all of it is fixed.
    """
    if how[0] == "given":
        return given
    if how[0] == "fixed":
        return _copy_fixed(how[1])
    parts = [
        (key, make_argument(item, None if place is None else given[place])) for key, place, item in how[1]
    ]
    if how[0] == "dict":
        return dict(parts)
    values = [value for _, value in parts]
    return values if how[0] == "list" else tuple(values)


def _copy_fixed(value: Any) -> Any:
    """Copy a fixed value, because the model may write to it."""
    if isinstance(value, dict):
        return {key: _copy_fixed(item) for key, item in value.items()}
    return [_copy_fixed(item) for item in value] if isinstance(value, list) else value


def _holds_tensor(how: Node) -> bool:
    return how[0] == "given" or (how[0] != "fixed" and any(_holds_tensor(item) for _, _, item in how[1]))


def _check_known(parameters: Parameters, tensors: list[str], fixed: Mapping[str, Any]) -> None:
    kinds = {parameter.kind: name for name, parameter in parameters.items()}
    any_keyword = inspect.Parameter.VAR_KEYWORD in kinds
    for path, where in [*((n, f"inputs.{n}") for n in tensors), *((n, f"fixed.{n}") for n in fixed)]:
        root, steps = parse(path)
        found = parameters.get(root)
        if found is None and not any_keyword:
            raise UnknownInput(
                f"forward has no argument {root!r}",
                where=where,
                hint=f"The signature is forward{_signature_text(parameters)}.",
            )
        if found is not None and found.kind is inspect.Parameter.VAR_KEYWORD:
            raise UnknownInput(
                f"**{root} collects keyword arguments and cannot be an input itself",
                where=where,
                hint="Use the name of the keyword argument.",
            )
        many = found is not None and found.kind is inspect.Parameter.VAR_POSITIONAL
        if many and not (steps and steps[0].container == "tuple"):
            raise UnknownInput(
                f"*{root} collects positional arguments and cannot be an input itself",
                where=where,
                hint=f"Name them {root}(0), {root}(1) and so on.",
            )


def _check_complete(parameters: Parameters, template: Mapping[str, Any]) -> None:
    needed = (*_ORDERED, inspect.Parameter.KEYWORD_ONLY)
    for name, parameter in parameters.items():
        if parameter.kind in needed and parameter.default is parameter.empty and name not in template:
            raise InputRefused(
                f"forward requires an argument {name!r}",
                where="inputs",
                hint=f"Add an input named {name} with its shape and dtype, or add its value to `fixed`. The signature is "
                f"forward{_signature_text(parameters)}.",
            )


def _signature_text(parameters: Parameters) -> str:
    names = [parameter.replace(annotation=parameter.empty) for parameter in parameters.values()]
    return str(inspect.Signature(names))


def _positional_nodes(parameters: Parameters, nodes: Mapping[str, Node]) -> list[tuple[str, Node]]:
    """Return the recipes of positional arguments: positional-only ones, and all before those of `*args`."""
    many = [n for n, p in parameters.items() if p.kind is inspect.Parameter.VAR_POSITIONAL and n in nodes]
    kinds = _ORDERED if many else _ORDERED[:1]
    found = [
        (name, nodes.get(name, ("fixed", parameter.default)))
        for name, parameter in parameters.items()
        if parameter.kind in kinds
    ]
    while found and not many and found[-1][0] not in nodes:
        found.pop()  # defaults that nothing follows
    return [*found, *((name, ("many", nodes[name])) for name in many)]


def _count_leading(parameters: Parameters, names: tuple[str, ...]) -> int:
    """Count the arguments that follow forward's own order without a gap."""
    count = 0
    for name, parameter in parameters.items():
        if count == len(names) or name != names[count] or parameter.kind not in _ORDERED:
            break
        count += 1
    return count


def _positional_names(parameters: Parameters, template: Mapping[str, Any]) -> list[str]:
    """Return the argument names by position: `*args` once per value, and defaults that a caller may repeat."""
    names: list[str] = []
    defaults = _defaults(parameters, template)
    for name, parameter in parameters.items():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            names += [f"{name}({place})" for place in range(len(template.get(name, ())))]
        elif name in template or name in defaults:
            names.append(name)
    return [*names, *(name for name in template if name not in parameters)]


def _defaults(parameters: Parameters, template: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults that the export fixes because the spec leaves these arguments out, if JSON can express them."""
    return {
        name: parameter.default
        for name, parameter in parameters.items()
        if name not in template and _is_plain(parameter.default)
    }


def _is_plain(value: object) -> bool:
    return value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value))
