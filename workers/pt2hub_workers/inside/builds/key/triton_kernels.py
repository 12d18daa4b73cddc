"""Descriptions of Triton kernels and their launch configurations for the program key."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
import textwrap
from collections.abc import Callable
from typing import Any, TypeAlias

from pt2hub_workers.inside.builds.key import own_code
from pt2hub_workers.inside.builds.key.global_names import NoDigest, resolve_path

DescribeValue: TypeAlias = Callable[[Any], Any]
"""Describes what a kernel reads; the values' own describer is above this module."""

_JIT_FIELDS = (
    "noinline",
    "do_not_specialize",
    "do_not_specialize_on_alignment",
    "debug",
    "launch_metadata",
    "_repr",
)
_AUTOTUNER_FIELDS = (
    "configs",
    "keys",
    "reset_to_zero",
    "restore_value",
    "perf_model",
    "configs_top_k",
    "early_config_prune",
)
"""Fields that decide which configuration runs; caches and timing durations are left out."""
_CONFIG_FIELDS = ("kwargs", "num_warps", "num_stages", "num_ctas", "maxnreg", "pre_hook")


def kernel_types() -> tuple[tuple[type, Callable[[DescribeValue, Any], Any]], ...]:
    """Return Triton's classes with functions that describe their objects; none if Triton was not imported."""
    if "triton" not in sys.modules:
        return ()
    autotuner: Any = importlib.import_module("triton.runtime.autotuner")
    jit: Any = importlib.import_module("triton.runtime.jit")

    return (
        (getattr(jit, "JITCallable", jit.JITFunction), describe_kernel),
        (autotuner.Autotuner, _describe_autotuner),
        (
            autotuner.Heuristics,
            lambda describe, item: ["heuristics", describe(item.values), describe(item.fn)],
        ),
        (autotuner.Config, _describe_config),
    )


def kernel_name(kernel: Any) -> str:
    """Return the name of a kernel's function, below autotuning and heuristics."""
    while hasattr(kernel, "fn") and not hasattr(kernel, "src"):
        kernel = kernel.fn
    return str(getattr(kernel, "__name__", type(kernel).__name__))


def describe_kernel(describe: DescribeValue, kernel: Any) -> list[Any]:
    """Describe a kernel: its syntax tree, the kernels that it calls, and the current values of its globals.

    Triton's own `cache_key` is not used, because it changes when a line moves.
    """
    function = kernel.fn
    if own_code.is_own_function(function):
        return ["own kernel", function.__module__, function.__qualname__]
    try:
        tree = ast.parse(textwrap.dedent(kernel.src))
    except (AttributeError, OSError, SyntaxError) as error:
        raise NoDigest(f"the kernel {kernel_name(kernel)} without readable source") from error
    names = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    found = [item for path in _paths_in(tree) if (item := resolve_path(path, names)) is not None]
    defaults = {
        name: item.default
        for name, item in inspect.signature(function).parameters.items()
        if item.default is not inspect.Parameter.empty
    }
    options = {name: getattr(kernel, name, None) for name in _JIT_FIELDS}
    return [
        "kernel",
        ast.dump(_without_docstrings(tree)),
        describe([defaults, options]),
        [[list(path), describe(value)] for path, value in found],
    ]


def _paths_in(tree: ast.Module) -> list[tuple[str, ...]]:
    """Return the dotted paths that a kernel reads and does not define itself."""
    own = {item.arg for item in ast.walk(tree) if isinstance(item, ast.arg)}
    own |= {
        item.id
        for item in ast.walk(tree)
        if isinstance(item, ast.Name) and not isinstance(item.ctx, ast.Load)
    }
    own |= {item.name for item in ast.walk(tree) if isinstance(item, ast.FunctionDef)}
    decorators = {
        id(part)
        for item in ast.walk(tree)
        if isinstance(item, ast.FunctionDef)
        for part in item.decorator_list
    }
    collector = _Paths(decorators)
    collector.visit(tree)
    return sorted({path for path in collector.found if path[0] not in own})


class _Paths(ast.NodeVisitor):
    """Collects the dotted paths that an expression reads, the longest of each."""

    def __init__(self, skipped: set[int]) -> None:
        self.found: list[tuple[str, ...]] = []
        self._skipped = skipped

    def visit(self, node: ast.AST) -> None:
        if id(node) in self._skipped:
            return
        path = _path(node)
        if path is None:
            self.generic_visit(node)
        else:
            self.found.append(path)


def _path(node: ast.AST) -> tuple[str, ...] | None:
    """Return a name with its attributes as a path; None for other nodes."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute) and (front := _path(node.value)) is not None:
        return (*front, node.attr)
    return None


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for item in ast.walk(tree):
        if isinstance(item, ast.FunctionDef):
            item.body = [part for part in item.body if not _is_text(part)] or [ast.Pass()]
    return tree


def _is_text(part: ast.stmt) -> bool:
    return (
        isinstance(part, ast.Expr)
        and isinstance(part.value, ast.Constant)
        and isinstance(part.value.value, str)
    )


def _describe_autotuner(describe: DescribeValue, tuner: Any) -> list[Any]:
    hooks = {
        name: getattr(tuner, name)
        for name in ("pre_hook", "post_hook")
        if getattr(tuner, f"user_defined_{name}", getattr(tuner, name, None) is not None)
    }
    settings = {name: getattr(tuner, name, None) for name in _AUTOTUNER_FIELDS}
    return ["autotuned", describe(settings | hooks), describe(tuner.fn)]


def _describe_config(describe: DescribeValue, config: Any) -> list[Any]:
    if getattr(config, "ir_override", None):
        raise NoDigest("a configuration with a kernel from a file (ir_override)")
    return ["config", describe({name: getattr(config, name, None) for name in _CONFIG_FIELDS})]
