"""Check of weights files against a model's tensors, with hints."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from pt2hub.archive.zip.validation import printable_name
from pt2hub.errors import Detail, WeightsMismatch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pt2hub.archive.safetensors_header import Form

MAX_DETAILS = 20
"""Maximum number of tensors named in one error; a wrong file often has hundreds."""

_DEEPEST_PREFIX, _LONGEST_PREFIX = 16, 200
"""Limits on the name prefixes that are tried: parts and characters."""


def check_fit(
    own: Mapping[str, Form],
    given: Mapping[str, Form],
    *,
    ties: Iterable[Collection[str]] = (),
    optional: Collection[str] = (),
) -> None:
    """Refuse a file with other tensors than the model's.

    Args:
        optional: Names that may be missing.

    Raises:
        WeightsMismatch: Tensors are missing, unknown or of another form; the hint names the likely cause.
    """
    tied = {name for group in ties if any(other in given for other in group) for name in group}
    problems = [
        Detail(name, "missing from the file", None, str(form))
        for name, form in own.items()
        if name not in given and name not in tied and name not in optional
    ]
    problems += [
        Detail(name, "not in the model", str(form)) for name, form in given.items() if name not in own
    ]
    problems += [
        Detail(name, "another shape or dtype", str(form), str(own[name]))
        for name, form in given.items()
        if name in own and form != own[name]
    ]
    if problems:
        raise mismatch("do not fit the model", problems, _hint(own, given, problems))


def mismatch(what: str, problems: Collection[Detail], hint: str) -> WeightsMismatch:
    """Return the error for wrong tensors; at most `MAX_DETAILS` are named."""
    count, more = len(problems), len(problems) - MAX_DETAILS
    verb = what if count > 1 else what.replace("do not", "does not").replace("hold ", "holds ")
    return WeightsMismatch(
        f"{count} tensor{'s' * (count > 1)} {verb}"
        + (f"; {MAX_DETAILS} are listed, and {more} more are wrong" if more > 0 else ""),
        where="weights",
        details=tuple(
            replace(item, path=printable_name(item.path)) for item in islice(problems, MAX_DETAILS)
        ),
        hint=hint,
    )


def _hint(own: Mapping[str, Form], given: Mapping[str, Form], problems: Collection[Detail]) -> str:
    if prefix := _prefix(own, given):
        return (
            f"Every name in the file begins with {prefix}, unlike the model's: write the file with "
            f"{{name.removeprefix('{prefix}'): tensor for name, tensor in state.items()}}."
        )
    if prefix := _prefix(given, own):
        return (
            f"Every name of the model begins with {prefix}, and the file's do not: write the file with "
            f"{{'{prefix}' + name: tensor for name, tensor in state.items()}}."
        )
    if dtypes := _dtypes(own, given, problems):
        was, wanted = dtypes
        return (
            f"The file holds {was} where the model has {wanted}: write it with tensor.to(torch.{wanted}); to "
            "build in another dtype, set the target's dtype."
        )
    return "The file must contain the state_dict of the model that the source builds."


def _prefix(plain: Collection[str], prefixed: Collection[str]) -> str:
    """Return the prefix to remove from `prefixed` so that most names are in `plain`; empty if there is none."""
    found = ""
    first = next(iter(prefixed), "")[:_LONGEST_PREFIX]
    for part in first.split(".")[:-1][:_DEEPEST_PREFIX]:
        if not all(name.startswith(f"{found}{part}.") for name in prefixed):
            return ""
        found += f"{part}."
        stripped = sum(name.removeprefix(found) in plain for name in prefixed)
        if stripped > len(prefixed) // 2 and stripped > sum(name in plain for name in prefixed):
            return found
    return ""


def _dtypes(
    own: Mapping[str, Form], given: Mapping[str, Form], problems: Collection[Detail]
) -> tuple[str, str] | None:
    """Return the dtypes of file and model if they explain every problem; else None."""
    if any(item.path not in own or item.path not in given for item in problems):
        return None
    if any(own[item.path].shape != given[item.path].shape for item in problems):
        return None
    pairs = {(given[item.path].dtype, own[item.path].dtype) for item in problems}
    return pairs.pop() if len(pairs) == 1 else None


__all__ = ["MAX_DETAILS", "check_fit", "mismatch"]
