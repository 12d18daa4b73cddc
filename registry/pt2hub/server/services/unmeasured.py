"""Errors about figures that there are none of, which say what there is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pt2hub.domain.measurements import NO_BATCH
from pt2hub.domain.performance import METRICS, is_metric
from pt2hub.domain.targets import parse_target
from pt2hub.errors import InvalidInput, NotFound, UnknownMetric
from pt2hub.server.db.stores.histories import HistoryStore
from pt2hub.server.services.near import near_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy.orm import Session

    from pt2hub.domain.performance import SeriesFilter
    from pt2hub.server.db.stores.histories import StoredSeries

_CLASS = re.compile(r"sha256:[0-9a-f]{1,64}")
_MOST_NAMED = 20


def check_form(wanted: SeriesFilter) -> None:
    """Refuses what can be no series of any model, before the database is asked for it.

    Raises:
        InvalidInput: The environment class or the subject is none.
        UnknownTarget: The target's name has another form.
        UnknownMetric: The metric's name has another form.
    """
    if not is_metric(wanted.metric):
        raise _unknown_metric(wanted.metric, f"{wanted.metric[:80]!a} is no metric", METRICS)
    if wanted.target is not None:
        parse_target(wanted.target)
    if not wanted.subject.isprintable():
        raise InvalidInput(
            f"{wanted.subject[:80]!a} is no subject",
            where="subject",
            hint="Figures are of artifact, or of eager or torch_compile beside it.",
        )
    if wanted.environment is not None and not _CLASS.fullmatch(wanted.environment):
        raise InvalidInput(
            f"{wanted.environment[:80]!a} is no environment class",
            where="environment",
            hint="Give `class_digest` of a series, or its beginning with sha256:.",
        )


def check(session: Session, model_id: int, model: str, wanted: SeriesFilter) -> None:
    """Refuses what matches no series: an empty list would hide the misspelling.

    A known metric that was never measured of the model is no mistake, nor is a model without any figures.

    Args:
        session: Reads what there is.
        model_id: The model's row.
        model: Its name.
        wanted: What was asked for.

    Raises:
        UnknownMetric: Nobody knows the metric.
        NotFound: Nothing was measured on the target, at the batch, of the subject or in the environment.
    """
    there = HistoryStore(session).series(model_id)
    _check_metric(model, wanted.metric, there)
    if there and wanted.target is not None:
        _require(model, "target", wanted.target, {item.target for item in there})
    same = [item for item in there if item.metric == wanted.metric]
    if same:
        _check_rest(model, wanted, same)


def _check_metric(model: str, metric: str, there: Iterable[StoredSeries]) -> None:
    measured = {item.metric for item in there}
    if metric not in METRICS and metric not in measured:
        text = f"{metric} is no metric that pt2hub knows, and {model} has no figures of that name"
        raise _unknown_metric(metric, text, {*METRICS, *measured})


def _unknown_metric(metric: str, text: str, names: Iterable[str]) -> UnknownMetric:
    near = near_words(metric[:80], names)
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    return UnknownMetric(
        text,
        where="metric",
        hint=f"{meant}pt2hub history MODEL --list lists what was measured; known metrics are {', '.join(METRICS)}.",
        context={"near": near},
    )


def _check_rest(model: str, wanted: SeriesFilter, there: Sequence[StoredSeries]) -> None:
    """Names the first filter that leaves nothing of the metric's series."""
    left = there
    for name, column in (
        ("subject", "subject"),
        ("target", "target"),
        ("batch", "batch"),
        ("environment", "class_digest"),
    ):
        asked = getattr(wanted, name)
        if asked is None:
            continue
        kept = [item for item in left if str(getattr(item, column)).startswith(str(asked))]
        kept = kept if name == "environment" else [item for item in kept if getattr(item, column) == asked]
        if not kept:
            values = {_word(name, getattr(item, column)) for item in left}
            _require(f"{wanted.metric} of {model}", name, str(asked), values)
        left = kept


def _word(name: str, value: object) -> str:
    """A value of a series as it is asked for."""
    return "none" if name == "batch" and value == NO_BATCH else str(value)


def _require(what: str, name: str, asked: str, there: set[str]) -> None:
    if asked in there:
        return
    near = near_words(asked, there)
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    known = ", ".join(sorted(there, key=lambda text: (len(text), text))[:_MOST_NAMED])
    say = (
        f" Say which: --subject {known.split(', ')[0]}, or `subject` in a query." if name == "subject" else ""
    )
    raise NotFound(
        f"Nothing was measured for {name} {asked[:100]}: {what}",
        where=name,
        hint=f"{meant}There are figures for: {known}.{say}",
        context={"near": near},
    )
