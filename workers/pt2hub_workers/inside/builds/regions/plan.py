"""The plan of a composite: which region's code is called with which values and constants, as `composite.cpp` reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch.export import ExportedProgram

    from pt2hub_workers.inside.builds.regions.segments import Cut

FORMAT = "pt2hub regions 1"


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call of a library.

    Attributes:
        library: Its number among the libraries.
        inputs: Places of the values that it reads; those of the caller come first.
        outputs: Places of its results.
        constants: Names in the model, by name in the library's code.
    """

    library: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    constants: Mapping[str, str]


def plan_text(
    program: ExportedProgram, cut: Cut, libraries: Sequence[str], calls: Sequence[PlannedCall]
) -> str:
    """Return the plan.

    Args:
        libraries: Names of the libraries' files.
    """
    places = place_values(cut)
    lines = [FORMAT]
    lines += [pytree.treespec_dumps(spec) for spec in (program.call_spec.in_spec, program.call_spec.out_spec)]
    lines += _counted(node.name for node in cut.inputs)
    lines += _counted(f"output{number}" for number in range(len(cut.outputs)))
    lines += _counted(places[node.name] for node in cut.outputs)
    lines.append(str(len(places)))
    lines += _counted(libraries)
    lines.append(str(len(calls)))
    for call in calls:
        lines += [str(call.library), *_counted(call.inputs), *_counted(call.outputs)]
        lines += [str(len(call.constants)), *(name for pair in call.constants.items() for name in pair)]
    return "\n".join(lines) + "\n"


def place_values(cut: Cut) -> dict[str, int]:
    """Return the places of all values that pass between calls, by node: first those of the caller."""
    names = [node.name for node in (*cut.inputs, *(node for item in cut.segments for node in item.outputs))]
    return {name: place for place, name in enumerate(names)}


def _counted(items: Iterable[object]) -> list[str]:
    found = [str(item) for item in items]
    return [str(len(found)), *found]
