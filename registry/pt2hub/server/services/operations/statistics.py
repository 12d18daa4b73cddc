"""Statistics for operators and monitoring: queues, workers, and the outcomes of all attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.statistics import RepeatedBuild, Statistics
from pt2hub.server.db.stores.blobs.scrub import ScrubStore
from pt2hub.server.db.stores.operations.statistics import AttemptTally, StatisticsStore, durations

if TYPE_CHECKING:
    from datetime import timedelta

    from pt2hub.domain.statistics import QueueStatistics
    from pt2hub.server.db.engine import Sessions


class StatisticsService:
    """Counts of queues, workers and attempts."""

    def __init__(self, sessions: Sessions, *, heartbeat_timeout: timedelta) -> None:
        self._sessions = sessions
        self._heartbeat_timeout = heartbeat_timeout

    def snapshot(self) -> Statistics:
        """Return all current counts; counters never decrease."""
        with self._sessions.begin() as session:
            store = StatisticsStore(session)
            workers = store.workers(self._heartbeat_timeout)
            queues = store.queues(workers)
            tallies = store.tallies()
            scrub = ScrubStore(session).statistics()
        return Statistics(
            queues=queues,
            heartbeats=tuple(beat for beat, state, _ in workers if state != "lost"),
            attempts=_counts(tallies, "attempts"),
            failures=_counts(tallies, "failures"),
            successes=_counts(tallies, "successes"),
            steps=durations([tally for tally in tallies if tally.counter == "steps"]),
            measuring_attempts=_counts(tallies, "measuring_attempts"),
            measuring_failures=_counts(tallies, "measuring_failures"),
            scrub=scrub,
        )

    def queues(self) -> tuple[tuple[QueueStatistics, ...], list[RepeatedBuild]]:
        """Return every target's queue, and the unfinished builds with several attempts."""
        with self._sessions.begin() as session:
            store = StatisticsStore(session)
            return store.queues(store.workers(self._heartbeat_timeout)), store.list_repeated()

    def add_up(self) -> None:
        """Add ended attempts to the stored sums, so that `snapshot` has few to count; a maintenance task."""
        while self._add_some():
            pass

    def _add_some(self) -> bool:
        with self._sessions.begin() as session:
            store = StatisticsStore(session)
            return store.lock() and store.add_up()


def _counts(tallies: list[AttemptTally], counter: str) -> dict[tuple[str, str], int]:
    return {(tally.scope, tally.detail): tally.count for tally in tallies if tally.counter == counter}
