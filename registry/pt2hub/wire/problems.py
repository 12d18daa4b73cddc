"""Problem documents (RFC 9457) and their conversion to errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pt2hub.errors import Detail, FatalError, Pt2hubError, TransientError, UsageError, walk

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem document (RFC 9457).

    Attributes:
        type: `urn:pt2hub:error:` and the code.
        title: Meaning of the code.
        status: The HTTP status.
        detail: What happened, in one sentence.
        code: Error code; existing codes keep their meaning.
        kind: `usage`, `transient` or `fatal`.
        where: The field, step, file or URL where it happened, or None.
        hint: What to do next, or None.
        details: Invalid fields of a document: `path`, `message`, `given` and `allowed`.
        context: Further values for programs, depending on the code.
    """

    type: str
    title: str
    status: int
    detail: str
    code: str
    kind: str
    where: str | None
    hint: str | None
    details: list[dict[str, Any]]
    context: dict[str, Any]


def from_dict(document: Mapping[str, Any]) -> Pt2hubError:
    """Restore an error from its `as_dict` form, with the same class; unknown codes get the class of their kind.

    Args:
        document: JSON values with at least `code`.
    """
    by_code = {cls.code: cls for cls in walk()}
    by_kind: dict[str, type[Pt2hubError]] = {"usage": UsageError, "transient": TransientError}
    fallback = by_kind.get(str(document.get("kind")), FatalError)
    code = str(document.get("code") or "")
    cls = by_code.get(code, fallback)
    error = cls(
        str(document.get("message") or document.get("detail") or "") or None,
        where=_text(document.get("where")),
        hint=_text(document.get("hint")),
        details=tuple(
            _detail(item) for item in _given(list, document.get("details")) if isinstance(item, dict)
        ),
        context=_given(dict, document.get("context")),
    )
    if code and code not in by_code:
        vars(error)["code"] = code  # code of a newer pt2hub: kept for display and forwarding
    return error


def _detail(item: Mapping[str, Any]) -> Detail:
    path, message, given, allowed = (_text(item.get(key)) for key in ("path", "message", "given", "allowed"))
    return Detail(path or "", message or "", given, allowed)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _given(cls: type[T], value: Any) -> T:
    """Return a value if it has the type, else an empty value of the type."""
    return value if isinstance(value, cls) else cls()
