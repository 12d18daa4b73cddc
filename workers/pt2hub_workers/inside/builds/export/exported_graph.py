"""Describes the nodes of an exported graph for people."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from pt2hub.domain.fusion import MAX_TEXT_CHARS, GraphNode
from pt2hub.domain.performance.profiles import fit_name
from pt2hub_workers.inside.builds.export import source_positions

if TYPE_CHECKING:
    from collections.abc import Callable

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')


def describe_graph(program: torch.export.ExportedProgram) -> tuple[GraphNode, ...]:
    """Return the nodes of a program's graph, in order."""
    display = functools.cache(source_positions.display_path)  # it searches all modules
    return tuple(_describe(node, display) for node in program.graph.nodes)


def model_line(trace: str | None, display: Callable[[str], str]) -> str:
    """Return the innermost line of the model in a node's stack trace (`model.py:12`); empty if there is none."""
    frames = [(found["file"], found["line"]) for found in _FRAME.finditer(trace or "")]
    own = [(file, line) for file, line in frames if source_positions.is_models(file)]
    if not own:
        return ""
    file, line = own[-1]
    return fit_name(f"{display(file) if Path(file).is_absolute() else file}:{line}")


def _describe(node: torch.fx.Node, display: Callable[[str], str]) -> GraphNode:
    value = node.meta.get("val")
    tensor = value if isinstance(value, torch.Tensor) else None
    return GraphNode(
        node.op,
        fit_name(node.name),
        fit_name(str(node.target)),
        None if tensor is None else tuple(str(size)[:MAX_TEXT_CHARS] for size in tensor.shape),
        None if tensor is None else str(tensor.dtype).removeprefix("torch."),
        model_line(node.meta.get("stack_trace"), display),
    )
