"""Operators that compiled code would call by name: an artifact's user does not have the code that registers them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch._library.custom_ops import OPDEFS

from pt2hub.errors import OpaqueOperator
from pt2hub_workers.inside.builds.export import source_positions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.export import ExportedProgram

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_DEFINED = re.compile(r"^debug: registered at (.+):\d+", re.MULTILINE)


def check_opaque(program: ExportedProgram, operators: Iterable[torch._ops.OpOverload]) -> None:
    """Refuse a program with operators in Python that are neither decomposed nor lowered.

    AOTInductor compiles a call by name, and loading such code fails where nothing registers the operator (seen with 2.13:
    "Could not find schema"). Operators in C++ are left to verification: an installed library, such as torchvision, registers
    them in the processes that load the artifact.

    Args:
        operators: Operators that are left in the decomposed program.

    Raises:
        OpaqueOperator: There is one.
    """
    opaque = [item for item in operators if _is_in_python(item) and not _is_lowered(item)]
    if not opaque:
        return
    first = str(opaque[0]).removesuffix(".default").replace(".", "::", 1)
    more = f" and {len(opaque) - 1} more" if len(opaque) > 1 else ""
    raise opaque_operator(f"{first}{more}", _place(program, opaque[0]))


def opaque_operator(name: str, place: str) -> OpaqueOperator:
    """Return the error for an operator that the compiler cannot see into.

    Args:
        place: Where the model calls it; empty if that is unknown.
    """
    return OpaqueOperator(
        f"the compiler cannot see into the operator {name}{f', called at {place}' if place else ''}: the artifact would have "
        "to call it, and only the model's own code registers it",
        where="source",
        hint="Register it with torch.library.triton_op in place of custom_op, its body of torch operators and Triton kernels "
        "(torch.library.wrap_triton(kernel)[grid](...)); such a body is compiled into the artifact. A body in NumPy or C++ is "
        "not: write it with torch operators, or leave it out of the model.",
    )


def _is_in_python(operator: torch._ops.OpOverload) -> bool:
    """Return whether Python code defined an operator, not a C++ library."""
    name = operator._schema.name  # noqa: SLF001  # torch has no public name for it
    defined = _DEFINED.search(torch._C._dispatch_dump(name))  # noqa: SLF001  # the same
    return name in OPDEFS or (defined is not None and defined[1].endswith(".py"))


def _is_lowered(operator: torch._ops.OpOverload) -> bool:
    """Return whether Inductor was taught to compile an operator."""
    from torch._inductor import decomposition, lowering

    return any(
        item in table
        for item in (operator, operator.overloadpacket)
        for table in (lowering.lowerings, decomposition.decompositions)
    )


def _place(program: ExportedProgram, operator: torch._ops.OpOverload) -> str:
    """Return the model's line that calls an operator; empty if it is unknown."""
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            if node.target is operator:
                frames = _FRAME.findall(node.meta.get("stack_trace") or "")
                own = [(file, line) for file, line in frames if source_positions.is_models(file)]
                return f"{_display(own[-1][0])}:{own[-1][1]}" if own else ""
    return ""


def _display(file: str) -> str:
    return source_positions.display_path(file) if Path(file).is_absolute() else file
