"""The base class of errors and their three kinds."""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Self, Unpack

_BIDI_CONTROLS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
INVISIBLE_CHARACTERS = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160), *_BIDI_CONTROLS))
"""Control and bidirectional characters, as a table for `str.translate` that removes them: untrusted text could repaint
a terminal or hide content with them. Tabs and newlines stay."""


@dataclass(frozen=True, slots=True)
class Detail:
    """One invalid field of a document.

    Attributes:
        path: The field's path (`inputs[0].shape[1]`).
        given: The given value, shortened, or None.
        allowed: The allowed values, or None.
    """

    path: str
    message: str
    given: str | None = None
    allowed: str | None = None

    def values(self) -> str:
        """Return the given and the allowed values as a suffix for a message; empty if neither is known."""
        known = {"given": self.given, "allowed": self.allowed}
        said = "; ".join(f"{word}: {value}" for word, value in known.items() if value is not None)
        return f" ({said})" if said else ""


class ErrorParts(TypedDict, total=False):
    """What another caller of a function may say otherwise about its error."""

    message: str
    where: str | None
    hint: str | None
    details: tuple[Detail, ...]
    context: Mapping[str, Any]


class Pt2hubError(Exception):
    """An error in pt2hub.

    Args:
        message: What happened, in one sentence; by default the first line of the class's docstring.
        where: The field, step, file or URL where it happened.
    """

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
        self.message = message or (type(self).__doc__ or "").strip().splitlines()[0]
        self.where = where
        self.hint = hint
        self.details = details
        self.context = dict(context or {})
        super().__init__(self.message)

    def __str__(self) -> str:
        is_named = self.where and not self.message.startswith(f"{self.where} ")
        lines = [f"{self.where}: {self.message}" if is_named else self.message]
        if len(self.details) == 1 and (self.where or "").endswith(self.details[0].path):
            (only,) = self.details  # its path is in the line already, and mostly its message
            same = only.message.rstrip(".") == self.message.rstrip(".")
            more = only.values() if same else f": {only.message}{only.values()}"
            lines[0] = f"{lines[0].rstrip('.')}{more}" if more else lines[0]
        else:
            lines += self._list_details()
        if self.hint:
            lines.append(f"  {self.hint}")
        return "\n".join(lines).translate(INVISIBLE_CHARACTERS)  # parts of it may come from other machines

    def _list_details(self) -> list[str]:
        return [
            f"  {item.path}: {item.message}{item.values()}"
            for item in self.details
            if f"{item.path} is {item.message}" not in self.message  # which names the first one
        ]

    def replace(self, **parts: Unpack[ErrorParts]) -> Self:
        """Return the same error with some parts replaced, such as its place; its code, cause and attributes stay."""
        copied = copy.copy(self)
        vars(copied).update(parts)
        copied.context = dict(copied.context)
        copied.args = (copied.message,)
        copied.__cause__, copied.__context__ = self.__cause__, self.__context__
        copied.__suppress_context__ = self.__suppress_context__
        return copied

    def as_dict(self) -> dict[str, Any]:
        """Return the error as JSON values; `wire.problems.from_dict` restores the same class from them."""
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
    """A service that pt2hub depends on failed; a retry may succeed."""

    code = "transient"
    kind = "transient"


class FatalError(Pt2hubError):
    """A defect in pt2hub, the compiler or this worker."""

    code = "fatal"
    kind = "fatal"


def walk(root: type[Pt2hubError] = Pt2hubError) -> Iterator[type[Pt2hubError]]:
    """Yield every error class, the root first."""
    yield root
    for child in root.__subclasses__():
        yield from walk(child)
