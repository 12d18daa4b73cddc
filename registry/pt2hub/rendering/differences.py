"""Rendering of the differences between two artifacts: the same sections for the CLI, the pages and notebooks."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pt2hub.domain.digests import DIGEST_PATTERN
from pt2hub.renderable import Sheet
from pt2hub.rendering import code_differences
from pt2hub.rendering.changed_kernels import KERNEL_HEADINGS, explain_no_difference, kernel_rows
from pt2hub.rendering.changes import SAME, format_change
from pt2hub.rendering.comparison_answers import Answer, answer_comparison
from pt2hub.rendering.comparisons import BETTER, comparison_row, remarks, repeat_commands
from pt2hub.rendering.diff_sections import Section
from pt2hub.rendering.lists import join_words
from pt2hub.rendering.quantities import format_bytes, format_count
from pt2hub.rendering.reasons import NOTHING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.domain.differences.fields import FieldDifference
    from pt2hub.domain.differences.numerics import NumericsDifferences, NumericsSummary
    from pt2hub.domain.differences.program_keys import KeyDifferences
    from pt2hub.domain.differences.sizes import SizeDifference
    from pt2hub.wire.differences import DiffView, SpecDifferences
    from pt2hub.wire.performance import ComparisonView

_ELSEWHERE = frozenset({"package_bytes", "code_bytes", "weights_bytes", "relative_error"})
"""Metrics of other sections."""
_SHORT_DIGEST_CHARS = len("sha256:") + 12
_DIGEST = re.compile(DIGEST_PATTERN)


def diff(view: DiffView) -> Sheet:
    """Return a diff: the first line of each section."""
    rows = tuple((item.title, item.lines[0]) for item in sections(view) if item.lines)
    return Sheet(" against ".join(reversed(side_names(view.comparison))), rows)


def answer_differences(view: DiffView) -> Answer:
    """Answer how two artifacts differ: what of them, and whether one is faster."""
    kernels = view.kernels.added + view.kernels.removed + view.kernels.changed
    counts = (
        (len(view.spec.fields) + view.spec.left_out, "spec field"),
        (kernels, "kernel"),
        (len(view.comparison.autotune), "autotune choice"),
        (sum(item.before != item.after for item in view.sizes), "size"),
    )
    found = [format_count(count, noun) for count, noun in counts if count]
    total = sum(count for count, _ in counts)
    verb = "differs" if total == 1 else "differ"
    first = (
        f"{join_words(found)} {verb}"
        if found
        else "No recorded spec field, kernel, autotune choice or size differs"
    )
    speed = answer_comparison((view.comparison,))
    return Answer(speed.tone, f"{first}. {speed.text}")


def side_names(view: ComparisonView) -> tuple[str, str]:
    """Return the names of the first and the second artifact."""
    before, after = (f"{side.model}@{side.number} for {side.target}" for side in (view.before, view.after))
    return before, after


def sections(view: DiffView) -> tuple[Section, ...]:
    """Return the sections of a diff, in order; a section without data says why."""
    return (
        _key(view.key),
        _spec(view.spec),
        code_differences.graph(view),
        code_differences.kernels(view),
        _choices(view.comparison),
        _sizes(view.sizes),
        _speed(view.comparison),
        _numerics(view.numerics),
    )


def _key(found: KeyDifferences) -> Section:
    missing = (found.missing,) if found.missing else ()
    rows, notes = _field_rows(found.fields, found.left_out)
    return Section("key", "Program key", (*found.reasons, *missing), rows=rows, notes=notes)


def _spec(found: SpecDifferences) -> Section:
    count = len(found.fields) + found.left_out
    verb = "differs" if count == 1 else "differ"
    line = f"{format_count(count, 'field')} {verb}." if count else "The specs are the same."
    rows, notes = _field_rows(found.fields, found.left_out)
    return Section("spec", "Spec", (found.missing or line,), rows=rows, notes=notes)


def _choices(view: ComparisonView) -> Section:
    reason = view.code.tuning if view.code else ""
    count = len(view.autotune)
    line = f"The compiler chose another kernel for {format_count(count, 'tuned operation')}."
    lines = (line,) if count else (reason or "The compiler chose the same kernel for every timed operation.",)
    why = explain_no_difference(view) if count else ""
    notes = (why,) if why else ()
    return Section("choices", "Autotune choices", lines, KERNEL_HEADINGS, kernel_rows(view), notes)


def _sizes(found: Sequence[SizeDifference]) -> Section:
    rows = tuple(
        (item.part, format_bytes(item.before), format_bytes(item.after), _size_change(item)) for item in found
    )
    changed = [item.part for item in found if item.before != item.after]
    line = f"The size of {', '.join(changed)} differs." if changed else "The sizes are the same."
    return Section("sizes", "Sizes", (line,), ("Part", "Before", "After", "Change"), rows)


def _size_change(item: SizeDifference) -> str:
    if item.same:
        return "same content"
    if item.before == item.after:
        return "same size, other content"
    if not item.before:
        return NOTHING
    change = format_change(item.after / item.before, "package_bytes", "B")
    return change if change != SAME else f"{item.after - item.before:+,} B"


def _speed(view: ComparisonView) -> Section:
    metrics = [item for item in view.metrics if item.metric not in _ELSEWHERE]
    outcomes = [item.outcome for item in metrics]
    counts = [f"{outcomes.count(name)} {name}" for name in ("worse", "better", "same", "inconclusive")]
    shown = ", ".join(text for text in counts if not text.startswith("0 "))
    line = f"{format_count(len(metrics), 'metric')}: {shown}." if metrics else "Neither is measured."
    commands = repeat_commands(view)
    return Section(
        "speed",
        "Speed and memory",
        (line,),
        ("Metric", "Before", "After", "Change", "Outcome", "Reason"),
        tuple(map(comparison_row, metrics)),
        (*remarks(view), *((f"{BETTER}: {'; '.join(commands)}",) if commands else ())),
    )


def _numerics(found: NumericsDifferences) -> Section:
    texts = [_summary(side) for side in (found.before, found.after)]
    line = f"Before: {texts[0]}. After: {texts[1]}." if texts[0] != texts[1] else f"Both: {texts[0]}."
    rows = tuple(
        (item.what, *map(_error, (item.before, item.before_allowed, item.after, item.after_allowed)))
        for item in found.errors
    )
    more = (f"{format_count(found.left_out, 'more output')}.",) if found.left_out else ()
    return Section(
        "numerics",
        "Numerics",
        (line, *((found.missing,) if found.missing else ())),
        ("Output", "Error before", "Allowed", "Error after", "Allowed"),
        rows,
        more,
    )


def _summary(side: NumericsSummary | None) -> str:
    if side is None:
        return "no verification report"
    perturbed = f" ({side.perturbed} with perturbed weights)" if side.perturbed else ""
    return (
        f"{side.result or 'unknown result'}, relative error {_error(side.relative_error)}, tolerance "
        f"{_error(side.tolerance)}, {format_count(side.comparisons, 'comparison')}{perturbed}"
    )


def _error(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.3g}"


def _field_rows(
    fields: Sequence[FieldDifference], left_out: int
) -> tuple[tuple[tuple[str, str, str], ...], tuple[str, ...]]:
    rows = tuple((item.path, *_values(item)) for item in fields)
    return rows, ((f"{format_count(left_out, 'more field')}.",) if left_out else ())


def _values(item: FieldDifference) -> tuple[str, str]:
    before = NOTHING if item.change == "added" else _text(item.before)
    return before, NOTHING if item.change == "removed" else _text(item.after)


def _text(value: Any) -> str:
    """Return a value as text; digests are shortened."""
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return value[:_SHORT_DIGEST_CHARS] if _DIGEST.fullmatch(value) else value
