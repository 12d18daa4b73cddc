"""Checks of multipart uploads: hashed by threads of this process, then admitted to storage."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING

import structlog

from pt2hub.domain.audit import Action
from pt2hub.errors import BlobGone, DigestMismatch, InternalError, Pt2hubError, StorageFull, TransientError
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.blobs.uploads import CHECK_TIMEOUT, UploadStore
from pt2hub.server.services.access import audit_log

if TYPE_CHECKING:
    from concurrent.futures import Future
    from datetime import datetime

    from sqlalchemy.orm import Session

    from pt2hub.domain.tokens import Actor
    from pt2hub.server.blobs.ports import PresignedTransfers
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.stores.blobs.uploads import StoredUpload
    from pt2hub.server.services.blobs.blob_writes import BlobService

HOLDER = "api"
"""Holder of the leases of client uploads, until something refers to the blobs; abandoned ones simply expire."""
_THREADS = 2
"""One core each: sha256 runs at 1.6 GB/s (docs/facts/trust.md#hashing), the network is slower."""
_RENEW_INTERVAL_S = 3.0
_MIN_COPY_BYTES_PER_S = 16 << 20
"""If the storage copies more slowly than this, the claim expires and another process repeats the check."""
_log = structlog.get_logger(__name__)


class UploadChecker:
    """Hashes uploads in the background."""

    def __init__(self, sessions: Sessions, blobs: BlobService, transfers: PresignedTransfers) -> None:
        self._sessions = sessions
        self._blobs = blobs
        self._transfers = transfers
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="check")
        self._running: dict[str, Future[None]] = {}
        self._closed = False

    def start(self, upload: StoredUpload, by: Actor) -> None:
        """Start the check of an upload, unless another thread or process has it or this one is closed.

        Args:
            by: Who completes the upload.
        """
        with self._sessions.begin() as session:
            until = UploadStore(session).begin_check(upload.id)
        if until is None:
            return
        claim = _Claim(self._sessions, upload, until, by)
        with contextlib.suppress(RuntimeError):  # closed meanwhile: the claim expires
            check = self._running[upload.id] = self._pool.submit(self._run, upload, claim)
            check.add_done_callback(
                lambda _: self._running.pop(upload.id, None)
            )  # runs at once if the check has already ended

    def running(self, upload_id: str) -> Future[None] | None:
        """Return the running check of an upload, if this process has it."""
        return self._running.get(upload_id)

    def close(self) -> None:
        """Stop running checks, so that other processes can take them over."""
        self._closed = True
        self._pool.shutdown(cancel_futures=True)

    def _run(self, upload: StoredUpload, claim: _Claim) -> None:
        try:
            self._check(upload, claim)
            claim.end(None)
            self._transfers.discard(upload.id, upload.multipart)
        except _StoppedError:
            claim.release()
        except _OvertakenError:
            _log.info("upload check was overtaken", upload=upload.id)
        except StorageFull as error:  # no space for the copy: each try would hash everything again
            self._fail(upload, claim, error)
        except TransientError as error:
            _log.warning("upload not checked yet", upload=upload.id, error=str(error))
            claim.release()
        except Exception as error:  # noqa: BLE001  # the client waits for the result
            self._fail(upload, claim, error)

    def _check(self, upload: StoredUpload, claim: _Claim) -> None:
        plain = StorageKey.blob(upload.digest)
        claim.renew()  # it may have waited for a thread
        key, stored = self._blobs.hold(plain, upload.size, holder=HOLDER)
        if stored:  # by another upload, or by a process that died after admitting it
            return
        found = self._transfers.hash_parts(upload.id, lambda count: self._renew(claim, count))
        if found != upload.digest:
            raise DigestMismatch(
                f"The uploaded bytes have the digest {found}.",
                where=upload.digest,
                hint="Upload them again; if the digest is the same, the announced one is wrong.",
            )
        claim.renew(
            upload.size, lasting=CHECK_TIMEOUT + timedelta(seconds=upload.size / _MIN_COPY_BYTES_PER_S)
        )
        self._transfers.admit(upload.id, key, upload.size)
        if not self._blobs.hold(plain, upload.size, holder=HOLDER)[1]:
            raise BlobGone("The blob was deleted while it was being checked", where=upload.digest)

    def _renew(self, claim: _Claim, count: int) -> None:
        if self._closed:
            raise _StoppedError
        if claim.is_due():
            claim.renew(count)

    def _fail(self, upload: StoredUpload, claim: _Claim, error: Exception) -> None:
        if not isinstance(error, Pt2hubError):
            _log.error("upload check failed", upload=upload.id, exc_info=error)
            error = InternalError(
                f"The check failed unexpectedly ({type(error).__name__})",
                where=upload.id,
                hint="The server's log has the details; please report them.",
            )
        # Without a database the claim expires; without storage the upload expires.
        with contextlib.suppress(TransientError, _OvertakenError):
            claim.end(error)
            self._transfers.discard(upload.id, upload.multipart)


def record_completion(session: Session, upload: StoredUpload, by: Actor) -> None:
    """Record that an upload ended with its blob stored."""
    audit_log.record(session, by, Action.UPLOAD_COMPLETE, upload.id, digest=upload.digest, size=upload.size)


class _StoppedError(Exception):
    """The process is stopping."""


class _OvertakenError(Exception):
    """Another process has the check, or the upload is gone."""


class _Claim:
    """This process's claim on a check, which expires unless renewed in time."""

    def __init__(self, sessions: Sessions, upload: StoredUpload, until: datetime, by: Actor) -> None:
        self._sessions = sessions
        self._whole = upload
        self._upload = upload.id
        self._until = until
        self._by = by
        self._renewed = time.monotonic()

    def is_due(self) -> bool:
        """Return whether the claim should be renewed."""
        return time.monotonic() - self._renewed > _RENEW_INTERVAL_S

    def renew(self, checked: int = 0, *, lasting: timedelta = CHECK_TIMEOUT) -> None:
        """Renew the claim; raise where another process has the check."""
        with self._sessions.begin() as session:
            until = UploadStore(session).renew_check(
                self._upload, self._until, checked=checked, lasting=lasting
            )
        if until is None:
            raise _OvertakenError
        self._until, self._renewed = until, time.monotonic()

    def release(self) -> None:
        """Release the check for the next process; without a database the claim expires."""
        with contextlib.suppress(TransientError), self._sessions.begin() as session:
            UploadStore(session).release_check(self._upload, self._until)

    def end(self, error: Pt2hubError | None) -> None:
        """End the check, with an error or with the blob stored; raise where another process has it."""
        with self._sessions.begin() as session:
            ours = UploadStore(session).end_check(
                self._upload, self._until, error.as_dict() if error else None
            )
            if ours and error is None:
                record_completion(session, self._whole, self._by)
        if not ours:  # its process still reads the parts
            raise _OvertakenError
