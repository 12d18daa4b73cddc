"""Declarations that make torchvision importable with a CPU build of torch.

There is no CPU build of torchvision: its compiled operators need CUDA libraries, and without them importing
it fails with `operator torchvision::nms does not exist`. Where the library does not load, the two operators
that torchvision's Python code names at import are declared; calling them stays an error. Workers need it for models,
clients for named weights.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

_NMS = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_kept: list[Any] = []
"""A torch Library undoes its declarations when it is collected."""


def declare_torchvision() -> None:
    """Declare missing operators before torchvision or transformers is imported. Idempotent."""
    import torch

    spec = importlib.util.find_spec("torchvision")
    if _kept or spec is None or spec.origin is None:
        return
    try:
        torch.ops.load_library(Path(spec.origin).with_name("_C.so"))
    except OSError:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(name + _NMS)
        _kept.append(library)
