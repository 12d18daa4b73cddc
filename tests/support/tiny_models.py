"""Small models that specs of the tests name as factories, right ones and faulty ones."""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import subprocess
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

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


class Classifier(nn.Module):
    """Convolution, batch norm and a linear layer: a compiler that may freeze weights folds and packs them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.head = nn.Linear(16, 4)
        nn.init.normal_(self.norm.running_mean)  # type: ignore[arg-type]  # a buffer, unless told otherwise
        nn.init.uniform_(self.norm.running_var, 0.5, 2.0)  # type: ignore[arg-type]  # likewise

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.norm(self.conv(image))).mean(dim=(2, 3)))


class Images(nn.Module):
    """Convolutions of every kind over images, one of them with a filter that is neither a parameter nor a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.point, self.depth = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 3, groups=8)
        self.up = nn.ConvTranspose2d(8, 4, 2)
        self.filter = torch.randn(8, 8, 3, 3) / 8

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        features = torch.relu(self.first(image))
        features = features + nn.functional.conv2d(self.point(features), self.filter, padding=1)
        return {"features": features, "flat": self.up(self.depth(features)).flatten(1)}


class Nested(nn.Module):
    """A classifier of what lies inside a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Classifier()

    def forward(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"scores": self.inner(batch["image"]) * batch["scale"]}


class Tied(nn.Module):
    """An embedding whose table is the head's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 8)
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.table(ids)))


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


class Branching(nn.Module):
    """Takes one of two ways, by the values it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        limit = 0.5
        if x.mean() > limit:
            return self.linear(x)
        return x * 2


class Overwriting(nn.Module):
    """Scales its input in place."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2) + 1


class Waves(nn.Module):
    """Returns complex numbers."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"waves": torch.fft.fft(x)}


class Pair(NamedTuple):
    """A named tuple of outputs."""

    left: torch.Tensor
    right: torch.Tensor


@dataclass
class Heads:
    """A dataclass of outputs, one of which is not there."""

    scores: torch.Tensor
    boxes: torch.Tensor | None = None


class EveryForm(nn.Module):
    """As many forms of a call at once as one compile can show.

    Nested inputs in a dict, a list and a tuple, beside fixed parts; keywords; ids and a mask; two dynamic dimensions,
    one of multiples; outputs in a mapping, a named tuple and a dataclass; outputs that are an input, a weight, a buffer,
    and one that comes twice; a buffer that is written to.
    """

    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.table = nn.Embedding(5, 4)
        self.register_buffer("calls", torch.zeros(4))

    def forward(
        self,
        batch: dict[str, Any],
        pair: list[Any],
        scale: float = 1.0,
        *,
        state: tuple[torch.Tensor, ...],
        ids: torch.Tensor,
        mask: torch.Tensor,
    ) -> OrderedDict[str, Any]:
        self.calls.add_(1)
        image = batch["image"] if batch["keep"] else -batch["image"]
        hidden = self.linear(image) * scale + pair[0] * pair[1] + state[0].sum()
        words = self.table(ids).masked_fill(~mask.unsqueeze(-1), 0.0)
        return OrderedDict(
            hidden=hidden,
            nothing=None,
            pair=Pair(hidden, words.reshape(words.shape[0], -1, 8, 4).sum(2)),
            heads=Heads(ids + 1),
            given=batch["image"].view(-1, 2, 2),
            weight=self.linear.weight,
            calls=self.calls,
        )


def failing() -> nn.Module:
    """A factory that raises."""
    raise ValueError("no such variant")


def nothing(**_: Any) -> None:
    """A factory that builds nothing."""


def leaving() -> nn.Module:
    """A factory that ends its process, as if all had gone well."""
    os._exit(0)


def closing() -> nn.Module:
    """A factory that closes every descriptor that its process inherited, as careless daemons do, but for its output."""
    os.closerange(3, 256)
    return Mlp()


def muting() -> nn.Module:
    """A factory that ends what its process hears of its worker."""
    for number in range(3, 64):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as other:
            other.shutdown(socket.SHUT_RD)
    return Mlp()


def patching(what: str) -> nn.Module:
    """A factory that replaces a function of pt2hub by one that takes no arguments."""
    module, _, name = what.partition(":")
    holder = importlib.import_module(module)
    *path, last = name.split(".")
    for part in path:
        holder = getattr(holder, part)
    setattr(holder, last, lambda: None)
    return Mlp()


def sleeping(note: str) -> nn.Module:
    """A factory that starts a program of its own, writes down its process id, and never comes back."""
    program = subprocess.Popen(["sleep", "600"])
    Path(note).write_text(f"{os.getpid()} {program.pid}")
    time.sleep(600)
    return Mlp()


class Summed(nn.Module):
    """Two inputs, neither of which may take the other's place."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cos(x) + torch.sin(y)


class Seeded(nn.Module):
    """Noise that a seed makes the same in each eager call, and other numbers in another dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)
        y = self.linear(x)
        return y + 0.1 * torch.rand_like(y)


class RightOnce(nn.Module):
    """Doubles from its second call on."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        self.calls += 1
        return y if self.calls <= 1 else 2 * y


class RightLater(RightOnce):
    """Doubles from its eighth call on."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        self.calls += 1
        few = 7
        return y if self.calls <= few else 2 * y


class FirstBatch(nn.Module):
    """Scales by a statistic of its first batch, kept as a Python number, as ActNorm does."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.scale: float | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.scale is None:
            self.scale = float(x.abs().max())
        return self.linear(x) / self.scale


SEEN: list[float] = []


class FirstBatchOfAll(nn.Module):
    """The same, kept in a global, which no copy of the model is free of."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not SEEN:
            SEEN.append(float(x.abs().max()))
        return self.linear(x) / SEEN[0]


class OtherwiseExported(nn.Module):
    """Something else while it is exported."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        return y * 2 if torch.compiler.is_exporting() else y


class Innocent(nn.Module):
    """What only looks like a fault: an argument that is ignored, buffers that are written, dropout in eval mode, a table
    kept from the first call, a call counter that nothing reads, and much rounding."""

    steps: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.dropout = nn.Dropout(0.5)
        self.register_buffer("steps", torch.zeros(1))
        self.table: torch.Tensor | None = None
        self.calls = 0

    def forward(self, x: torch.Tensor, spare: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        del spare
        self.steps.add_(1)
        self.calls += 1
        if self.table is None:
            self.table = torch.arange(8.0)
        hidden = self.dropout(self.linear(x)) + self.table
        return hidden * self.steps, (hidden + 1.0e5) - 1.0e5
