"""Histories of figures, as a server has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, cast

from pt2hub.domain.names import Reference, parse_model_name
from pt2hub.wire.performance import HistoryView, SeriesList, SparklineList

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Unpack

    from pt2hub.client.transport import Transport
    from pt2hub.wire.performance import Sparkline


class HistoryOptions(TypedDict, total=False):
    """Which figures of a metric; what is left out is no filter, but `subject`.

    Attributes:
        target: On this target.
        batch: At this batch size.
        subject: `artifact` where left out, or what ran beside it: `eager` or `torch_compile`.
        environment: In this environment class: `class_digest` of a series, or its beginning.
        before: Of versions below this number; the newest where left out.
        limit: At most so many versions of each series; 200 where left out, 1,000 at most.
    """

    target: str | None
    batch: int | None
    subject: str
    environment: str | None
    before: int | None
    limit: int | None


class Performance:
    """Reads histories over one transport."""

    def __init__(self, transport: Transport) -> None:
        """Uses a server."""
        self._transport = transport

    def history(self, reference: str, metric: str, **options: Unpack[HistoryOptions]) -> HistoryView:
        """How a metric moved over a model's versions.

        Args:
            reference: The model's name, or a reference to one of its versions.
            metric: What is measured.
            **options: Which of its series and versions.

        Raises:
            UnknownMetric: Nobody knows the metric; near names are in the hint.
            NotFound: There is no such model, or nothing was measured on the target, at the batch, of the subject or in
                the environment; what there is is in the hint.
        """
        query = {name: value for name, value in options.items() if value is not None}
        path = f"{_path(Reference.parse(reference).model)}/history"
        return self._transport.fetch(
            HistoryView, path, cast("dict[str, str | int]", {"metric": metric, **query})
        )

    def metrics(self, model: str) -> SeriesList:
        """What is measured of a model: its series with their last values.

        Raises:
            NotFound: There is no such model; near names are in the hint.
        """
        return self._transport.fetch(SeriesList, f"{_path(model)}/metrics")

    def front(self) -> Iterator[Sparkline]:
        """Models with the newest figures first, a sparkline for each of their targets."""
        query: dict[str, str | int] = {}
        while True:
            page = self._transport.fetch(SparklineList, "/api/v1/performance/front", query)
            yield from page.models
            if page.next is None:
                return
            query["after"] = page.next


def _path(model: str) -> str:
    return f"/api/v1/models/{parse_model_name(model)}"
