"""Errors of regional compilation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence


class RegionsImpossible(Exception):  # never shown as an error: the program is compiled as a whole
    """The program cannot be compiled by regions; the text says why, as a sentence without its end."""


def refuse_regions(names: Sequence[str], error: RegionsImpossible) -> InvalidInput:
    """Return the error of requested regions that are impossible."""
    return InvalidInput(
        f"The model cannot be compiled by the regions {', '.join(names)}: {error}",
        where="compile.regions",
        hint="Name blocks that only pass tensors to each other, or write regions: none.",
    )
