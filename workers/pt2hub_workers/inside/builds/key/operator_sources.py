"""Operators of a program that are not torch's own, and their part in the program key."""

from __future__ import annotations

import re
import types
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch._library.custom_ops import OPDEFS

from pt2hub.domain.digests import digest_json
from pt2hub_workers.inside.builds.key import own_code, torch_patches
from pt2hub_workers.inside.builds.key.code_values import CodeValues
from pt2hub_workers.inside.builds.key.global_names import NoDigest
from pt2hub_workers.inside.builds.key.program_graphs import ProgramGraph

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.export import ExportedProgram

_MAX_PLACES = 10
"""Maximum number of places in torch that one log line names."""
_PLACE = re.compile(r"registered at (.+):\d+")
_HELPERS = ("torch/library.py", "torch/_library/", "torch/_custom_op/", "torch/_custom_ops.py")
"""Files of torch that register operators for other code: the position does not identify the owner."""


@dataclass(slots=True)
class CodeIdentity:
    """The part of a program key that identifies the program's code.

    Attributes:
        operators: Digest of each operator that is not torch's own, by name.
        opaque: Operators whose bodies cannot be compiled: the compiled code would call them.
        reasons: Why the code can never be reused; empty if it can.
        lines: Lines for the build's log, one per operator, kernel or patch.
    """

    graph: str
    operators: dict[str, str] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    opaque: list[torch._ops.OpOverload] = field(default_factory=list)


def identify_code(program: ExportedProgram, loaded_code: Callable[[], str]) -> CodeIdentity:
    """Identify all code that the program calls."""
    exported = ProgramGraph(program)
    identity = CodeIdentity(digest_json(exported.describe()))
    identity.reasons += exported.unnamed
    foreign = {name: item for name, item in exported.operators.items() if not is_torchs_own(item)}
    left, kernels = dict(foreign), set(exported.kernels)
    if foreign:
        left, inner = _decompose(program, identity)
        identity.opaque = list(left.values())
        kernels |= inner
    covered = _name_operators(foreign, left, identity)
    patches = torch_patches.find_patches()
    if patches:
        more = f" and {len(patches) - _MAX_PLACES} more" if len(patches) > _MAX_PLACES else ""
        places = ", ".join(patches[:_MAX_PLACES]) + more
        identity.lines.append(
            f"the source added its own code to torch ({places}): the key contains all loaded code"
        )
    if covered or patches:
        _name_loaded_code([*covered, *patches], loaded_code, identity)
    identity.lines += [
        f"Triton kernel {name}: the key contains its source and configurations" for name in sorted(kernels)
    ]
    return identity


def is_torchs_own(operator: torch._ops.OpOverload) -> bool:
    """Return whether torch itself registered an operator and all its kernels.

    The position of the registration decides, not the namespace, which is open to other code.
    """
    name = operator._schema.name  # noqa: SLF001  # torch has no public name for it
    if any(not _is_own(function) for function in _kernels_in_python(operator)):
        return False
    overload = operator._schema.overload_name  # noqa: SLF001  # the same
    dumped = torch._C._dispatch_dump(f"{name}.{overload}" if overload else name)  # noqa: SLF001  # the same
    return all(_is_torchs_place(place, name) for place in _PLACE.findall(dumped))


def _is_torchs_place(place: str, name: str) -> bool:
    if not place.endswith(".py"):
        return place.startswith(f"{_torchs_build_folder()}/")
    if not own_code.is_own_file(place):
        return False
    if not any(helper in place for helper in _HELPERS):
        return True
    return name in OPDEFS and all(_is_own(function) for function in _operator_bodies(name))


def _torchs_build_folder() -> str:
    """Return the folder in which torch's own C++ was compiled, from its registrations."""
    first = _PLACE.search(torch._C._dispatch_dump("aten::relu"))  # noqa: SLF001  # torch has no public name for it
    return first[1].split("/build/aten/")[0].split("/aten/src/")[0] if first else "\0"


def _kernels_in_python(operator: torch._ops.OpOverload) -> list[Any]:
    return list(operator.py_kernels.values())


def _is_own(function: Any) -> bool:
    inner = getattr(function, "__wrapped__", function)
    return not isinstance(inner, types.FunctionType) or own_code.is_own_function(inner)


def _operator_bodies(name: str) -> list[Any]:
    """Return the functions that define an operator; torch wraps the one of a `triton_op`."""
    definition = OPDEFS[name]
    functions = [definition._init_fn, definition._abstract_fn]  # noqa: SLF001  # torch has no public names for them
    cells = [cell.cell_contents for item in functions for cell in getattr(item, "__closure__", None) or ()]
    return [*functions, *(item for item in cells if callable(item))]


def _decompose(program: ExportedProgram, identity: CodeIdentity) -> tuple[dict[str, Any], set[str]]:
    """Add the digest of the decomposed graph; return the operators that are not decomposed, and the kernels.

    A copy is decomposed: the program to compile stays unchanged.
    """
    try:
        inlined = ProgramGraph(program.run_decompositions(decompose_custom_triton_ops=True))
        identity.operators["(decomposed graph)"] = digest_json(inlined.describe())
    except Exception as error:  # noqa: BLE001  # bodies are users' code; the compiler reports what is wrong
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        identity.reasons.append(f"the bodies of its operators cannot be traced ({why})")
        return {}, set()
    identity.reasons += [reason for reason in inlined.unnamed if reason not in identity.reasons]
    left = {name: item for name, item in inlined.operators.items() if not is_torchs_own(item)}
    return left, inlined.kernels


def _name_operators(
    foreign: dict[str, torch._ops.OpOverload], left: dict[str, Any], identity: CodeIdentity
) -> list[str]:
    """Add the digest of each operator's schema and body; return the operators with unknown bodies."""
    covered = []
    for name, operator in sorted({**foreign, **left}.items()):
        schema = [str(operator._schema), sorted(map(str, operator.tags))]  # noqa: SLF001  # torch has no public name for it
        own_name = operator._schema.name  # noqa: SLF001  # the same
        if name in left or own_name not in OPDEFS:
            why = "its body is not in the graph" if name in left else "it was registered without a function"
        else:
            try:
                body = CodeValues().describe(_operator_bodies(own_name))
            except NoDigest as error:
                why = f"its body uses {error}"
            else:
                identity.operators[name] = digest_json([schema, body])
                identity.lines.append(
                    f"operator {name}: the key contains its source and the graph of its body"
                )
                continue
        identity.operators[name] = digest_json([schema])
        identity.lines.append(f"operator {name}: {why}, the key contains all loaded code")
        covered.append(name)
    return covered


def _name_loaded_code(covered: list[str], loaded_code: Callable[[], str], identity: CodeIdentity) -> None:
    try:
        identity.operators["(loaded code)"] = loaded_code()
    except NoDigest as error:
        identity.reasons.append(f"{covered[0]} may run code that has no digest: {error}")
