"""Rendering of promotion checks, protected aliases and yanks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pt2hub.renderable import Sheet
from pt2hub.rendering.evaluations import with_unit, with_unit_of_difference
from pt2hub.rendering.quantities import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pt2hub.wire.performance import PromotionCheckResult, PromotionPreview
    from pt2hub.wire.resolution import Yank

HEADINGS = ("CHECK", "TARGET", "FOUND", "NEEDED", "RESULT")
_EVERY = "-"
_HOUR_S = 3600
_NAMES = {"min_age": "minimum age", "verified": "verification"}


def preview(view: PromotionPreview) -> Sheet:
    """Return what the checks say about a move: a row for each check."""
    return Sheet(summary(view), check_rows(view.checks), view.notes)


def summary(view: PromotionPreview) -> str:
    """Return in a sentence whether an alias would move."""
    name = f"{view.model}@{view.alias}"
    if view.allowed:
        return f"{name} would move: {view.before or 'nothing'} -> {view.after}"
    failed = sum(not check.passed for check in view.checks)
    stays = f"would stay on {view.before}" if view.before else "would not be created"
    return f"{name} {stays}: {failed} of {len(view.checks)} checks refuse version {view.after}"


def check_rows(checks: Iterable[PromotionCheckResult]) -> tuple[tuple[str, str, str, str, str], ...]:
    """Return a row for each result: what is checked, where, what was found, what is needed, and the result."""
    return tuple(
        (
            check_name(check),
            check.target or _EVERY,
            check.message if check.missing else check.found or check.message,
            check.needed or _EVERY,
            check_result(check),
        )
        for check in checks
    )


def check_name(check: PromotionCheckResult) -> str:
    """Return what a check is about: its metric and batch size, or its kind."""
    metric, batch = check.check.get("metric"), check.comparison.batch if check.comparison else None
    if metric:
        return f"{metric} at batch {batch}" if batch else str(metric)
    return _NAMES.get(check.kind, check.kind)


def check_result(check: PromotionCheckResult) -> str:
    """Return the result of a check in a word."""
    return "passed" if check.passed else "fails"


def protection_rows(document: Mapping[str, Any]) -> tuple[tuple[str, str, str], ...]:
    """Return what a policy requires of protected aliases: alias, check and what is needed."""
    protected = document.get("protected") or {}
    return tuple(
        (alias, name, needed)
        for alias, rule in sorted(protected.items())
        for name, needed in _requirements(rule)
    )


def _requirements(rule: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "promoters", ", ".join(rule.get("promoters") or ("every token with the scope promote",))
    if rule.get("ready"):
        yield "ready", "every target ready"
    if rule.get("verified"):
        yield "verification", "every artifact verified with power"
    if age := rule.get("min_age"):
        yield "minimum age", f"{format_duration(age['hours'] * _HOUR_S)} on {age['alias']}"
    for metric, limit in sorted((rule.get("metrics") or {}).items()):
        needed = " and ".join(_bounds(limit))
        place = limit.get("target") or limit.get("data_set")
        where = f" on {place}" if place else ""
        by = f", reported by {', '.join(limit['reporters'])}" if limit.get("reporters") else ""
        yield metric, f"{needed}{where}{by}"


def _bounds(limit: Mapping[str, Any]) -> Iterator[str]:
    unit = limit.get("unit", "1")
    for name, field in (("at least", "min"), ("at most", "max")):
        if limit.get(field) is not None:
            yield f"{name} {with_unit(f'{limit[field]:.6g}', unit)}"
    for way, field in (("below", "max_drop"), ("above", "max_rise")):
        if limit.get(field) is not None:
            yield f"at most {with_unit_of_difference(f'{limit[field]:.6g}', unit)} {way} the version before"


def yank_text(yank: Yank) -> str:
    """Return who yanked a version, when and why."""
    return f"yanked by {yank.by}, {yank.at[:10]}: {' '.join(yank.reason.split())}"
