"""Requests of devices for tokens, by the SHA-256 of their device codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from pt2hub.domain.people import DeviceRequest, DeviceState
from pt2hub.server.db.schema import DeviceRequest as SQLDeviceRequest
from pt2hub.server.db.stores.values import stamp

if TYPE_CHECKING:
    from datetime import timedelta

    from sqlalchemy.orm import Session


@dataclass(frozen=True, slots=True)
class PolledRequest:
    """A device's request when the device polls.

    Attributes:
        too_early: Whether the device did not wait for the interval; then it has grown.
        interval_s: Seconds to wait before the next poll.
        person: Who decided.
        grant: What they approved.
    """

    state: DeviceState
    too_early: bool
    interval_s: int
    person: int | None
    grant: dict[str, Any] | None


class DeviceRequestStore:
    """Requests that have not expired."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, sha256: str, user_code: str, client: str, *, lasting: timedelta, interval_s: int) -> bool:
        """Add a request; return False where another one has the user code."""
        self._session.execute(
            delete(SQLDeviceRequest).where(
                SQLDeviceRequest.user_code == user_code, SQLDeviceRequest.expires_at <= func.now()
            )
        )
        values = {
            "sha256": sha256,
            "user_code": user_code,
            "client": client,
            "interval_s": interval_s,
            "expires_at": func.now() + lasting,
        }
        added = (
            upsert(SQLDeviceRequest)
            .values(values)
            .on_conflict_do_nothing(index_elements=["user_code"])
            .returning(SQLDeviceRequest.user_code)
        )
        return self._session.scalar(added) is not None

    def pending(self, user_code: str) -> DeviceRequest | None:
        """Return the undecided request with a user code; None if there is none."""
        row = self._session.scalars(select(SQLDeviceRequest).where(*_pending(user_code))).first()
        if row is None:
            return None
        return DeviceRequest(row.user_code, row.client, DeviceState(row.state), stamp(row.created_at))

    def decide(
        self, user_code: str, state: DeviceState, *, person: int, grant: dict[str, Any] | None
    ) -> bool:
        """Store a decision; return False if there is no undecided request with this code."""
        decided = update(SQLDeviceRequest).where(*_pending(user_code))
        values = {"state": state, "person_id": person, "grant": grant}
        return self._session.scalar(decided.values(values).returning(SQLDeviceRequest.user_code)) is not None

    def poll(self, sha256: str, *, slower_by_s: int) -> PolledRequest | None:
        """Return a request and record that its device polled; None if there is none. Others wait until the transaction ends."""
        now = func.now()
        row = self._session.scalars(
            select(SQLDeviceRequest)
            .where(SQLDeviceRequest.sha256 == sha256, SQLDeviceRequest.expires_at > now)
            .with_for_update()
        ).first()
        if row is None:
            return None
        earliest = SQLDeviceRequest.polled_at + func.make_interval(
            0, 0, 0, 0, 0, 0, SQLDeviceRequest.interval_s
        )
        too_early = self._session.scalar(
            select(func.coalesce(earliest > now, False)).where(SQLDeviceRequest.sha256 == sha256)
        )
        interval = row.interval_s + (slower_by_s if too_early else 0)
        self._session.execute(
            update(SQLDeviceRequest)
            .where(SQLDeviceRequest.sha256 == sha256)
            .values(polled_at=now, interval_s=interval)
        )
        return PolledRequest(DeviceState(row.state), bool(too_early), interval, row.person_id, row.grant)

    def remove(self, sha256: str) -> None:
        """Remove a request."""
        self._session.execute(delete(SQLDeviceRequest).where(SQLDeviceRequest.sha256 == sha256))

    def sweep(self) -> None:
        """Remove expired requests."""
        self._session.execute(delete(SQLDeviceRequest).where(SQLDeviceRequest.expires_at <= func.now()))


def _pending(user_code: str) -> tuple[Any, ...]:
    return (
        SQLDeviceRequest.user_code == user_code,
        SQLDeviceRequest.state == DeviceState.PENDING,
        SQLDeviceRequest.expires_at > func.now(),
    )
