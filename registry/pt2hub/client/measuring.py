"""Measuring jobs from the client: queue them, and follow them to their end."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from pt2hub.client.events import changes, over
from pt2hub.client.following import Pace, build_path, patiently
from pt2hub.domain.digests import canonical_json
from pt2hub.wire.performance import MeasuringJobs
from pt2hub.wire.shapes import BuildView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.client.events import OnEvent
    from pt2hub.client.transport import Transport


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

    def follow(self, jobs: Sequence[BuildView], on_event: OnEvent | None = None) -> list[BuildView]:
        """Waits until jobs are over, by asking again and again: they take seconds, and nobody reads their logs.

        Args:
            jobs: Builds of either kind.
            on_event: Called for every change seen, in order.

        Returns:
            The same jobs as they are then.
        """
        seen: dict[str, BuildView] = {}
        pace = Pace()
        while True:
            moved = False
            for job in jobs:
                before = seen.get(job.id)
                if before and over(before):
                    continue
                seen[job.id] = current = patiently(
                    partial(self._transport.fetch, BuildView, build_path(job.id))
                )
                for event in changes(before, current):
                    moved = True
                    if on_event:
                        on_event(event)
            if all(over(job) for job in seen.values()):
                return [seen[job.id] for job in jobs]
            time.sleep(pace.pause(moved=moved))
