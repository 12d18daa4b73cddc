"""Errors for filters that match no measurements, with suggestions and existing values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pt2hub.domain.performance.measurements import NO_BATCH
from pt2hub.domain.performance.metrics import METRICS, is_metric
from pt2hub.domain.targets import parse_target
from pt2hub.errors import InvalidInput, NotFound, UnknownMetric
from pt2hub.server.db.stores.performance.series import HistoryStore
from pt2hub.server.services.suggestions import suggest_words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy.orm import Session

    from pt2hub.domain.performance.metrics import SeriesFilter

_CLASS = re.compile(r"sha256:[0-9a-f]{1,64}")
_MAX_NAMED = 20
_FILTERS = {
    "target": "target",
    "implementation": "implementation",
    "batch": "batch",
    "environment": "class_digest",
}
"""Columns of series by filter."""


def check_form(wanted: SeriesFilter) -> None:
    """Refuse malformed filters, before the database is queried.

    Raises:
        InvalidInput: The environment class or the implementation is malformed.
        UnknownTarget: The target's name is malformed.
        UnknownMetric: The metric's name is malformed.
    """
    if not is_metric(wanted.metric):
        raise _unknown_metric(wanted.metric, f"Invalid metric {wanted.metric[:80]!a}", METRICS)
    if wanted.target is not None:
        parse_target(wanted.target)
    if not wanted.implementation.isprintable():
        raise InvalidInput(
            f"Invalid implementation {wanted.implementation[:80]!a}",
            where="implementation",
            hint="The implementation is artifact, or a baseline: eager or torch_compile.",
        )
    if wanted.environment is not None and not _CLASS.fullmatch(wanted.environment):
        raise InvalidInput(
            f"Invalid environment class {wanted.environment[:80]!a}",
            where="environment",
            hint="Use the `class_digest` of a series, or a prefix of it that begins with sha256:.",
        )


def check(session: Session, model_id: int, model: str, wanted: SeriesFilter) -> None:
    """Refuse filters that match no series: an empty list would hide a misspelling.

    A known metric that was never measured is not an error, nor is a model without measurements.

    Raises:
        UnknownMetric: The metric is unknown.
        NotFound: A filter matches no measurements.
    """
    there = HistoryStore(session).series(model_id)
    metrics = {*METRICS, *(item.metric for item in there)}
    if wanted.metric not in metrics:
        text = f"Unknown metric {wanted.metric}: {model} has no measurements of that name"
        raise _unknown_metric(wanted.metric, text, metrics)
    if wanted.target is not None and there:
        _require(model, "target", wanted.target, {item.target for item in there})
    left = [item for item in there if item.metric == wanted.metric]
    for name, column in _FILTERS.items():
        asked = getattr(wanted, name)
        if not left or asked is None:
            continue
        values = {_word(getattr(item, column)) for item in left}
        kept = [item for item in left if _matches(name, getattr(item, column), asked)]
        if not kept:
            _require(f"{wanted.metric} of {model}", name, str(asked), values)
        left = kept


def _matches(name: str, value: object, asked: object) -> bool:
    return str(value).startswith(str(asked)) if name == "environment" else value == asked


def _word(value: object) -> str:
    return "none" if value == NO_BATCH else str(value)


def _unknown_metric(metric: str, text: str, names: Iterable[str]) -> UnknownMetric:
    suggestions = suggest_words(metric[:80], names)
    advice = f"Did you mean {' or '.join(suggestions)}? " if suggestions else ""
    return UnknownMetric(
        text,
        where="metric",
        hint=f"{advice}pt2hub history MODEL --list lists the measured ones; known metrics are {', '.join(METRICS)}.",
        context={"suggestions": suggestions},
    )


def _require(what: str, name: str, asked: str, there: set[str]) -> None:
    if asked in there:
        return
    suggestions = suggest_words(asked, there)
    advice = f"Did you mean {' or '.join(suggestions)}? " if suggestions else ""
    known = sorted(there, key=lambda text: (len(text), text))[:_MAX_NAMED]
    say = (
        f" Choose one with --implementation {known[0]}, or `implementation` in a query."
        if name == "implementation"
        else ""
    )
    raise NotFound(
        f"Nothing was measured for {name} {asked[:100]}: {what}",
        where=name,
        hint=f"{advice}There are measurements for: {', '.join(known)}.{say}",
        context={"suggestions": suggestions},
    )
