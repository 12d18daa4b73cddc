"""Uploads: clients send blobs directly to storage, and the server verifies them.

A single request is verified by the storage, against the digest in the presigned URL. Parts are kept apart until a
thread of this process has hashed them. The thread renews its claim in the upload's row; if it stops, the next process
that reads the upload takes over.
"""

from __future__ import annotations

import base64
import binascii
from concurrent.futures import wait
from typing import TYPE_CHECKING

from pt2hub.domain.audit import Action
from pt2hub.errors import (
    Conflict,
    Detail,
    InvalidInput,
    NotFound,
    Pt2hubError,
    QuotaExceeded,
    TooLarge,
    UploadIncomplete,
)
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.blobs.uploads import UploadStore, new_id
from pt2hub.server.services.access import audit_log
from pt2hub.server.services.blobs.upload_checks import HOLDER, UploadChecker, record_completion
from pt2hub.wire.uploads import PartRequest, PartRequests, UploadRequest, UploadView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.domain.digests import Digest
    from pt2hub.domain.tokens import Actor
    from pt2hub.server.blobs.ports import PresignedRequest, PresignedTransfers
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.stores.blobs.uploads import StoredUpload
    from pt2hub.server.services.blobs.blob_writes import BlobService

PRESIGNED_LIFETIME_S = 900.0
MAX_PRESIGNED_PARTS = 100
"""Parts per request: presigned URLs have some kilobytes each."""
_MD5_BYTES = 16
_MAX_PARTS = 10_000
"""S3's limit."""
_COMPLETE_WAIT_S = 2.0
"""How long completing an upload waits for its check, with an API thread; after that, clients poll and show progress."""
_SWEEP_BATCH = 50


