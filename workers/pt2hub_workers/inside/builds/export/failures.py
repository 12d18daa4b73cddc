"""Explanations of failed exports: the author's own line, its local values, and what to do."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from pt2hub.client.publishing.live_models.kernel_failures import explain_untraced_kernel
from pt2hub.errors import DataDependent, DimensionSpecialised, ExportFailed, UsageError
from pt2hub_workers.inside.builds.export import source_positions
from pt2hub_workers.inside.builds.export.model_lines import (
    DimensionNames,
    draft_report,
    find_raising_line,
    read_report,
)
from pt2hub_workers.inside.builds.export.opaque_operators import opaque_operator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pt2hub.domain.publishing.spec import Spec
    from pt2hub_workers.inside.builds.export.model_lines import ExportCall, SourceLine

SCALED_SUFFIX = "_STEPS"
"""Suffix of the torch dimension from which a dimension of multiples is computed; names in a spec have no capitals."""
_STRICT = "export: {strict: true} in the spec"
_NO_FAKE = re.compile(r"no fake impl registered for <CustomOpDef\(([\w:.]+)\)>")
_DEPENDENT = re.compile(r"data-dependent|DataDependent|dynamic control flow", re.IGNORECASE)
_COLOUR = re.compile("\x1b\\[[0-9;]*m")
_FOLLOW = (
    "Compiled code has one path for all values. Replace the branch by torch.where or torch.cond, state what always "
    "holds with torch._check, or make the value that it depends on an argument under `fixed`."
)


def explain_export_failure(error: Exception, attempt: ExportCall, spec: Spec) -> UsageError:
    """Return the error to raise for an error of torch.export."""
    untraced = explain_untraced_kernel(
        error, where="source", strict=_STRICT, display=source_positions.display_path
    )
    if untraced is not None:
        return untraced
    text = str(error).strip()
    if opaque := _NO_FAKE.search(
        text
    ):  # torch advises to write one, and the compiled code still could not call it
        line = find_raising_line(error, DimensionNames(spec))
        return opaque_operator(opaque[1], f"{line.file}:{line.line}" if line else "")
    names = DimensionNames(spec)
    report = draft_report(attempt)
    found = list(read_report(report, names)) if report is not None else []
    own = find_raising_line(error, names)
    explained = (
        _explain_dimension(text, spec, found)
        or _explain_data_dependence(f"{type(error).__name__} {text}", own, found)
        or _export_failed(text, error, own)
    )
    if report is not None and report.failures:  # shown in the log with the trace, never first
        explained.add_note(_COLOUR.sub("", str(report)).strip())
    return explained


def _explain_data_dependence(
    text: str, own: SourceLine | None, found: list[SourceLine]
) -> DataDependent | None:
    lines = {(item.file, item.line): item for item in found if item.kind == "DATA_DEPENDENT_ERROR"}
    if not (lines or _DEPENDENT.search(text)):
        return None
    line = own or next(iter(lines.values()), None)
    if line is not None:
        same = lines.pop((line.file, line.line), line)
        # The report knows what torch could not work out; the traceback has the values of all locals.
        line = replace(same, locals=line.locals or same.locals)
    also = ", ".join(f"{item.file}:{item.line}" for item in lines.values())
    return DataDependent(
        f"the model's control flow depends on tensor values{_at(line)}",
        where="source",
        hint=f"{_FOLLOW} The same applies to {also}." if also else _FOLLOW,
        context=_context(line, _FOLLOW, list(lines.values())),
    )


def _export_failed(text: str, error: Exception, own: SourceLine | None) -> ExportFailed:
    hint = _hint(text) or "The build log has the full message."
    return ExportFailed(
        f"torch.export refused the model{_at(own)}: {type(error).__name__}: {_first_sentence(text)}",
        where="source",
        hint=hint,
        context=_context(own, hint, []),
    )


def dimension_error(
    name: str, advice: tuple[str, str], line: SourceLine | None = None
) -> DimensionSpecialised:
    """Return the error for a model that does not accept all sizes that the spec declares."""
    problem, hint = advice
    return DimensionSpecialised(
        f"{problem}{_at(line)}", where=f"dims.{name}", hint=hint, context=_context(line, hint, [])
    )


def advise_fixed_size(name: str, size: int) -> tuple[str, str]:
    """Return the problem and the hint for a dimension that the model fixes."""
    return (
        f"the model fixes dimension {name} at {size}",
        f"Write {size} instead of {name} in the shapes, or read the size from a tensor's shape in that line.",
    )


def advise_narrower_range(name: str, limits: dict[str, int]) -> tuple[str, str]:
    """Return the problem and the hint for a dimension whose declared range is too wide; `limits` are its real min and max."""
    bounds = ", ".join(f"{word}: {size}" for word, size in limits.items())
    return f"the model accepts fewer sizes of {name} than declared", f"Set dims: {{{name}: {{{bounds}}}}}."


def advise_multiples(name: str, step: int) -> tuple[str, str]:
    """Return the problem and the hint for a dimension that must be a multiple of `step`."""
    return (
        f"{name} must be a multiple of {step}",
        f"Set dims: {{{name}: {{multiple_of: {step}}}}}, with matching min, max and example.",
    )


def advise_equal_sizes(name: str, other: str) -> tuple[str, str]:
    """Return the problem and the hint for two dimensions that must have the same size."""
    return (
        f"{name} and {other} must have the same size",
        f"Use the same dimension in the shapes (equal names mean equal sizes): replace {name} by {other}.",
    )


def advise_combination(sizes: Mapping[str, int], guard: str) -> tuple[str, str]:
    """Return the problem and the hint for sizes that cannot be combined; `guard` is the condition of the export."""
    combination = " and ".join(f"{name}={size}" for name, size in sizes.items())
    return (
        f"the model does not accept {combination} together: the exported program is valid only where {guard}",
        "Compiled code has one path for all sizes: narrow the ranges until the condition always holds, or remove the branch.",
    )


def advise_other(name: str, why: str) -> tuple[str, str]:
    """Return the problem and the hint for a dimension about which no more is known."""
    problem = f"the model does not accept every size of {name}" + (f": {why}" if why else "")
    return problem, f"Narrow the range of {name}, or replace it by a number."


def _explain_dimension(text: str, spec: Spec, found: list[SourceLine]) -> DimensionSpecialised | None:
    """Return the error if torch found that the model does not accept all sizes."""
    fixes = dict(re.findall(r"^\s+(\w+) = (.+)$", text.partition("Suggested fixes:")[2], re.MULTILINE))
    for name, dim in spec.dims.items():
        torchs = name if dim.multiple_of == 1 else f"{name}{SCALED_SUFFIX}"
        violated = re.search(rf"(?:Constraints violated|specialized)[^\n]*\b{torchs}\b", text)
        if torchs in fixes or violated:
            constant = re.search(rf"\b{torchs}\b as dynamic but [^\n]* constant \((\d+)\)", text)
            advice = (
                advise_fixed_size(name, int(constant[1]))
                if constant
                else _advice(name, torchs, fixes.get(torchs, ""), dim.multiple_of)
            )
            guards = [item for item in found if item.kind == "GUARD_ADDED"]
            about = [item for item in guards if re.search(rf"\b{name}\b", item.expression)]
            return dimension_error(name, advice, next(iter(about or guards), None))
    return None


def _advice(name: str, torchs: str, fix: str, step: int) -> tuple[str, str]:
    """Return the problem and the hint for a dimension, from the fix that torch suggests.

    Args:
        torchs: torch's name of the dimension, or of the dimension that it is a multiple of.
        fix: The right-hand side of torch's suggestion; empty if there is none.
    """
    if re.fullmatch(r"\d+", fix):
        return advise_fixed_size(name, int(fix) * step)
    if bounds := re.findall(r"(min|max)=(\d+)", fix):
        return advise_narrower_range(name, {word: int(size) * step for word, size in bounds})
    if multiple := re.fullmatch(rf"(\d+)\*_{torchs}", fix):
        return advise_multiples(name, int(multiple[1]) * step)
    if re.fullmatch(r"\w+", fix):
        return advise_equal_sizes(name, fix.removesuffix(SCALED_SUFFIX))
    return advise_other(name, f"torch found {name} = {fix}" if fix else "")


def _context(line: SourceLine | None, suggestion: str, others: list[SourceLine]) -> dict[str, Any]:
    """Return the machine-readable explanation: where, with which values, and what to do."""
    found = asdict(line) if line else {}
    return {**found, "suggestion": suggestion, "others": [asdict(item) for item in others]}


def _at(line: SourceLine | None) -> str:
    return f" at {line}" if line else ""


def _first_sentence(text: str) -> str:
    """Return the first paragraph, without TorchDynamo's hints."""
    return " ".join(re.split(r"\n\n|\n\s*Hint:", text, maxsplit=1)[0].split())[:600]


def _hint(text: str) -> str | None:
    """Return torch's own suggestion, None if it has none."""
    if fixes := re.search(r"Suggested fixes:\s*\n((?:\s+.*\n?)+)", text):
        return "torch.export suggests: " + "; ".join(fixes[1].split("\n")).strip()
    hints = re.findall(r"^\s*Hint: (.+)$", text, re.MULTILINE)
    return f"TorchDynamo suggests: {hints[0]}" if hints else None
