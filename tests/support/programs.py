"""Files of torch.export.save, and hostile ones made from them."""

from __future__ import annotations

import io
import json
import os
import zipfile
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from pt2hub.archive.zip.encoder import write_zip

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

SIZE = 8


class Everything(nn.Module):
    """A model with what programs find hard: tied and scalar weights, a non-persistent buffer, a literal, bfloat16."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.table = nn.Embedding(16, SIZE)
        self.middle = nn.Linear(SIZE, SIZE)
        self.head = nn.Linear(SIZE, 16, bias=False)
        self.head.weight = self.table.weight
        self.scale = nn.Parameter(torch.rand(()) + 1.0)
        self.narrow = nn.Parameter(torch.randn(SIZE).bfloat16())
        self.register_buffer("steps", torch.arange(float(SIZE)), persistent=False)
        self.register_buffer("mean", torch.randn(SIZE))

    def forward(self, ids: torch.Tensor, x: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.table(ids) + self.middle(x * self.scale) + self.steps + self.narrow.float()
        hidden = hidden * torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]) - self.mean
        return {"scores": self.head(torch.tanh(hidden)), "hidden": hidden}


def save(model: nn.Module, path: Path, args: tuple[Any, ...], **options: Any) -> Path:
    """Exports a model and saves it."""
    torch.export.save(torch.export.export(model, args, **options), path)
    return path


def save_everything(path: Path, seed: int = 0) -> Path:
    """`Everything`, its batch from 1 to 64."""
    batch = torch.export.Dim("batch", min=1, max=64)
    return save(
        Everything(seed).eval(),
        path,
        (torch.zeros(2, dtype=torch.int64), torch.randn(2, SIZE)),
        dynamic_shapes={"ids": {0: batch}, "x": {0: batch}},
    )


def members(path: Path) -> dict[str, bytes]:
    """A zip's members, read by Python's own reader."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def changed(path: Path, out: Path, **changes: bytes | None) -> Path:
    """A copy of an archive with members replaced, added or, where None, left out; named by how their names end."""
    found = members(path)
    root = next(iter(found)).partition("/")[0]
    for end, data in changes.items():
        name = next((name for name in found if name.endswith(end)), f"{root}/{end}")
        found.pop(name, None)
        if data is not None:
            found[name] = data
    write_zip(out, found.items())
    return out


def edited(path: Path, out: Path, end: str, edit: Callable[[Any], None]) -> Path:
    """A copy with one of its JSON documents edited."""
    name = next(name for name in members(path) if name.endswith(end))
    document = json.loads(members(path)[name])
    edit(document)
    return changed(path, out, **{end: json.dumps(document).encode()})


class Bomb:
    """A pickle that makes a folder when it is read."""

    def __init__(self, marker: Path) -> None:
        self.marker = str(marker)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.marker,)


def bomb(marker: Path) -> bytes:
    """What torch.load would run."""
    buffer = io.BytesIO()
    torch.save(Bomb(marker), buffer)
    return buffer.getvalue()


def strided(tensors: Mapping[str, torch.Tensor]) -> nn.Module:
    """A model whose parameters are just these tensors, strides and shared storage as they are."""

    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, tensor in tensors.items():
                self.register_buffer(name, tensor)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + sum(getattr(self, name).double().sum() for name in tensors)

    return Holder().eval()
