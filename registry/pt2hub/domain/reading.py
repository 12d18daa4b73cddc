"""Who may read what: the server's mode, and the models that a request may read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from pt2hub.domain.tokens import EVERY_MODEL, covers


class ReadMode(StrEnum):
    """Who may read, as `PT2HUB_READ` says."""

    PUBLIC = "public"
    """Whoever reaches the server reads everything."""
    AUTHENTICATED = "authenticated"
    """Every valid token reads everything."""
    TEAM = "team"
    """A token reads the models that its patterns cover; others do not exist for it."""


@dataclass(frozen=True, slots=True)
class Readable:
    """The models that may be read.

    Attributes:
        patterns: As of a token; none covers no model.
    """

    patterns: tuple[str, ...]

    @property
    def everything(self) -> bool:
        """Whether every model may be read."""
        return EVERY_MODEL in self.patterns

    def covers(self, model: str) -> bool:
        """Return whether a model, `team/name`, may be read."""
        return any(covers(pattern, model) for pattern in self.patterns)

    @property
    def expression(self) -> str:
        """The names of these models as a regular expression, the same to Python and to PostgreSQL."""
        if self.everything:
            return ".*"
        parts = (re.escape(pattern).replace(re.escape("*"), "[^/]*") for pattern in self.patterns)
        return f"^({'|'.join(parts)})$"


EVERYTHING = Readable((EVERY_MODEL,))
NOTHING = Readable(())
