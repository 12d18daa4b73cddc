"""Uploads: clients send bytes to the storage by themselves, and the server sees to it that they are right.

What goes in one request is checked by the storage, against the digest that is signed with it. What goes in parts lies
apart until a thread of this process has hashed it. That thread says in the row that it lives; where it falls silent,
the next process that is asked for the upload takes over.
"""

from __future__ import annotations

from concurrent.futures import wait
from typing import TYPE_CHECKING

from pt2hub.errors import Conflict, NotFound, Pt2hubError, TooLarge, UploadIncomplete
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.uploads import UploadStore, new_id
from pt2hub.server.services.checking import HOLDER, Checker
from pt2hub.server.services.upload_parts import check_parts, part_size
from pt2hub.wire.uploads import PartRequest, PartRequests, UploadRequest, UploadView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.domain.digests import Digest
    from pt2hub.server.blobs.ports import SignedRequest, Transfers
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.stores.uploads import StoredUpload
    from pt2hub.server.services.blobs import BlobService

SIGNED_SECONDS = 900.0
_MOST_PARTS = 10_000
"""S3's own bound."""
_WAIT_SECONDS = 2.0
"""How long whoever completes an upload waits for its check, and holds a thread of the API; a client shows it then."""
_MOST_OPEN = 1000
"""Uploads that one token may leave open: each costs a row, and S3 keeps what was sent until it is swept."""
_SWEEP_AT_MOST = 50


