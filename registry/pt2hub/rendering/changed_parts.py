"""What changed between two artifacts, in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.differences.program_keys import PART_NAMES
from pt2hub.rendering.lists import join_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.domain.differences.parts import ChangedParts

_MAX_NAMED = 5
_UNNAMED = frozenset({"derived_from", "labels", "model", "weights", "weights_from"})
"""Fields of the spec that change no artifact or that the sentence names otherwise."""
_SPEC_NAMES = {
    "checks": "the checks of verification",
    "compile": "the compile settings",
    "export": "the export settings",
    "limits": "the limits of the build",
    "measure": "the benchmark settings",
    "packages": "the installed packages",
    "request": "the settings of the target",
    "source": "the source",
    "source.seed": "the seed",
}


def describe_changed_parts(found: ChangedParts) -> str:
    """Return what changed, as in `Changed between them: the weights and the seed`, as a sentence."""
    names = list(dict.fromkeys(_names(found)))
    if not names:
        return "Nothing recorded changed between them: neither weights, spec nor program key."
    more = len(names) - _MAX_NAMED
    shown = [*names[:_MAX_NAMED], f"{more} more"] if more > 0 else names
    return f"Changed between them: {join_words(shown)}."


def _names(found: ChangedParts) -> Iterator[str]:
    if found.has_other_weights:
        yield "the weights"
    for path in found.spec:
        group = path.partition(".")[0]
        if group not in _UNNAMED:
            yield _SPEC_NAMES.get(path) or _SPEC_NAMES.get(group) or f"the spec's {group[:40]}"
    for name in found.key:
        yield PART_NAMES.get(name, f"the program key's {name[:40]}")
