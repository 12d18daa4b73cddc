"""Plain calls of Triton kernels in programs that are saved: by the kernel's name, and restored after loading.

A call is put into the graph as a strict export writes it; what stands for the kernel needs neither Triton nor a device.
"""

from __future__ import annotations

import importlib
import json
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table
from torch.export.pt2_archive._package import load_pt2

from pt2hub.archive.exported_programs import join_program, split_program
from pt2hub.client.publishing.live_models import trace
from pt2hub.client.publishing.live_models.export import save
from pt2hub.client.publishing.live_models.kernel_calls import kernel_modules, restore_kernel_calls
from pt2hub.client.publishing.live_models.operator_modules import find_modules
from pt2hub.errors import BadProgram, ExportFailed, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from torch.export import ExportedProgram

MODULE = '''
class Kernel:
    """What is read of a kernel: its function, and that it has a source."""

    def __init__(self, fn):
        self.fn, self.src = fn, "def f(): ..."


@Kernel
def silu(x_ptr, out_ptr, n, BLOCK): ...


class Autotuner:
    def __init__(self, fn, configs):
        self.fn, self.configs, self.keys, self.reset_to_zero, self.restore_value = fn, configs, ["n"], [], []


@Kernel
def shadowed(x_ptr): ...


original, shadowed = shadowed, None
'''
SIZES = torch.export.Dim("batch", min=1, max=1024)


@pytest.fixture
def named(tmp_path: Path) -> Iterator[Any]:
    """A module with kernels, in a folder of code."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "named_kernels.py").write_text(MODULE)
    sys.path.insert(0, str(tmp_path / "src"))
    yield importlib.import_module("named_kernels")
    sys.path.remove(str(tmp_path / "src"))
    del sys.modules["named_kernels"]


class Net(torch.nn.Module):
    """The addition in place stands where a kernel will be called."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * self.scale
        out = torch.empty_like(y)
        blocks = (y.numel() + 255) // 256
        out.add_(y)
        return out.narrow(0, 0, out.shape[0]) + blocks


def calling(kernel: Any, **changes: Any) -> ExportedProgram:
    """A program that calls a kernel, as a strict export of torch 2.11 and 2.13 has it."""
    program = torch.export.export(Net().eval(), (torch.ones(4, 8),), dynamic_shapes=({0: SIZES},))
    nodes = {node.name: node for node in program.graph_module.graph.nodes}
    call, out, blocks = nodes["add_"], nodes["empty_like"], nodes["floordiv"]
    constants = changes.pop("constants", {"BLOCK": 256, "eps": 1e-5, "bias": None})
    call.replace_all_uses_with(out)
    call.target, call.args = torch.ops.higher_order.triton_kernel_wrapper_mutation, ()
    call.kwargs = {
        "kernel_idx": kernel_side_table.add_kernel(kernel),
        "constant_args_idx": kernel_side_table.add_constant_args(constants),
        "grid": [(blocks, 1, 1), (blocks, 2)],
        "tma_descriptor_metadata": {},
        "kwargs": {"x_ptr": nodes["mul"], "n": nodes["mul_1"], "out_ptr": out},
        **changes,
    }
    return program


def call_in(program: ExportedProgram) -> Any:
    target = torch.ops.higher_order.triton_kernel_wrapper_mutation
    (node,) = program.graph_module.graph.find_nodes(op="call_function", target=target)
    return node


def through_files(program: ExportedProgram, folder: Path) -> ExportedProgram:
    """The program as a worker loads it, its calls not yet restored."""
    saved, stripped, weights, joined = (
        folder / name for name in ("saved.pt2", "p.pt2", "w.safetensors", "j.pt2")
    )
    save(program, saved)
    assert split_program(saved, stripped, weights).operators == ("pt2hub::triton_kernel",)
    join_program(stripped, weights, joined)
    found: ExportedProgram = load_pt2(str(joined)).exported_programs["model"]
    return found


