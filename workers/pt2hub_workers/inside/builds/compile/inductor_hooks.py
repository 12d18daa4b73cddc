"""Wrapping of Inductor's functions within a block."""

from __future__ import annotations

import functools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def wrap(holder: Any, name: str, around: Callable[..., Any]) -> Iterator[None]:
    """Wrap a method or function within the block; `around` gets the original before the arguments.

    A method that this torch lacks is skipped, and so is its information.
    """
    before = vars(holder).get(name)
    if before is None:
        yield
        return
    if not isinstance(holder, type):
        setattr(holder, name, functools.partial(around, before))
    elif isinstance(before, classmethod):
        bound = getattr(holder, name)
        setattr(holder, name, staticmethod(functools.partial(around, bound)))
    else:
        setattr(holder, name, functools.partialmethod(_call_method, around, before))
    try:
        yield
    finally:
        setattr(holder, name, before)


def _call_method(
    self: object,
    around: Callable[..., Any],
    method: Callable[..., Any],
    *args: Any,
    **kwargs: Any,
) -> Any:
    return around(method, self, *args, **kwargs)
