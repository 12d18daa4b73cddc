"""A model that looks at what its build's process does with prepared headers and probes, and says it."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import nn
from torch._inductor import codecache


class Looking(nn.Module):
    """Prints, each time it runs: before its compile at first, in the end after it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        files = list(Path(codecache._HEADER_DIR).glob("*.gch"))
        own = [path.name for path in files if not path.is_symlink()]
        print(f"headers: {len(files) - len(own)} prepared, {len(own)} compiled here, {_harm()}")
        used, compiled = _probes()
        print(f"probes: {used} used, {compiled} compiled here")
        return torch.relu(self.linear(x))


def _probes() -> tuple[int, int]:
    """How many instruction sets Inductor has probed in this process, and how many libraries it compiled for that."""
    sources = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).glob("*/*.cpp")
    probes = [path.with_suffix(".so") for path in sources if "_chk_kernel" in path.read_text()]
    prepared = Path(os.environ["PT2HUB_HEADERS"])
    copies = [path for path in probes if _time(path) == _time(prepared / path.name)]
    return len(probes), len(probes) - len(copies)


def _time(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


def _harm() -> str:
    prepared = Path(os.environ["PT2HUB_HEADERS"])
    done = []
    for name in ("new.h", *(path.name for path in prepared.iterdir())):
        for harm in (lambda path: path.chmod(0o644), lambda path: path.open("ab").close(), Path.unlink):
            try:
                harm(prepared / name)
            except OSError:
                continue
            done.append(name)
    return f"harmed {done}"