def test_a_call_comes_back_with_its_kernel_grids_and_constants(named: Any, tmp_path: Path) -> None:
    program = calling(named.silu)
    before = str(program.graph)

    loaded = through_files(program, tmp_path)
    restore_kernel_calls(loaded)

    assert str(program.graph) == before
    assert kernel_modules(program) == ["named_kernels"]
    call, original = call_in(loaded).kwargs, call_in(program).kwargs
    assert kernel_side_table.get_kernel(call["kernel_idx"]) is named.silu
    assert kernel_side_table.get_constant_args(call["constant_args_idx"]) == {
        "BLOCK": 256,
        "eps": 1e-5,
        "bias": None,
    }
    assert str(call["grid"]) == str(original["grid"])
    assert str(call["kwargs"]) == str(original["kwargs"])
    assert call["tma_descriptor_metadata"] == {}


def test_torch_alone_cannot_save_such_a_program(named: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="triton_kernel_wrapper_mutation"):
        torch.export.save(calling(named.silu), tmp_path / "saved.pt2")


def test_configurations_of_an_autotuner_that_tracing_made_go_along(named: Any, tmp_path: Path) -> None:
    config = SimpleNamespace(
        kwargs={"BLOCK": 64}, num_warps=2, num_stages=3, num_ctas=1, maxnreg=None, pre_hook=None
    )
    program = calling(named.Autotuner(named.silu, [config]))

    loaded = through_files(program, tmp_path)

    (node,) = loaded.graph_module.graph.find_nodes(
        op="call_function", target=torch.ops.pt2hub.triton_kernel.default
    )
    assert json.loads(node.args[0]) == {
        "module": "named_kernels",
        "name": "silu",
        "tuner": {
            "configs": [
                {"kwargs": {"BLOCK": 64}, "num_warps": 2, "num_stages": 3, "num_ctas": 1, "maxnreg": None}
            ],
            "key": ["n"],
            "reset_to_zero": [],
            "restore_value": [],
        },
    }


def test_a_kernel_whose_module_is_not_there_is_named_with_what_to_publish_beside(
    named: Any, tmp_path: Path
) -> None:
    loaded = through_files(calling(named.silu), tmp_path)
    del named.silu

    with pytest.raises(
        BadProgram, match=r"the Triton kernel named_kernels\.silu cannot be imported"
    ) as caught:
        restore_kernel_calls(loaded)
    assert "--code FOLDER" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("kernel", "changes", "said"),
    [
        ("silu", {"constants": {"KIND": object()}}, "takes KIND, a constant of type object"),
        ("silu", {"tma_descriptor_metadata": {"x_ptr": ("stable", ([8],))}}, "takes TMA descriptors"),
        ("original", {}, "cannot be imported by that name"),
    ],
)
def test_what_cannot_be_written_is_refused_with_the_cure_and_the_program_stays(
    named: Any, tmp_path: Path, kernel: str, changes: dict[str, Any], said: str
) -> None:
    program = calling(getattr(named, kernel), **changes)
    before = str(program.graph)

    with pytest.raises(ExportFailed, match=said) as caught:
        save(program, tmp_path / "saved.pt2")

    assert "torch.library.triton_op" in str(caught.value.hint)
    assert str(program.graph) == before


def test_a_published_program_names_the_modules_of_the_folder_that_goes_along(
    named: Any, tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    program, folder = calling(named.silu), tmp_path / "src"

    spec, files = trace(program, (), {}, {"name": "team/model", "code": folder}, scratch)

    assert spec["source"] == {"operators": ["named_kernels"]}
    assert files.code == folder
    (tmp_path / "other").mkdir()
    with pytest.raises(InvalidInput, match=r"no module named_kernels, which has a kernel of named_kernels"):
        trace(program, (), {}, {"name": "team/model", "code": tmp_path / "other"}, scratch)


def test_the_module_of_an_operator_is_the_one_of_its_body(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in ("triton_op", "custom_op"):
        (tmp_path / f"of_{kind}.py").write_text(
            f"import torch\n@torch.library.{kind}('found::{kind}', mutates_args=())\n"
            "def act(x: torch.Tensor) -> torch.Tensor:\n    return x * 2\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        importlib.import_module(f"of_{kind}")
    program = torch.export.export(torch.nn.Linear(2, 2).eval(), (torch.ones(1, 2),))

    assert find_modules(program, ["found::triton_op", "found::custom_op"], tmp_path) == [
        "of_custom_op",
        "of_triton_op",
    ]
