"""Segments of a program: each is a module that reads the weights of its own instance."""

from __future__ import annotations

import torch
from torch import nn

from pt2hub_workers.inside.builds.regions.parts import group_segments
from pt2hub_workers.inside.builds.regions.segments import Cut


class _Block(nn.Module):
    """A block whose weights have the names that segments give to what lies outside, and to literals."""

    def __init__(self, shared: nn.Parameter) -> None:
        super().__init__()
        for at, name in enumerate(("outer_0", "outer_1", "literal_1", "literal_2", "literal_3")):
            self.register_parameter(name, nn.Parameter(torch.rand(4) + at))
        self.literal_4 = nn.Linear(4, 4)
        self.shared = shared

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.literal_4(x * self.outer_0 + self.shared * torch.tensor([2.0]))
        x = x + self.outer_1 * torch.tensor([3.0]) * self.shared.tanh()
        return x * self.literal_1 + self.literal_2 * torch.tensor([5.0]) - self.literal_3


class _Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Parameter(torch.rand(4))
        self.layers = nn.ModuleList(_Block(self.shared) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def test_weights_with_names_of_literals_and_outer_weights_are_bound_rightly() -> None:
    torch.manual_seed(0)
    model, x = _Model().eval().requires_grad_(False), torch.rand(2, 4)
    program = torch.export.export(model, (x,))
    cut = Cut(program, [f"layers.{number}" for number in range(3)])

    found = x
    for segment in cut.segments:
        (found,) = segment.module(found)
        bound = segment.constants.values()
        assert len(set(bound)) == len(bound) == 11

    torch.testing.assert_close(found, model(x))


def test_such_blocks_are_still_equal() -> None:
    model = _Model().eval().requires_grad_(False)
    program = torch.export.export(model, (torch.rand(2, 4),))
    cut = Cut(program, [f"layers.{number}" for number in range(3)])

    parts = group_segments(program, cut.segments, frozenset(model.state_dict()))

    # torch.export gives the shared weight the name that it has in the last block.
    assert [part.modules for part in parts] == [("layers.0", "layers.1"), ("layers.2",)]
