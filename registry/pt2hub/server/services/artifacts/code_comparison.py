"""Comparison of two artifacts' code, and the reasons for missing kernel times, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.artifacts import KEY_SCHEMA
from pt2hub.domain.publishing.inductor_options import is_autotuned
from pt2hub.rendering.quantities import format_count
from pt2hub.server.db.stores.artifacts.code import ArtifactCodeStore
from pt2hub.server.db.stores.performance.comparisons import ComparisonStore
from pt2hub.server.services.artifacts.kernel_changes import differences
from pt2hub.wire.performance import CodeComparison

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from pt2hub.domain.digests import Digest
    from pt2hub.server.db.stores.artifacts.code import ArtifactCode
    from pt2hub.wire.performance import AutotuneDifference


def compare_code(
    session: Session, before: Digest, after: Digest
) -> tuple[CodeComparison, tuple[AutotuneDifference, ...]]:
    """Return the comparison of two artifacts' code, and the kernels that changed.

    The kernels come from the autotune tables of the artifacts that the code was compiled for.
    """
    found = ArtifactCodeStore(session).of([before, after])
    one, other = found[before], found[after]
    if one.digest == other.digest or one.tuned is None or other.tuned is None:
        return describe_code(one, other), ()
    tables = ComparisonStore(session).choices([one.tuned, other.tuned])
    return describe_code(one, other), differences(tables[one.tuned], tables[other.tuned])


def describe_code(before: ArtifactCode, after: ArtifactCode) -> CodeComparison:
    """Return the comparison of two artifacts' code, without kernels."""
    same = before.digest == after.digest
    text = _same(before, after) if same else _different(before, after)
    return CodeComparison(same, text, _missing_autotune_reason(before, after))


def missing_autotune_reason(code: ArtifactCode, name: str) -> str:
    """Return why an artifact has no kernel times; empty where it has them."""
    if code.tuned is not None:
        return ""
    if not is_autotuned(code.options):
        return f"no autotuning for {name}, since neither compile.mode nor compile.options asks for it"
    if not code.chosen:
        return f"no autotuning for {name}: the compiler had no alternatives to choose from"
    if code.reused and code.origin is None:
        return f"the kernel times of {name} are not stored: its code is reused, and the artifact that it was compiled for is gone"
    reused = f"its code is reused from {_origin(code)}, for which " if code.reused else ""
    return f"the kernel times of {name} are not stored: {reused}there is no autotune table"


def _same(before: ArtifactCode, after: ArtifactCode) -> str:
    one, other = _names(before, after)
    follows = _kernel_guarantee(before, after)
    if before.reused and after.reused:
        origin = f" that was compiled for {_origin(after)}" if after.origin else ""
        return f"Both reuse the same code{origin}{follows}."
    if before.reused or after.reused:
        later, earlier = (other, one) if after.reused else (one, other)
        return f"{_upper(later)} reuses the code that was compiled for {earlier}{follows}."
    return f"Both were compiled to the same code, byte for byte{follows}."


def _kernel_guarantee(before: ArtifactCode, after: ArtifactCode) -> str:
    """Return what equal code implies about kernels, given what the program keys name."""
    oldest = min(before.key_schema, after.key_schema)
    if oldest < KEY_SCHEMA:
        return f", by a program key of schema {oldest}, which does not name the kernels of operators that are not torch's own"
    if not (before.is_named and after.is_named):
        return ", by a program key that does not name everything that it calls"
    if before.program_key != after.program_key and (before.calls_others or after.calls_others):
        return ", which calls operators by name that are not torch's own and may differ"
    return ", so that no kernel can differ"


def _different(before: ArtifactCode, after: ArtifactCode) -> str:
    one, other = _names(before, after)
    alike = (
        ", from the same program with the same settings" if before.program_key == after.program_key else ""
    )
    recompiled = not after.reused and not after.reused_parts
    summary = f"The code was recompiled{alike}" if recompiled else f"The two run different code{alike}"
    sides = [(other, after), (one, before)]
    if recompiled:  # that it runs code compiled for it is the same statement again
        sides = [(name, code) for name, code in sides if code.reused or code.reused_parts]
    origins = ", ".join(_origin_text(name, code) for name, code in sides)
    return f"{summary}: {origins}." if origins else f"{summary}."


def _origin_text(name: str, code: ArtifactCode) -> str:
    if not code.reused and code.reused_parts:
        return f"{name} runs code with {format_count(code.reused_parts, 'part')} of other artifacts"
    if not code.reused:
        return f"{name} runs code that was compiled for it"
    origin = (
        f"code that was compiled for {_origin(code)}" if code.origin else "code of an artifact that is gone"
    )
    return f"{name} reuses {origin}"


def _origin(code: ArtifactCode) -> str:
    """Return the version that the code was compiled for, without the model's name if it is the artifact's own."""
    model, _, number = code.compiled_for.rpartition("@")
    return f"version {number}" if model == code.model else code.compiled_for


def _missing_autotune_reason(before: ArtifactCode, after: ArtifactCode) -> str:
    one, other = _names(before, after)
    reasons = [missing_autotune_reason(before, one), missing_autotune_reason(after, other)]
    both = missing_autotune_reason(before, "either"), missing_autotune_reason(after, "either")
    if both[0] and both[0] == both[1]:
        return sentence(both[0])
    return sentence("; ".join(reason for reason in reasons if reason))


def _names(before: ArtifactCode, after: ArtifactCode) -> tuple[str, str]:
    """Return the shortest names that distinguish the two."""
    if before.model != after.model:
        one, other = f"{before.model}@{before.number}", f"{after.model}@{after.number}"
    else:
        one, other = f"version {before.number}", f"version {after.number}"
    if before.target != after.target:
        return f"{one} for {before.target}", f"{other} for {after.target}"
    return one, other


def sentence(text: str) -> str:
    """Return a reason as a sentence; empty text stays empty."""
    return f"{_upper(text)}." if text else ""


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
