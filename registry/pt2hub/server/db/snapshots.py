"""Snapshots: transactions that only read and see one moment, so that nothing has to be read twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from sqlalchemy.orm import Session

T = TypeVar("T")
_FOUND = "found"
"""What a snapshot's `info` names what was found in it."""


def begin_snapshot(session: Session) -> None:
    """Make a session that has not read yet a snapshot."""
    options: Any = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    session.connection(execution_options=options)
    session.info[_FOUND] = {}


def recall(session: Session, key: tuple[Hashable, ...], find: Callable[[], T]) -> T:
    """Return what a statement finds: in a snapshot what it found before, elsewhere what it finds now."""
    found = cast("dict[tuple[Hashable, ...], T] | None", session.info.get(_FOUND))
    if found is None:
        return find()
    if key not in found:
        found[key] = find()
    return found[key]
