"""Why torch.export refused a model, in its author's words: their own line, local values, and what to do."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from pt2hub.errors import DataDependent, DimensionSpecialised, ExportFailed
from pt2hub_workers.inside.tracing import Names, draft, raised_at, reported

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pt2hub.domain.specs import Spec
    from pt2hub_workers.inside.tracing import Attempt, Place

SCALED = "_STEPS"
"""Ends the name of torch's dimension that a dimension of multiples is computed from; no name of a spec has capitals."""
_DEPENDENT = re.compile(r"data-dependent|DataDependent|dynamic control flow", re.IGNORECASE)
_COLOUR = re.compile("\x1b\\[[0-9;]*m")
_FOLLOW = (
    "Compiled code has one path for all values. Write torch.where or torch.cond instead of the branch, say what always "
    "holds with torch._check, or make the value it depends on an argument under `fixed`."
)


def explained(error: Exception, attempt: Attempt, spec: Spec) -> ExportFailed | DimensionSpecialised:
    """The error to raise for one of torch.export.

    Args:
        error: As torch raised it.
        attempt: What was exported; of no use afterwards.
        spec: For the names of dimensions.
    """
    text = str(error).strip()
    names = Names(spec)
    report = draft(attempt)
    found = list(reported(report, names)) if report is not None else []
    own = raised_at(error, names)
    said = (
        _dimension(text, spec, found)
        or _dependent(f"{type(error).__name__} {text}", own, found)
        or _refused(text, error, own)
    )
    if report is not None and report.failures:  # shows in the log with the trace, never first
        said.add_note(_COLOUR.sub("", str(report)).strip())
    return said


def _dependent(text: str, own: Place | None, found: list[Place]) -> DataDependent | None:
    lines = {(item.file, item.line): item for item in found if item.kind == "DATA_DEPENDENT_ERROR"}
    if not (lines or _DEPENDENT.search(text)):
        return None
    place = own or next(iter(lines.values()), None)
    if place is not None:
        same = lines.pop((place.file, place.line), place)
        # The report knows what torch could not work out; the traceback has the values of all locals.
        place = replace(same, locals=place.locals or same.locals)
    also = ", ".join(f"{item.file}:{item.line}" for item in lines.values())
    return DataDependent(
        f"what the model does depends on the values of tensors{_at(place)}",
        where="source",
        hint=f"{_FOLLOW} The same holds at {also}." if also else _FOLLOW,
        context=_context(place, _FOLLOW, list(lines.values())),
    )


def _refused(text: str, error: Exception, own: Place | None) -> ExportFailed:
    hint = _hint(text) or "The whole message is in the build's log."
    return ExportFailed(
        f"torch.export refused the model{_at(own)}: {type(error).__name__}: {_first_sentence(text)}",
        where="source",
        hint=hint,
        context=_context(own, hint, []),
    )


def unfit(name: str, advice: tuple[str, str], place: Place | None = None) -> DimensionSpecialised:
    """The error of a model that does not take all sizes that the spec declares.

    Args:
        name: The dimension.
        advice: What is wrong with it, and what to write.
        place: The line that is to blame, where it is known.
    """
    problem, hint = advice
    return DimensionSpecialised(
        f"{problem}{_at(place)}", where=f"dims.{name}", hint=hint, context=_context(place, hint, [])
    )


def one_size(name: str, size: int) -> tuple[str, str]:
    """What to say of a dimension that the model fixes."""
    return (
        f"the model fixes dimension {name} at {size}",
        f"Write {size} instead of {name} in the shapes, or have that line take it from a tensor's shape.",
    )


def fewer_sizes(name: str, limits: dict[str, int]) -> tuple[str, str]:
    """What to say of a dimension with too wide a range; `limits` are min and max that it has."""
    said = ", ".join(f"{word}: {size}" for word, size in limits.items())
    return f"the model takes fewer sizes of {name} than declared", f"Set dims: {{{name}: {{{said}}}}}."


def only_multiples(name: str, step: int) -> tuple[str, str]:
    """What to say of a dimension that must be a multiple."""
    return (
        f"the model takes only multiples of {step} as {name}",
        f"Set dims: {{{name}: {{multiple_of: {step}}}}}, with min, max and example to match.",
    )


