"""Small models with repeated blocks, for tests of regions."""

from __future__ import annotations

import torch
from torch import nn


class Block(nn.Module):
    """Attention without heads over a mask, a literal and a residual; its weights are far from equal between blocks."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        size = x.shape[0] * x.shape[1]
        y = self.mix(self.norm(x)).reshape(size, -1)
        y = torch.tanh(y) + torch.tensor([0.5]).expand(size, 1)
        return x + self.out(y.view(x.shape)) * mask.unsqueeze(-1)


class Stack(nn.Module):
    """An embedding, equal blocks that share a mask, a tied head and a last result that is not contiguous."""

    def __init__(self, blocks: int = 6, width: int = 16) -> None:
        super().__init__()
        self.table = nn.Embedding(32, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 32, bias=False)
        self.head.weight = self.table.weight
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        mask = (ids > 3).float()
        x = self.table(ids)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x)).transpose(1, 2)


class ImageBlock(nn.Module):
    """A convolution with a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.conv(x)) + x


class Images(nn.Module):
    """Equal blocks of convolutions."""

    def __init__(self, blocks: int = 3) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(ImageBlock() for _ in range(blocks))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            image = block(image)
        return image


class Counting(nn.Module):
    """A block with a buffer that it writes to."""

    calls: torch.Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        return torch.tanh(self.linear(x)) + 0.1 * self.calls


class Chain(nn.Module):
    """Layers one after the other."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def counters(blocks: int = 4, width: int = 8) -> Chain:
    """Equal blocks that each keep a state."""
    return Chain(*(Counting(width) for _ in range(blocks)))


def different() -> Chain:
    """Blocks of one class and different sizes."""
    return Chain(Counting(8), nn.Linear(8, 16), Counting(16), nn.Linear(16, 8))


class Plain(nn.Module):
    """A block that is equal in chains of any length."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(self.linear(x))


def deep(blocks: int = 100) -> Chain:
    """Equal blocks and nothing else."""
    return Chain(*(Plain() for _ in range(blocks)))


class Halving(nn.Module):
    """Equal blocks that are called with two shapes; their graphs have the same text."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Plain() for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.reshape(-1, 2, 8)
        for layer in self.layers[:2]:
            x = layer(x)
        x = x[:, :1]
        for layer in self.layers[2:]:
            x = layer(x)
        return x.mean(dim=1)


def bottlenecks() -> Chain:
    """Linear layers of two shapes; their graphs have the same text."""
    return Chain(*(nn.Linear(*sizes) for _ in range(2) for sizes in ((8, 16), (16, 8))))
