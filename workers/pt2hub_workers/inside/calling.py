"""How a model is called: the arguments that its spec gives, put together from tensors and fixed values."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pt2hub.domain.paths import Step, nest, parse
from pt2hub.errors import InputRefused, UnknownInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import torch

    from pt2hub.domain.specs import Spec

T = TypeVar("T")
Parameters = dict[str, inspect.Parameter]
Node = tuple[Any, ...]
"""How one value is made: `("given",)`, `("fixed", value)`, or a container with its parts, each with its key, its
place among the given ones and its own node. Plain tuples, since TorchDynamo reads them too."""

_ORDERED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def arguments(tensors: Mapping[str, T]) -> dict[str, Any]:
    """The arguments of an adapted model.

    Args:
        tensors: Its tensors, or what stands for them, by path.

    Returns:
        Arguments by name. Lists and tuples hold the tensors alone: places of fixed values are left out.
    """
    names = _closed(tensors)
    return nest({names[path]: value for path, value in tensors.items()})


def in_order(module: torch.nn.Module, values: Mapping[str, T]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional arguments as far as they follow forward's own order, keywords after a gap.

    Args:
        module: Adapted.
        values: The tensors, or what stands for them, by path.
    """
    given = arguments(values)
    parameters = inspect.signature(module.forward).parameters.values()
    args = [given[item.name] for item in parameters if item.kind is item.POSITIONAL_OR_KEYWORD]
    return tuple(args), {item.name: given[item.name] for item in parameters if item.kind is item.KEYWORD_ONLY}


def _closed(paths: Iterable[str]) -> dict[str, str]:
    """Each path with the places of lists and tuples counted anew, without gaps."""
    parsed = {path: parse(path) for path in paths}
    places: dict[str, set[int]] = {}
    for root, steps in parsed.values():
        at = root
        for step in steps:
            if isinstance(step.key, int):
                places.setdefault(at, set()).add(step.key)
            at += str(step)
    return {path: _recounted(root, steps, places) for path, (root, steps) in parsed.items()}


def _recounted(root: str, steps: tuple[Step, ...], places: Mapping[str, set[int]]) -> str:
    at = new = root
    for step in steps:
        key = sorted(places[at]).index(step.key) if isinstance(step.key, int) else step.key
        new += str(Step(step.container, key))
        at += str(step)
    return new


@dataclass(frozen=True, slots=True)
class Given:
    """Stands for a tensor in a call's template."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Stands for a fixed value in a call's template."""

    value: Any


@dataclass(frozen=True, slots=True)
class Call:
    """How a model is called.

    Attributes:
        tensors: Names of the arguments that hold tensors, in forward's own order.
        ordered: How many of them may be passed by position, as in forward itself.
        arguments: Names of all arguments by position, as the artifact's signature lists them.
        fixed: Values that the call fixes, by path: the spec's, and defaults of arguments that the spec leaves out.
        positional: How the arguments that forward takes by position are made.
        keywords: How the others are made, by name.
    """

    tensors: tuple[str, ...]
    ordered: int
    arguments: tuple[str, ...]
    fixed: Mapping[str, Any]
    positional: tuple[tuple[str, Node], ...]
    keywords: tuple[tuple[str, Node], ...]

    @property
    def signature(self) -> inspect.Signature:
        """What the adapted forward takes."""
        plain, keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
        parameters = [
            inspect.Parameter(name, plain if place < self.ordered else keyword)
            for place, name in enumerate(self.tensors)
        ]
        return inspect.Signature([inspect.Parameter("self", plain), *parameters])


def plan(forward: Callable[..., Any], spec: Spec) -> Call:
    """Works out how a model's forward is called.

    Args:
        forward: The model's own, bound.
        spec: For inputs and fixed values.

    Raises:
        UnknownInput: The spec names an argument that forward lacks.
        InputRefused: forward needs an argument that the spec does not give.
    """
    parameters = dict(inspect.signature(forward).parameters)
    tensors = [item.name for item in spec.inputs]
    _check_known(parameters, tensors, spec.fixed)
    template = nest({**dict.fromkeys(tensors, Given()), **{k: Fixed(v) for k, v in spec.fixed.items()}})
    _check_complete(parameters, template)
    nodes = {name: node(value) for name, value in template.items()}
    positional = tuple(_by_position(parameters, nodes))
    taken = {name for name, _ in positional}
    roots = {parse(name)[0] for name in tensors}
    in_order = [name for name in (*parameters, *nodes) if name in roots]
    names = tuple(dict.fromkeys(in_order))
    return Call(
        tensors=names,
        ordered=_leading(parameters, names),
        arguments=tuple(_listed(parameters, template)),
        fixed={**spec.fixed, **_defaults(parameters, template)},
        positional=positional,
        keywords=tuple((name, made) for name, made in nodes.items() if name not in taken),
    )


