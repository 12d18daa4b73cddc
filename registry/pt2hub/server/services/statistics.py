"""What operators and monitors look at: queues, workers, and what became of every attempt so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.statistics import RepeatedBuild, Statistics
from pt2hub.server.db.stores.statistics import StatisticsStore, Tally, durations

if TYPE_CHECKING:
    from datetime import timedelta

    from pt2hub.domain.statistics import QueueStatistics
    from pt2hub.server.db.engine import Sessions


class StatisticsService:
    """Counts."""

    def __init__(self, sessions: Sessions, *, silence: timedelta) -> None:
        """Is built by the container.

        Args:
            sessions: Opens transactions.
            silence: Time without a heartbeat after which a worker is lost.
        """
        self._sessions = sessions
        self._silence = silence

    def snapshot(self) -> Statistics:
        """Everything that is counted, now; sums never become smaller."""
        with self._sessions.begin() as session:
            store = StatisticsStore(session)
            workers = store.workers(self._silence)
            queues = store.queues(workers)
            tallies = store.tallies()
        return Statistics(
            queues=queues,
            heartbeats=tuple(beat for beat, state, _ in workers if state != "lost"),
            attempts=_counts(tallies, "attempts"),
            failures=_counts(tallies, "failures"),
            successes=_counts(tallies, "successes"),
            steps=durations([tally for tally in tallies if tally.figure == "steps"]),
            measuring_attempts=_counts(tallies, "measuring_attempts"),
            measuring_failures=_counts(tallies, "measuring_failures"),
        )

    def queues(self) -> tuple[tuple[QueueStatistics, ...], list[RepeatedBuild]]:
        """Every target's queue, and the builds that are not over after several attempts."""
        with self._sessions.begin() as session:
            store = StatisticsStore(session)
            return store.queues(store.workers(self._silence)), store.repeated()

    def add_up(self) -> None:
        """Adds ended attempts to the running sums, so that `snapshot` has few to count; for the upkeep."""
        while self._add_some():
            pass

    def _add_some(self) -> bool:
        with self._sessions.begin() as session:
            store = StatisticsStore(session)
            return store.lock() and store.add_up()


def _counts(tallies: list[Tally], figure: str) -> dict[tuple[str, str], int]:
    return {(tally.subject, tally.detail): tally.count for tally in tallies if tally.figure == figure}