class UploadService:
    """Uploads of blobs by clients.

    Args:
        transfers: The storage, where clients can reach it directly.
        limit: Maximum upload in bytes.
        most_open: Maximum number of open uploads per token, 0 for any: each costs a row, and S3 keeps its parts until they
            are swept.
    """

    def __init__(
        self,
        sessions: Sessions,
        blobs: BlobService,
        transfers: PresignedTransfers | None,
        *,
        limit: int,
        most_open: int = 0,
    ) -> None:
        self._sessions = sessions
        self._blobs = blobs
        self._transfers = transfers
        self._limit = limit
        self._most_open = most_open
        self._checker = UploadChecker(sessions, blobs, transfers) if transfers else None

    def begin(self, digest: Digest, size: int, *, by: Actor) -> UploadView:
        """Begin an upload, unless the blob is stored already.

        Raises:
            TooLarge: It is larger than the server's limit.
            DigestMismatch: The blob is stored with another size.
            QuotaExceeded: The token has too many open uploads.
        """
        if size > self._limit:
            raise TooLarge(
                f"The upload is too large ({size} bytes, at most {self._limit}).",
                hint="Ask the server's operator to raise PT2HUB_MAX_BLOB_BYTES.",
                context={"limit": self._limit},
            )
        key, stored = self._hold(digest, size, by=by)
        if stored:
            return UploadView(digest, size, "stored")
        self._check_open(by.name)
        upload_id, parts = new_id(), None
        if self._transfers and size > self._transfers.single_bytes:
            part_bytes = max(self._transfers.part_bytes, -(-size // _MAX_PARTS))
            parts = self._transfers.begin_parts(upload_id), part_bytes
        with self._sessions.begin() as session:
            UploadStore(session).add(upload_id, digest, size, by=by.name, parts=parts)
            audit_log.record(session, by, Action.UPLOAD_BEGIN, upload_id, digest=digest, size=size)
        upload = self._find(upload_id)
        return _view(upload) if parts else self._view_single(upload, key)

    def sign_parts(self, upload_id: str, wanted: Sequence[tuple[int, str]]) -> PartRequests:
        """Return presigned requests that store parts, valid for `PRESIGNED_LIFETIME_S`.

        Args:
            wanted: Number from 1 and MD5 (base64) of each part, at most `MAX_PRESIGNED_PARTS`.

        Raises:
            NotFound: The upload does not exist or has expired.
            Conflict: It is not a multipart upload, or is complete.
            InvalidInput: A part number or MD5 is invalid.
        """
        upload = self._find(upload_id)
        if self._transfers is None or upload.multipart is None or upload.state != "open":
            raise Conflict(
                f"Cannot presign parts: the upload is {upload.state} and "
                + ("multipart" if upload.multipart else "goes in one request"),
                where=upload_id,
                hint="GET /api/v1/uploads/<id> shows the next step.",
            )
        _check_parts(upload, wanted)
        if upload.stale:
            self._prolong(upload)
        signed = [
            self._transfers.sign_part(
                upload.id,
                upload.multipart,
                number,
                size=_part_size(upload, number),
                md5=md5,
                seconds=PRESIGNED_LIFETIME_S,
            )
            for number, md5 in wanted
        ]
        return PartRequests(
            tuple(
                PartRequest(number, _request(each)) for (number, _), each in zip(wanted, signed, strict=True)
            )
        )

    def complete(self, upload_id: str, etags: Sequence[str], *, by: Actor) -> UploadView:
        """Complete an upload after its bytes were sent; the check of a multipart upload may outlast the call.

        Args:
            etags: ETag of each part, in order; none after a single request.

        Returns:
            The upload: `stored`, `failed`, or `checking` where its check takes longer.

        Raises:
            NotFound: The upload does not exist or has expired.
            UploadIncomplete: Bytes are missing.
        """
        upload = self._find(upload_id)
        if upload.state == "open":
            self._end(upload, etags, by)
        view = self.view(upload_id, by=by)
        check = self._checker.running(upload_id) if self._checker else None
        if view.state != "checking" or check is None:
            return view
        wait([check], timeout=_COMPLETE_WAIT_S)
        return self.view(upload_id, by=by)

    def view(self, upload_id: str, *, by: Actor) -> UploadView:
        """Return an upload and its next step; take over its check where the process that had it stopped.

        Args:
            by: Who completes the upload, if this does.

        Raises:
            NotFound: The upload does not exist or has expired.
        """
        upload = self._find(upload_id)
        if upload.silent and self._checker:
            self._checker.start(upload, by)
            upload = self._find(upload_id)
        if upload.state != "open" or upload.multipart is not None:
            return _view(upload)
        key, stored = self._hold(upload.digest, upload.size)
        if not stored:
            return self._view_single(upload, key)
        self._settle(upload, by)
        return _view(self._find(upload_id))

    def cancel(self, upload_id: str, *, by: Actor) -> None:
        """Cancel an upload and remove its parts; a blob that is stored already stays.

        Raises:
            NotFound: The upload does not exist or has expired.
        """
        upload = self._find(upload_id)
        self._discard(upload)
        self._drop(upload, by)

    def sweep(self) -> None:
        """Remove expired uploads and their parts.

        Raises:
            StorageUnavailable: The storage does not answer; `StorageHealth.sweep` finds the leftovers.
        """
        with self._sessions.begin() as session:
            expired = UploadStore(session).list_expired(limit=_SWEEP_BATCH)
        for upload in expired:  # the row first: an upload that cannot be removed must not block the others
            with self._sessions.begin() as session:
                ours = UploadStore(session).drop_expired(upload.id)
            if ours:
                self._discard(upload)

    def close(self) -> None:
        """Stop checks; another process takes them over."""
        if self._checker:
            self._checker.close()

    def _find(self, upload_id: str) -> StoredUpload:
        with self._sessions.begin() as session:
            upload = UploadStore(session).find(upload_id)
        if upload is None:
            raise NotFound(
                f"Upload {upload_id[:80]!r} does not exist or has expired.",
                where="upload",
                hint="Begin a new one: POST /api/v1/uploads.",
            )
        return upload

    def _check_open(self, by: str) -> None:
        if not self._most_open:
            return
        with self._sessions.begin() as session:
            count = UploadStore(session).open_of(by, limit=self._most_open)
        if count == self._most_open:
            raise QuotaExceeded(
                f"The token {by!r} has too many open uploads ({count}, the limit).",
                where="upload",
                hint="Complete or cancel some (DELETE /api/v1/uploads/<id>); idle uploads expire after six hours.",
                context={"limit": self._most_open},
            )

    def _hold(self, digest: Digest, size: int, *, by: Actor | None = None) -> tuple[StorageKey, bool]:
        return self._blobs.hold(StorageKey.blob(digest), size, holder=HOLDER, by=by)

    def _end(self, upload: StoredUpload, etags: Sequence[str], by: Actor) -> None:
        if self._hold(upload.digest, upload.size)[1]:
            self._settle(upload, by)
        elif upload.multipart is None or self._checker is None:
            raise UploadIncomplete(
                "The storage does not have the bytes",
                where=upload.digest,
                hint="Send them first; GET /api/v1/uploads/<id> shows the URL.",
            )
        elif self._finish_parts(upload, upload.multipart, etags):
            self._checker.start(upload, by)

    def _finish_parts(self, upload: StoredUpload, multipart: str, etags: Sequence[str]) -> bool:
        """Finish the multipart upload; return whether this call did it."""
        if len(etags) != upload.parts:
            raise UploadIncomplete(
                f"{len(etags)} ETags given for {upload.parts} parts",
                where=upload.id,
                hint="Send every part, then give the ETag of each, in order.",
                context={"parts": upload.parts},
            )
        assert self._transfers is not None, "only a storage with presigned transfers begins multipart uploads"
        try:
            self._transfers.finish_parts(upload.id, multipart, etags)
        except Pt2hubError:
            if self._find(upload.id).state != "open":  # another request finished it meanwhile
                return False
            raise
        return True

    def _settle(self, upload: StoredUpload, by: Actor) -> None:
        """End an open upload that is stored, by this upload or another."""
        with self._sessions.begin() as session:
            if UploadStore(session).settle(upload.id):
                record_completion(session, upload, by)
        self._discard(upload)

    def _view_single(self, upload: StoredUpload, key: StorageKey) -> UploadView:
        if self._transfers is None:
            return _view(upload, UploadRequest("PUT", f"/api/v1/blobs/{upload.digest}"))
        signed = self._transfers.sign_write(key, upload.size, seconds=PRESIGNED_LIFETIME_S)
        return _view(upload, _request(signed))

    def _prolong(self, upload: StoredUpload) -> None:
        self._hold(upload.digest, upload.size)
        with self._sessions.begin() as session:
            UploadStore(session).prolong(upload.id)

    def _drop(self, upload: StoredUpload, by: Actor) -> None:
        with self._sessions.begin() as session:
            if UploadStore(session).drop(upload.id):
                audit_log.record(session, by, Action.UPLOAD_CANCEL, upload.id, digest=upload.digest)

    def _discard(self, upload: StoredUpload) -> None:
        if self._transfers and upload.multipart:
            self._transfers.discard(upload.id, upload.multipart)


def _request(signed: PresignedRequest) -> UploadRequest:
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


def _part_size(upload: StoredUpload, number: int) -> int:
    """Return the size of a part; only the last one may be smaller than the others."""
    whole = upload.part_bytes or upload.size
    return min(whole, upload.size - (number - 1) * whole)


def _check_parts(upload: StoredUpload, wanted: Sequence[tuple[int, str]]) -> None:
    """Refuse invalid part numbers and MD5s.

    Raises:
        InvalidInput: Some are invalid, or there are too many.
    """
    if len(wanted) > MAX_PRESIGNED_PARTS:
        raise InvalidInput(
            f"Too many parts in one request ({len(wanted)}, at most {MAX_PRESIGNED_PARTS})",
            where="parts",
            hint="Request the next parts when these are sent.",
        )
    wrong = [
        Detail(f"parts[{index}]", "unknown part", given=str(number), allowed=f"1 to {upload.parts}")
        for index, (number, _) in enumerate(wanted)
        if not 1 <= number <= upload.parts
    ]
    wrong += [
        Detail(f"parts[{index}].md5", "invalid MD5, must be base64", given=md5[:80])
        for index, (_, md5) in enumerate(wanted)
        if not _is_md5(md5)
    ]
    if wrong:
        raise InvalidInput(
            "Invalid parts",
            where=wrong[0].path,
            hint="Give the number and the MD5 of each part.",
            details=tuple(wrong),
        )


def _is_md5(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == _MD5_BYTES
    except (binascii.Error, ValueError):
        return False
