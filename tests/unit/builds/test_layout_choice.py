"""Which programs compute their convolutions in channels_last on a GPU."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pt2hub_workers.inside.builds.compile.channels_last import prefers_channels_last


@pytest.mark.parametrize(
    ("layers", "prefers"),
    [
        ([nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 128, 3)], True),
        ([nn.Conv2d(3, 128, 3, padding="same")], True),
        ([nn.Conv2d(3, 64, 3), nn.Conv2d(64, 64, 3)], False),
        ([nn.Conv2d(3, 128, 3), nn.Conv2d(128, 128, 3, groups=128)], False),
        ([nn.Conv2d(3, 128, 3), nn.ConvTranspose2d(128, 8, 2)], False),
        ([nn.Conv2d(3, 128, 3), nn.Flatten(2), nn.Conv1d(128, 128, 3)], False),
        ([nn.ReLU()], False),
    ],
)
def test_only_plain_convolutions_over_images_with_many_channels(
    layers: list[nn.Module], prefers: bool
) -> None:
    batch = torch.export.Dim("batch", min=1, max=8)
    program = torch.export.export(
        nn.Sequential(*layers).eval(), (torch.randn(2, 3, 9, 9),), dynamic_shapes=({0: batch},)
    )

    assert prefers_channels_last(program) is prefers
