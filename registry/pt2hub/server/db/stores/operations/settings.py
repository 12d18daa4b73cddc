"""Server-wide settings that the operator chose, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert

from pt2hub.server.db.schema import ServerSetting as SQLServerSetting

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


class SettingStore:
    """Server-wide settings."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def put(self, name: str, value: str) -> None:
        """Set a value; an equal one keeps its time."""
        said = insert(SQLServerSetting).values(name=name, value=value)
        self._session.execute(
            said.on_conflict_do_update(
                index_elements=["name"],
                set_={"value": said.excluded.value, "set_at": func.now()},
                where=SQLServerSetting.value != said.excluded.value,
            )
        )

    def add(self, name: str, value: str) -> None:
        """Set a value, unless there is one."""
        self._session.execute(
            insert(SQLServerSetting).values(name=name, value=value).on_conflict_do_nothing()
        )

    def remove(self, name: str) -> None:
        """Remove a value, if it was ever set."""
        self._session.execute(delete(SQLServerSetting).where(SQLServerSetting.name == name))

    def get(self, name: str, *, lock: bool = False) -> str | None:
        """Return a value, or None if it was never set.

        Args:
            lock: Let nobody else change it until the transaction ends.
        """
        found = select(SQLServerSetting.value).where(SQLServerSetting.name == name)
        return self._session.scalar(found.with_for_update() if lock else found)
