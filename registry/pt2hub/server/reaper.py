"""The reaper's threads in worker and API processes: they requeue builds of lost workers; API processes also tidy and collect."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import structlog

from pt2hub.errors import Pt2hubError, TransientError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pt2hub.server.container import Container

_TIDY_SECONDS = 10.0
_SCRUB_SECONDS = 30.0
_COLLECT_SECONDS = 60.0
"""How often a process looks whether a collection is due."""
_JOURNAL_SECONDS = 1.0
"""What a database loses at most that is lost at once: what changed since the journal was last written."""
_PATIENCE_SECONDS = 3.0
_log = structlog.get_logger(__name__)


class Reaper:
    """Requeues builds of lost workers and runs maintenance.

    After an outage of the database or a jump of its clock all workers look lost until their next heartbeats. So a reaper
    that could not reach the database, saw such a jump, or has just started first waits for the heartbeat timeout.

    Args:
        heartbeat_timeout: Seconds without a heartbeat after which a worker is lost.
        every: Seconds between two looks, and between two heartbeats.
        tidies: Whether it also runs maintenance and writes the journal, for which a worker's role has no rights.
        clock: Seconds that only ever grow.
    """

    def __init__(
        self,
        container: Container,
        *,
        heartbeat_timeout: float,
        every: float,
        tidies: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._container = container
        self._upkeep = container.maintenance
        self._heartbeat_timeout = heartbeat_timeout
        # A worker's last sign of life may be a heartbeat older than the gap.
        self._longest_gap = heartbeat_timeout - every
        self._clock = clock
        self._journal_waits = False
        self._since: float | None = None
        self._last = self._last_contact = 0.0
        self._stopped = threading.Event()
        # A thread each: putting logs into a slow storage must not keep builds waiting, and collections take minutes.
        tasks = [
            (self.look, every, "reaper"),
            (self._tidy, _TIDY_SECONDS, "tidy"),
            (lambda: container.scrub.run_in_turn(self._stopped.wait), _SCRUB_SECONDS, "scrub"),
            (self._collect, _COLLECT_SECONDS, "collector"),
            (self._write_journal, _JOURNAL_SECONDS, "journal"),
        ]
        self._threads = [
            threading.Thread(target=self._repeat, args=(look, seconds), daemon=True, name=name)
            for look, seconds, name in (tasks if tidies else tasks[:1])
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the threads; wait a few seconds for a check in progress, which may safely be cut off."""
        self._stopped.set()
        patience = time.monotonic() + _PATIENCE_SECONDS
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, patience - time.monotonic()))

    def look(self) -> None:
        """Look once: what the thread does again and again.

        Raises:
            Pt2hubError: The database did not answer; the wait begins anew.
        """
        try:
            contact = self._upkeep.contact()
            if self._trusts(self._clock(), contact):
                for build in self._upkeep.requeue_lost():
                    _log.warning(
                        "build requeued: its worker was lost, or its job was delivered again", build=build
                    )
        except BaseException:
            self._since = None
            raise

    def _trusts(self, now: float, contact: float) -> bool:
        """Return whether this process has reached the database, without a gap, for as long as workers may be silent.

        Args:
            now: When the database answered.
        """
        gap, by_database = now - self._last, contact - self._last_contact
        if self._since is None or max(gap, by_database) > self._longest_gap or by_database < 0:
            self._since = now  # it was cut off, or frozen together with others, or the clock was set
        self._last, self._last_contact = now, contact
        return now - self._since >= self._heartbeat_timeout

    def _tidy(self) -> None:
        self._upkeep.tidy()

    def _collect(self) -> None:
        if self._container.collector.is_due():
            self._container.journal.check_writer()
            self._container.retention.run()
            self._container.collector.collect_if_due()

    def _write_journal(self) -> None:
        try:
            self._container.journal.write()
        except TransientError as error:
            if not self._journal_waits:  # once, and not every second of an outage
                _log.warning("the journal is not written", error=str(error))
            self._journal_waits = True
        else:
            self._journal_waits = False

    def _repeat(self, look: Callable[[], None], every: float) -> None:
        while not self._stopped.wait(every):
            try:
                look()
            except Pt2hubError as error:
                _log.warning("the reaper cannot reach the database", error=str(error))
            except Exception as error:  # noqa: BLE001  # a reaper that ends leaves builds running for ever
                _log.error("the reaper failed", error=f"{type(error).__name__}: {error}", exc_info=error)
