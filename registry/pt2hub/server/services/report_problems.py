"""What is wrong with a report, place by place: of thousands the first ones say what is wrong with all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pt2hub.errors import Detail, InvalidInput

if TYPE_CHECKING:
    from pt2hub.errors import Pt2hubError
    from pt2hub.server.services.report_checks import Wrong

MOST_DETAILS = 20


@dataclass(slots=True)
class Problems:
    """Wrong places, collected.

    Attributes:
        details: The first 20.
        count: How many there are.
    """

    details: list[Detail] = field(default_factory=list)
    count: int = 0
    _noted: set[tuple[str, str]] = field(default_factory=set)

    @property
    def full(self) -> bool:
        """Whether one more would only be counted."""
        return len(self.details) >= MOST_DETAILS

    def add(self, path: str, message: str, *, given: object = None, allowed: str | None = None) -> None:
        """Notes a wrong place; arguments are those of `Detail`."""
        self.count += 1
        if not self.full:
            self.details.append(Detail(path, message, None if given is None else str(given)[:80], allowed))

    def add_at(self, path: str, wrong: Wrong) -> None:
        """Notes what does not fit, at its field below a place; the same once where many figures name that place."""
        field_path = f"{path}.{wrong.field}"
        if (field_path, wrong.message) not in self._noted:
            self._noted.add((field_path, wrong.message))
            self.add(field_path, wrong.message, given=wrong.given, allowed=wrong.allowed)

    def check(self) -> None:
        """Refuses the report if there is one.

        Raises:
            InvalidInput: With them.
        """
        if self.count:
            hint = "Correct the report there and send all of it again: nothing of it was kept."
            raise refusal(InvalidInput, tuple(self.details), self.count, hint=hint)


def refusal(
    cls: type[Pt2hubError], details: tuple[Detail, ...], count: int, *, hint: str | None = None
) -> Pt2hubError:
    """The error of a report that is refused as a whole.

    Args:
        cls: What it is.
        details: Wrong places; those beyond 20 are only counted.
        count: In how many figures something is wrong.
        hint: What to do next.
    """
    if len(details) == 1:
        return cls(details[0].message, where=details[0].path, hint=hint, details=details)
    shown = details[:MOST_DETAILS]
    rest = f"; the first {len(shown)} places are named" if max(count, len(details)) > len(shown) else ""
    message = f"{max(count, len(shown))} places of the report are wrong, and nothing of it was kept{rest}"
    return cls(message, where="report", hint=hint, details=shown)
