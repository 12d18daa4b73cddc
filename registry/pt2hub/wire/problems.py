"""From an error's JSON back to the error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pt2hub.errors import Detail, FatalError, Pt2hubError, TransientError, UsageError, walk

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")


def from_dict(document: Mapping[str, Any]) -> Pt2hubError:
    """The error that `as_dict` described, as the same class; unknown codes keep their kind's class.

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
        vars(error)["code"] = code  # of a newer pt2hub: still to be seen by whoever prints or forwards it
    return error


def _detail(item: Mapping[str, Any]) -> Detail:
    path, message, given, allowed = (_text(item.get(key)) for key in ("path", "message", "given", "allowed"))
    return Detail(path or "", message or "", given, allowed)


def _text(value: Any) -> str | None:  # noqa: ANN401  # whatever a document holds
    return None if value is None else str(value)


def _given(cls: type[T], value: Any) -> T:  # noqa: ANN401  # likewise
    """A value of that kind; an empty one where a document holds something else."""
    return value if isinstance(value, cls) else cls()
