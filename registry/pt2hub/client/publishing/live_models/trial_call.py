"""A call of the live model, to check whether it accepts its example inputs."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from pt2hub.client.publishing.live_models.arguments import dtype_name
from pt2hub.client.publishing.live_models.kernel_failures import explain_kernel_failure
from pt2hub.errors import InputRefused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pt2hub.client.publishing.live_models.arguments import Call

_LONGEST = 300
_NOT_THE_USERS = (str(Path(torch.__file__).parent), __file__)


def check_taken(model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], call: Call) -> None:
    """Run a model that torch.export refused once, on copies of its example inputs and buffers.

    Not before every export: it would take the time and memory of a run, and could change what a model keeps beside
    its buffers.

    Raises:
        InputRefused: The model fails on them without torch.export too.
        KernelFailed: So does one of its Triton kernels.
    """
    copies = pytree.tree_map_only(torch.Tensor, torch.clone, (tuple(args), dict(kwargs)))
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    cards = {item.device for item in (*call.tensors.values(), *buffers.values()) if item.is_cuda}
    try:
        with torch.no_grad(), torch.random.fork_rng(cards):
            torch.func.functional_call(model, buffers, *copies)
    except Exception as exc:  # whatever the model's own code raises
        if failure := explain_kernel_failure(exc, where="model"):
            raise failure from exc
        shapes = ", ".join(
            f"{path} {dtype_name(item)} {[*item.shape]}" for path, item in call.tensors.items()
        )
        said = " ".join(str(exc).split())[:_LONGEST]
        raise InputRefused(
            f"The model fails on the example inputs{_place(exc)}: {type(exc).__name__}: {said}",
            where="args",
            hint=f"Their shapes are {shapes}. Pass tensors that the model accepts, or correct the model.",
        ) from exc


def _place(exc: Exception) -> str:
    """Return the file and line of the innermost frame outside torch."""
    frames = [
        frame
        for frame in traceback.extract_tb(exc.__traceback__)
        if not frame.filename.startswith(_NOT_THE_USERS)
    ]
    return f" at {frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}" if frames else ""
