"""Operators that a model's own code registers: beside a program, opaque ones, and a dtype that the spec declares."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pt2hub.archive.code import pack_code
from pt2hub.archive.exported_programs import split_program
from pt2hub.archive.zip.encoder import write_zip
from pt2hub.client.artifacts.loader import load_artifact
from pt2hub.client.artifacts.local import LocalArtifact
from pt2hub.domain.artifacts import ArtifactConfig
from pt2hub.domain.codec import decode
from pt2hub.errors import BadProgram, ModelNotCopyable, OpaqueOperator, UnknownEntry
from pt2hub_workers.inside.builds.export.opaque_operators import check_opaque
from support.bounded import TORCH, spec
from support.code import DIGEST

if TYPE_CHECKING:
    from support.workbench import Workbench

DIMS = {"batch": {"min": 1, "max": 16, "example": 2}}
OPAQUE = TORCH.replace("triton_op", "custom_op").replace("bounded::act", "opaque::act")
FAKE = "\nact.register_fake(torch.empty_like)\n"
HOLDS = TORCH.replace("super().__init__()", "super().__init__(); self.act = act").replace(
    "return act(", "return self.act("
)
"""The model holds its operator, which Python cannot copy."""
OPERATORS = TORCH.replace("bounded::act", "beside::act")
EXPORT = """
import torch, acts
shapes = ({0: torch.export.Dim("batch", max=16)},)
torch.export.save(torch.export.export(acts.build().eval(), (torch.ones(2, 8),), dynamic_shapes=shapes), "saved.pt2")
"""


def packed(folder: Path, **files: str) -> Path:
    source = folder / "src"
    source.mkdir()
    for name, text in files.items():
        (source / f"{name}.py").write_text(text)
    pack_code(source, folder / "code.zip")
    return folder / "code.zip"


def renamed(program: Path, other: Path) -> Path:
    """The program with another name of its operator, equally long."""
    with zipfile.ZipFile(program) as archive:
        members = [(name, archive.read(name).replace(b"beside", b"absent")) for name in archive.namelist()]
    write_zip(other, members)
    return other


def document(**fields: Any) -> dict[str, Any]:
    written = spec("tiny/operators", dims=DIMS, measure={"torch_compile": False, "processes": 1}, **fields)
    return written | {"source": {"code": DIGEST, **written["source"]}}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A program that calls an operator, exported in another process: in this one nothing registers it yet."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "acts.py").write_text(OPERATORS)
    subprocess.run([sys.executable, "-c", EXPORT], cwd=folder, check=True)
    files = {"source": folder / "program.pt2", "weights": folder / "weights.safetensors"}
    assert split_program(folder / "saved.pt2", *files.values()).operators == ("beside::act",)
    return files


def of_program(**source: Any) -> dict[str, Any]:
    return document(weights=DIGEST) | {"source": {"program": DIGEST, **source}}


@pytest.mark.compiles
def test_a_program_runs_operators_whose_module_goes_along(
    bench: Workbench, program: dict[str, Path], tmp_path: Path
) -> None:
    other = "raise RuntimeError('this module has nothing to do with it')"
    code = packed(tmp_path, acts=OPERATORS, train=other)

    parts = bench.build(of_program(code=DIGEST), modules=code, **program)

    artifact = LocalArtifact.from_files(
        decode(ArtifactConfig, parts["config"]), Path(parts["code_path"]), Path(parts["weights_path"])
    )
    x = torch.tensor([[1.0], [60.0]]).expand(2, 8).contiguous()
    torch.testing.assert_close(load_artifact(artifact)(x), torch.where(x > 50, 0.0, x * 2 + 1))


def test_a_program_without_its_operators_says_how_to_bring_them(
    bench: Workbench, program: dict[str, Path], tmp_path: Path
) -> None:
    unknown = {**program, "source": renamed(program["source"], tmp_path / "renamed.pt2")}

    with pytest.raises(BadProgram, match="operators not found on this worker: absent::act") as caught:
        bench.build(of_program(), **unknown)
    assert "--program FILE --code FOLDER" in str(caught.value.hint)

    code = packed(tmp_path, helpers="def f(): ...")
    with pytest.raises(BadProgram, match="operators not found on this worker: absent::act") as caught:
        bench.build(of_program(code=DIGEST), modules=code, **unknown)
    assert "source: {operators: [module]}" in str(caught.value.hint)
    with pytest.raises(UnknownEntry, match="the archive has no module kernels"):
        bench.build(of_program(code=DIGEST, operators=["kernels"]), modules=code, **unknown)


@pytest.mark.parametrize("faked", [False, True])
def test_an_opaque_operator_is_refused_before_anything_is_compiled(
    bench: Workbench, tmp_path: Path, *, faked: bool
) -> None:
    source = (OPAQUE + FAKE).replace("opaque::act", "opaque::faked") if faked else OPAQUE
    line = 1 + OPAQUE[: OPAQUE.index("return act(")].count("\n")
    name = "faked" if faked else "act"

    with pytest.raises(
        OpaqueOperator, match=rf"operator opaque::{name}, called at net\.py:{line}: "
    ) as caught:
        bench.build(document(), source=packed(tmp_path, net=source))

    assert "torch.library.triton_op" in str(caught.value.hint)


def test_operators_of_c_libraries_are_left_to_verification() -> None:
    program = torch.export.export(torch.nn.Linear(2, 2).eval(), (torch.ones(1, 2),))

    check_opaque(program, [torch.ops.quantized.add.default])


@pytest.mark.compiles
def test_a_spec_declares_the_dtype_of_its_model_and_a_target_may_keep_another(
    bench: Workbench, tmp_path: Path
) -> None:
    code = packed(tmp_path, net=HOLDS.replace("bounded::act", "declared::act"))

    parts = bench.build(document(dtype="bfloat16"), source=code)

    assert parts["dtype"] == "bfloat16"
    assert [item["dtype"] for item in parts["signature"]["inputs"]] == ["bfloat16"]
    assert parts["verification"]["result"] == "passed"


def test_an_attribute_that_cannot_be_copied_into_another_dtype_is_named(
    bench: Workbench, tmp_path: Path
) -> None:
    source = TORCH.replace("super().__init__()", "super().__init__(); self.numbers = (n for n in [1])")

    with pytest.raises(
        ModelNotCopyable, match=r"its attribute numbers \(generator\) raises TypeError"
    ) as caught:
        bench.build(document(dtype="bfloat16"), source=packed(tmp_path, net=source))

    assert caught.value.where == "source"