def node(value: object) -> Node:
    """How a template's value is made."""
    if isinstance(value, Given):
        return ("given",)
    if isinstance(value, Fixed):
        return ("fixed", value.value)
    assert isinstance(value, dict | list | tuple)
    items = list(value.items() if isinstance(value, dict) else enumerate(value))
    parts, place = [], 0
    for key, item in items:
        made = node(item)
        own = _holds_tensor(made)
        parts.append((key, (key if isinstance(value, dict) else place) if own else None, made))
        place += own
    return (type(value).__name__, tuple(parts))


def made(how: Node, given: Any) -> Any:  # noqa: ANN401  # any argument
    """One argument of the model's own forward.

    Args:
        how: As `node` describes it.
        given: The same argument as the adapted forward got it; None where all of it is fixed.
    """
    if how[0] == "given":
        return given
    if how[0] == "fixed":
        return _fresh(how[1])
    parts = [(key, made(item, None if place is None else given[place])) for key, place, item in how[1]]
    if how[0] == "dict":
        return dict(parts)
    values = [value for _, value in parts]
    return values if how[0] == "list" else tuple(values)


def _fresh(value: Any) -> Any:  # noqa: ANN401  # any JSON value
    """A fixed value that the model may write to."""
    if isinstance(value, dict):
        return {key: _fresh(item) for key, item in value.items()}
    return [_fresh(item) for item in value] if isinstance(value, list) else value


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
                f"forward has no argument {root}", where=where, hint=f"It is forward{_shown(parameters)}."
            )
        if found is not None and found.kind is inspect.Parameter.VAR_KEYWORD:
            raise UnknownInput(
                f"**{root} takes keywords, each with a name of its own",
                where=where,
                hint="Write the keyword itself as the name.",
            )
        many = found is not None and found.kind is inspect.Parameter.VAR_POSITIONAL
        if many and not (steps and steps[0].container == "tuple"):
            raise UnknownInput(
                f"*{root} takes any number of arguments",
                where=where,
                hint=f"Name them {root}(0), {root}(1) and so on.",
            )


def _check_complete(parameters: Parameters, template: Mapping[str, Any]) -> None:
    needed = (*_ORDERED, inspect.Parameter.KEYWORD_ONLY)
    for name, parameter in parameters.items():
        if parameter.kind in needed and parameter.default is parameter.empty and name not in template:
            raise InputRefused(
                f"forward needs an argument {name}",
                where="inputs",
                hint=f"Add an input named {name} with its shape and dtype, or its value to `fixed`. It is "
                f"forward{_shown(parameters)}.",
            )


def _shown(parameters: Parameters) -> str:
    names = [parameter.replace(annotation=parameter.empty) for parameter in parameters.values()]
    return str(inspect.Signature(names))


def _by_position(parameters: Parameters, nodes: Mapping[str, Node]) -> list[tuple[str, Node]]:
    """What must be passed by position: arguments without a name, and all before those of `*args`."""
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


def _leading(parameters: Parameters, names: tuple[str, ...]) -> int:
    """How many of the arguments follow forward's own order without a gap."""
    count = 0
    for name, parameter in parameters.items():
        if count == len(names) or name != names[count] or parameter.kind not in _ORDERED:
            break
        count += 1
    return count


def _listed(parameters: Parameters, template: Mapping[str, Any]) -> list[str]:
    """Names by position: `*args` once for each of them, and defaults that a caller may say again."""
    names: list[str] = []
    defaults = _defaults(parameters, template)
    for name, parameter in parameters.items():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            names += [f"{name}({place})" for place in range(len(template.get(name, ())))]
        elif name in template or name in defaults:
            names.append(name)
    return [*names, *(name for name in template if name not in parameters)]


def _defaults(parameters: Parameters, template: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults that the export fixed because the spec leaves these arguments out, as far as JSON can say them."""
    return {
        name: parameter.default
        for name, parameter in parameters.items()
        if name not in template and _is_plain(parameter.default)
    }


def _is_plain(value: object) -> bool:
    return value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value))
