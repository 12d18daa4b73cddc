"""Measuring jobs from the client: queue them, and follow them to their end."""

from __future__ import annotations

import math
import time
from functools import partial
from typing import TYPE_CHECKING

from pt2hub.client.events import changes, over
from pt2hub.client.following import Pace, build_path, patiently
from pt2hub.domain.digests import canonical_json
from pt2hub.domain.names import parse_model_name
from pt2hub.errors import BuildActive, InvalidInput
from pt2hub.wire.performance import MeasuringJobs
from pt2hub.wire.shapes import BuildView, VersionView

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from pt2hub.client.events import OnEvent
    from pt2hub.client.transport import Transport

    Left: TypeAlias = "Callable[[], float]"

_OPEN = ("waiting", "measuring")
_SUCCEEDED = "succeeded"


def time_left(timeout: float | None) -> Left:
    """Return what tells the seconds that are left from now on; infinitely many without a time-out.

    Raises:
        InvalidInput: The time-out is no number.
    """
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool) and not math.isnan(timeout)
    if timeout is not None and not number:
        raise InvalidInput(
            f"timeout must be a number of seconds or None, got {timeout!r:.80}",
            where="timeout",
            hint="None waits as long as it takes.",
        )
    until = math.inf if timeout is None else time.monotonic() + timeout
    return lambda: until - time.monotonic()


def open_jobs(version: VersionView) -> list[str]:
    """Return the ids of the measuring jobs that a version's artifacts wait for."""
    found = [build.measurement for build in version.builds if build.measurement]
    return [status.job for status in found if status.job and status.state in _OPEN]


class Measuring:
    """Measuring jobs, over one transport."""

    def __init__(self, transport: Transport) -> None:
        """Uses a server."""
        self._transport = transport

    def measure(self, reference: str, **options: str | int | None) -> list[BuildView]:
        """Queues a job for each artifact that a reference names; see `Client.measure`.

        Args:
            reference: What is measured.
            **options: `target`, `repeat`, `priority` and `beside`; None leaves one out.
        """
        order = {"reference": reference, **options}
        body = canonical_json({name: value for name, value in order.items() if value is not None})
        return list(self._transport.ask(MeasuringJobs, "POST", "/api/v1/measure", body).builds)

    def follow(
        self, jobs: Sequence[str], on_event: OnEvent | None = None, *, left: Left | None = None
    ) -> list[BuildView]:
        """Waits until jobs are over, by asking again and again: they take seconds, and nobody reads their logs.

        Args:
            jobs: Ids of builds of either kind.
            on_event: Called for every change seen, in order.
            left: Tells how many seconds it may still wait; without it as long as they take.

        Returns:
            The same jobs as they are then.

        Raises:
            BuildActive: The time is over and a job is not; nothing is cancelled.
        """
        seen: dict[str, BuildView] = {}
        pace, left = Pace(), left or time_left(None)
        while True:
            moved = False
            for job in jobs:
                before = seen.get(job)
                if before and over(before):
                    continue
                seen[job] = current = patiently(partial(self._transport.fetch, BuildView, build_path(job)))
                for event in changes(before, current):
                    moved = True
                    if on_event:
                        on_event(event)
            waiting = [job for job in seen.values() if not over(job)]
            if not waiting:
                return [seen[job] for job in jobs]
            if left() <= 0:
                raise _unfinished(waiting)
            time.sleep(min(left(), pace.pause(moved=moved)))

    def follow_version(
        self, version: VersionView, on_event: OnEvent | None = None, *, left: Left | None = None
    ) -> VersionView:
        """Waits until no measuring job of a version's artifacts is open.

        Nobody waits for the figures of a version of which a build did not succeed.

        Args:
            version: The version, its builds final.
            on_event: Called for every change of a job seen, in order.
            left: As for `follow`.

        Returns:
            The version as it is then: each build's `measurement` says what became of it.

        Raises:
            BuildActive: The time is over and a job is not; nothing is cancelled.
        """
        path = f"/api/v1/models/{parse_model_name(version.model)}/versions/{version.number}"
        while True:
            current = patiently(partial(self._transport.fetch, VersionView, path))
            jobs = open_jobs(current)
            if not jobs or any(build.state != _SUCCEEDED for build in current.builds):
                return current
            self.follow(jobs, on_event, left=left)


def _unfinished(waiting: Sequence[BuildView]) -> BuildActive:
    states = ", ".join(f"{job.id} for {job.target} is {job.state}" for job in waiting)
    return BuildActive(
        f"The time is over and measuring is not: job {states}",
        where=f"{waiting[0].model}@{waiting[0].number}",
        hint="It goes on. Wait again, or read what it does with: "
        + "; ".join(f"pt2hub logs -f {job.id}" for job in waiting),
        context={"builds": [job.id for job in waiting]},
    )
