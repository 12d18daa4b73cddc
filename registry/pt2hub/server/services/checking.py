"""Checks of uploads that went to the storage in parts: hashed by threads of this process, then admitted."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING

import structlog

from pt2hub.errors import BlobGone, DigestMismatch, InternalError, Pt2hubError, StorageFull, TransientError
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.uploads import CHECKING, UploadStore

if TYPE_CHECKING:
    from concurrent.futures import Future
    from datetime import datetime

    from pt2hub.server.blobs.ports import Transfers
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.stores.uploads import StoredUpload
    from pt2hub.server.services.blobs import BlobService

HOLDER = "api"
"""Holds what clients upload until they refer to it. Not one for each: an upload that is given up needs no haste."""
_THREADS = 2
"""A core each: sha256 runs at 1.6 GB/s (facts/trust.md, section 3), the network is slower."""
_RENEW_SECONDS = 3.0
_COPY_SPEED = 16 << 20
"""Bytes a second: a storage that copies within itself any slower has another process do it over."""
_log = structlog.get_logger(__name__)


class Checker:
    """Hashes uploads in the background."""

    def __init__(self, sessions: Sessions, blobs: BlobService, transfers: Transfers) -> None:
        """Starts no thread before there is something to check.

        Args:
            sessions: Opens transactions.
            blobs: Knows what is stored.
            transfers: Holds what is to be checked.
        """
        self._sessions = sessions
        self._blobs = blobs
        self._transfers = transfers
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="check")
        self._running: dict[str, Future[None]] = {}
        self._closed = False

    def start(self, upload: StoredUpload) -> None:
        """Takes the check of an upload, unless another thread or process has it or this one is closed."""
        with self._sessions.begin() as session:
            until = UploadStore(session).begin_check(upload.id)
        if until is None:
            return
        claim = _Claim(self._sessions, upload.id, until)
        with contextlib.suppress(RuntimeError):  # closed meanwhile: the claim runs out
            check = self._running[upload.id] = self._pool.submit(self._run, upload, claim)
            check.add_done_callback(
                lambda _: self._running.pop(upload.id, None)
            )  # also where it is over already

    def running(self, upload_id: str) -> Future[None] | None:
        """The check of an upload, where this process has it."""
        return self._running.get(upload_id)

    def close(self) -> None:
        """Stops what runs and gives it up for other processes."""
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
            _log.info("check of an upload was overtaken", upload=upload.id)
        except StorageFull as error:  # no room for the copy: each try would hash everything anew
            self._fail(upload, claim, error)
        except TransientError as error:
            _log.warning("upload not checked yet", upload=upload.id, error=str(error))
            claim.release()
        except Exception as error:  # noqa: BLE001  # the client waits for an end
            self._fail(upload, claim, error)

    def _check(self, upload: StoredUpload, claim: _Claim) -> None:
        plain = StorageKey.blob(upload.digest)
        claim.renew()  # it may have waited for a thread
        key, stored = self._blobs.hold(plain, upload.size, holder=HOLDER)
        if stored:  # by somebody else, or by a process that died after it had admitted it
            return
        found = self._transfers.hash_parts(upload.id, lambda count: self._tell(claim, count))
        if found != upload.digest:
            raise DigestMismatch(
                f"The bytes have the digest {found}.",
                where=upload.digest,
                hint="Upload them again; if that gives the same digest, the source is not what its name says.",
            )
        claim.renew(upload.size, lasting=CHECKING + timedelta(seconds=upload.size / _COPY_SPEED))
        self._transfers.admit(upload.id, key, upload.size)
        if not self._blobs.hold(plain, upload.size, holder=HOLDER)[1]:
            raise BlobGone("The bytes were deleted while they were checked", where=upload.digest)

    def _tell(self, claim: _Claim, count: int) -> None:
        if self._closed:
            raise _StoppedError
        if claim.is_due():
            claim.renew(count)

    def _fail(self, upload: StoredUpload, claim: _Claim, error: Exception) -> None:
        if not isinstance(error, Pt2hubError):
            _log.error("the check of an upload failed", upload=upload.id, exc_info=error)
            error = InternalError(
                f"The check failed for a reason that pt2hub did not foresee ({type(error).__name__})",
                where=upload.id,
                hint="The server's log has the details; please report them.",
            )
        # Without a database the claim runs out, and without a storage the upload's time.
        with contextlib.suppress(TransientError, _OvertakenError):
            claim.end(error)
            self._transfers.discard(upload.id, upload.multipart)


class _StoppedError(Exception):
    """The process ends."""


class _OvertakenError(Exception):
    """Another process has the check, or the upload is gone."""


class _Claim:
    """A check that this process has, as long as it says so in time."""

    def __init__(self, sessions: Sessions, upload_id: str, until: datetime) -> None:
        self._sessions = sessions
        self._upload = upload_id
        self._until = until
        self._renewed = time.monotonic()

    def is_due(self) -> bool:
        """Whether it is time to say that the check goes on."""
        return time.monotonic() - self._renewed > _RENEW_SECONDS

    def renew(self, checked: int = 0, *, lasting: timedelta = CHECKING) -> None:
        """Says that the check goes on; raises where it is another's."""
        with self._sessions.begin() as session:
            until = UploadStore(session).renew_check(
                self._upload, self._until, checked=checked, lasting=lasting
            )
        if until is None:
            raise _OvertakenError
        self._until, self._renewed = until, time.monotonic()

    def release(self) -> None:
        """Gives the check to whoever asks for the upload next; without a database the claim runs out."""
        with contextlib.suppress(TransientError), self._sessions.begin() as session:
            UploadStore(session).release_check(self._upload, self._until)

    def end(self, error: Pt2hubError | None) -> None:
        """Ends the check, for the bytes are stored, or there is an error; raises where it is another's."""
        with self._sessions.begin() as session:
            ours = UploadStore(session).end_check(
                self._upload, self._until, error.as_dict() if error else None
            )
        if not ours:  # who has it still reads what was sent
            raise _OvertakenError