class UploadService:
    """Uploads."""

    def __init__(
        self, sessions: Sessions, blobs: BlobService, transfers: Transfers | None, *, limit: int
    ) -> None:
        """Is built by the container, and closed with it.

        Args:
            sessions: Opens transactions.
            blobs: Leases what is uploaded.
            transfers: The storage, where clients can reach it by themselves.
            limit: Largest upload in bytes.
        """
        self._sessions = sessions
        self._blobs = blobs
        self._transfers = transfers
        self._limit = limit
        self._checker = Checker(sessions, blobs, transfers) if transfers else None

    def begin(self, digest: Digest, size: int, *, by: str) -> UploadView:
        """Begins an upload, or says that the bytes are there already.

        Args:
            digest: Of the bytes.
            size: Their number.
            by: Who uploads them.

        Raises:
            TooLarge: It has more bytes than the server takes.
            DigestMismatch: The bytes are there, in another number.
            Conflict: Whoever uploads has very many uploads open.
        """
        if size > self._limit:
            raise TooLarge(
                f"The upload has {size} bytes; this server takes {self._limit}.",
                hint="Ask the server's operator to raise PT2HUB_MAX_BLOB_BYTES.",
                context={"limit": self._limit},
            )
        key, stored = self._hold(digest, size)
        if stored:
            return UploadView(digest, size, "stored")
        self._check_open(by)
        upload_id, parts = new_id(), None
        if self._transfers and size > self._transfers.single_bytes:
            part_bytes = max(self._transfers.part_bytes, -(-size // _MOST_PARTS))
            parts = self._transfers.begin_parts(upload_id), part_bytes
        with self._sessions.begin() as session:
            UploadStore(session).add(upload_id, digest, size, by=by, parts=parts)
        upload = self._find(upload_id)
        return _view(upload) if parts else self._view_single(upload, key)

    def sign_parts(self, upload_id: str, wanted: Sequence[tuple[int, str]]) -> PartRequests:
        """Requests that store parts, good for a quarter of an hour.

        Args:
            upload_id: The upload.
            wanted: Number from 1 and MD5 (base64) of each part; at most a hundred.

        Raises:
            NotFound: There is no such upload, or its time is over.
            Conflict: It does not go in parts, or is complete already.
            InvalidInput: There is no such part, or that is no MD5.
        """
        upload = self._find(upload_id)
        if self._transfers is None or upload.multipart is None or upload.state != "open":
            raise Conflict(
                f"The upload takes no parts: it is {upload.state}, in "
                + ("parts" if upload.multipart else "one request"),
                where=upload_id,
                hint="GET /api/v1/uploads/<id> says what is to be done next.",
            )
        check_parts(upload, wanted)
        if upload.stale:
            self._prolong(upload)
        signed = [
            self._transfers.sign_part(
                upload.id,
                upload.multipart,
                number,
                size=part_size(upload, number),
                md5=md5,
                seconds=SIGNED_SECONDS,
            )
            for number, md5 in wanted
        ]
        return PartRequests(
            tuple(
                PartRequest(number, _request(each)) for (number, _), each in zip(wanted, signed, strict=True)
            )
        )

    def complete(self, upload_id: str, etags: Sequence[str]) -> UploadView:
        """Ends an upload whose bytes were sent; what went in parts is checked first, which may go on after this.

        Args:
            upload_id: The upload.
            etags: What the storage answered for each part, in order; none after a single request.

        Returns:
            The upload: `stored`, `failed`, or `checking` where its check takes longer.

        Raises:
            NotFound: There is no such upload, or its time is over.
            UploadIncomplete: Bytes are missing.
        """
        upload = self._find(upload_id)
        if upload.state == "open":
            self._end(upload, etags)
        view = self.view(upload_id)
        check = self._checker.running(upload_id) if self._checker else None
        if view.state != "checking" or check is None:
            return view
        wait([check], timeout=_WAIT_SECONDS)
        return self.view(upload_id)

    def view(self, upload_id: str) -> UploadView:
        """An upload, and what is to be done next; takes its check over where the process that had it fell silent.

        Raises:
            NotFound: There is no such upload, or its time is over.
        """
        upload = self._find(upload_id)
        if upload.silent and self._checker:
            self._checker.start(upload)
            upload = self._find(upload_id)
        if upload.state != "open" or upload.multipart is not None:
            return _view(upload)
        key, stored = self._hold(upload.digest, upload.size)
        if not stored:
            return self._view_single(upload, key)
        self._settle(upload)
        return _view(self._find(upload_id))

    def cancel(self, upload_id: str) -> None:
        """Gives an upload up, and removes what was sent; bytes that are stored already stay.

        Raises:
            NotFound: There is no such upload, or its time is over.
        """
        upload = self._find(upload_id)
        self._discard(upload)
        self._drop(upload)

    def sweep(self) -> None:
        """Removes uploads whose time is over, and what was sent of them.

        Raises:
            StorageUnavailable: The storage does not answer; `Checks.sweep` finds what stays behind.
        """
        with self._sessions.begin() as session:
            expired = UploadStore(session).expired(limit=_SWEEP_AT_MOST)
        for upload in expired:  # the row first: one that cannot be removed must not keep others from it
            with self._sessions.begin() as session:
                ours = UploadStore(session).drop_expired(upload.id)
            if ours:
                self._discard(upload)

    def close(self) -> None:
        """Stops checks; another process takes them over."""
        if self._checker:
            self._checker.close()

    def _find(self, upload_id: str) -> StoredUpload:
        with self._sessions.begin() as session:
            upload = UploadStore(session).find(upload_id)
        if upload is None:
            raise NotFound(
                f"There is no upload {upload_id[:80]!r}, or its time is over.",
                where="upload",
                hint="Begin a new one: POST /api/v1/uploads.",
            )
        return upload

    def _check_open(self, by: str) -> None:
        with self._sessions.begin() as session:
            count = UploadStore(session).open_of(by, limit=_MOST_OPEN)
        if count == _MOST_OPEN:
            raise Conflict(
                f"{count} uploads of the token {by!r} are open, as many as may be.",
                where="upload",
                hint="End or cancel some (DELETE /api/v1/uploads/<id>); what nobody goes on with is forgotten after six "
                "hours.",
                context={"limit": _MOST_OPEN},
            )

    def _hold(self, digest: Digest, size: int) -> tuple[StorageKey, bool]:
        return self._blobs.hold(StorageKey.blob(digest), size, holder=HOLDER)

    def _end(self, upload: StoredUpload, etags: Sequence[str]) -> None:
        if self._hold(upload.digest, upload.size)[1]:
            self._settle(upload)
        elif upload.multipart is None or self._checker is None:
            raise UploadIncomplete(
                "The storage does not have the bytes",
                where=upload.digest,
                hint="Send them first; GET /api/v1/uploads/<id> says where to.",
            )
        elif self._put_together(upload, upload.multipart, etags):
            self._checker.start(upload)

    def _put_together(self, upload: StoredUpload, multipart: str, etags: Sequence[str]) -> bool:
        """Puts the parts together; whether that is still to be done."""
        if len(etags) != upload.parts:
            raise UploadIncomplete(
                f"{len(etags)} parts were named; the upload has {upload.parts}",
                where=upload.id,
                hint="Send every part, then name the ETag of each, in order.",
                context={"parts": upload.parts},
            )
        assert self._transfers is not None, "an upload in parts is begun by a storage that takes it"
        try:
            self._transfers.finish_parts(upload.id, multipart, etags)
        except Pt2hubError:
            if self._find(upload.id).state != "open":  # somebody else did meanwhile, and may be done with all
                return False
            raise
        return True

    def _settle(self, upload: StoredUpload) -> None:
        """Ends an open upload whose bytes are stored, by whomever."""
        with self._sessions.begin() as session:
            UploadStore(session).settle(upload.id)
        self._discard(upload)

    def _view_single(self, upload: StoredUpload, key: StorageKey) -> UploadView:
        if self._transfers is None:
            return _view(upload, UploadRequest("PUT", f"/api/v1/blobs/{upload.digest}"))
        signed = self._transfers.sign_write(key, upload.size, seconds=SIGNED_SECONDS)
        return _view(upload, _request(signed))

    def _prolong(self, upload: StoredUpload) -> None:
        self._hold(upload.digest, upload.size)
        with self._sessions.begin() as session:
            UploadStore(session).prolong(upload.id)

    def _drop(self, upload: StoredUpload) -> None:
        with self._sessions.begin() as session:
            UploadStore(session).drop(upload.id)

    def _discard(self, upload: StoredUpload) -> None:
        if self._transfers and upload.multipart:
            self._transfers.discard(upload.id, upload.multipart)


def _request(signed: SignedRequest) -> UploadRequest:
    return UploadRequest(signed.method, signed.url, signed.headers)


def _view(upload: StoredUpload, request: UploadRequest | None = None) -> UploadView:
    return UploadView(
        digest=upload.digest,
        size=upload.size,
        state=upload.state,
        id=upload.id,
        request=request,
        part_bytes=upload.part_bytes,
        checked_bytes=upload.checked_bytes,
        expires_at=upload.expires_at,
        error=upload.error,
    )
