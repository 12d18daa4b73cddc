"""A build's steps and log lines on their way to the database."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Protocol

import structlog

from pt2hub.domain.builds import StepReport
from pt2hub.errors import Pt2hubError, StaleAttempt, TransientError
from pt2hub.server.redaction import Redactor
from pt2hub_workers.capping import Lines
from pt2hub_workers.noise import Classifier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pt2hub.domain.builds import Claim, LogLine

StepState = Literal["running", "done", "failed"]
FLUSH_SECONDS = 0.2
"""How long a line may wait for others: a compile prints hundreds at once."""
RETRY_SECONDS = 0.5
"""Pause before what the database did not take is sent again."""
CLOSE_SECONDS = 60.0
FLUSH_TIMEOUT_SECONDS = 2.0

_log = structlog.get_logger()


class Reports(Protocol):
    """Takes what attempts report; `BuildService` does."""

    def report(self, claim: Claim, steps: Sequence[StepReport], lines: Sequence[LogLine]) -> None:
        """Notes how an attempt goes, in one transaction.

        Raises:
            StaleAttempt: The attempt was overtaken.
            TransientError: It may be taken later.
        """


def _nothing() -> None:
    pass


class Journal:
    """Sends steps and lines in batches, from a thread of its own; they are also in the worker's own log.

    What the database does not take is kept and sent again, in order. A log has a cap and a step only its latest
    state, so there is an end to what may wait.

    Attributes:
        timings: Seconds of each finished step, in order.
    """

    def __init__(
        self,
        builds: Reports,
        claim: Claim,
        *,
        redactor: Redactor | None = None,
        offset: float = 0.0,
        on_stale: Callable[[], object] = _nothing,
    ) -> None:
        """Starts the thread.

        Args:
            builds: Where it is written.
            claim: The attempt it belongs to.
            redactor: Takes secrets out of lines and details; without one only those of known forms.
            offset: Seconds that this machine's clock is behind the database's.
            on_stale: Called once, from the thread, when the attempt turns out to be overtaken. Must not block.
        """
        self.timings: list[tuple[str, float]] = []
        self._builds = builds
        self._claim = claim
        self._redactor = redactor or Redactor()
        self._offset = offset
        self._on_stale = on_stale
        self._step = "claim"
        self._lock = threading.Condition()
        self._lines = Lines(self._redactor.clean)
        self._steps: dict[str, StepReport] = {}
        self._waits: dict[str, float] = {}
        self._printed = Classifier()
        self._stale = False
        self._sending = threading.Lock()
        self._wake, self._closing = threading.Event(), threading.Event()
        self._deadline = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True, name="journal")
        self._thread.start()

    def now(self) -> float:
        """Seconds since the epoch, by the database's clock."""
        return time.time() + self._offset

    def line(self, text: str, level: str = "info") -> None:
        """Adds a log line of the build itself."""
        self._add([(level, text)])

    def printed(self, text: str) -> None:
        """Adds a line that a child printed; what it is decides its level."""
        with self._lock:
            told = self._printed.feed(text)
        self._add(told)

    def step(
        self, name: str, state: StepState, *, seconds: float | None = None, detail: str | None = None
    ) -> None:
        """Notes a step's state. From here on, what this thread logs carries the step.

        Args:
            name: One of `domain.builds.STEPS`.
            state: How it stands.
            seconds: Its wall time without what it waited for the device, once it ended.
            detail: A short line of progress or result; the last one given stays.
        """
        self._step = name
        structlog.contextvars.bind_contextvars(step=name)
        detail = None if detail is None else self._redactor.clean(detail)
        waited = self._waits.get(name)
        began = self.now() - (seconds or 0.0) - (waited or 0.0)
        report = StepReport(name, state, began, seconds, detail, waited)
        with self._lock:
            if not self._stale:
                self._steps[name] = self._merged(report)
        if state == "done" and seconds is not None:
            self.timings.append((name, seconds))
            self.line(f"{name} took {seconds:.2f} s")
        elif detail:
            self.line(detail)
        if not detail:  # progress within a step is in the build's own log
            _log.info(
                "step", build=self._claim.build, attempt=self._claim.attempt, state=state, seconds=seconds
            )
        self._wake.set()

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """A step that the parent does itself."""
        self.step(name, "running")
        started, before = time.monotonic(), self._waits.get(name, 0.0)
        yield
        waited = self._waits.get(name, 0.0) - before
        self.step(name, "done", seconds=max(0.0, time.monotonic() - started - waited))

    def waited(self, seconds: float) -> None:
        """Note that the present step waited for the device, which is shown apart from its own time."""
        self._waits[self._step] = self._waits.get(self._step, 0.0) + seconds

    def without_waits(self, name: str, seconds: float) -> float:
        """Return a step's own seconds.

        Args:
            name: The step.
            seconds: Its wall time, in which everything falls that it waited.
        """
        return max(0.0, seconds - self._waits.get(name, 0.0))

    def fail_step(self) -> None:
        """Marks the step that was running as failed."""
        if self._step != "claim":
            self.step(self._step, "failed")

    @contextmanager
    def handing_over(self) -> Iterator[list[StepReport]]:
        """The steps that are not sent yet, for who stores them in a transaction of its own; nothing is sent meanwhile."""
        with self._sending:
            with self._lock:
                steps = list(self._steps.values())
            yield steps
            self._forget(steps, 0)

    def flush(self, timeout: float = FLUSH_TIMEOUT_SECONDS) -> bool:
        """Waits until all that was said is stored; returns whether it is.

        Before an attempt is ended without its build: what it says later is refused, since the next one is due.

        Args:
            timeout: Seconds to wait at most.
        """
        self._end_log()
        self._wake.set()
        with self._lock:
            return self._lock.wait_for(lambda: not (self._lines or self._steps), timeout)

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Writes what waits and stops the thread.

        Args:
            timeout: Seconds for which it is tried again where the database does not take it.
        """
        self._end_log()
        self._deadline = time.monotonic() + timeout
        self._closing.set()
        self._wake.set()
        self._thread.join()
        structlog.contextvars.unbind_contextvars("step")
        if self._lines or self._steps:
            _log.warning(
                "the end of a build's log is not stored",
                build=self._claim.build,
                attempt=self._claim.attempt,
                lines=len(self._lines),
                steps=list(self._steps),
            )

    def _end_log(self) -> None:
        with self._lock:
            held = self._printed.flush()
        self._add(held)
        with self._lock:
            self._lines.close()

    def _add(self, lines: Sequence[tuple[str, str]]) -> None:
        at = self.now()
        with self._lock:
            if not self._stale:
                for level, text in lines:
                    self._lines.add(text, at=at, step=self._step, level=level)
        self._wake.set()

    def _merged(self, new: StepReport) -> StepReport:
        """A step's report with what an unsent one before it says and it does not."""
        old = self._steps.get(new.name)
        if old is None:
            return new
        return replace(new, started=old.started, detail=old.detail if new.detail is None else new.detail)

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._closing.wait(FLUSH_SECONDS)
            self._wake.clear()
            closing = self._closing.is_set()  # after the clearing: who closes sets this first, then wakes
            sent = self._send_all()
            if closing and (sent or time.monotonic() > self._deadline):
                return
            if not sent:
                time.sleep(RETRY_SECONDS)
                self._wake.set()

    def _send_all(self) -> bool:
        """Sends until nothing waits; False where the database did not answer."""
        while not self._stale:
            with self._sending:
                sent = self._send_batch()
            if sent is not True:
                return sent is None
        return True

    def _send_batch(self) -> bool | None:
        """Sends some; False where the database did not answer, None where nothing waits or will ever be taken."""
        with self._lock:
            steps, lines = list(self._steps.values()), self._lines.batch()
        if not steps and not lines:
            return None
        try:
            self._builds.report(self._claim, steps, lines)
        except StaleAttempt:
            self._give_up()
            return None
        except TransientError as error:
            _log.warning("log lines wait for the database", build=self._claim.build, error=str(error))
            return False
        except Pt2hubError as error:  # it would be refused each time
            _log.warning("log lines refused", build=self._claim.build, lines=len(lines), error=str(error))
        self._forget(steps, len(lines))
        return True

    def _forget(self, steps: Sequence[StepReport], lines: int) -> None:
        with self._lock:
            self._lines.stored(lines)
            for step in steps:
                if self._steps[step.name] is step:  # else it moved on meanwhile
                    del self._steps[step.name]
            self._lock.notify_all()

    def _give_up(self) -> None:
        """Drops everything: whoever overtook this attempt writes a log of its own."""
        with self._lock:
            self._stale = True
            self._lines, self._steps = Lines(self._redactor.clean), {}
            self._lock.notify_all()
        self._on_stale()
