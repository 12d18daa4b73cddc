"""Comparisons of artifacts, and the changes that the server flagged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.wire.performance import ComparisonView, EventPage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.client.transport import Transport
    from pt2hub.wire.performance import EventView


class Comparisons:
    """Asks for comparisons over one transport."""

    def __init__(self, transport: Transport) -> None:
        """Uses a server."""
        self._transport = transport

    def compare(
        self, before: str, after: str, *, target: str | None = None, with_target: str | None = None
    ) -> ComparisonView:
        """Two artifacts side by side, the second judged against the first.

        Args:
            before: A reference.
            after: Another one, or the same for two targets of one version.
            target: Whose artifacts; where omitted the one target that both have.
            with_target: The second's, where that is another one.

        Raises:
            NotFound: There is no such version, or it has no artifact for the target.
            Ambiguous: Several targets could be meant; the hint lists them.
            InvalidInput: Both are the same artifact, or a text is no reference.
        """
        given = {"before": before, "after": after, "target": target, "with_target": with_target}
        query = {name: value for name, value in given.items() if value is not None}
        return self._transport.fetch(ComparisonView, "/api/v1/compare", query)

    def events(self, **filters: str | int | None) -> Iterator[EventView]:
        """Flagged changes, newest first.

        Args:
            **filters: Any of `model`, `target`, `verdict`; None is no filter.
        """
        query = {name: value for name, value in filters.items() if value is not None}
        while True:
            page = self._transport.fetch(EventPage, "/api/v1/performance/events", query)
            yield from page.events
            if page.next is None:
                return
            query["after"] = page.next
