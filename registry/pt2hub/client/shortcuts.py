"""`pt2hub.load`, `pt2hub.pull` and `pt2hub.publish`: a client for one call; and `pt2hub.save_program`, which needs none."""

from __future__ import annotations

import inspect
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from pt2hub.client.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.export import ExportedProgram

P = ParamSpec("P")
T = TypeVar("T")


def _once(method: Callable[Concatenate[Client, P], T]) -> Callable[P, T]:
    """Make a function of a client's method, with its documentation and its parameters."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with Client() as client:
            return method(client, *args, **kwargs)

    signature = inspect.signature(method)
    parameters = list(signature.parameters.values())[1:]
    vars(call)["__signature__"] = signature.replace(parameters=parameters)
    return call


load = _once(Client.load)
pull = _once(Client.pull)
publish = _once(Client.publish)


def save_program(program: ExportedProgram, path: str | Path) -> None:
    """Write an exported program to a file for `pt2hub publish --program`.

    As torch.export.save, which cannot write a plain call of a Triton kernel: here the file names the kernel by its module,
    which goes along with `--code`.

    Raises:
        ExportFailed: The program has something that cannot be saved.
        BadConfiguration: torch is not installed.
    """
    from pt2hub.extras import require_torch

    require_torch("Saving a program")
    from pt2hub.client.publishing.live_models.export import save

    save(program, Path(path))
