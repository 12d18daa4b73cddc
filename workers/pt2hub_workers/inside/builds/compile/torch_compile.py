"""The torch.compile baseline of an artifact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pt2hub_workers.inside.builds.export.call import order_arguments

if TYPE_CHECKING:
    from collections.abc import Callable

    from pt2hub_workers.inside.builds.export.inputs import Tensors


def try_torch_compile(module: torch.nn.Module, inputs: Tensors) -> tuple[Callable[..., Any] | None, str]:
    """Compile a model with torch.compile and run it once; return None and the reason if that fails."""
    try:
        compiled: Callable[..., Any] = torch.compile(module)
        args, kwargs = order_arguments(module, inputs)
        with torch.inference_mode():
            compiled(*args, **kwargs)
    except Exception as error:  # noqa: BLE001  # Dynamo, Inductor and the C++ compiler each raise their own
        return None, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return compiled, ""
