"""Retries with pauses."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pt2hub.errors import Pt2hubError

T = TypeVar("T")


def retry(
    call: Callable[[], T],
    errors: type[Pt2hubError] | tuple[type[Pt2hubError], ...],
    pauses: Iterable[float],
    *,
    wait: Callable[[float], object] = time.sleep,
    on_error: Callable[[Pt2hubError], object] = lambda _: None,
) -> T:
    """Call a function until it succeeds; raise the last error after the last pause.

    Args:
        errors: What another try may cure; all else is raised at once.
        pauses: Seconds before each further try.
        on_error: Called with each error that another try follows.
    """
    for pause in pauses:
        try:
            return call()
        except errors as error:
            on_error(error)
        wait(pause)
    return call()


def jitter(pause: float) -> float:
    """Return a pause lengthened by up to half, so that many clients do not retry at once."""
    return pause * random.uniform(1, 1.5)  # noqa: S311  # no secret depends on it


def generate_pauses(first: float, *, longest: float, total: float) -> Iterator[float]:
    """Yield exponentially growing pauses in seconds, up to a total."""
    deadline = time.monotonic() + total
    while time.monotonic() + first <= deadline:
        yield first
        first = min(2 * first, longest)
