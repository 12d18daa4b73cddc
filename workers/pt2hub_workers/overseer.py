"""Who watches over a worker's running attempts: its heartbeat, and its ear for what happens to builds elsewhere.

The database decides who holds a build. This worker learns it from its heartbeat's answer, and earlier from a
notification, after which it only asks sooner. An attempt that lost its build is halted, which kills its processes.
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
from pt2hub_workers.halting import Halt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pt2hub.domain.builds import Claim
    from pt2hub.domain.workers import Registration
    from pt2hub.server.container import Container

GIVE_WAY_SECONDS = 0.3
"""How long after a build was announced it is looked whether it waits in vain; longer than the server's own grace."""
LOOK_SECONDS = 0.05
"""Pause between two looks: a build's own progress is announced, too, several times a second."""
JOIN_SECONDS = 5.0
"""Patience with a heartbeat that waits for a database which is away, when the worker ends."""
_log = structlog.get_logger()


class Overseer:
    """Watches over the running attempts of one worker process.

    Attributes:
        worker_id: The worker.
        ending: Set when the whole worker must stop now.
        refused: Why the server does not take this worker any more, where it had to register again and was refused.
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
        """Prepares; `start` begins.

        Args:
            container: The server's services.
            registration: What the worker says about itself; its clock is read anew each time.
            database_url: Where notifications come from.
            every: Seconds between heartbeats.
            on_refused: Called once `refused` is set: the worker is to end.
        """
        self.worker_id = registration.worker_id
        self.ending = Halt()
        self.refused: IsolationRefused | None = None
        self._container = container
        self._registration = registration
        self._every = every
        self._on_refused = on_refused
        self._offset = 0.0
        self._held: dict[tuple[str, int], Halt] = {}
        self._measuring: dict[str, Halt] = {}
        self._changed = threading.Condition()
        self._draining = False
        self._due = 0.0
        self._give_way_due = math.inf
        self._noticed: set[str] = set()
        self._stopped = threading.Event()
        self._heart = threading.Thread(target=self._beat_for_ever, daemon=True, name="heartbeat")
        self._listener = Listener(database_url, self._on_change)

    @property
    def offset(self) -> float:
        """Seconds to add to this machine's clock to get the database's."""
        return self._offset

    @property
    def draining(self) -> bool:
        """Whether no more builds are begun."""
        return self._draining

    def start(self) -> None:
        """Registers the worker and begins to watch.

        Raises:
            DatabaseUnavailable: The database does not answer.
            IsolationRefused: The server demands a sandbox, and this worker has none.
        """
        self._register()
        self._heart.start()
        self._listener.start()

    @contextmanager
    def holding(self, claim: Claim) -> Iterator[Halt]:
        """Within the block, the attempt is watched over; its halt is set where it must stop."""
        halt = Halt()
        key = (claim.build, claim.attempt)
        with self._changed:
            for (build, attempt), older in self._held.items():
                if build == claim.build and attempt < claim.attempt:
                    older.set("overtaken")  # by this very worker
            self._held[key] = halt
            if claim.kind is BuildKind.MEASURE:
                self._measuring[claim.build] = halt
                self._give_way_due = time.monotonic() + GIVE_WAY_SECONDS
        self._notice(claim.build)  # a cancel between the claim and now was announced to nobody
        if self._draining:
            halt.set("stopping")  # claimed on the way to the end: better begun by others at once
        try:
            yield halt
        finally:
            with self._changed:
                del self._held[key]
                if self._measuring.get(claim.build) is halt:
                    del self._measuring[claim.build]
                self._changed.notify_all()

    def lose(self, claim: Claim, halt: Halt) -> None:
        """Halts an attempt whose changes are refused, for the right reason where it can be learned."""
        with suppress(Pt2hubError):
            self._look(claim.build)
        halt.set("overtaken")

    def drain(self) -> None:
        """Takes no more builds, and says so; those that run go on, and measuring jobs are handed back."""
        self._draining = True
        with self._changed:
            halts = list(self._measuring.values())
        for halt in halts:
            halt.set("stopping")
        with suppress(Pt2hubError):  # leaving will say it too
            self._container.workers.drain(self.worker_id)

    def halt_all(self) -> None:
        """Halts every attempt, for this worker stops."""
        self._draining = True
        with self._changed:
            halts = [self.ending, *self._held.values()]
        for halt in halts:
            halt.set("stopping")

    def wait_idle(self, seconds: float) -> bool:
        """Waits until no attempt runs; returns whether none does."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._held, seconds)

    def stop(self) -> None:
        """Ends the watch, and the worker in the database: what it still holds goes to others at once."""
        self._stopped.set()
        self._notice(None)
        try:
            self._container.workers.leave(self.worker_id)
        except Pt2hubError as error:
            _log.warning("left without saying so; others will notice by its silence", error=str(error))
        self._listener.stop()
        if self._heart.is_alive():
            self._heart.join(JOIN_SECONDS)

    def _register(self) -> None:
        asked = time.time()
        ahead = self._container.workers.register(replace(self._registration, clock=asked))
        # The database looked at its clock somewhere on the way there and back.
        self._offset = ahead - (time.time() - asked) / 2
        if abs(self._offset) > NOTABLE_SKEW:
            _log.warning("this machine's clock is off; times are corrected", seconds=round(-self._offset, 1))

    def _on_change(self, build: str | None) -> None:
        with self._changed:
            concerned = any(build is None or build == held for held, _ in self._held)
            if self._measuring and not concerned:  # it may be a build that was just queued
                self._give_way_due = min(self._give_way_due, time.monotonic() + GIVE_WAY_SECONDS)
                self._changed.notify_all()
        if concerned:
            self._notice(build)

    def _notice(self, build: str | None) -> None:
        """Lets the thread look at a build soon; at all of them, by a heartbeat, where anything may have been missed."""
        with self._changed:
            if build is None:
                self._due = 0.0
            else:
                self._noticed.add(build)
            self._changed.notify_all()

    def _beat_for_ever(self) -> None:
        failing = False
        while not self._stopped.is_set():
            try:
                self._watch()
                failing = False
            except Exception as error:  # noqa: BLE001  # a heart that stops looks like a dead worker to everyone else
                if not failing:
                    _log.warning("heartbeat failed", error=f"{type(error).__name__}: {error}")
                failing = True
            self._stopped.wait(LOOK_SECONDS)

    def _watch(self) -> None:
        """Waits for the next heartbeat, or for a build of which something was heard, and sees to it."""
        with self._changed:
            while (left := self._next() - time.monotonic()) > 0 and not self._noticed:
                self._changed.wait(left)
            now = time.monotonic()
            noticed, self._noticed = self._noticed, set()
            beats = self._due <= now
            looks = beats or self._give_way_due <= now
            if beats:
                self._due = now + self._every
            if looks:
                self._give_way_due = math.inf
        if self._stopped.is_set():
            return
        if beats:
            self._beat()
        for build in noticed:
            self._look(build)
        if looks:
            self._give_way()

    def _next(self) -> float:
        return min(self._due, self._give_way_due)

    def _give_way(self) -> None:
        """Postpone measuring jobs for builds that wait while every slot is taken."""
        with self._changed:
            measuring = dict(self._measuring)
            full = len(self._held) >= self._registration.concurrency
        if measuring and full and not self._draining:
            for job in self._container.builds.giving_way([*measuring], self._registration.target.name):
                measuring[job].set("postponed")

    def _beat(self) -> None:
        with self._changed:
            held = {build: attempt for build, attempt in sorted(self._held)}  # noqa: C416  # the latest of each build
        try:
            lost = self._container.workers.beat(self.worker_id, held)
        except NotFound:
            if not self._registers_again():
                return
            lost = self._container.workers.beat(self.worker_id, held)
        for build in lost:
            self._look(build)

    def _registers_again(self) -> bool:
        """Registers a worker that the database does not know; False where the server does not take it any more."""
        if self.refused is not None:
            return False
        _log.warning("the database does not know this worker; it registers again", worker=self.worker_id)
        try:
            self._register()
        except IsolationRefused as error:
            self.refused = error
            self._on_refused()
            return False
        if self._draining:
            self._container.workers.drain(self.worker_id)
        return True

    def _look(self, build: str) -> None:
        """Halts the attempts at a build that do not have it any more."""
        try:
            state, latest = self._container.builds.standing(build)
        except NotFound:  # the database was set back
            state, latest = BuildState.CANCELLED, 0
        with self._changed:
            attempts = {attempt: halt for (held, attempt), halt in self._held.items() if held == build}
        for attempt, halt in attempts.items():
            if attempt != latest or state in (BuildState.QUEUED, BuildState.FAILED):
                halt.set("overtaken")
            elif state is BuildState.CANCELLED:
                halt.set("cancelled")
