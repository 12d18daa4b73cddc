"""What the gate's parts decide, without compiling anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from pt2hub.domain.artifacts import Signature, Toolchain
from pt2hub.domain.targets import Target
from pt2hub.errors import NanOutput, SourceDrifted
from pt2hub_workers.inside import sources
from pt2hub_workers.inside.builds import differences
from pt2hub_workers.inside.builds.compile import weights
from pt2hub_workers.inside.builds.export import eager
from pt2hub_workers.inside.builds.export.export import ExportResult, used_constants
from pt2hub_workers.inside.builds.export.inputs import Point
from pt2hub_workers.inside.builds.key.operator_sources import identify_code
from pt2hub_workers.inside.builds.key.program_key import compute_program_key
from pt2hub_workers.inside.builds.verify import golden as goldens
from pt2hub_workers.inside.builds.verify import tolerances

if TYPE_CHECKING:
    from pathlib import Path


class Chain(nn.Module):
    """A submodule used twice, between others of the same shape."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.layers.extend([self.layers[1], self.layers[2]])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


@pytest.mark.parametrize("width", [4, 64, 256, 768])
def test_giving_each_constant_its_own_storage_leaves_shared_submodules_as_they_are(width: int) -> None:
    torch.manual_seed(0)
    model, x = Chain(width).eval().requires_grad_(False), torch.randn(2, width)
    before = model(x)

    sources.own_storage(model)

    assert torch.equal(model(x), before)
    assert model.layers[4].weight is model.layers[1].weight


def test_one_flat_buffer_is_taken_apart_and_ties_within_it_stay() -> None:
    flat = torch.arange(8.0)
    model = nn.Module()
    for name, piece in (("a", flat[:4]), ("b", flat[4:]), ("tied", flat[:4])):
        model.register_parameter(name, nn.Parameter(piece, requires_grad=False))

    sources.own_storage(model)

    a, b, tied = model.a, model.b, model.tied
    assert a.untyped_storage().nbytes() == b.untyped_storage().nbytes() == 16
    assert a.data_ptr() == tied.data_ptr() != b.data_ptr()


def _base(allowed: float, eager_error: float) -> tolerances.Allowance:
    return tolerances.Allowance(0, signal=1.0, eager_error=eager_error, allowed=allowed)


def test_an_output_that_a_group_does_not_move_is_not_held_to_one_lucky_number_of_eager() -> None:
    (found,) = tolerances.response_allowances([0.0], [1e-10], [_base(1e-3, 1e-10)])

    assert found.allowed == 1e-3
    assert not found.has_power


def test_an_eager_run_that_was_exact_by_luck_counts_as_no_better_than_rounding() -> None:
    unit = differences.rounding_limit(torch.tensor([0.19, -0.12]))

    (found,) = tolerances.base_allowances([1e-4], [1e-10], 1e-4, rounding=[unit])
    (weak,) = tolerances.base_allowances([1e-8], [1e-10], 1e-4, rounding=[unit])

    assert unit == pytest.approx(2 * 0.19 * 2**-23)
    assert 4.6e-8 < found.allowed < 1e-7  # three units in the last place were called a wrong artifact
    assert weak.has_power
    assert differences.rounding_limit(torch.tensor([3, 4])) == 0


def test_an_output_that_responds_must_follow_within_a_part_of_its_response() -> None:
    (found,) = tolerances.response_allowances([0.004], [1e-7], [_base(1e-3, 1e-7)])

    assert found.allowed == pytest.approx(0.0005)
    assert found.has_power


