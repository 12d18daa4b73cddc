"""Uploads that go past the server, and who checks them."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import and_, delete, false, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert

from pt2hub.domain.digests import Digest
from pt2hub.server.db.schema import Upload as SQLUpload
from pt2hub.server.db.stores.blobs import LEASE
from pt2hub.server.db.stores.values import stamp, storable

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import ColumnElement, Row, Table
    from sqlalchemy.orm import Session

CHECKING = timedelta(seconds=30)
"""How long a process that checks an upload may be silent before another one takes over."""
_STALE = timedelta(hours=5)
"""An upload with less than this left is given more time while its client goes on."""
_UPLOADS = cast("Table", SQLUpload.__table__)
_SILENT = and_(_UPLOADS.c.state == "checking", _UPLOADS.c.checking_until < func.now())


@dataclass(frozen=True, slots=True)
class StoredUpload:
    """An upload.

    Attributes:
        id: Its name.
        digest: Of the bytes.
        size: Their number.
        state: `open`, `checking`, `stored` or `failed`.
        multipart: The storage's own id of an upload in parts; None where one request sends everything.
        part_bytes: Size of every part but the last; None likewise.
        checked_bytes: How many bytes were hashed.
        error: Why it failed, as a problem.
        expires_at: When it is forgotten, ISO 8601, UTC.
        silent: Whether it is being checked by a process that gave no sign of life in time.
        stale: Whether it should be given more time.
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
        """How many parts it has; at least one, which may be empty."""
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
    (_UPLOADS.c.pending_until < func.now() + _STALE).label("stale"),
)


def new_id() -> str:
    """A name for an upload that nobody guesses."""
    return secrets.token_hex(16)


class UploadStore:
    """Uploads."""

    def __init__(self, session: Session) -> None:
        """Works in the caller's transaction."""
        self._session = session

    def add(
        self, upload_id: str, digest: Digest, size: int, *, by: str, parts: tuple[str, int] | None
    ) -> None:
        """Adds an open upload.

        Args:
            upload_id: Its name.
            digest: Of the bytes.
            size: Their number.
            by: Whose it is: the token's name.
            parts: The storage's id of an upload in parts and the size of one; None for a single request.
        """
        multipart, part_bytes = parts or (None, None)
        row = {"id": upload_id, "digest": digest, "size": size, "holder": by, "state": "open"}
        row |= {"multipart": multipart, "part_bytes": part_bytes, "pending_until": func.now() + LEASE}
        self._session.execute(insert(_UPLOADS).values(row))

    def find(self, upload_id: str) -> StoredUpload | None:
        """The upload with this name; None where there is none, or its time is over."""
        wanted = select(*_COLUMNS).where(_UPLOADS.c.id == upload_id, ~_over())
        row = self._session.execute(wanted).first()
        return _upload(row) if row else None

    def prolong(self, upload_id: str) -> None:
        """Gives an upload its whole time anew."""
        self._update(_UPLOADS.c.id == upload_id, pending_until=func.now() + LEASE)

    def begin_check(self, upload_id: str) -> datetime | None:
        """Takes the check of an upload: of an open one, or of one whose process died.

        Returns:
            The claim: until when it holds unless it is renewed. None where another one has it, or it is over.
        """
        return self._update(
            and_(_UPLOADS.c.id == upload_id, or_(_UPLOADS.c.state == "open", _SILENT)),
            state="checking",
            checked_bytes=0,
            checking_until=func.clock_timestamp() + CHECKING,
        )

    def renew_check(
        self, upload_id: str, claim: datetime, *, checked: int, lasting: timedelta = CHECKING
    ) -> datetime | None:
        """Says that a check goes on.

        Args:
            upload_id: The upload.
            claim: As it was given last.
            checked: Bytes hashed so far.
            lasting: How long the new claim holds.

        Returns:
            The new claim; None where another process took over, or the upload is gone.
        """
        return self._update(
            _claimed(upload_id, claim), checked_bytes=checked, checking_until=func.clock_timestamp() + lasting
        )

    def release_check(self, upload_id: str, claim: datetime) -> None:
        """Gives a check up, for whoever asks for the upload next."""
        self._update(_claimed(upload_id, claim), checking_until=func.clock_timestamp())

    def end_check(self, upload_id: str, claim: datetime, error: dict[str, Any] | None) -> bool:
        """Ends a check: the bytes are stored, or there is an error.

        Returns:
            Whether it was ours to end: otherwise another process took over, or the upload is gone.
        """
        state = "failed" if error else "stored"
        counted = {} if error else {"checked_bytes": _UPLOADS.c.size}
        ended = self._update(_claimed(upload_id, claim), state=state, error=storable(error), **counted)
        return ended is not None

    def settle(self, upload_id: str) -> None:
        """Notes that the bytes of an open upload are stored."""
        self._update(and_(_UPLOADS.c.id == upload_id, _UPLOADS.c.state == "open"), state="stored")

    def drop(self, upload_id: str) -> None:
        """Forgets an upload."""
        self._session.execute(delete(_UPLOADS).where(_UPLOADS.c.id == upload_id))

    def drop_expired(self, upload_id: str) -> bool:
        """Forgets an upload if its time is over; False where it went on, or somebody else forgot it."""
        over = delete(_UPLOADS).where(_UPLOADS.c.id == upload_id, _over()).returning(_UPLOADS.c.id)
        return self._session.execute(over).first() is not None

    def open_of(self, by: str, *, limit: int) -> int:
        """How many uploads of a token wait for bytes; those after `limit` are not counted."""
        some = select(_UPLOADS.c.id).where(_UPLOADS.c.holder == by, _UPLOADS.c.state == "open", ~_over())
        return self._session.scalar(select(func.count()).select_from(some.limit(limit).subquery())) or 0

    def expired(self, *, limit: int) -> list[StoredUpload]:
        """Uploads whose time is over.

        Args:
            limit: At most so many.
        """
        wanted = select(*_COLUMNS).where(_over()).order_by(_UPLOADS.c.pending_until).limit(limit)
        return [_upload(row) for row in self._session.execute(wanted)]

    def _update(self, condition: ColumnElement[bool], **values: Any) -> datetime | None:  # noqa: ANN401  # columns
        statement = update(_UPLOADS).where(condition).values(**values).returning(_UPLOADS.c.checking_until)
        claim: datetime | None = self._session.execute(statement).scalar()
        return claim


def _over() -> ColumnElement[bool]:
    """Whether an upload's time is over: one that is being checked right now is let finish."""
    checked = and_(_UPLOADS.c.state == "checking", _UPLOADS.c.checking_until >= func.now())
    return and_(_UPLOADS.c.pending_until < func.now(), ~func.coalesce(checked, false()))


def _claimed(upload_id: str, claim: datetime) -> ColumnElement[bool]:
    """What fences a process off that was overtaken: whoever takes over sets another time."""
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
