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
        print(f"probes: {_probes()} compiled here")
        return torch.relu(self.linear(x))


def _probes() -> int:
    """How many libraries Inductor compiled in this process to probe the CPU's instruction sets."""
    sources = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).glob("*/*.cpp")
    return len([path for path in sources if "_chk_kernel" in path.read_text()])


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
