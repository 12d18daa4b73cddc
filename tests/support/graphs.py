"""Graphs without a GPU: a replay runs the call again, on the memory that the capture saw."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class RepeatedCall:
    """A call that is run again at each replay, into the outputs of its capture."""

    def __init__(self, call: Callable[[], list[torch.Tensor]]) -> None:
        self._call = call
        self.outputs = call()

    def replay(self) -> None:
        with torch.inference_mode():  # a real replay writes to memory, whatever mode its tensors were made in
            for own, new in zip(self.outputs, self._call(), strict=True):
                own.copy_(new)


class RepeatingBackend:
    """Captures by remembering.

    Attributes:
        events: What was asked of it, in order.
        fails: What captures raise, if they are to fail.
        capturing: Whether the caller captures a graph of their own.
        random: State of a random generator.
    """

    def __init__(self) -> None:
        self.events: list[str] = []
        self.fails: RuntimeError | None = None
        self.capturing = False
        self.random = 0
        self._inside = threading.Lock()

    def is_capturing(self) -> bool:
        return self.capturing

    def join(self) -> None:
        self.events.append("join")

    def settle(self) -> None:
        self.events.append("settle")

    @contextmanager
    def rewind_random(self) -> Iterator[None]:
        before = self.random
        yield
        self.random = before

    def capture(self, call: Callable[[], list[torch.Tensor]]) -> RepeatedCall:
        assert self._inside.acquire(blocking=False), "two captures at a time"
        try:
            self.events.append("capture")
            made = RepeatedCall(call)
            if self.fails is not None:
                raise self.fails
            return made
        finally:
            self._inside.release()
