"""`pt2hub.load`, `pt2hub.pull` and `pt2hub.publish`: a client for one call."""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from pt2hub.client.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable

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
