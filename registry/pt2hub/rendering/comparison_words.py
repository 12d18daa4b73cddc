"""Words for the outcomes of comparisons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.rendering.reasons import WHY
from pt2hub.rendering.states import format_state

if TYPE_CHECKING:
    from pt2hub.wire.performance import MetricComparison

WITHIN, INCONCLUSIVE, INCOMPARABLE, ABSENT = (
    "within the limit",
    "inconclusive",
    "not comparable",
    "not measured",
)
UNCHANGED = "unchanged"
_NOISE = frozenset(("too_noisy", "too_few"))
_NOISE_TEXTS = {"too_noisy": "the measurements are too noisy", "too_few": "there are too few measurements"}


def outcome_word(item: MetricComparison) -> str:
    """Return an outcome for people: `within the limit` is no change that counts, `not comparable` has a reason."""
    if item.outcome == "same":
        return WITHIN
    if item.outcome != "inconclusive" or item.reason is None:
        return item.outcome
    if item.reason == "not_measured":
        return ABSENT
    return INCONCLUSIVE if item.reason in _NOISE else INCOMPARABLE


def explain_reason(item: MetricComparison) -> str:
    """Return why a comparison has no outcome, as the end of a sentence."""
    reason = item.reason or ""
    return _NOISE_TEXTS.get(reason) or WHY.get(reason) or format_state(reason) or "no method applies"
