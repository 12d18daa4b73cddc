"""The loader over real compiled code: a linear layer, a literal and a buffer that the model writes to."""

from __future__ import annotations

import os
import re
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import save, save_file

from pt2hub import archive
from pt2hub.client.artifacts import native
from pt2hub.client.artifacts.constants import ConstantStore
from pt2hub.client.artifacts.graphs import GraphCache
from pt2hub.client.artifacts.loader import LoadedModel, load_artifact
from pt2hub.client.artifacts.local import LocalArtifact
from pt2hub.domain.artifacts import Constant, Dim, TensorInput
from pt2hub.errors import (
    BadCall,
    CorruptArchive,
    CudaGraphUnavailable,
    ForkedProcess,
    Incompatible,
    WeightsMismatch,
)
from support.artifacts import a_config, a_constant, a_signature
from support.graphs import RepeatingBackend

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.compiles

OPTIONS = {
    "aot_inductor.package_constants_in_so": False,
    "aot_inductor.package_constants_on_disk_format": "binary_blob",
    "always_keep_tensor_constants": True,
    "joint_graph_constant_folding": False,
    "cpp.dynamic_threads": True,
    "aot_inductor.compile_wrapper_opt_level": "O0",
    "aot_inductor.precompile_headers": False,  # for one model, their compilation takes longer than the model's
}


class Net(torch.nn.Module):
    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor, scale: float = 2.0) -> dict[str, torch.Tensor]:
        self.calls.add_(1)
        return {"y": self.linear(x) * scale + torch.tensor([1.0, 2.0, 3.0]), "calls": self.calls.clone()}


def _table(wrapper: str) -> Iterator[Constant]:
    pattern = r'constants_info_\[(\d+)\]\.(original_fqn|shape|stride) = "?\{?([^;"}]*)'
    rows: dict[str, dict[str, str]] = {}
    for index, field, value in re.findall(pattern, wrapper):
        rows.setdefault(index, {})[field] = value
    for row in rows.values():
        shape, stride = (tuple(map(int, row[key].split(","))) for key in ("shape", "stride"))
        name = row["original_fqn"]
        source = "extra" if name.startswith("_tensor_constant") else "weights"
        yield replace(a_constant(name, shape), stride=stride, source=source, mutated=name == "calls")


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> LocalArtifact:
    import torch._inductor
    from torch.utils import _pytree as pytree

    folder = tmp_path_factory.mktemp("native")
    torch.manual_seed(0)
    model = Net().eval()
    x = torch.randn(2, 4)
    save_file({name: value.clone() for name, value in model.state_dict().items()}, folder / "weights")
    shapes = {"x": {0: torch.export.Dim("batch", min=1, max=8)}, "scale": None}
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # torch's compiler warns about itself from inside the standard library
        program = torch.export.export(model, (x, 2.0), dynamic_shapes=shapes)
        torch._inductor.aoti_compile_and_package(
            program, package_path=str(folder / "net.pt2"), inductor_configs=dict(OPTIONS)
        )
    with archive.open_archive(folder / "net.pt2") as members:
        names = [entry.name for entry in members.entries if not entry.name.endswith(".blob")]
        wrapper = members.read(next(name for name in names if name.endswith("wrapper.cpp"))).decode()
        files = [(name, b"" if name.endswith(".cpp") else members.read(name)) for name in names]
    table = tuple(_table(wrapper))
    literals = {item.fqn: torch.tensor([1.0, 2.0, 3.0]) for item in table if item.source == "extra"}
    archive.write_zip(folder / "code.zip", [*files, ("net/extra/literals.safetensors", save(literals))])
    signature = a_signature(
        arguments=("x", "scale"),
        inputs=(TensorInput("x", ("batch", 4), "float32"),),
        dims={"batch": Dim(1, 8)},
        fixed={"scale": 2.0},
        out_spec=pytree.treespec_dumps(pytree.tree_structure({"y": 0, "calls": 0})),
    )
    config = a_config(*table, signature=signature)
    return LocalArtifact.from_files(config, folder / "code.zip", folder / "weights")


@pytest.fixture
def loaded(artifact: LocalArtifact) -> LoadedModel:
    return load_artifact(artifact)


