"""Upload of a file: request URLs from the server, send the bytes, wait for the check."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeVar

from pt2hub.client.http.presigned import PARALLEL
from pt2hub.client.http.server_away import retry_request
from pt2hub.client.http.transfers import Source, meter
from pt2hub.domain.digests import CHUNK
from pt2hub.errors import (
    BadResponse,
    DatabaseUnavailable,
    Pt2hubError,
    ServerUnreachable,
    StorageUnavailable,
    UploadIncomplete,
)
from pt2hub.wire.problems import from_dict
from pt2hub.wire.uploads import PartRequests, UploadRequest, UploadView

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pt2hub.client.http.transfers import Meter
    from pt2hub.client.http.transport import Transport
    from pt2hub.domain.digests import Digest


T = TypeVar("T")
_PATH = "/api/v1/uploads"
_POLL_SECONDS = 0.5
_STALL_SECONDS = 3600.0
"""How long the server's check may show no progress: it may be queued, S3 copies the hashed bytes, and giving up
discards the upload.
"""
_GRACE_SECONDS = 2.0
"""How long to wait for the other parts after one failed."""


def upload(transport: Transport, path: Path, progress: bool | None) -> Digest:
    """Upload a file unless the server has it; see `Blobs.upload`."""
    source = Source.of(path, progress)
    Upload(transport, source, progress).run()
    return source.digest


class Upload:
    """The upload of one file.

    Args:
        progress: Whether sending is shown; None where somebody watches.
    """

    def __init__(self, transport: Transport, source: Source, progress: bool | None) -> None:
        self._transport = transport
        self._source = source
        self._progress = progress

    def run(self) -> None:
        """Transfer the bytes to the storage.

        Raises:
            Pt2hubError: See `Blobs.upload`.
        """
        view = self._ask("POST", _PATH, {"digest": self._source.digest, "size": self._source.size})
        try:
            self._bring(view)
        except BaseException:
            if view.id:
                with suppress(Pt2hubError):  # else the server forgets it by itself
                    self._transport.delete(f"{_PATH}/{view.id}")
            raise

    def _bring(self, view: UploadView) -> None:
        if view.state == "open":
            with meter(f"uploading {self._source.path.name}", self._source.size, self._progress) as seen:
                etags = Parts(self._transport, self._source, view, seen).send() if view.part_bytes else []
                if view.request:
                    self._send_whole(view, view.request, seen)
            self._source.check()
            if view.id is None:  # the server took it itself
                return
            view = self._ask("POST", f"{_PATH}/{view.id}/complete", {"etags": etags})
        if view.state == "checking":
            view = self._wait_for_check(view)
        if view.state != "stored":
            self._source.check()
            raise from_dict(view.error) if view.error else _unknown(view, self._transport.url)

    def _send_whole(self, view: UploadView, request: UploadRequest, seen: Meter) -> None:
        source = self._source
        if request.url.startswith("/"):
            with source.open(0, source.size, seen) as body:
                self._transport.put(request.url, body, source.size)
            return

        signed = iter([request])

        def sign() -> UploadRequest | None:
            return next(signed, None) or self._ask("GET", f"{_PATH}/{view.id}").request

        self._transport.direct.put(sign, lambda: source.open(0, source.size, seen), source.size)

    def _wait_for_check(self, view: UploadView) -> UploadView:
        """Wait while the server hashes the upload."""
        with meter(f"checking {self._source.path.name}", self._source.size, self._progress) as seen:
            most, since = view.checked_bytes, time.monotonic()
            while view.state == "checking":
                seen(view.checked_bytes)
                time.sleep(_POLL_SECONDS)
                view = self._ask("GET", f"{_PATH}/{view.id}")
                if view.checked_bytes > most:  # less, where another process began anew
                    most, since = view.checked_bytes, time.monotonic()
                elif time.monotonic() - since > _STALL_SECONDS:
                    raise StorageUnavailable(
                        f"The server's check of the upload stalled at {view.checked_bytes} bytes",
                        where=self._transport.url,
                        hint="Upload it again; if it happens again, check the server's log.",
                    )
        return view

    def _ask(self, method: str, path: str, document: Mapping[str, object] | None = None) -> UploadView:
        return _request(self._transport, UploadView, method, path, document)


class Parts:
    """Concurrent upload of a file's parts.

    Args:
        seen: Takes the number of bytes that are there.
    """

    def __init__(self, transport: Transport, source: Source, view: UploadView, seen: Meter) -> None:
        self._transport, self._source, self._seen = transport, source, seen
        self._path = f"{_PATH}/{view.id}/parts"
        self._part_bytes = max(1, view.part_bytes or 1)
        self._count = -(-source.size // self._part_bytes)
        self._done, self._total = [0] * self._count, 0
        self._etags = [""] * self._count
        self._lock = threading.Lock()
        self._over = threading.Event()

    def send(self) -> list[str]:
        """Send all parts.

        Returns:
            Their ETags, in order.

        Raises:
            Pt2hubError: What the first failure was; none is sent any more then.
        """
        ended: SimpleQueue[BaseException | None] = SimpleQueue()
        numbers = iter(range(1, self._count + 1))  # shared by the threads: each number comes once

        def work() -> None:
            try:
                for number in numbers:
                    self._send(number)
            except BaseException as exc:  # noqa: BLE001  # it is raised where `send` was called
                ended.put(exc)
            else:
                ended.put(None)

        # Daemons: a part that hangs must not keep the program after Ctrl-C.
        threads = [threading.Thread(target=work, daemon=True) for _ in range(min(PARALLEL, self._count))]
        try:
            for thread in threads:
                thread.start()
            for _ in threads:
                if failure := ended.get():
                    raise failure
        finally:
            self._over.set()
            until = time.monotonic() + _GRACE_SECONDS
            for thread in threads:
                thread.join(max(0.0, until - time.monotonic()))
        return self._etags

    def _send(self, number: int) -> None:
        start = (number - 1) * self._part_bytes
        size = min(self._part_bytes, self._source.size - start)

        def seen(done: int) -> None:
            if self._over.is_set():
                raise UploadIncomplete  # another part failed, and its error is raised
            with self._lock:
                self._total += done - self._done[number - 1]
                self._done[number - 1] = done
                self._seen(self._total)

        md5 = self._md5(start, size)

        def sign() -> UploadRequest:
            wanted = {"parts": [{"number": number, "md5": md5}]}
            (part,) = _request(self._transport, PartRequests, "POST", self._path, wanted).parts
            return part.request

        body = partial(self._source.open, start, size, seen)
        self._etags[number - 1] = self._transport.direct.put(sign, body, size)

    def _md5(self, start: int, size: int) -> str:
        hasher = hashlib.md5(usedforsecurity=False)
        with self._source.open(start, size, lambda _: None) as body:
            while chunk := body.read(CHUNK):
                hasher.update(chunk)
        return base64.b64encode(hasher.digest()).decode()


def _request(
    transport: Transport, cls: type[T], method: str, path: str, document: Mapping[str, object] | None
) -> T:
    """Send a request and retry it without an answer; all requests of this module are idempotent."""
    body = json.dumps(document).encode() if document is not None else b""
    errors = ServerUnreachable, StorageUnavailable, DatabaseUnavailable
    return retry_request(lambda: transport.ask(cls, method, path, body), transport.url, errors)


def _unknown(view: UploadView, url: str) -> BadResponse:
    return BadResponse(
        f"Unknown upload state {view.state!r:.40}",
        where=url,
        hint="Upload it again; if it happens again, upgrade this pt2hub.",
    )
