"""The front page's first sentence, and a line for everything that needs somebody."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from flask import url_for

from pt2hub.rendering.changes import format_change
from pt2hub.rendering.quantities import format_bounded, format_count
from pt2hub.server.views.attention import MAX_COUNTED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.server.views.attention import (
        Attention,
        DamagedVersion,
        FailedBuild,
        IdleQueue,
        UnmeasuredVersion,
    )
    from pt2hub.server.views.overview import Regression

_LATENCY = "latency_p50"


@dataclass(frozen=True, slots=True)
class Answer:
    """The first sentence.

    Attributes:
        tone: As in the macro `answer`.
    """

    tone: str
    text: str


@dataclass(frozen=True, slots=True)
class Need:
    """A line about something that needs somebody: its subject, which is a link, and what is wrong.

    Attributes:
        tone: As in the macro `needs`.
        text: Follows the subject; the target's short name follows it where there is one.
        after: Follows the target.
        at: Since when, ISO 8601; None if unknown.
    """

    tone: str
    subject: str
    href: str
    text: str
    target: str = ""
    after: str = ""
    at: str | None = None


def compose_answer(
    attention: Attention, *, has_models: bool = True, reindex_due: tuple[str, str] | None = None
) -> Answer:
    """Return whether production is fine, and what else is wrong.

    Args:
        reindex_due: Why a reindex is due, and what the operator does.
    """
    if reindex_due:
        return Answer("bad", f"{reindex_due[0]}: nothing can be published. {reindex_due[1]}.")
    if not has_models:
        return Answer("calm", "No models yet.")
    wrong = list(_clauses(attention))
    if wrong:
        bad = attention.damaged or attention.regressions or attention.failed
        return Answer("bad" if bad else "warn", "; ".join(wrong) + ".")
    if not attention.has_production:
        return Answer("calm", "No model is in production yet. No builds failed.")
    return Answer("good", "Production is fine: no regressions, no failed builds.")


def _clauses(attention: Attention) -> Iterator[str]:
    if damaged := len(attention.damaged):
        yield f"{_bounded(damaged, 'version')} in production {'is' if damaged == 1 else 'are'} damaged and cannot be pulled"
    slower = sum(item.metric == _LATENCY for item in attention.regressions)
    other = len(attention.regressions) - slower
    if slower:
        yield f"{_models(slower)} in production {'is' if slower == 1 else 'are'} slower than before"
    if other:
        yield f"{_models(other)} in production regressed in other measurements"
    measuring = sum(item.is_measuring for item in attention.failed)
    if failed := len(attention.failed) - measuring:
        yield f"{_bounded(failed, 'build')} failed"
    if measuring:
        yield f"{_bounded(measuring, 'measuring job')} of production failed"
    if waiting := sum(queue.builds for queue in attention.queues):
        yield f"{format_count(waiting, 'build')} {'waits' if waiting == 1 else 'wait'} without a worker"
    if unmeasured := len(attention.unmeasured):
        verb = "is" if unmeasured == 1 else "are"
        yield f"{_bounded(unmeasured, 'version')} in production {verb} not measured"


def _models(count: int) -> str:
    return _bounded(count, "model")


def _bounded(count: int, noun: str) -> str:
    return f"{format_bounded(count, MAX_COUNTED)} {noun}{'' if count == 1 else 's'}"


def compose_needs(attention: Attention) -> list[Need]:
    """Return a line for each thing that needs somebody: the worst kind first, and in each the worst."""
    return [
        *map(_damage, attention.damaged),
        *map(_regression, attention.regressions),
        *map(_failure, attention.failed),
        *map(_queue, attention.queues),
        *map(_unmeasured, attention.unmeasured),
    ]


def pick_needs(attention: Attention, most: int) -> list[Need]:
    """Return the most urgent lines; each kind has at least one, so that many of one hide no other."""
    kinds = [
        [_damage(item) for item in attention.damaged[:most]],
        [_regression(item) for item in attention.regressions[:most]],
        [_failure(item) for item in attention.failed[:most]],
        [_queue(item) for item in attention.queues[:most]],
        [_unmeasured(item) for item in attention.unmeasured[:most]],
    ]
    left = most
    shares = []
    for place, lines in enumerate(kinds):
        reserved = sum(bool(later) for later in kinds[place + 1 :])
        share = min(len(lines), max(left - reserved, 0))
        shares.append(lines[:share])
        left -= share
    return list(chain.from_iterable(shares))


def _damage(item: DamagedVersion) -> Need:
    team, _, name = item.model.partition("/")
    href = url_for("pages.version", team=team, name=name, number=item.number)
    text = "is damaged for"
    target = item.targets[0] if len(item.targets) == 1 else ""
    where = text if target else f"{text} {format_count(len(item.targets), 'target')}"
    heal = ": run pt2hub admin heal"
    return Need("bad", f"{item.model}@{item.number}", href, where, target, heal, item.at)


def _regression(item: Regression) -> Need:
    team, _, name = item.model.partition("/")
    change = format_change(item.ratio, item.metric, item.unit)
    metric = "" if item.metric == _LATENCY else f"{item.metric} "
    return Need(
        "bad",
        f"{item.model}@{item.production}",
        url_for("pages.performance", team=team, name=name, metric=item.metric, target=item.target),
        f"is {change} since {item.number} on"
        if not metric
        else f"regressed: {metric}{change} since {item.number} on",
        item.target,
        at=item.at,
    )


def _failure(item: FailedBuild) -> Need:
    code = f": {item.code}" if item.code else ""
    href = url_for("pages.build", build=item.id)
    text = "could not be measured on" if item.is_measuring else "failed on"
    return Need("bad", f"{item.model}@{item.number}", href, text, item.target, code, item.at)


def _queue(item: IdleQueue) -> Need:
    verb = "waits" if item.builds == 1 else "wait"
    href = url_for("pages.builds", state="queued", target=item.target)
    subject = format_count(item.builds, "build")
    return Need("warn", subject, href, f"{verb} for", item.target, ": no live worker", item.since)


def _unmeasured(item: UnmeasuredVersion) -> Need:
    team, _, name = item.model.partition("/")
    href = url_for("pages.version", team=team, name=name, number=item.number)
    text = f"is in production ({item.alias}) and not measured"
    return Need("warn", f"{item.model}@{item.number}", href, text, at=item.since)
