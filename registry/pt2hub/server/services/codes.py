"""Whether two artifacts run the same code, and why kernels cannot be compared, in sentences."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pt2hub.domain.artifacts import KEY_SCHEMA
from pt2hub.server.db.stores.codes import CodeStore
from pt2hub.server.db.stores.verdicts import EvidenceStore
from pt2hub.server.services.kernels import are_known, differences
from pt2hub.wire.performance import CodeComparison

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from pt2hub.domain.digests import Digest
    from pt2hub.server.db.stores.codes import Code
    from pt2hub.wire.performance import AutotuneDifference

_TUNING = ("coordinate_descent_tuning", "max_autotune", "max_autotune_gemm", "max_autotune_pointwise")
"""Options of the compiler that make it choose by timing."""
_UNKNOWN = "The kernels of {} cannot be compared: an older pt2hub kept the compiler's names of them without their parameters."


def compared(
    session: Session, before: Digest, after: Digest
) -> tuple[CodeComparison, tuple[AutotuneDifference, ...]]:
    """What to say of the code of two artifacts, and the kernels that changed.

    Kernels are told by the tables of the artifacts that the code was compiled for.

    Args:
        session: The transaction.
        before: Manifest digest of the first.
        after: Of the second.
    """
    found = CodeStore(session).of([before, after])
    one, other = found[before], found[after]
    if one.digest == other.digest or one.tuned is None or other.tuned is None:
        return said_of(one, other), ()
    tables = EvidenceStore(session).choices([one.tuned, other.tuned])
    before_rows, after_rows = tables[one.tuned], tables[other.tuned]
    names = zip(_names(one, other), (before_rows, after_rows), strict=True)
    if unknown := [name for name, rows in names if not are_known(rows)]:
        return replace(said_of(one, other), tuning=_UNKNOWN.format(" and of ".join(unknown))), ()
    return said_of(one, other), differences(before_rows, after_rows)


def said_of(before: Code, after: Code) -> CodeComparison:
    """What to say of the code of two artifacts."""
    same = before.digest == after.digest
    said = _same(before, after) if same else _different(before, after)
    return CodeComparison(same, said, _untuned(before, after))


def untuned(code: Code, name: str) -> str:
    """Why there are no times of kernels of an artifact; empty where there are.

    Args:
        code: The artifact's code.
        name: What to call the artifact.
    """
    if code.tuned is not None:
        return ""
    if not any(code.options.get(option) for option in _TUNING):
        return f"nothing was tuned for {name}, since max_autotune is not in compile.options"
    if not code.chosen:
        return f"nothing was tuned for {name}: the compiler had nothing to choose between"
    if code.reused and code.origin is None:
        return f"the times of {name} are not kept: its code is reused, and what it was compiled for is gone"
    reused = f"its code is reused from {_origin(code)}, beside which " if code.reused else ""
    return f"the times of {name} are not kept: {reused}no table of autotuning is stored"


def _same(before: Code, after: Code) -> str:
    one, other = _names(before, after)
    follows = _what_follows(before, after)
    if before.reused and after.reused:
        whose = f" that was compiled for {_origin(after)}" if after.origin else ""
        return f"Both reuse the same code{whose}{follows}."
    if before.reused or after.reused:
        later, earlier = (other, one) if after.reused else (one, other)
        return f"{_upper(later)} reuses the code that was compiled for {earlier}{follows}."
    return f"Both were compiled, to the same code byte for byte{follows}."


def _what_follows(before: Code, after: Code) -> str:
    """What equal code says of kernels, as far as the program keys name them."""
    oldest = min(before.key_schema, after.key_schema)
    if oldest < KEY_SCHEMA:
        return f", by a program key of schema {oldest}, which does not name the kernels of operators that are not torch's own"
    if not (before.is_named and after.is_named):
        return ", by a program key that does not name all that it calls"
    if before.program_key != after.program_key and (before.calls_others or after.calls_others):
        return ", which calls operators by name that are not torch's own and may differ"
    return ", so that no kernel can differ"


def _different(before: Code, after: Code) -> str:
    one, other = _names(before, after)
    alike = (
        ", from the same program with the same settings" if before.program_key == after.program_key else ""
    )
    anew = f"The code was compiled anew{alike}" if not after.reused else f"The two run different code{alike}"
    return f"{anew}: {_made(other, after)}, {_made(one, before)}."


def _made(name: str, code: Code) -> str:
    if not code.reused:
        return f"{name} runs what was compiled for it"
    whose = f"what was compiled for {_origin(code)}" if code.origin else "code of an artifact that is gone"
    return f"{name} reuses {whose}"


def _origin(code: Code) -> str:
    """What the code was compiled for, beside the artifact's own model."""
    model, _, number = code.compiled_for.rpartition("@")
    return f"version {number}" if model == code.model else code.compiled_for


def _untuned(before: Code, after: Code) -> str:
    one, other = _names(before, after)
    reasons = [untuned(before, one), untuned(after, other)]
    both = untuned(before, "either"), untuned(after, "either")
    if both[0] and both[0] == both[1]:
        return sentence(both[0])
    return sentence("; ".join(reason for reason in reasons if reason))


def _names(before: Code, after: Code) -> tuple[str, str]:
    """What to call the two: by no more than tells them apart."""
    if before.model != after.model:
        one, other = f"{before.model}@{before.number}", f"{after.model}@{after.number}"
    else:
        one, other = f"version {before.number}", f"version {after.number}"
    if before.target != after.target:
        return f"{one} for {before.target}", f"{other} for {after.target}"
    return one, other


def sentence(text: str) -> str:
    """A reason as a sentence; nothing of nothing."""
    return f"{_upper(text)}." if text else ""


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
