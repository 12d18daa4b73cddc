"""How aliases moved over the year: `staging` with every version, `prod` later and sometimes back, `canary` for a while."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from pt2hub.server.demo.models import chance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.server.demo.plan import Version
    from pt2hub.server.demo.rows import Rows

_PEOPLE = ("ada", "mary", "kofi", "release-bot")
_REASONS = (
    "passed the shadow run",
    "weekly release",
    "offline test: +0.3 points, latency unchanged",
    "trained with last month's data",
    "experiment 114 is over: 0.6 % more clicks",
    "a day at 5 % of the traffic without an alarm",
    "quicker at the same quality",
    "fewer errors on the complaints of spring",
    "regular release",
    "new labels from the audit",
    "same graph, trained again after the outage of the feature store",
)
_CANARY_FROM = 20
"""Models with so many versions had a canary once."""
_FORCED_MODEL = "demo-text/minilm-l6-embedder"
_FORCED = 22
"""A version of it that an admin put on `prod` although its policy refused it."""


@dataclass(frozen=True, slots=True)
class Move:
    """A change of an alias."""

    at: datetime
    alias: str
    number: int | None
    reason: str
    by: str
    forced: dict[str, Any] | None = None


def write(
    rows: Rows, model_id: int, version_ids: dict[int, int], versions: list[Version], now: datetime
) -> None:
    """Writes the aliases of a model and their histories.

    Args:
        rows: Takes the rows.
        model_id: The model's row.
        version_ids: Rows of its versions by number.
        versions: The versions.
        now: What is after it did not happen.
    """
    moves = sorted((move for move in _moves(versions) if move.at < now), key=lambda move: move.at)
    for name in sorted({move.alias for move in moves}):
        own = _told([move for move in moves if move.alias == name])
        last = own[-1].number
        alias_id = rows.new_id("aliases")
        rows.add(
            "aliases",
            id=alias_id,
            model_id=model_id,
            name=name,
            version_id=version_ids[last] if last else None,
            moves=len(own),
        )
        before = None
        for sequence, move in enumerate(own, 1):
            rows.add(
                "alias_moves",
                alias_id=alias_id,
                sequence=sequence,
                before=before,
                after=move.number,
                reason=move.reason,
                by=move.by,
                forced=move.forced,
                at=move.at,
            )
            before = move.number


def _told(moves: list[Move]) -> list[Move]:
    """Moves that change something."""
    found: list[Move] = []
    for move in moves:
        if not found or found[-1].number != move.number:
            found.append(move)
    return found


def _moves(versions: list[Version]) -> Iterator[Move]:
    model = versions[0].model
    ready = [each for each in versions if each.ready_at or (each.number in model.rolled_back and each.builds)]
    last_good = None
    for version in ready[:-1] if len(ready) > 1 else ready:
        yield from _staged(version)
        if version.number % model.promoted and version.number not in model.rolled_back:
            continue
        luck = chance(model.name, version.number, "prod")
        at = _ready(version) + timedelta(hours=luck.uniform(3, 30))
        yield Move(
            at, "prod", version.number, luck.choice(_REASONS), luck.choice(_PEOPLE), _override(version)
        )
        if (why := model.rolled_back.get(version.number)) and last_good:
            back = at + timedelta(hours=luck.uniform(2, 20))
            yield Move(back, "prod", last_good, why, luck.choice(_PEOPLE[:3]))
        else:
            last_good = version.number
    if len(ready) > 1:
        yield from _staged(ready[-1])
    yield from _canary(ready)


def _ready(version: Version) -> datetime:
    """When its last artifact was there."""
    return max(build.finished for build in version.builds if build.succeeded)


def _staged(version: Version) -> Iterator[Move]:
    at = _ready(version) + timedelta(minutes=7)
    yield Move(at, "staging", version.number, "newest ready version", "release-bot")


def _canary(ready: list[Version]) -> Iterator[Move]:
    """An alias that was removed again; its history stays."""
    if not ready or ready[0].model.versions < _CANARY_FROM:
        return
    first, second = ready[len(ready) // 3], ready[len(ready) // 3 + 1]
    yield Move(_ready(first) + timedelta(hours=1), "canary", first.number, "5 % of the traffic", "kofi")
    yield Move(_ready(second) + timedelta(hours=1), "canary", second.number, "5 % of the traffic", "kofi")
    yield Move(
        _ready(second) + timedelta(days=3), "canary", None, "the router splits traffic by itself now", "kofi"
    )


def _override(version: Version) -> dict[str, Any] | None:
    """What the policy had said to the move that was forced."""
    if (version.model.name, version.number) != (_FORCED_MODEL, _FORCED):
        return None
    target = version.builds[0].target
    said = (
        f"latency_p50 on {target} at batch 32 is 6.2 % worse in {version.number} than in {version.number - 2} "
        "(1.83 ms, was 1.72 ms); at most 5 % worse is allowed"
    )
    gate = {
        "metric": "latency_p50",
        "max_worse": 0.05,
        "alias": "prod",
        "target": None,
        "batch": None,
        "missing": "refuse",
    }
    check = {
        "gate": gate,
        "path": "gates[0]",
        "passed": False,
        "said": said,
        "target": target,
        "missing": False,
        "comparison": None,
        "wanted": [],
    }
    return {"revision": 1, "count": 1, "refused": [check]}
