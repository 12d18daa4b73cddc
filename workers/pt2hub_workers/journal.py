"""A build's steps and log lines on their way to the database."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog

from pt2hub.domain.builds import LogLine
from pt2hub.errors import Pt2hubError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.domain.builds import Claim
    from pt2hub.server.services.builds import BuildService, StepState

FLUSH_SECONDS = 0.25
"""How long a line may wait for others: a compile prints hundreds at once."""
MAX_LINES = 50_000
"""Lines kept per attempt; a child that prints for ever must not fill the database."""

_log = structlog.get_logger()


class Journal:
    """Writes steps at once and log lines in batches; everything is also in the worker's own log."""

    def __init__(self, builds: BuildService, claim: Claim) -> None:
        """Starts the flusher.

        Args:
            builds: Where it is written.
            claim: The attempt it belongs to.
        """
        self._builds = builds
        self._claim = claim
        self._step = "claim"
        self._count = 0
        self._waiting: list[LogLine] = []
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self.timings: list[tuple[str, float]] = []
        self._thread = threading.Thread(target=self._flush_for_ever, daemon=True, name="journal")
        self._thread.start()

    def line(self, text: str, level: str = "info") -> None:
        """Adds a log line."""
        with self._lock:
            self._count += 1
            if self._count > MAX_LINES:
                return
            if self._count == MAX_LINES:
                text, level = f"more than {MAX_LINES} lines: the rest is dropped", "warning"
            self._waiting.append(LogLine(self._count, time.time(), self._step, level, text))

    def step(
        self, name: str, state: StepState, *, seconds: float | None = None, detail: str | None = None
    ) -> None:
        """Records a step's state."""
        self._step = name
        if state == "done" and seconds is not None:
            self.timings.append((name, seconds))
            self.line(f"{name} took {seconds:.2f} s")
        elif detail:
            self.line(detail)
        if not detail:  # progress within a step is in the build's own log
            ids = {"build": self._claim.build, "attempt": self._claim.attempt}
            _log.info("step", **ids, step=name, state=state, seconds=seconds)
        self._builds.step(self._claim, name, state, seconds=seconds, detail=detail)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """A step that the parent does itself."""
        self.step(name, "running")
        started = time.monotonic()
        yield
        self.step(name, "done", seconds=time.monotonic() - started)

    def fail_step(self) -> None:
        """Marks the step that was running as failed."""
        if self._step != "claim":
            self.step(self._step, "failed")

    def close(self) -> None:
        """Writes what waits and stops the flusher."""
        self._closed.set()
        self._thread.join()

    def _flush_for_ever(self) -> None:
        while not self._closed.wait(FLUSH_SECONDS):
            self._flush()
        self._flush()

    def _flush(self) -> None:
        with self._lock:
            lines, self._waiting = self._waiting, []
        if not lines:
            return
        try:
            self._builds.log(self._claim, lines)
        except Pt2hubError as error:
            _log.warning("log lines not stored", build=self._claim.build, lines=len(lines), error=str(error))
