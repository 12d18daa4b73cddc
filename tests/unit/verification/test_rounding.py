"""What rounding explains of eager's own error, and which sizes are tried between; nothing is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from pt2hub_workers.inside.builds import differences
from pt2hub_workers.inside.builds.export import eager, inputs
from pt2hub_workers.inside.builds.verify import intermediate_sizes, rounding_error, verification
from pt2hub_workers.inside.builds.verify.golden import Golden
from support.forms import adapted, spec_of, tensor

if TYPE_CHECKING:
    from pt2hub_workers.inside.builds.export.inputs import Tensors


class Cancelling(nn.Module):
    """Loses most of its digits."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + 1.0e5) - 1.0e5


class Deep(nn.Module):
    """Operations of which inference mode sees some as one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rnn = nn.GRU(64, 64, batch_first=True)
        self.layers = nn.Sequential(
            *(nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU()) for _ in range(8))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.rnn(x)[0].relu_()
        hidden[:, 0] = 0.0
        return self.layers(hidden).softmax(-1)


class Noise(nn.Module):
    """The same numbers in each call, and others in float64."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)
        return x + 0.1 * torch.rand_like(x)


def both(model: nn.Module, x: torch.Tensor) -> tuple[float, float]:
    """Eager's own error, and the most that rounding explains of it."""
    made: Tensors = {"x": x}
    module, _ = adapted(model, spec_of(tensor("x", [*x.shape]), dims={}))
    wide = eager.convert_inputs(made, torch.float64)
    right = eager.run_flat(eager.to_double(module), wide)
    (found,) = eager.run_flat(module, made)
    eps = rounding_error.rounding_unit(found.dtype, torch.device("cpu"))
    (moved,) = rounding_error.rounding_bound(eager.to_double(module), wide, right, eps)
    return differences.max_difference(found, right[0]), rounding_error.NOISE_FACTOR * moved


@pytest.mark.parametrize(("model", "shape"), [(Cancelling(), (64, 8)), (Deep(), (4, 16, 64))])
def test_rounding_explains_the_error_of_models_that_only_round(
    model: nn.Module, shape: tuple[int, ...]
) -> None:
    torch.manual_seed(1)
    error, explained = both(model, torch.randn(shape))

    assert 0 < error <= explained
    assert explained < 1e4 * error


class Conditional(nn.Module):
    """Computes within torch.cond, which is one operation for a mode."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.cond(x.sum() > 0, torch.sin, torch.cos, (x * 100.0,))
        return found


def test_rounding_goes_through_higher_order_operators() -> None:
    error, explained = both(Conditional(), torch.ones(4, 4))

    assert 0 < error <= explained


def test_rounding_does_not_explain_random_numbers() -> None:
    error, explained = both(Noise(), torch.randn(64, 8))

    assert error > 0.01
    assert explained < 1e-4


def test_the_precision_of_products_that_torch_was_told_to_use_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    assert rounding_error.rounding_unit(torch.float32, cpu) == 2.0**-23
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "medium")
    assert rounding_error.rounding_unit(torch.float32, cpu) == 2.0**-7
    assert rounding_error.rounding_unit(torch.bfloat16, cpu) == 2.0**-7


def test_torch_may_be_told_by_fp32_precision_as_well() -> None:
    products: Any = torch.backends.mkldnn.matmul
    before = products.fp32_precision
    try:
        products.fp32_precision = "bf16"
        with pytest.raises(RuntimeError, match="legacy and new"):  # which pt2hub reads past
            torch.get_float32_matmul_precision()
        assert rounding_error.rounding_unit(torch.float32, torch.device("cpu")) == 2.0**-7
    finally:
        products.fp32_precision = before
    assert torch.get_float32_matmul_precision() == "highest"


WIDE = {"batch": {"min": 1, "max": 512, "example": 2}}


def drawn(seconds: float = 0.001, seed: int = 0, **fields: object) -> intermediate_sizes.IntermediateSizes:
    source = {"factory": "support.tiny_models:Mlp", "seed": seed}
    spec = spec_of(tensor("x"), **{"dims": WIDE, "source": source, **fields})
    return intermediate_sizes.choose_sizes(spec, {name: dim.max for name, dim in spec.dims.items()}, seconds)


def test_sizes_between_are_the_same_for_a_version_and_others_for_another_one() -> None:
    first = drawn()

    assert first == drawn()
    assert first != drawn(seed=1)
    found = [point.sizes["batch"] for point in first.points]
    assert len(set(found)) == len(found) == intermediate_sizes.MAX_POINTS
    assert any(size % 2 and all(size % n for n in range(3, size)) for size in found)
    assert any(
        size & (size - 1) == 0 or (size + 1) & size == 0 for size in [size - 1 for size in found] + found
    )
    assert not set(found) & {1, 2, 512}
    assert [point.label for point in first.points] == [
        f"between.{n}" for n in range(intermediate_sizes.MAX_POINTS)
    ]


def test_sizes_between_keep_to_multiples_and_all_dimensions_vary_together() -> None:
    dims = {
        "batch": {"max": 512, "example": 16, "multiple_of": 8},
        "seq": {"min": 3, "max": 40, "example": 5},
    }
    spec = spec_of(tensor("x", ["batch", "seq"]), dims=dims)
    found = intermediate_sizes.choose_sizes(spec, {"batch": 256, "seq": 40}, 0.001).points

    assert len(found) == intermediate_sizes.MAX_POINTS
    assert all(point.sizes["batch"] % 8 == 0 and 8 <= point.sizes["batch"] <= 256 for point in found)
    assert all(3 <= point.sizes["seq"] <= 40 for point in found)


def test_sizes_that_would_take_too_long_or_too_much_are_left_out_and_counted() -> None:
    assert drawn(seconds=60.0).points == ()
    assert "6 more would exceed 1.5 s" in drawn(seconds=60.0).note
    some = [point.sizes["batch"] for point in drawn(seconds=0.01).points]
    assert (
        2 <= len(some) < intermediate_sizes.MAX_POINTS
    )  # those that fit, also where a larger one was drawn before
    assert max(some) <= 150
    assert sum(some) <= 300
    large = spec_of(tensor("x", ["batch", 1 << 20]), dims=WIDE)
    assert (
        len(intermediate_sizes.choose_sizes(large, {"batch": 512}, 0.0).points)
        < intermediate_sizes.MAX_POINTS
    )
    assert intermediate_sizes.choose_sizes(spec_of(tensor("x", [2, 4]), dims={}), {}, 0.1).points == ()


def test_a_report_names_inputs_that_have_one_value_throughout() -> None:
    spec = spec_of(tensor("x"), tensor("mask", dtype="bool"))
    points = inputs.make_points(spec, {"batch": 16})
    golden = Golden(
        tuple(points), {point.label: inputs.make_inputs(spec, point, {}) for point in points}, {}, {}
    )

    (note,) = verification.describe_constant_inputs(golden)

    assert note.startswith("input mask was 1 throughout")


def test_inputs_that_would_be_equal_are_not() -> None:
    first, second = {"a": torch.zeros(3)}, torch.zeros(3)
    assert torch.equal(inputs._make_distinct(first, second), second)  # a constant stays what it is
    same = torch.arange(6.0).reshape(2, 3)
    found = inputs._make_distinct({"a": same}, same)
    assert sorted(found.flatten().tolist()) == sorted(same.flatten().tolist())
    assert not torch.equal(found, same)
