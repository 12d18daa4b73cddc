"""What the story's teams found when they evaluated versions on data of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pt2hub.domain.digests import digest_bytes
from support.story.plot import EMBEDDER, RANKER, RESNET, chance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.story.plot import Model

_SETS: dict[str, tuple[tuple[str, str, float, str, int], ...]] = {
    RESNET: (("accuracy", "listings-2026", 91.4, "%", 12_000), ("accuracy", "dark-photos", 78.2, "%", 1_800)),
    EMBEDDER: (("recall_at_10", "support-tickets", 0.82, "1", 5_000),),
    RANKER: (("ndcg", "clicks-of-june", 0.611, "1", 40_000),),
}
"""Metric, data set, value of the first version, unit and number of examples, by model."""
_GAIN = 0.0012
"""What a version is better than the one before, as a share of the first value, but for luck."""
_SINCE = 3
"""The first version that was evaluated."""


def rules(model: str) -> dict[str, dict[str, str]]:
    """Return which direction of a model's metrics is better, as its policy says it."""
    return {metric: {"better": "higher"} for metric, *_ in _SETS.get(model, ())}


def evaluate(model: Model, number: int) -> Iterator[dict[str, Any]]:
    """Yield the evaluations of a version."""
    for metric, data, first, unit, count in _SETS.get(model.name, ()) if number >= _SINCE else ():
        luck = chance(model.name, number, data).gauss(0.0, 0.002)
        yield {
            "key": f"{model.name} {number} {data}",
            "version": f"{model.name}@{number}",
            "metric": metric,
            "value": float(f"{first * (1 + _GAIN * number + luck):.4g}"),
            "unit": unit,
            "data_set": f"{data}@{digest_bytes(data.encode())}",
            "count": count,
        }
