"""Small models that specs of the tests name as factories, right ones and faulty ones."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn


class Mlp(nn.Module):
    """Two layers and a literal constant."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first = nn.Linear(8, width)
        self.second = nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.nn.functional.gelu(self.first(x))) + torch.tensor([1.0, 2.0, 3.0, 4.0])


class Convnet(nn.Module):
    """Convolution, batch norm and a PReLU, whose one uniform parameter a compiler likes to fold."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.act = nn.PReLU()

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        features = self.act(self.norm(self.conv(image)))
        return {"features": features, "pooled": features.mean(dim=(2, 3))}


class Scaled(nn.Module):
    """A gain that starts uniform, squared: folded away where the compiler may."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.full((8,), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.exp(self.gain)


class Attending(nn.Module):
    """Attention over a dynamic length, where one key leaves nothing to choose; a mask of which only the zeros
    count; and anchors that never change."""

    mask: torch.Tensor
    anchors: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.queries = nn.Linear(8, 8)
        self.keys = nn.Linear(8, 8)
        self.register_buffer("mask", torch.tril(torch.ones(32, 32)))
        self.register_buffer("anchors", torch.arange(4.0))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        length = x.shape[0]
        scores = self.queries(x) @ self.keys(x).T
        scores = scores.masked_fill(self.mask[:length, :length] == 0, float("-inf"))
        return scores.softmax(-1) @ x, self.anchors * 1.0


class Growing(nn.Module):
    """A sum whose size grows with the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.weight).exp().sum()


class Summing(nn.Module):
    """A reduction over everything: its scratch array is as long as the builder's thread count."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.weight).sin().sum()


class Counting(nn.Module):
    """Keeps state across calls."""

    steps: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps.add_(1)
        return self.linear(x) * self.steps


class Embedding(nn.Module):
    """Ids in, vectors out."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(100, 8)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.table(ids)


class Zero(nn.Module):
    """Returns zeros, as vit_b_16 does at random initialisation."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 4)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x)


class FixedBatch(nn.Module):
    """A reshape that fixes the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).reshape(2, 8)


class Noisy(nn.Module):
    """Dropout that stays on."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(self.linear(x), 0.5, training=True)


class NotANumber(nn.Module):
    """NaN for any negative input."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).log()


class Wordy(nn.Module):
    """Returns text beside its tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, str]:
        return self.linear(x), "done"


class Flipped(nn.Module):
    """Mlp whose source has drifted: same tensors, another function."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.second = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.nn.functional.relu(self.first(x))) + torch.tensor([1.0, 2.0, 3.0, 4.0])


def failing() -> nn.Module:
    """A factory that raises."""
    raise ValueError("no such variant")


def nothing(**_: Any) -> None:
    """A factory that builds nothing."""


def leaving() -> nn.Module:
    """A factory that ends its process, as if all had gone well."""
    os._exit(0)


def sleeping(note: str) -> nn.Module:
    """A factory that starts a program of its own, writes down its process id, and never comes back."""
    program = subprocess.Popen(["sleep", "600"])
    Path(note).write_text(f"{os.getpid()} {program.pid}")
    time.sleep(600)
    return Mlp()
