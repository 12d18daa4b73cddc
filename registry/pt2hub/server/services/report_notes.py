"""What a reporter should know of figures that were taken all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.measurements import class_fields, environment_class
from pt2hub.domain.performance import METRICS
from pt2hub.server.services.near import near_words

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import timedelta

    from pt2hub.domain.artifacts import Environment
    from pt2hub.domain.digests import Digest
    from pt2hub.server.db.stores.reports import KeyedFigure

MOST_NOTES = 10
_SUBJECTS = ("artifact", "eager", "torch_compile")
_NO_DIGITS = str.maketrans("", "", "0123456789")


def notes(*kinds: Iterator[str]) -> tuple[str, ...]:
    """The first of them, each once."""
    every = list(dict.fromkeys(note for kind in kinds for note in kind))
    rest = [f"{len(every) - MOST_NOTES} more such notes"] if len(every) > MOST_NOTES else []
    return (*every[:MOST_NOTES], *rest)


def of_clocks(early: Sequence[timedelta]) -> Iterator[str]:
    """Figures that are said to be older than their artifacts by less than clocks may be off."""
    if early:
        most = int(max(early).total_seconds())
        figures, they, is_ = ("figure is", "it", "is") if len(early) == 1 else ("figures are", "they", "are")
        yield (
            f"{len(early)} {figures} said to be taken up to {most} s before the artifact was built; {they} {is_} "
            "kept with its time. Check the clock there."
        )


def of_names(metrics: Collection[str], there: Collection[str]) -> Iterator[str]:
    """Free metrics that are new, and whose names look like known ones.

    Args:
        metrics: What is reported.
        there: Metrics that its models have figures of.
    """
    for name in sorted(set(metrics) - METRICS.keys()):
        others = set() if name in there else {other for other in there if _letters(other) != _letters(name)}
        near = [known for known in near_words(name, {*METRICS, *others}) if not name.startswith(known)]
        if near:
            yield f"{name} is taken as a metric of your own. Was {near[0]} meant?"


def of_subjects(subjects: Collection[str]) -> Iterator[str]:
    """Subjects that pt2hub itself never measures."""
    for name in sorted(set(subjects) - set(_SUBJECTS)):
        near = near_words(name, _SUBJECTS)
        meant = f"Was {near[0]} meant?" if near else f"pt2hub itself measures {', '.join(_SUBJECTS)}."
        yield f"{name} is taken as a subject of your own. {meant}"


def _letters(name: str) -> str:
    """A name without its digits: metrics that differ by a number alone are several on purpose."""
    return name.translate(_NO_DIGITS)


def of_units(figures: Sequence[KeyedFigure], known: dict[tuple[int, str], set[str]]) -> Iterator[str]:
    """Free metrics that one model has in several units.

    Args:
        figures: What is reported.
        known: The units that metrics of models have had so far.
    """
    units = {metric: set(found) for metric, found in known.items()}
    for figure in figures:
        if figure.what.metric not in METRICS:
            units.setdefault((figure.what.model_id, figure.what.metric), set()).add(figure.what.unit)
    for (_, metric), found in sorted(units.items()):
        if len(found) > 1:
            yield f"{metric} is reported in {', '.join(sorted(found))}: each unit is a series of its own."


def of_gpus(targets: Collection[str]) -> Iterator[str]:
    """GPUs of machines on which artifacts for the CPU ran."""
    for target in sorted(targets):
        yield f"The GPU was left out of environments of artifacts for {target}: they do not use it."


def of_isolation(said: Collection[str]) -> Iterator[str]:
    """Machines that are said to confine what runs on them, as only workers do."""
    for isolation in sorted(said):
        yield f"The isolation {isolation} is kept as none: only pt2hub's workers confine what they measure."


def of_machines(
    machines: Iterable[Environment], known: Mapping[Digest, Mapping[str, object]]
) -> Iterator[str]:
    """Machines that say less of themselves than one that figures were taken on before, and nothing else.

    Args:
        machines: What is reported.
        known: The environment classes that there are, with their fields.
    """
    for machine in machines:
        if environment_class(machine) in known:
            continue
        said = class_fields(machine)
        for fields in known.values():
            unsaid = sorted(fields.keys() - said.keys() - {"memory_bytes"})
            if unsaid and all(fields.get(name) == value for name, value in said.items()):
                yield (
                    f"An environment on {machine.cpu_model} says nothing of {', '.join(unsaid)}, which is known of one "
                    "that is otherwise equal: its figures are a series of their own."
                )
                break