def expected(x: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(0)
    with torch.no_grad():
        return Net().eval()(x)["y"]


def test_it_computes_what_the_model_computes_over_the_range(loaded: LoadedModel) -> None:
    for batch in (1, 2, 8):
        x = torch.randn(batch, 4)
        torch.testing.assert_close(loaded(x)["y"], expected(x))
        torch.testing.assert_close(loaded(x=x, scale=2.0)["y"], expected(x))
        assert x.shape == (batch, 4)


def test_what_native_code_would_swallow_is_refused(loaded: LoadedModel) -> None:
    with pytest.raises(BadCall, match="above the largest size 8"):
        loaded(torch.randn(9, 4))
    with pytest.raises(BadCall, match=r"exported with 2\.0"):
        loaded(torch.randn(2, 4), 3.0)


def test_a_mutated_buffer_keeps_state_until_reset_and_never_reaches_the_file(
    loaded: LoadedModel, artifact: LocalArtifact
) -> None:
    before = artifact.weights.read_bytes()
    x = torch.randn(2, 4)
    assert [loaded(x)["calls"].item() for _ in range(3)] == [1.0, 2.0, 3.0]
    loaded.reset()
    assert loaded(x)["calls"].item() == 1.0
    assert loaded.mutated == ("calls",)
    assert artifact.weights.read_bytes() == before


def test_swapped_weights_are_used_and_reset_takes_them_back(loaded: LoadedModel) -> None:
    x = torch.randn(2, 4)
    other = Net().eval()
    loaded.swap_constants(other.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(loaded(x)["y"], other(x)["y"])
    loaded.reset()
    torch.testing.assert_close(loaded(x)["y"], expected(x))
    with pytest.raises(WeightsMismatch, match=r"linear\.weight"):
        loaded.swap_constants({**other.state_dict(), "linear.weight": torch.ones(4, 3)})
    torch.testing.assert_close(loaded(x)["y"], expected(x))


@pytest.fixture
def graphed(artifact: LocalArtifact) -> LoadedModel:
    """Real code whose calls become graphs that run it again."""
    place = torch.device("cpu")
    code = native.open_code(artifact.code, place, single_threaded=True, runners=1)
    graphs = GraphCache(RepeatingBackend(), names=["x"], limit=2, where="team/net@1")
    return LoadedModel(artifact.config, code, ConstantStore(artifact, place), place, None, graphs)


def captured(model: LoadedModel) -> list[int]:
    info = model.info.cuda_graphs
    assert info is not None
    return [graph.replays for graph in info.captured]


def test_captures_leave_mutated_buffers_as_calls_alone_make_them(graphed: LoadedModel) -> None:
    for step, batch in enumerate((2, 8, 2, 1), 1):
        x = torch.randn(batch, 4)
        found = graphed(x)
        torch.testing.assert_close(found["y"], expected(x))
        assert found["calls"].item() == step
    assert captured(graphed) == [2, 1]
    graphed.reset()
    assert captured(graphed) == [2, 1]  # the buffers started anew in place, and the graphs still read them
    assert graphed(torch.randn(2, 4))["calls"].item() == 1.0


def test_swapped_weights_are_captured_anew(graphed: LoadedModel) -> None:
    x = torch.randn(2, 4)
    torch.testing.assert_close(graphed(x)["y"], expected(x))
    other = Net().eval()
    before = other.linear.weight.detach().clone()
    graphed.swap_constants(other.state_dict())
    assert captured(graphed) == []
    with torch.no_grad():
        torch.testing.assert_close(graphed(x)["y"], other(x)["y"])
    graphed.reset()
    assert captured(graphed) == []
    torch.testing.assert_close(graphed(x)["y"], expected(x))
    torch.testing.assert_close(other.linear.weight.detach(), before)  # used in place, never written to


def test_graphs_of_an_artifact_for_the_cpu_are_refused(artifact: LocalArtifact) -> None:
    with pytest.raises(CudaGraphUnavailable, match="need a GPU"):
        load_artifact(artifact, cuda_graph=True)


def test_a_config_of_other_code_is_refused(artifact: LocalArtifact) -> None:
    config = artifact.config
    fewer = replace(config.constants, table=config.constants.table[1:])
    with pytest.raises(CorruptArchive, match="reads other constants than its config lists"):
        load_artifact(replace(artifact, config=replace(config, constants=fewer)))


def test_a_symbol_that_libtorch_lacks_is_an_incompatibility(artifact: LocalArtifact) -> None:
    native = replace(
        artifact.config.native, aoti_symbols=("aoti_torch_empty_strided", "aoti_torch_of_tomorrow")
    )
    with pytest.raises(Incompatible, match="aoti_torch_of_tomorrow"):
        load_artifact(replace(artifact, config=replace(artifact.config, native=native)))


def test_a_forked_child_is_refused_instead_of_hanging(loaded: LoadedModel) -> None:
    x = torch.randn(2, 4)
    loaded(x)
    child = os.fork()
    if not child:
        status = 1
        try:
            loaded(x)
        except ForkedProcess:
            status = 0
        os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