class Stateful(nn.Module):
    """Counts its calls in one buffer and replaces another."""

    calls: torch.Tensor
    last: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))
        self.register_buffer("last", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.calls.add_(1)
        self.last = self.last + 1
        return x * self.calls * self.last, self.calls


def test_eager_runs_leave_the_buffers_that_the_model_writes_as_they_were() -> None:
    model, x = Stateful(), torch.ones(2)
    calls = model.calls

    product, counted = eager.run_flat(model, {"x": x})

    assert product.tolist() == [1, 1]
    assert counted.tolist() == [1]
    assert model.calls is calls
    assert (float(model.calls), float(model.last)) == (0, 0)


class Standardised(nn.Module):
    """Undefined for a single row."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - x.mean(0)) / x.std(0)


@pytest.mark.filterwarnings("ignore:std")
def test_a_model_undefined_at_one_of_the_sizes_is_the_models_fault() -> None:
    points = [Point("smallest", {"batch": 1}), Point("example", {"batch": 2})]
    given = {"smallest.0": {"x": torch.randn(1, 4)}, "example.0": {"x": torch.randn(2, 4)}}

    with pytest.raises(NanOutput, match=r"at x float32\[1, 4\]"):
        goldens.make_golden(Standardised(), points, given)


class Rounded(nn.Module):
    """float32 products as tensor cores round them: a device that is less exact than the golden one."""

    def __init__(self, inner: nn.Linear, factor: float = 1.0, *, coarse: bool = False) -> None:
        super().__init__()
        self.inner = inner
        self.factor = factor
        self.coarse = coarse

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.coarse and x.dtype is torch.float32:
            x = x.bfloat16().float()
        return self.inner(x) * self.factor


@pytest.fixture
def golden() -> tuple[nn.Linear, goldens.Golden]:
    torch.manual_seed(1)
    points = [Point("example", {}), Point("example", {}, 1), Point("smallest", {}), Point("largest", {})]
    given: dict[str, Any] = {point.label: {"x": torch.randn(4, 32)} for point in points}
    inner = nn.Linear(32, 8).requires_grad_(False)
    return inner, goldens.make_golden(Rounded(inner), points, given)


def test_a_device_that_rounds_more_coarsely_is_no_drifted_source(
    golden: tuple[nn.Linear, goldens.Golden],
) -> None:
    inner, stored = golden

    goldens.check_drift(stored, Rounded(inner, coarse=True))


@pytest.mark.parametrize("coarse", [False, True])
def test_another_function_is_a_drifted_source_on_every_device(
    golden: tuple[nn.Linear, goldens.Golden], *, coarse: bool
) -> None:
    inner, stored = golden

    with pytest.raises(SourceDrifted):
        goldens.check_drift(stored, Rounded(inner, factor=1.1, coarse=coarse))


class Tied(nn.Module):
    """An embedding whose table is the head's weight, and an empty tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 4)
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.table.weight
        self.register_buffer("empty", torch.zeros(0))
        self.register_buffer("void", torch.zeros(0))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.table(ids)))


def test_a_tied_tensor_is_written_once_under_the_name_that_the_export_reads(tmp_path: Path) -> None:
    model = sources.own_storage(Tied().eval().requires_grad_(False))
    program = torch.export.export(model, (torch.zeros(2, dtype=torch.int64),))

    weights.write_weights(model, tmp_path / "weights.safetensors")

    written = weights.read_names(tmp_path / "weights.safetensors")
    assert written == {"head.weight", "empty", "void"}
    assert written.issuperset(used_constants(program))


def test_retrained_tied_weights_have_the_same_program_key(tmp_path: Path) -> None:
    digests = set()
    for seed in (1, 2):
        torch.manual_seed(seed)
        model = sources.own_storage(Tied().eval().requires_grad_(False))
        weights.write_weights(model, tmp_path / "weights.safetensors")
        program = torch.export.export(model, (torch.zeros(2, dtype=torch.int64),))
        signature = Signature(("ids",), (), dims={}, fixed={}, device="cpu", in_spec="", out_spec="")
        key = compute_program_key(
            ExportResult(program, signature, frozenset()),
            identify_code(program, str),
            separate=weights.read_names(tmp_path / "weights.safetensors"),
            options={},
            settings={},
            toolchain=Toolchain("2", "3", "g++", "glibc", "1"),
            target=Target(torch="2.13", device="cpu", arch="x86_64_v3"),
        )
        digests.add(key.digest)

    assert len(digests) == 1
