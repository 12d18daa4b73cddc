"""Heartbeat of a worker, which also cancels attempts whose build was cancelled or reassigned.

The database decides which attempt has a build. The worker learns changes from the answer to its heartbeat, or earlier
from a notification, which makes it ask sooner. Cancelling an attempt kills its processes.
"""

from __future__ import annotations

import math
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from pt2hub.domain.builds import BuildKind, BuildState
from pt2hub.domain.workers import NOTABLE_SKEW
from pt2hub.errors import IsolationRefused, NotFound, Pt2hubError
from pt2hub.server.db.notifications import Listener
from pt2hub_workers.operations.cancellation import CancellationToken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pt2hub.domain.builds import Claim
    from pt2hub.domain.workers import Registration
    from pt2hub.server.container import Container

POSTPONE_SECONDS = 0.3
"""Delay between a build's notification and the check whether it waits; longer than the server's own grace period."""
ROUND_PAUSE_SECONDS = 0.05
"""Pause between two rounds: the progress of builds sends notifications several times a second."""
JOIN_SECONDS = 5.0
"""How long a stopping worker waits for a heartbeat that waits for the database."""
_log = structlog.get_logger()


class HeartbeatMonitor:
    """Sends the heartbeat of a worker and cancels attempts that lost their build.

    Attributes:
        ending: Set when the whole worker must stop.
        refused: Error of a refused repeated registration, if any.

    Args:
        on_refused: Called once `refused` is set: the worker must end.
    """

    def __init__(
        self,
        container: Container,
        registration: Registration,
        *,
        database_url: str,
        every: float,
        on_refused: Callable[[], object],
    ) -> None:
        self.worker_id = registration.worker_id
        self.ending = CancellationToken()
        self.refused: IsolationRefused | None = None
        self._container = container
        self._registration = registration
        self._every = every
        self._on_refused = on_refused
        self._offset = 0.0
        self._tokens: dict[tuple[str, int], CancellationToken] = {}
        self._measuring: dict[str, CancellationToken] = {}
        self._changed = threading.Condition()
        self._draining = False
        self._due = 0.0
        self._postpone_due = math.inf
        self._notified: set[str] = set()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run_rounds, daemon=True, name="heartbeat")
        self._listener = Listener(database_url, self._on_change)

    @property
    def offset(self) -> float:
        """Seconds to add to this machine's clock to get the database's."""
        return self._offset

    @property
    def draining(self) -> bool:
        """Whether the worker starts no more builds."""
        return self._draining

    def start(self) -> None:
        """Register the worker, and start its heartbeat.

        Raises:
            DatabaseUnavailable: The database does not answer.
            IsolationRefused: The server requires a sandbox, and this worker has none.
        """
        self._register()
        self._thread.start()
        self._listener.start()

    @contextmanager
    def track(self, claim: Claim) -> Iterator[CancellationToken]:
        """Track an attempt during the block; its token is set when it must stop."""
        token = CancellationToken()
        key = (claim.build, claim.attempt)
        with self._changed:
            for (build, attempt), older in self._tokens.items():
                if build == claim.build and attempt < claim.attempt:
                    older.set("overtaken")  # by this worker itself
            self._tokens[key] = token
            if claim.kind is BuildKind.MEASURE:
                self._measuring[claim.build] = token
                self._postpone_due = time.monotonic() + POSTPONE_SECONDS
        self._schedule_check(claim.build)  # a cancellation since the claim sent no notification here
        if self._draining:
            token.set("stopping")  # claimed during the shutdown: another worker starts it sooner
        try:
            yield token
        finally:
            with self._changed:
                del self._tokens[key]
                if self._measuring.get(claim.build) is token:
                    del self._measuring[claim.build]
                self._changed.notify_all()

    def lose(self, claim: Claim, token: CancellationToken) -> None:
        """Cancel an attempt whose changes are refused, for the reason in the database if it answers."""
        with suppress(Pt2hubError):
            self._check_build(claim.build)
        token.set("overtaken")

    def drain(self) -> None:
        """Take no more builds; running ones continue, and measuring jobs are handed back."""
        self._draining = True
        with self._changed:
            tokens = list(self._measuring.values())
        for token in tokens:
            token.set("stopping")
        with suppress(Pt2hubError):  # `leave` reports it as well
            self._container.workers.drain(self.worker_id)

    def cancel_all(self) -> None:
        """Cancel every attempt because the worker stops."""
        self._draining = True
        with self._changed:
            tokens = [self.ending, *self._tokens.values()]
        for token in tokens:
            token.set("stopping")

    def wait_idle(self, seconds: float) -> bool:
        """Wait until no attempt is running; return whether none is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._tokens, seconds)

    def stop(self) -> None:
        """Stop the heartbeat and deregister the worker: its builds are queued again at once."""
        self._stopped.set()
        self._schedule_check(None)
        try:
            self._container.workers.leave(self.worker_id)
        except Pt2hubError as error:
            _log.warning(
                "cannot deregister; the worker is lost after the heartbeat timeout", error=str(error)
            )
        self._listener.stop()
        if self._thread.is_alive():
            self._thread.join(JOIN_SECONDS)

    def _register(self) -> None:
        asked = time.time()
        ahead = self._container.workers.register(replace(self._registration, clock=asked))
        # The database read its clock during the round trip.
        self._offset = ahead - (time.time() - asked) / 2
        if abs(self._offset) > NOTABLE_SKEW:
            _log.warning(
                "this machine's clock is wrong; times are corrected", seconds=round(-self._offset, 1)
            )

    def _on_change(self, build: str | None) -> None:
        with self._changed:
            concerned = any(build is None or build == held for held, _ in self._tokens)
            if self._measuring and not concerned:  # it may be a newly queued build
                self._postpone_due = min(self._postpone_due, time.monotonic() + POSTPONE_SECONDS)
                self._changed.notify_all()
        if concerned:
            self._schedule_check(build)

    def _schedule_check(self, build: str | None) -> None:
        """Schedule a check of a build; None checks all of them by a heartbeat."""
        with self._changed:
            if build is None:
                self._due = 0.0
            else:
                self._notified.add(build)
            self._changed.notify_all()

    def _run_rounds(self) -> None:
        failing = False
        while not self._stopped.is_set():
            try:
                self._run_round()
                failing = False
            except Exception as error:  # noqa: BLE001  # without heartbeats the worker counts as lost
                if not failing:
                    _log.warning("heartbeat failed", error=f"{type(error).__name__}: {error}")
                failing = True
            self._stopped.wait(ROUND_PAUSE_SECONDS)

    def _run_round(self) -> None:
        """Wait for the next heartbeat or a notification, and handle it."""
        with self._changed:
            while (left := self._next_due() - time.monotonic()) > 0 and not self._notified:
                self._changed.wait(left)
            now = time.monotonic()
            notified, self._notified = self._notified, set()
            beats = self._due <= now
            checks = beats or self._postpone_due <= now
            if beats:
                self._due = now + self._every
            if checks:
                self._postpone_due = math.inf
        if self._stopped.is_set():
            return
        if beats:
            self._send_heartbeat()
        for build in notified:
            self._check_build(build)
        if checks:
            self._postpone_measuring()

    def _next_due(self) -> float:
        return min(self._due, self._postpone_due)

    def _postpone_measuring(self) -> None:
        """Postpone measuring jobs if builds wait while every slot is busy."""
        with self._changed:
            measuring = dict(self._measuring)
            full = len(self._tokens) >= self._registration.concurrency
        if measuring and full and not self._draining:
            for job in self._container.builds.giving_way([*measuring], self._registration.target.name):
                measuring[job].set("postponed")

    def _send_heartbeat(self) -> None:
        with self._changed:
            held = {build: attempt for build, attempt in sorted(self._tokens)}  # noqa: C416  # the latest of each build
        try:
            lost = self._container.workers.beat(self.worker_id, held)
        except NotFound:
            if not self._register_again():
                return
            lost = self._container.workers.beat(self.worker_id, held)
        for build in lost:
            self._check_build(build)

    def _register_again(self) -> bool:
        """Register a worker that the database does not know; return False if the server refuses it."""
        if self.refused is not None:
            return False
        _log.warning("the database does not know this worker; registering again", worker=self.worker_id)
        try:
            self._register()
        except IsolationRefused as error:
            self.refused = error
            self._on_refused()
            return False
        if self._draining:
            self._container.workers.drain(self.worker_id)
        return True

    def _check_build(self, build: str) -> None:
        """Cancel the attempts that no longer have a build."""
        try:
            state, latest = self._container.builds.read_state(build)
        except NotFound:  # the database was restored from a backup
            state, latest = BuildState.CANCELLED, 0
        with self._changed:
            attempts = {attempt: token for (held, attempt), token in self._tokens.items() if held == build}
        for attempt, token in attempts.items():
            if attempt != latest or state in (BuildState.QUEUED, BuildState.FAILED):
                token.set("overtaken")
            elif state is BuildState.CANCELLED:
                token.set("cancelled")
