"""Errors that Triton raises become the kernel, the caller's line and what to do; here a package of Triton's shape raises them.

The shapes were recorded with Triton 3.6: the launcher is a lambda in triton/runtime/jit.py that calls `run` of a kernel.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pt2hub.client.publishing.live_models.export import export
from pt2hub.client.publishing.live_models.kernel_failures import explain_kernel_failure, find_kernel_call
from pt2hub.domain.publishing.spec import Spec
from pt2hub.errors import KernelFailed, KernelNotTraced
from pt2hub_workers.inside.builds.export import eager
from pt2hub_workers.inside.builds.export.failures import explain_export_failure
from pt2hub_workers.inside.builds.export.model_lines import ExportCall
from support.registry import a_spec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

JIT = """
import inspect


class JITFunction:
    def __init__(self, fn):
        self.fn = fn
        self.__name__ = fn.__name__
        self.raw_src, self.starting_line_number = inspect.getsourcelines(fn)
        text = "".join(self.raw_src)
        self.src = text[text.index("def ") :]

    def __getitem__(self, grid):
        return lambda *args, **kwargs: self.run(grid, *args, **kwargs)

    def run(self, grid, *args):
        for item in args:
            if hasattr(item, "data_ptr"):
                item.data_ptr()
        return self.fn(self, *args)


def jit(fn):
    return JITFunction(fn)
"""
ERRORS = """
class TritonError(Exception):
    __module__ = "triton.errors"  # as Triton's own: the package here has another name, or torch would import it


class CompilationError(TritonError):
    def __init__(self, src, node, error_message=None):
        self.src, self.node, self.error_message = src, node, error_message

    def __str__(self):
        return f"at {self.node.lineno}:1:\\n{self.src}\\n^\\n{self.error_message}"


class OutOfResources(TritonError):
    def __init__(self, required, limit, name):
        self.required, self.limit, self.name = required, limit, name

    def __str__(self):
        return f"out of resource: {self.name}, Required: {self.required}, Hardware limit: {self.limit}."
"""
MODEL = """
import types

from recorded.triton.errors import CompilationError, OutOfResources
from recorded.triton.runtime.jit import jit


@jit
def misspelled(kernel, x):
    raise CompilationError(kernel.src, types.SimpleNamespace(lineno=2), "module has no attribute 'silu'")


@jit
def large(kernel, x):
    raise OutOfResources(262144, 232448, "shared memory")


@jit
def absent(kernel, x):
    raise RuntimeError("0 active drivers ([]). There should only be one.")


@jit
def fine(kernel, x):
    pass


def misspelled_call(x):
    misspelled[(1,)](x)  # the call of misspelled
    return x


def large_call(x):
    large[(1,)](x)  # the call of large
    return x


def absent_call(x):
    absent[(1,)](x)  # the call of absent
    return x


def fine_call(x):
    fine[(1,)](x)  # the call of fine
    return x * 2
"""


def line_of(text: str) -> int:
    return 1 + MODEL[: MODEL.index(text)].count("\n")


@pytest.fixture
def model(tmp_path: Path) -> Iterator[ModuleType]:
    """A module with kernels, and the package that it launches them with."""
    package = tmp_path / "recorded" / "triton"
    (package / "runtime").mkdir(parents=True)
    (package / "errors.py").write_text(ERRORS)
    (package / "runtime" / "jit.py").write_text(JIT)
    (tmp_path / "kernels_of_test.py").write_text(MODEL)
    sys.path.insert(0, str(tmp_path))
    yield importlib.import_module("kernels_of_test")
    sys.path.remove(str(tmp_path))
    for name in [name for name in sys.modules if name.partition(".")[0] in ("recorded", "kernels_of_test")]:
        del sys.modules[name]


class Calling(torch.nn.Module):
    def __init__(self, call: Any) -> None:
        super().__init__()
        self.call = call

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.call(x)
        return result


X = torch.ones(4, 8)


def test_a_plain_call_that_torch_export_ran_on_fake_tensors_is_named_with_both_cures_from_python(
    model: ModuleType,
) -> None:
    with pytest.raises(KernelNotTraced) as caught:
        export(Calling(model.fine_call), (X,), {}, shapes=None, strict=False)

    error = caught.value
    at = f"{model.__file__}:{line_of('fine[(1,)]')}"
    assert error.message == (
        f"torch.export cannot trace the call of the Triton kernel fine at {at}: fine[(1,)](x)  # the call of fine"
    )
    assert error.hint == (
        "Make the function that calls it an operator: decorate it with torch.library.triton_op and launch the kernel with "
        'torch.library.wrap_triton(fine)[grid](...). Or leave the code as it is and export strictly: export={"strict": True}.'
    )


def test_in_a_build_it_is_named_by_the_files_place_in_the_archive(model: ModuleType) -> None:
    calling = Calling(model.fine_call)
    with pytest.raises(RuntimeError, match="Cannot access data pointer") as caught:
        torch.export.export(calling, (X,))

    explained = explain_export_failure(
        caught.value, ExportCall(calling, (X,), {}, None), Spec.model_validate(a_spec())
    )

    assert isinstance(explained, KernelNotTraced)
    assert explained.where == "source"
    assert f"at kernels_of_test.py:{line_of('fine[(1,)]')}: fine[(1,)](x)" in explained.message
    assert str(explained.hint).endswith("export: {strict: true} in the spec.")
    assert explained.context["kernel"] == "fine"


@pytest.mark.parametrize(
    ("call", "said", "hint"),
    [
        (
            "misspelled",
            (
                "Triton cannot compile the kernel misspelled, called at kernels_of_test.py:{call}, at kernels_of_test.py:"
                "{kernel} (raise CompilationError(kernel.src, types.SimpleNamespace(lineno=2), \"module has no attribute 'silu'\")): "
                "CompilationError: module has no attribute 'silu'"
            ),
            "Correct the kernel",
        ),
        (
            "large",
            (
                "the Triton kernel large, called at kernels_of_test.py:{call}, needs 262144 bytes of shared memory; this GPU has "
                "232448"
            ),
            "block sizes or num_stages",
        ),
        (
            "absent",
            (
                "the Triton kernel absent, called at kernels_of_test.py:{call}, runs on a GPU only: 0 active drivers ([]). There "
                "should only be one."
            ),
            "targets with a GPU",
        ),
    ],
)
def test_a_kernel_that_fails_in_the_first_call_is_named_with_the_line_that_calls_it(
    model: ModuleType, call: str, said: str, hint: str
) -> None:
    with pytest.raises(KernelFailed) as caught:
        eager.run(_adapted(getattr(model, f"{call}_call")), {"x": X})

    kernel = line_of("    raise CompilationError")
    assert caught.value.message == said.format(call=line_of(f"{call}[(1,)]"), kernel=kernel)
    assert hint in str(caught.value.hint)


def _adapted(call: Any) -> torch.nn.Module:
    from pt2hub_workers.inside.builds.export.adapter import adapt_model

    return adapt_model(Calling(call), Spec.model_validate(a_spec()))


def test_other_errors_of_a_model_are_no_kernels(model: ModuleType) -> None:
    with pytest.raises(RuntimeError) as caught:
        model.fine_call(X) @ X
    assert find_kernel_call(caught.value) is None
    assert explain_kernel_failure(caught.value, where="source") is None
