"""What every error of pt2hub has, and their three kinds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TURNING = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
UNSEEN = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160), *_TURNING))
"""Control characters and those that turn text around, for `str.translate`, which removes them: in texts from
elsewhere they repaint a terminal or hide what stands there. Tabs and line ends stay."""


@dataclass(frozen=True, slots=True)
class Detail:
    """One wrong place in a document.

    Attributes:
        path: Where, in the words of the document (`inputs[0].shape[1]`).
        message: What is wrong there.
        given: What was given, shortened, or None.
        allowed: What would be right, or None.
    """

    path: str
    message: str
    given: str | None = None
    allowed: str | None = None

    def values(self) -> str:
        """What was given and what is allowed, to stand behind a message; empty where neither is known."""
        known = {"given": self.given, "allowed": self.allowed}
        said = "; ".join(f"{word}: {value}" for word, value in known.items() if value is not None)
        return f" ({said})" if said else ""


class Pt2hubError(Exception):
    """Something went wrong in pt2hub."""

    code: ClassVar[str] = "error"
    kind: ClassVar[str] = "fatal"

    def __init__(
        self,
        message: str | None = None,
        *,
        where: str | None = None,
        hint: str | None = None,
        details: tuple[Detail, ...] = (),
        context: Mapping[str, Any] | None = None,
    ) -> None:
        """Creates the error.

        Args:
            message: What happened, one sentence. The class's docstring where omitted.
            where: The field, step, file or address it happened at.
            hint: What to do next.
            details: Each wrong place, for documents with several.
            context: Further JSON values for programs (the winner of a race, a signal's name).
        """
        self.message = message or (type(self).__doc__ or "").strip().splitlines()[0]
        self.where = where
        self.hint = hint
        self.details = details
        self.context = dict(context or {})
        super().__init__(self.message)

    def __str__(self) -> str:
        lines = [f"{self.where}: {self.message}" if self.where else self.message]
        if len(self.details) == 1 and (self.where or "").endswith(self.details[0].path):
            (only,) = self.details  # its place stands there already, and mostly its message
            same = only.message.rstrip(".") == self.message.rstrip(".")
            more = only.values() if same else f": {only.message}{only.values()}"
            lines[0] = f"{lines[0].rstrip('.')}{more}" if more else lines[0]
        else:
            lines += [f"  {item.path}: {item.message}{item.values()}" for item in self.details]
        if self.hint:
            lines.append(f"  {self.hint}")
        return "\n".join(lines).translate(UNSEEN)  # parts of it may come from another machine

    def as_dict(self) -> dict[str, Any]:
        """The error as JSON values; `wire.problems.from_dict` turns them back into the same class."""
        return {
            "code": self.code,
            "kind": self.kind,
            "message": self.message,
            "where": self.where,
            "hint": self.hint,
            "details": [asdict(item) for item in self.details],
            "context": self.context,
        }


class UsageError(Pt2hubError):
    """The request, the spec or the model is at fault."""

    code = "usage"
    kind = "usage"


class TransientError(Pt2hubError):
    """A part that pt2hub depends on did not answer; another try may succeed."""

    code = "transient"
    kind = "transient"


class FatalError(Pt2hubError):
    """A defect of pt2hub, the compiler or this worker."""

    code = "fatal"
    kind = "fatal"


def walk(root: type[Pt2hubError] = Pt2hubError) -> Iterator[type[Pt2hubError]]:
    """Every error class, the root first."""
    yield root
    for child in root.__subclasses__():
        yield from walk(child)
