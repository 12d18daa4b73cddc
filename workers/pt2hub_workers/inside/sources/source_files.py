"""Files and settings that a build's source is made from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pt2hub.domain.publishing.spec import Spec


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """Files and settings for a build's source.

    Attributes:
        modules: The archive with the modules of a program's operators.
        spec: The spec to compare a program's own signature with; None for no comparison.
    """

    factories: tuple[str, ...]
    source: Path | None
    weights: Path | None
    scratch: Path
    device: str = "cpu"
    spec: Spec | None = None
    modules: Path | None = None
