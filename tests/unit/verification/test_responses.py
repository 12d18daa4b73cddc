"""How the model answers to perturbed constants: float64 where rounding could matter, the model's own dtype elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from pt2hub_workers.inside.builds import differences
from pt2hub_workers.inside.builds.export import eager
from pt2hub_workers.inside.builds.export.inputs import Point
from pt2hub_workers.inside.builds.verify.eager_responses import Response, Unperturbed, compute_responses
from pt2hub_workers.inside.builds.verify.golden import make_golden
from pt2hub_workers.inside.builds.verify.reference import compute_allowances
from pt2hub_workers.inside.builds.verify.run_order import EXAMPLE

if TYPE_CHECKING:
    from pt2hub_workers.inside.builds.verify.tolerances import Allowance

POINTS = (Point("example", {}), Point("example", {}, 1))
GROUPS = ["Linear.bias", "Linear.weight", "everything"]


class Net(nn.Module):
    """Two layers, of which the output passes through a large number that costs it digits."""

    def __init__(self, lost: float = 0.0) -> None:
        super().__init__()
        self.one, self.two, self.lost = nn.Linear(8, 8), nn.Linear(8, 4), lost

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.two(self.one(x).relu()) + self.lost) - self.lost


class Cancelling(Net):
    """Two branches that cancel each other until their constants move apart."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Parameter(torch.full((8,), 2e5)), nn.Parameter(torch.full((8,), 2e5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        apart = (x * self.left).sum(1, keepdim=True) - (x * self.right).sum(1, keepdim=True)
        return super().forward(x) + apart


class Choosing(Net):
    """Returns whole numbers beside its outputs."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = super().forward(x)
        return found, found.argmax(1)


class Subject:
    """A model, what passes at its example, and which of its runs were made in float64."""

    def __init__(self, module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
        self.module = module.eval()
        generator = torch.Generator().manual_seed(2)
        self.given = {p.label: {"x": torch.randn(4, 8, generator=generator)} for p in POINTS}
        self.golden = make_golden(self.module, POINTS, self.given)
        self.base = compute_allowances(self.golden, self.golden.single, 1e-3)[EXAMPLE]
        self.dtypes: list[torch.dtype] = []
        run = eager.run_flat

        def noted(module: nn.Module, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
            self.dtypes.append(next(iter(inputs.values())).dtype)
            return run(module, inputs)

        monkeypatch.setattr(eager, "run_flat", noted)

    def responses(self) -> dict[str, Response]:
        before = Unperturbed(self.golden.single[EXAMPLE], self.golden.double[EXAMPLE])
        used = list(self.module.state_dict())
        found = compute_responses(self.module, self.given[EXAMPLE], self.base, used, before=before)
        return {item.group.name: item for item in found}

    @property
    def in_double(self) -> int:
        return self.dtypes.count(torch.float64)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(3)


def passes(outputs: list[torch.Tensor], found: Response) -> bool:
    pairs: list[tuple[torch.Tensor, torch.Tensor, Allowance]] = [
        *zip(outputs, found.outputs, found.allowances, strict=True)
    ]
    return all(differences.max_difference(left, right) <= item.allowed for left, right, item in pairs)


def test_float64_runs_once_where_rounding_is_far_below_what_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(Net(), monkeypatch)
    before = {name: tensor.clone() for name, tensor in subject.module.state_dict().items()}
    found = subject.responses()
    assert list(found) == GROUPS
    assert all(item.has_power for item in found.values())
    assert subject.in_double == 1
    assert found["everything"].outputs[0].dtype == torch.float64
    assert all(torch.equal(tensor, before[name]) for name, tensor in subject.module.state_dict().items())


@pytest.mark.parametrize("group", GROUPS)
def test_outputs_that_ignore_a_group_or_follow_half_of_it_are_refused(
    group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = Subject(Net(), monkeypatch)
    found = subject.responses()[group]
    ignoring = subject.golden.double[EXAMPLE]
    halfway = [(left + right) / 2 for left, right in zip(ignoring, found.outputs, strict=True)]
    assert not passes(ignoring, found)
    assert not passes(halfway, found)
    assert passes(found.outputs, found)


def test_what_passes_is_no_more_than_with_float64_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(Net(), monkeypatch)
    own = subject.responses()
    monkeypatch.setattr("pt2hub_workers.inside.builds.verify.eager_responses.MIN_MARGIN", float("inf"))
    precise = subject.responses()
    for name, item in own.items():
        (mine,), (theirs,) = item.allowances, precise[name].allowances
        assert mine.allowed <= 1.01 * theirs.allowed
        assert mine.signal == pytest.approx(theirs.signal, rel=1e-3)
        assert passes(item.outputs, precise[name])


def test_float64_is_the_reference_of_every_group_where_rounding_is_near_what_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subject = Subject(Net(lost=300.0), monkeypatch)
    found = subject.responses()
    assert subject.base[0].eager_error * 16 > subject.base[0].allowed
    assert subject.in_double >= len(GROUPS)
    assert {item.outputs[0].dtype for item in found.values()} == {torch.float64}


def test_float64_is_the_reference_where_perturbing_everything_raises_the_rounding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subject = Subject(Cancelling(), monkeypatch)
    assert subject.base[0].eager_error * 16 < subject.base[0].allowed, "at its own weights nothing is lost"
    found = subject.responses()
    assert found["Linear.weight"].outputs[0].dtype == torch.float64
    assert subject.in_double >= len(found)


def test_whole_numbers_do_not_round_and_are_taken_from_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(Choosing(), monkeypatch)
    found = subject.responses()
    assert subject.in_double == len(found) == len(GROUPS)


def test_without_float64_the_models_own_dtype_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(Net(), monkeypatch)
    used = list(subject.module.state_dict())
    found = compute_responses(subject.module, subject.given[EXAMPLE], subject.base, used, in_double=False)
    assert subject.in_double == 0
    assert [item.has_power for item in found] == [True] * len(GROUPS)
