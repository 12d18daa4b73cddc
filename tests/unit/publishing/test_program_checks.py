"""What an exported program draws, and which of its inputs it never reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from pt2hub.client.publishing.live_models.unread_inputs import unread_inputs
from pt2hub.errors import ProgramDiffers, RandomOperators, UnusedInput
from pt2hub_workers.inside.builds.export import eager
from pt2hub_workers.inside.builds.verify import program_checks
from pt2hub_workers.inside.builds.verify.golden import GoldenInputs
from support.forms import adapted, exported, spec_of, tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from pt2hub_workers.inside.builds.export.export import ExportResult
    from pt2hub_workers.inside.builds.export.inputs import Tensors


class Line(nn.Module):
    """Computes what a test's line says."""

    def __init__(self, line: Callable[..., Any], *parts: nn.Module) -> None:
        super().__init__()
        self.line = line
        self.parts = nn.ModuleList(parts)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return self.line(x, y, *self.parts)


XY = (tensor("x"), tensor("y"))


def program(line: Callable[..., Any], *parts: nn.Module) -> ExportResult:
    return exported(Line(line, *parts), spec_of(*XY))[0]


@pytest.mark.parametrize(
    ("line", "operator"),
    [
        (lambda x, _: x + torch.rand_like(x), "aten.rand_like"),
        (lambda x, _: x + torch.randn(x.shape), "aten.randn"),
        (lambda x, _: nn.functional.dropout(x, 0.5, training=True), "aten.dropout"),
        (
            lambda x, _: nn.functional.feature_alpha_dropout(x, 0.5, training=True),
            "aten.feature_alpha_dropout",
        ),
        (lambda x, _: x * torch.bernoulli(torch.full_like(x, 0.5)), "aten.bernoulli"),
        (lambda x, _: torch.multinomial(x.abs() + 1, 2).float(), "aten.multinomial"),
        (lambda x, _: x + torch.empty_like(x).normal_(), "aten.normal_"),
        (
            lambda x, y: nn.functional.scaled_dot_product_attention(x, y, y, dropout_p=0.1),
            "aten.scaled_dot_product_attention",
        ),
    ],
)
def test_operators_that_draw_numbers_are_refused_unless_they_are_accepted_by_name(
    line: Callable[..., Any], operator: str
) -> None:
    found = program(line).program

    with pytest.raises(RandomOperators) as caught:
        program_checks.check_random(found, ["no_power", "random:aten.other"])

    assert operator in caught.value.message
    accept = [f"random:{detail.path}" for detail in caught.value.details]
    assert all("is not proven" in note for note in program_checks.check_random(found, accept))


@pytest.mark.filterwarnings(
    "ignore:The tensor attributes"
)  # a recurrent layer keeps its weights in a list, too
@pytest.mark.parametrize(
    ("line", "parts"),
    [
        (lambda x, _, drop: drop(x), [nn.Dropout(0.5)]),
        (lambda x, _: nn.functional.dropout(x, 0.5, training=False), []),
        (lambda x, y: nn.functional.scaled_dot_product_attention(x, y, y), []),
        (lambda x, _, lstm: lstm(x)[0], [nn.LSTM(4, 4)]),
        (lambda x, _: nn.functional.rrelu(x, training=False), []),
        (lambda x, _, layer: layer(x), [nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)]),
    ],
    ids=["dropout in eval mode", "dropout that is off", "attention", "lstm", "rrelu", "encoder layer"],
)
def test_operators_that_would_draw_numbers_in_training_are_not(
    line: Callable[..., Any], parts: list[nn.Module]
) -> None:
    fixed = spec_of(tensor("x", [2, 4]), tensor("y", [2, 4]), dims={})
    assert program_checks.check_random(exported(Line(line, *parts), fixed)[0].program, []) == ()


@pytest.mark.parametrize(
    ("line", "unread"),
    [
        (lambda x, y: x + y, []),
        (lambda x, _: x * 2, ["y"]),
        (lambda x, y: x.sum(1) * y.shape[0], ["y"]),
        (lambda x, y: (x * 2, y.sum())[0], ["y"]),
        (lambda x, y: torch.where(y > 0, x, 0.0), []),
    ],
    ids=["both", "one", "one and the other's size", "a value that is dropped", "a mask"],
)
def test_inputs_of_which_no_value_reaches_an_output_are_unread(
    line: Callable[..., Any], unread: list[str]
) -> None:
    assert unread_inputs(program(line).program, ["x", "y"]) == unread


def given(module: nn.Module, inputs: Tensors) -> GoldenInputs:
    return GoldenInputs("example.0", inputs, eager.run_flat(module, inputs))


def test_an_input_that_the_model_ignores_is_told_from_one_that_the_export_lost() -> None:
    ignoring, made = adapted(Line(lambda x, _: x * 2), spec_of(*XY))
    reading, _ = adapted(Line(lambda x, y: x * float(y.sum())), spec_of(*XY))
    other = {name: item + 1 for name, item in made.items()}

    notes = program_checks.check_unused_inputs(
        ["y"], [], module=ignoring, given=given(ignoring, made), other=other
    )
    assert notes == ("input y is unused: the artifact takes it and ignores it, as the model does",)
    with pytest.raises(UnusedInput, match="its output changes with y alone"):
        program_checks.check_unused_inputs(["y"], [], module=reading, given=given(reading, made), other=other)
    constant = {**made, "y": torch.ones(2, 4)}
    with pytest.raises(
        UnusedInput, match="its output changes"
    ):  # also where the generated value is always the same
        program_checks.check_unused_inputs(
            ["y"], [], module=reading, given=given(reading, constant), other={**other, "y": torch.ones(2, 4)}
        )


def test_a_program_that_takes_one_input_for_the_other_is_no_program_of_the_model() -> None:
    right, made = adapted(Line(lambda x, y: x.cos() + y.sin()), spec_of(*XY))
    wrong = program(lambda x, y: y.cos() + x.sin()).program
    points = [given(right, made), given(right, {name: item + 1 for name, item in made.items()})]

    with pytest.raises(ProgramDiffers, match="output 0 is off by"):
        program_checks.check_program(program_checks.program_module(wrong), right, points, 1e-3)
    same = program(lambda x, y: x.cos() + y.sin()).program
    program_checks.check_program(program_checks.program_module(same), right, points, 1e-3)
