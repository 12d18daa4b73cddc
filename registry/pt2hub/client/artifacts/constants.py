"""Constants of compiled code: mapped from the weights file and checked against the config.

PyTorch checks only their names (docs/facts/aoti.md#what-load_constants-checks): a wrong shape, stride, dtype or device is silent
garbage or a crash, so every tensor passes `_fit` before the code sees it.
"""

from __future__ import annotations

import math
import mmap
from typing import TYPE_CHECKING

import torch

from pt2hub import archive
from pt2hub.archive.strides import row_major
from pt2hub.client.artifacts.call_contract import dtype_named
from pt2hub.client.artifacts.local import literals
from pt2hub.errors import CorruptArchive, WeightsMismatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pt2hub.archive import TensorEntry
    from pt2hub.client.artifacts.local import LocalArtifact
    from pt2hub.domain.artifacts import Constant


_SHOWN = 5
"""Number of names listed in an error."""


class ConstantStore:
    """Makes the constants of one artifact on one device.

    Attributes:
        table: The constants that the code is given, by name; none where it holds its weights itself.

    Args:
        device: Where the compiled code runs.
    """

    def __init__(self, artifact: LocalArtifact, device: torch.device) -> None:
        self.table = {item.fqn: item for item in artifact.config.constants.table}
        written = tuple(name for name, item in self.table.items() if item.mutated)
        self.mutated = written or artifact.config.constants.mutated
        self._device = device
        self._override = artifact.config.dtype
        self._where = str(artifact.weights)
        entries = archive.read_safetensors_header(artifact.weights)
        wanted = [item for item in self.table.values() if item.source == "weights"]
        literal = [item for item in self.table.values() if item.source != "weights"]
        self._sources = _views(_map(artifact), entries, wanted, self._where)
        if extra := literals(artifact):
            data = bytearray(extra)  # writable, as torch.frombuffer asks for
            header = archive.read_safetensors_header(extra)
            self._sources |= _views(data, header, literal, f"{artifact.code}:{archive.LITERALS}")

    @property
    def literals(self) -> frozenset[str]:
        """Constants that are not weights."""
        return frozenset(name for name, item in self.table.items() if item.source != "weights")

    def pristine(self) -> dict[str, torch.Tensor]:
        """Return the constants as stored: views of the mapped file, or copies where the code needs another layout."""
        return {name: self._fit(self.table[name], tensor) for name, tensor in self._sources.items()}

    def replace(
        self, tensors: Mapping[str, torch.Tensor], current: Mapping[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """Return other constants in place of the current ones.

        Args:
            current: Where left-out literals are taken from.

        Raises:
            WeightsMismatch: A name is missing, or a tensor does not fit.
        """
        given = {
            name: tensors[key]
            for name, item in self.table.items()
            for key in (item.name_in_file, name)  # the later one decides
            if key in tensors
        }
        missing = sorted(set(self.table) - set(given) - self.literals)
        if missing:
            unknown = sorted(set(tensors) - set(self.table))
            raise WeightsMismatch(
                f"missing {_some(missing)}" + (f"; unknown {_some(unknown)}" if unknown else ""),
                where="tensors",
                hint="Pass every tensor of the model's state_dict() under its own name.",
            )
        return {
            name: self._fit(item, given[name]) if name in given else current[name]
            for name, item in self.table.items()
        }

    def _fit(self, item: Constant, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor in the required layout; it shares memory if it already has that layout."""
        _check(item, tensor, self._override)
        fitted = tensor.detach().to(device=self._device, dtype=dtype_named(item.dtype))
        if tuple(fitted.stride()) != item.stride:
            fitted = _restride(fitted, item.stride)
        shares = fitted.data_ptr() == tensor.data_ptr()
        return fitted.clone(memory_format=torch.preserve_format) if item.mutated and shares else fitted


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (" ..." if len(names) > _SHOWN else "")


def _check(item: Constant, tensor: torch.Tensor, override: str | None) -> None:
    if tensor.layout is not torch.strided:
        raise WeightsMismatch(f"{tensor.layout} where a dense tensor is required", where=item.fqn)
    if tuple(tensor.shape) != item.shape:
        raise WeightsMismatch(
            f"The shape is {tuple(tensor.shape)}, the compiled code reads {item.shape}",
            where=item.fqn,
            hint="Weights fit only the architecture they were compiled for; publish the other one.",
        )
    if tensor.dtype == dtype_named(item.dtype):
        return
    # A target that overrides the dtype converts the version's weights when they are loaded.
    if override != item.dtype or not tensor.is_floating_point():
        raise WeightsMismatch(
            f"The dtype is {str(tensor.dtype).removeprefix('torch.')}, the compiled code reads {item.dtype}",
            where=item.fqn,
            hint=f"Convert the tensor: .to(torch.{item.dtype}).",
        )


def _restride(tensor: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    pairs = zip(tensor.shape, tensor.stride(), stride, strict=True)
    if all(size == 1 or has == needs for size, has, needs in pairs):
        return tensor.as_strided(tensor.shape, stride)
    return torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _map(artifact: LocalArtifact) -> mmap.mmap:
    # Copy-on-write: a stray write changes this process's page and never the cached file. The tensors keep the
    # map alive; the file may be unlinked meanwhile, and nobody rewrites cached files in place.
    with artifact.open_weights() as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)


def _views(
    data: mmap.mmap | bytearray,
    entries: Mapping[str, TensorEntry],
    wanted: Sequence[Constant],
    where: str,
) -> dict[str, torch.Tensor]:
    _check_names(entries, wanted, where)
    return {item.fqn: _view(data, entries[item.name_in_file], item, where) for item in wanted}


def _check_names(entries: Iterable[str], wanted: Sequence[Constant], where: str) -> None:
    if missing := sorted({item.name_in_file for item in wanted} - set(entries)):
        raise WeightsMismatch(
            f"The file lacks {len(missing)} tensors the compiled code reads: {_some(missing)}",
            where=where,
            hint="Pull the artifact again; its weights layer belongs to it.",
        )


def _view(data: mmap.mmap | bytearray, entry: TensorEntry, item: Constant, where: str) -> torch.Tensor:
    dtype = dtype_named(entry.dtype)
    count = math.prod(entry.shape)
    if item.size != math.prod(item.shape) * dtype_named(item.dtype).itemsize:
        raise CorruptArchive(f"The table of constants contradicts itself at {item.fqn}", where=where)
    if not count:
        return torch.empty_strided(entry.shape, row_major(entry.shape), dtype=dtype)
    flat = torch.frombuffer(data, dtype=dtype, count=count, offset=entry.begin)
    return flat.view(entry.shape)
