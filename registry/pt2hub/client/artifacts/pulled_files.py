"""Paths of a pulled artifact's attached files."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SHOWN = 10
"""File names in an error."""


class FileNotPulled(KeyError):
    """An attached file that the version lacks, or that was left out of the pull."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError itself would show the message in quotes


class PulledFiles(dict[str, Path]):
    """Paths of attached files by name; the error for a missing name says why it is missing.

    Attributes:
        left_out: Names of the files that the artifact has and `files=False` did not pull.
    """

    def __init__(
        self, paths: Mapping[str, Path] | Iterable[tuple[str, Path]] = (), *, left_out: Iterable[str] = ()
    ) -> None:
        super().__init__(paths)
        self.left_out = tuple(sorted(left_out))

    def __missing__(self, name: str) -> NoReturn:
        if name in self.left_out:
            raise FileNotPulled(
                f"The attached file {name!r} was not pulled because of files=False; pull or load without files=False"
            )
        raise FileNotPulled(f"Unknown attached file {name!r}. {self._explain(str(name))}")

    def _explain(self, name: str) -> str:
        names = [*self, *self.left_out]
        if not names:
            return "The version has no attached files."
        near = difflib.get_close_matches(name, names, n=1)
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        state = " (not pulled because of files=False)" if self.left_out else ""
        listed = f"The version has {', '.join(names[:_SHOWN])}{more}{state}."
        return f"Did you mean {near[0]!r}? {listed}" if near else listed
