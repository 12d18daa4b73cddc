"""What Triton kernels compute and how they are launched, as values of the program key."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
import textwrap
from typing import TYPE_CHECKING, Any

from pt2hub_workers.inside import own_code

if TYPE_CHECKING:
    from collections.abc import Callable

    from pt2hub_workers.inside.code_values import CodeValues

_OF_JIT = (
    "noinline",
    "do_not_specialize",
    "do_not_specialize_on_alignment",
    "debug",
    "launch_metadata",
    "_repr",
)
_OF_AUTOTUNER = (
    "configs",
    "keys",
    "reset_to_zero",
    "restore_value",
    "perf_model",
    "configs_top_k",
    "early_config_prune",
)
"""What decides which configuration runs; caches, and how long Triton itself would time, are left out."""
_OF_CONFIG = ("kwargs", "num_warps", "num_stages", "num_ctas", "maxnreg", "pre_hook")


def kinds_of_kernels() -> tuple[tuple[type, Callable[[CodeValues, Any], Any]], ...]:
    """Triton's classes with what describes their objects; none where Triton was not imported: no kernel exists."""
    if "triton" not in sys.modules:
        return ()
    autotuner: Any = importlib.import_module("triton.runtime.autotuner")
    jit: Any = importlib.import_module("triton.runtime.jit")

    return (
        (getattr(jit, "JITCallable", jit.JITFunction), describe_kernel),
        (autotuner.Autotuner, _describe_autotuner),
        (
            autotuner.Heuristics,
            lambda values, item: ["heuristics", values.describe(item.values), values.describe(item.fn)],
        ),
        (autotuner.Config, _describe_config),
    )


def kernel_name(kernel: Any) -> str:  # noqa: ANN401  # a kernel of any of Triton's classes
    """The name of the function below autotuning and heuristics."""
    while hasattr(kernel, "fn") and not hasattr(kernel, "src"):
        kernel = kernel.fn
    return str(getattr(kernel, "__name__", type(kernel).__name__))


def describe_kernel(values: CodeValues, kernel: Any) -> list[Any]:  # noqa: ANN401  # a JITFunction
    """A kernel's syntax tree with what it reads: kernels that it calls, and globals at their current values.

    Not Triton's own `cache_key`, in which a moved line is another kernel.

    Raises:
        CannotName: It reads something without a digest, or its source is gone.
    """
    from pt2hub_workers.inside.code_values import CannotName, resolve

    function = kernel.fn
    if own_code.is_own_function(function):
        return ["own kernel", function.__module__, function.__qualname__]
    try:
        tree = ast.parse(textwrap.dedent(kernel.src))
    except (AttributeError, OSError, SyntaxError) as error:
        raise CannotName(f"the kernel {kernel_name(kernel)}, whose source cannot be read") from error
    names = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    found = [item for path in _paths_in(tree) if (item := resolve(path, names)) is not None]
    defaults = {
        name: item.default
        for name, item in inspect.signature(function).parameters.items()
        if item.default is not inspect.Parameter.empty
    }
    options = {name: getattr(kernel, name, None) for name in _OF_JIT}
    return [
        "kernel",
        ast.dump(_without_docstrings(tree)),
        values.describe([defaults, options]),
        [[list(path), values.describe(value)] for path, value in found],
    ]


def _paths_in(tree: ast.Module) -> list[tuple[str, ...]]:
    """Dotted paths that a kernel reads and does not make itself."""
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
    """A name, or attributes of one, as a path; None for anything else."""
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


def _describe_autotuner(values: CodeValues, tuner: Any) -> list[Any]:  # noqa: ANN401  # an Autotuner
    hooks = {
        name: getattr(tuner, name)
        for name in ("pre_hook", "post_hook")
        if getattr(tuner, f"user_defined_{name}", getattr(tuner, name, None) is not None)
    }
    settings = {name: getattr(tuner, name, None) for name in _OF_AUTOTUNER}
    return ["autotuned", values.describe(settings | hooks), values.describe(tuner.fn)]


def _describe_config(values: CodeValues, config: Any) -> list[Any]:  # noqa: ANN401  # a Config
    from pt2hub_workers.inside.code_values import CannotName

    if getattr(config, "ir_override", None):
        raise CannotName("a configuration whose kernel comes from a file (ir_override)")
    return ["config", values.describe({name: getattr(config, name, None) for name in _OF_CONFIG})]
