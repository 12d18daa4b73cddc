"""Uploads that clients send directly to storage, and their checks."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import and_, delete, false, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert

from pt2hub.domain.digests import Digest
from pt2hub.server.db.schema import Upload as SQLUpload
from pt2hub.server.db.stores.blobs.blobs import LEASE
from pt2hub.server.db.stores.values import stamp, storable

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import ColumnElement, Row, Table
    from sqlalchemy.orm import Session

CHECK_TIMEOUT = timedelta(seconds=30)
"""Time without a renewal after which another process takes over a check."""
_RENEW_BELOW = timedelta(hours=5)
"""An active upload is prolonged when less than this is left."""
_UPLOADS = cast("Table", SQLUpload.__table__)
_SILENT = and_(_UPLOADS.c.state == "checking", _UPLOADS.c.checking_until < func.now())


@dataclass(frozen=True, slots=True)
class StoredUpload:
    """An upload's row.

    Attributes:
        state: `open`, `checking`, `stored` or `failed`.
        multipart: The storage's id of a multipart upload; None for a single request.
        part_bytes: Size of every part but the last; None for a single request.
        checked_bytes: Bytes hashed so far.
        expires_at: ISO 8601, UTC.
        silent: Whether its check was not renewed in time.
        stale: Whether it should be prolonged.
    """

    id: str
    digest: Digest
    size: int
    state: str
    multipart: str | None
    part_bytes: int | None
    checked_bytes: int
    error: dict[str, Any] | None
    expires_at: str
    silent: bool
    stale: bool

    @property
    def parts(self) -> int:
        """Number of parts: at least one, which may be empty; 0 for a single request."""
        return max(1, -(-self.size // self.part_bytes)) if self.part_bytes else 0


_COLUMNS = (
    _UPLOADS.c.id,
    _UPLOADS.c.digest,
    _UPLOADS.c.size,
    _UPLOADS.c.state,
    _UPLOADS.c.multipart,
    _UPLOADS.c.part_bytes,
    _UPLOADS.c.checked_bytes,
    _UPLOADS.c.error,
    _UPLOADS.c.pending_until,
    func.coalesce(_SILENT, false()).label("silent"),
    (_UPLOADS.c.pending_until < func.now() + _RENEW_BELOW).label("stale"),
)


def new_id() -> str:
    """Return an unguessable id for an upload."""
    return secrets.token_hex(16)


class UploadStore:
    """Uploads and the claims on their checks."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(
        self, upload_id: str, digest: Digest, size: int, *, by: str, parts: tuple[str, int] | None
    ) -> None:
        """Add an open upload.

        Args:
            parts: The storage's id of a multipart upload and the part size; None for a single request.
        """
        multipart, part_bytes = parts or (None, None)
        row = {"id": upload_id, "digest": digest, "size": size, "holder": by, "state": "open"}
        row |= {"multipart": multipart, "part_bytes": part_bytes, "pending_until": func.now() + LEASE}
        self._session.execute(insert(_UPLOADS).values(row))

    def find(self, upload_id: str) -> StoredUpload | None:
        """Return the upload with this id; None where it does not exist or has expired."""
        wanted = select(*_COLUMNS).where(_UPLOADS.c.id == upload_id, ~_is_expired())
        row = self._session.execute(wanted).first()
        return _upload(row) if row else None

    def prolong(self, upload_id: str) -> None:
        """Prolong an upload to a full lease."""
        self._update(_UPLOADS.c.id == upload_id, pending_until=func.now() + LEASE)

    def begin_check(self, upload_id: str) -> datetime | None:
        """Claim the check of an upload that is open or whose process stopped.

        Returns:
            The claim: when it expires unless renewed. None where another process has it or the check has ended.
        """
        return self._update(
            and_(_UPLOADS.c.id == upload_id, or_(_UPLOADS.c.state == "open", _SILENT)),
            state="checking",
            checked_bytes=0,
            checking_until=func.clock_timestamp() + CHECK_TIMEOUT,
        )

    def renew_check(
        self, upload_id: str, claim: datetime, *, checked: int, lasting: timedelta = CHECK_TIMEOUT
    ) -> datetime | None:
        """Renew the claim on a check.

        Args:
            checked: Bytes hashed so far.
            lasting: Duration of the new claim.

        Returns:
            The new claim; None where another process took over, or the upload is gone.
        """
        return self._update(
            _claim_condition(upload_id, claim),
            checked_bytes=checked,
            checking_until=func.clock_timestamp() + lasting,
        )

    def release_check(self, upload_id: str, claim: datetime) -> None:
        """Release a check for the next process."""
        self._update(_claim_condition(upload_id, claim), checking_until=func.clock_timestamp())

    def end_check(self, upload_id: str, claim: datetime, error: dict[str, Any] | None) -> bool:
        """End a check, with an error or with the blob stored.

        Returns:
            Whether the claim was still valid: otherwise another process took over, or the upload is gone.
        """
        state = "failed" if error else "stored"
        counted = {} if error else {"checked_bytes": _UPLOADS.c.size}
        ended = self._update(
            _claim_condition(upload_id, claim), state=state, error=storable(error), **counted
        )
        return ended is not None

    def settle(self, upload_id: str) -> bool:
        """Mark an open upload as stored; return whether it was open."""
        settled = update(_UPLOADS).where(_UPLOADS.c.id == upload_id, _UPLOADS.c.state == "open")
        done = self._session.execute(settled.values(state="stored").returning(_UPLOADS.c.id))
        return done.first() is not None

    def drop(self, upload_id: str) -> bool:
        """Delete an upload; return whether it existed."""
        dropped = delete(_UPLOADS).where(_UPLOADS.c.id == upload_id).returning(_UPLOADS.c.id)
        return self._session.execute(dropped).first() is not None

    def drop_expired(self, upload_id: str) -> bool:
        """Delete an upload if it has expired; return whether it was deleted."""
        over = delete(_UPLOADS).where(_UPLOADS.c.id == upload_id, _is_expired()).returning(_UPLOADS.c.id)
        return self._session.execute(over).first() is not None

    def open_of(self, by: str, *, limit: int) -> int:
        """Return the number of a token's open uploads, at most `limit`."""
        some = select(_UPLOADS.c.id).where(
            _UPLOADS.c.holder == by, _UPLOADS.c.state == "open", ~_is_expired()
        )
        return self._session.scalar(select(func.count()).select_from(some.limit(limit).subquery())) or 0

    def list_expired(self, *, limit: int) -> list[StoredUpload]:
        """Return expired uploads."""
        wanted = select(*_COLUMNS).where(_is_expired()).order_by(_UPLOADS.c.pending_until).limit(limit)
        return [_upload(row) for row in self._session.execute(wanted)]

    def _update(self, condition: ColumnElement[bool], **values: Any) -> datetime | None:
        statement = update(_UPLOADS).where(condition).values(**values).returning(_UPLOADS.c.checking_until)
        claim: datetime | None = self._session.execute(statement).scalar()
        return claim


def _is_expired() -> ColumnElement[bool]:
    """Return the condition for expired uploads; those being checked are left to finish."""
    checked = and_(_UPLOADS.c.state == "checking", _UPLOADS.c.checking_until >= func.now())
    return and_(_UPLOADS.c.pending_until < func.now(), ~func.coalesce(checked, false()))


def _claim_condition(upload_id: str, claim: datetime) -> ColumnElement[bool]:
    """Return the condition that fences off an overtaken process: a new claim has another time."""
    return and_(
        _UPLOADS.c.id == upload_id, _UPLOADS.c.state == "checking", _UPLOADS.c.checking_until == claim
    )


def _upload(row: Row[*tuple[Any, ...]]) -> StoredUpload:
    return StoredUpload(
        id=row.id,
        digest=Digest(row.digest),
        size=row.size,
        state=row.state,
        multipart=row.multipart,
        part_bytes=row.part_bytes,
        checked_bytes=row.checked_bytes,
        error=row.error,
        expires_at=stamp(row.pending_until),
        silent=row.silent,
        stale=row.stale,
    )
