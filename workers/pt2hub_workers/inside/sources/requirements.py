"""What uploaded code says it needs: it must be on the worker already, for a build installs nothing."""

from __future__ import annotations

import importlib.metadata
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement

from pt2hub.errors import Detail, MissingRequirement

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

INSTALLING = "An operator installs it beside the worker's torch and starts the worker anew"


def check_requirements(given: Sequence[str]) -> None:
    """Compares requirements with what is installed.

    Args:
        given: As pip takes them, without markers.

    Raises:
        MissingRequirement: Some are not met; every one of them is named, with what is there.
    """
    found = [
        Detail(f"source.requirements[{place}]", said, given=text)
        for place, text in enumerate(given)
        if (said := _problem(text))
    ]
    if found:
        raise MissingRequirement(
            "; ".join(detail.message for detail in found),
            where=found[0].path,
            details=tuple(found),
            hint=f"{INSTALLING}: a build has no network and installs nothing. Or ask for what is there, or put the "
            "package's source into the archive.",
        )


def _problem(text: str) -> str | None:
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        return f"{text} is no requirement: {str(error).splitlines()[0]}"
    return next(_unmet(requirement), None)


def _unmet(requirement: Requirement, of: str = "") -> Iterator[str]:
    """What is missing of a requirement, and of those that its extras bring."""
    said = f"{_wanted(requirement)}{of}"
    try:
        found = importlib.metadata.distribution(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        yield f"the worker has no {said}"
        return
    if not requirement.specifier.contains(found.version, prereleases=True):
        yield f"the worker has {requirement.name} {found.version}, not {said}"
    for extra in requirement.extras:
        if extra not in (found.metadata.get_all("Provides-Extra") or ()):
            yield f"{requirement.name} {found.version} has no extra {extra}"
        for other in map(Requirement, found.requires or ()):
            if other.marker and not other.marker.evaluate() and other.marker.evaluate({"extra": extra}):
                yield from _unmet(other, f", which {requirement.name}[{extra}] needs")


def _wanted(requirement: Requirement) -> str:
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras}{requirement.specifier}"