def equal_sizes(name: str, other: str) -> tuple[str, str]:
    """What to say of two dimensions that are one."""
    return (
        f"the model takes {name} and {other} at equal sizes only",
        f"Write the same dimension in the shapes: equal names are equal sizes. Replace {name} by {other}.",
    )


def not_together(sizes: Mapping[str, int], guard: str) -> tuple[str, str]:
    """What to say of sizes that the model does not take together; `guard` is what it was exported for."""
    said = " and ".join(f"{name}={size}" for name, size in sizes.items())
    return (
        f"the model does not take {said} together: the program holds for {guard} alone",
        "Compiled code has one path for all sizes: narrow the ranges until that holds for all, or branch on neither.",
    )


def other_sizes(name: str, why: str) -> tuple[str, str]:
    """What to say of a dimension of which more is not known."""
    problem = f"the model does not take every size of {name}" + (f": {why}" if why else "")
    return problem, f"Narrow the range of {name}, or write a number in its place."


def _dimension(text: str, spec: Spec, found: list[Place]) -> DimensionSpecialised | None:
    """The error where torch found that the model does not take all sizes."""
    fixes = dict(re.findall(r"^\s+(\w+) = (.+)$", text.partition("Suggested fixes:")[2], re.MULTILINE))
    for name, dim in spec.dims.items():
        torchs = name if dim.multiple_of == 1 else f"{name}{SCALED}"
        violated = re.search(rf"(?:Constraints violated|specialized)[^\n]*\b{torchs}\b", text)
        if torchs in fixes or violated:
            constant = re.search(rf"\b{torchs}\b as dynamic but [^\n]* constant \((\d+)\)", text)
            advice = (
                one_size(name, int(constant[1]))
                if constant
                else _advice(name, torchs, fixes.get(torchs, ""), dim.multiple_of)
            )
            guards = [item for item in found if item.kind == "GUARD_ADDED"]
            about = [item for item in guards if re.search(rf"\b{name}\b", item.expression)]
            return unfit(name, advice, next(iter(about or guards), None))
    return None


def _advice(name: str, torchs: str, fix: str, step: int) -> tuple[str, str]:
    """What is wrong with a dimension and what to write, from the fix that torch suggests.

    Args:
        name: The spec's name of it.
        torchs: torch's name of it, or of what it is a multiple of.
        fix: The right side of torch's suggestion, empty where there is none.
        step: What the dimension is a multiple of.
    """
    if re.fullmatch(r"\d+", fix):
        return one_size(name, int(fix) * step)
    if bounds := re.findall(r"(min|max)=(\d+)", fix):
        return fewer_sizes(name, {word: int(size) * step for word, size in bounds})
    if multiple := re.fullmatch(rf"(\d+)\*_{torchs}", fix):
        return only_multiples(name, int(multiple[1]) * step)
    if re.fullmatch(r"\w+", fix):
        return equal_sizes(name, fix.removesuffix(SCALED))
    return other_sizes(name, f"torch found {name} = {fix}" if fix else "")


def _context(place: Place | None, suggestion: str, others: list[Place]) -> dict[str, Any]:
    """The explanation for programs: where, with which values, and what to do."""
    found = asdict(place) if place else {}
    return {**found, "suggestion": suggestion, "others": [asdict(item) for item in others]}


def _at(place: Place | None) -> str:
    return f" at {place}" if place else ""


def _first_sentence(text: str) -> str:
    """The first paragraph, without TorchDynamo's hints."""
    return " ".join(re.split(r"\n\n|\n\s*Hint:", text, maxsplit=1)[0].split())[:600]


def _hint(text: str) -> str | None:
    """What torch suggests, where it does."""
    if fixes := re.search(r"Suggested fixes:\s*\n((?:\s+.*\n?)+)", text):
        return "torch.export suggests: " + "; ".join(fixes[1].split("\n")).strip()
    hints = re.findall(r"^\s*Hint: (.+)$", text, re.MULTILINE)
    return f"TorchDynamo suggests: {hints[0]}" if hints else None
