"""Journal of an attempt: sends its steps and log lines to the database."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Protocol

import structlog

from pt2hub.domain.builds import StepReport
from pt2hub.errors import Pt2hubError, StaleAttempt, TransientError
from pt2hub.system.redaction import Redactor
from pt2hub_workers.builds.log_classifier import LogClassifier
from pt2hub_workers.builds.log_limit import LogLimit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pt2hub.domain.builds import Claim, LogLine

StepState = Literal["running", "done", "failed"]
FLUSH_SECONDS = 0.2
"""How long a line waits for more lines: a compile prints hundreds at once."""
RETRY_SECONDS = 0.5
"""Pause before a failed batch is sent again."""
CLOSE_SECONDS = 60.0
FLUSH_TIMEOUT_SECONDS = 2.0

_log = structlog.get_logger()


class ReportSink(Protocol):
    """Receiver of reports of attempts, such as `BuildService`."""

    def report(self, claim: Claim, steps: Sequence[StepReport], lines: Sequence[LogLine]) -> None:
        """Record steps and log lines in one transaction.

        Raises:
            StaleAttempt: Another attempt has taken over.
            TransientError: The report may succeed later.
        """


def _nothing() -> None:
    pass


class Journal:
    """Sends steps and lines in batches, from its own thread; steps also appear in the worker's own log.

    What the database does not accept is kept and sent again, in order. Memory is bounded: a log has a size limit, and
    only the latest state of a step is kept.

    Args:
        redactor: Removes secrets from lines and details; by default only those of known forms.
        offset: Seconds that this machine's clock is behind the database's.
        on_stale: Called once, from the thread, when another attempt has taken over. Must not block.
    """

    def __init__(
        self,
        builds: ReportSink,
        claim: Claim,
        *,
        redactor: Redactor | None = None,
        offset: float = 0.0,
        on_stale: Callable[[], object] = _nothing,
    ) -> None:
        self.timings: list[tuple[str, float]] = []
        self._builds = builds
        self._claim = claim
        self._redactor = redactor or Redactor()
        self._offset = offset
        self._on_stale = on_stale
        self._step = "claim"
        self._lock = threading.Condition()
        self._lines = LogLimit(self._redactor.clean)
        self._steps: dict[str, StepReport] = {}
        self._waits: dict[str, float] = {}
        self._classifier = LogClassifier()
        self._stale = False
        self._sending = threading.Lock()
        self._wake, self._closing = threading.Event(), threading.Event()
        self._deadline = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True, name="journal")
        self._thread.start()

    def now(self) -> float:
        """Return the time by the database's clock, in seconds since the epoch."""
        return time.time() + self._offset

    def line(self, text: str, level: str = "info") -> None:
        """Add a log line of the build itself."""
        self._add([(level, text)])

    def add_output(self, text: str) -> None:
        """Add a line that a child process printed, at the level of the log classifier."""
        with self._lock:
            lines = self._classifier.feed(text)
        self._add(lines)

    def step(
        self, name: str, state: StepState, *, seconds: float | None = None, detail: str | None = None
    ) -> None:
        """Record a step's state, and bind the step to this thread's log lines.

        Args:
            seconds: Wall time of a finished step, without its waits for the device.
        """
        self._step = name
        structlog.contextvars.bind_contextvars(step=name)
        detail = None if detail is None else self._redactor.clean(detail)
        waited = self._waits.get(name)
        began = self.now() - (seconds or 0.0) - (waited or 0.0)
        report = StepReport(name, state, began, seconds, detail, waited)
        with self._lock:
            if not self._stale:
                self._steps[name] = self._merge(report)
        if state == "done" and seconds is not None:
            self.timings.append((name, seconds))
            self.line(f"{name} took {seconds:.2f} s")
        elif detail:
            self.line(detail)
        if not detail:  # progress within a step is only in the build's log
            _log.info(
                "step", build=self._claim.build, attempt=self._claim.attempt, state=state, seconds=seconds
            )
        self._wake.set()

    @contextmanager
    def time_step(self, name: str) -> Iterator[None]:
        """Record and time a step that the worker itself does."""
        self.step(name, "running")
        started, before = time.monotonic(), self._waits.get(name, 0.0)
        yield
        waited = self._waits.get(name, 0.0) - before
        self.step(name, "done", seconds=max(0.0, time.monotonic() - started - waited))

    def add_wait(self, seconds: float) -> None:
        """Record that the current step waited for the device, shown separately from its own time."""
        self._waits[self._step] = self._waits.get(self._step, 0.0) + seconds

    def without_waits(self, name: str, seconds: float) -> float:
        """Return a step's seconds without its waits for the device."""
        return max(0.0, seconds - self._waits.get(name, 0.0))

    def fail_step(self) -> None:
        """Mark the running step as failed."""
        if self._step != "claim":
            self.step(self._step, "failed")

    @contextmanager
    def unsent_steps(self) -> Iterator[list[StepReport]]:
        """Yield the steps that are not sent yet, for the caller to store; nothing is sent meanwhile."""
        with self._sending:
            with self._lock:
                steps = list(self._steps.values())
            yield steps
            self._forget(steps, 0)

    def flush(self, timeout: float = FLUSH_TIMEOUT_SECONDS) -> bool:
        """Wait until everything so far is stored; return whether it is.

        For use before an attempt ends while its build goes on: later reports are refused, since the next attempt is due.
        """
        self._end_log()
        self._wake.set()
        with self._lock:
            return self._lock.wait_for(lambda: not (self._lines or self._steps), timeout)

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Send what is left and stop the thread."""
        self._end_log()
        self._deadline = time.monotonic() + timeout
        self._closing.set()
        self._wake.set()
        self._thread.join()
        structlog.contextvars.unbind_contextvars("step")
        if self._lines or self._steps:
            _log.warning(
                "the end of the build's log could not be stored",
                build=self._claim.build,
                attempt=self._claim.attempt,
                lines=len(self._lines),
                steps=list(self._steps),
            )

    def _end_log(self) -> None:
        with self._lock:
            held = self._classifier.flush()
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

    def _merge(self, new: StepReport) -> StepReport:
        """Merge a step's report with the unsent one before it."""
        old = self._steps.get(new.name)
        if old is None:
            return new
        return replace(new, started=old.started, detail=old.detail if new.detail is None else new.detail)

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._closing.wait(FLUSH_SECONDS)
            self._wake.clear()
            closing = self._closing.is_set()  # read after `clear`: `close` sets `_closing` before `_wake`
            sent = self._send_all()
            if closing and (sent or time.monotonic() > self._deadline):
                return
            if not sent:
                time.sleep(RETRY_SECONDS)
                self._wake.set()

    def _send_all(self) -> bool:
        """Send until nothing is left; return False if the database did not answer."""
        while not self._stale:
            with self._sending:
                sent = self._send_batch()
            if sent is not True:
                return sent is None
        return True

    def _send_batch(self) -> bool | None:
        """Send a batch; return False if the database did not answer, None if there is nothing to send."""
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
            _log.warning("log lines are waiting for the database", build=self._claim.build, error=str(error))
            return False
        except Pt2hubError as error:  # it would be refused again
            _log.warning("log lines refused", build=self._claim.build, lines=len(lines), error=str(error))
        self._forget(steps, len(lines))
        return True

    def _forget(self, steps: Sequence[StepReport], lines: int) -> None:
        with self._lock:
            self._lines.forget(lines)
            for step in steps:
                if self._steps[step.name] is step:  # else it was updated meanwhile
                    del self._steps[step.name]
            self._lock.notify_all()

    def _give_up(self) -> None:
        """Drop everything: the attempt that took over writes its own log."""
        with self._lock:
            self._stale = True
            self._lines, self._steps = LogLimit(self._redactor.clean), {}
            self._lock.notify_all()
        self._on_stale()
