"""The blueprint of all pages. `installation.install` imports the modules that add routes to it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from flask import Blueprint

from pt2hub.server.api.context import PAGES, container

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")

routes = Blueprint(PAGES, __name__)


def reads_together(view: Callable[P, R]) -> Callable[P, R]:
    """Let a page read all of one moment, in one transaction instead of dozens."""

    @functools.wraps(view)
    def read(*args: P.args, **kwargs: P.kwargs) -> R:
        with container().read_together():
            return view(*args, **kwargs)

    return read
