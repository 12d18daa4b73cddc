"""The program key of operators whose code is a shared library that is built here."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from support.program_keys import Named, keys_of

SOURCE = """
import os
import torch

torch.ops.load_library(os.environ["LIBRARY_OF_TEST"])

class Net(torch.nn.Module):
    def forward(self, x):
        return torch.ops.built_here.act(x)

def build():
    return Net().eval()
"""
OPERATOR = """
#include <torch/library.h>
double factor();
at::Tensor act(const at::Tensor& x) { return at::Tensor(x).mul(factor()); }
TORCH_LIBRARY(built_here, m) { m.def("act(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(built_here, CompositeExplicitAutograd, m) { m.impl("act", act); }
"""


def compiled(text: str, out: Path) -> Path:
    """An object file; without optimisation, for torch's headers take seconds."""
    include = Path(torch.__file__).parent / "include"
    flags = ["-std=c++20", "-O0", "-fPIC", f"-I{include}", f"-I{include}/torch/csrc/api/include"]
    command = ["g++", *flags, "-x", "c++", "-c", "-", "-o", str(out)]
    subprocess.run(command, input=text, check=True, capture_output=True, text=True)
    return out


def linked(objects: list[Path], out: Path) -> Path:
    out.parent.mkdir()
    torchs = [f"-L{Path(torch.__file__).parent / 'lib'}", "-ltorch_cpu", "-lc10"]
    command = ["g++", "-shared", *map(str, objects), *torchs, "-o", str(out)]
    subprocess.run(command, check=True, capture_output=True)
    return out


@pytest.mark.compiles
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_a_library_of_operators_that_is_built_anew_is_another_key(tmp_path: Path) -> None:
    operator = compiled(OPERATOR, tmp_path / "operator.o")

    def key(name: str, factor: float) -> Named:
        part = compiled(f"double factor() {{ return {factor}; }}", tmp_path / f"{name}.o")
        library = linked([operator, part], tmp_path / name / "library.so")
        return keys_of({"source": SOURCE}, {"LIBRARY_OF_TEST": str(library)})["source"]

    one, same, other = key("one", 2.0), key("same", 2.0), key("other", 3.0)

    assert one.never == other.never == []
    assert one.lines == [
        "operator built_here.act.default: its body is not in the graph, the key contains all loaded code"
    ]
    assert one.digest == same.digest
    assert one.digest != other.digest
    assert one.fields["graph"] == other.fields["graph"]
