"""Requirements of uploaded code, which must already be installed on the worker: a build installs nothing."""

from __future__ import annotations

import importlib.metadata
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement

from pt2hub.errors import Detail, MissingRequirement

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

INSTALL_HINT = "an operator installs it in the worker's environment and restarts the worker"


def check_requirements(given: Sequence[str]) -> None:
    """Compare requirements with what is installed."""
    found = [
        Detail(f"source.requirements[{index}]", problem, given=text)
        for index, text in enumerate(given)
        if (problem := _problem(text))
    ]
    if found:
        raise MissingRequirement(
            "; ".join(detail.message for detail in found),
            where=found[0].path,
            details=tuple(found),
            hint=f"A build has no network and installs nothing: {INSTALL_HINT}. Alternatively, require an installed version, or "
            "add the package's source to the archive.",
        )


def _problem(text: str) -> str | None:
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        return f"invalid requirement {text!r}: {str(error).splitlines()[0]}"
    return next(_find_unmet(requirement), None)


def _find_unmet(requirement: Requirement, of: str = "") -> Iterator[str]:
    """Yield what is missing for a requirement, including the requirements of its extras."""
    wanted = f"{_requirement_text(requirement)}{of}"
    try:
        found = importlib.metadata.distribution(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        yield f"the worker lacks {wanted}"
        return
    if not requirement.specifier.contains(found.version, prereleases=True):
        yield f"the worker has {requirement.name} {found.version} instead of {wanted}"
    for extra in requirement.extras:
        if extra not in (found.metadata.get_all("Provides-Extra") or ()):
            yield f"{requirement.name} {found.version} has no extra {extra}"
        for other in map(Requirement, found.requires or ()):
            if other.marker and not other.marker.evaluate() and other.marker.evaluate({"extra": extra}):
                yield from _find_unmet(other, f", which {requirement.name}[{extra}] needs")


def _requirement_text(requirement: Requirement) -> str:
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras}{requirement.specifier}"
