"""Atomic creation of objects with verified digests."""

from __future__ import annotations

import base64
import hashlib
import io
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from pt2hub.domain.digests import CHUNK, hex_of
from pt2hub.errors import Pt2hubError
from pt2hub.server.blobs.s3.errors import unavailable
from pt2hub.server.blobs.verification import kept

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pt2hub.server.blobs.keys import StorageKey
    from pt2hub.server.blobs.s3.bucket import Bucket

THREADS = 4
"""Parts of an upload that are on their way at once: the most that are not slower with a server on the same machine
(figures
in docs/decisions/0007; `benchmarks/upload_to_s3.py --tune` measures them), for those far away gain by each."""
_P = TypeVar("_P")


@dataclass(frozen=True, slots=True)
class Part:
    """A part that S3 has.

    Attributes:
        number: From 1.
        size: In bytes.
        etag: What S3 named it.
    """

    number: int
    size: int
    etag: str


def upload(bucket: Bucket, key: StorageKey, parts: Iterator[bytes]) -> int:
    """Store bytes; one part in one request, several by several threads.

    Args:
        parts: The bytes. An error of theirs passes through, and nothing is stored: a wrong digest, which is known
            with the last byte, is such an error.

    Returns:
        The number of bytes.
    """
    first = next(parts)
    second = next(parts, None)
    if second is None:
        return put(bucket, key, first)
    return assemble(bucket, key, chain((first, second), parts), partial(_send, bucket, key))


def put(bucket: Bucket, key: StorageKey, data: bytes) -> int:
    """Store bytes in one request; return their number."""
    made = bucket.create(
        key.path,
        lambda: bucket.client.put_object(
            **bucket.object_arguments(key.path),
            Body=_Body(data),
            ChecksumSHA256=checksum_of(key),
            ContentMD5=content_md5(data),
            IfNoneMatch="*",
            **headers_of(key),
        ),
    )
    if not made:
        compare(bucket, key, len(data))
    return len(data)


def assemble(
    bucket: Bucket, key: StorageKey, pieces: Iterable[_P], send: Callable[[str, int, _P], Part]
) -> int:
    """Make an object out of parts that several threads send.

    Args:
        pieces: What to send, in order. At most as many are held as there are threads.
        send: Sends one: the upload's id at S3, the number of the part, the piece.

    Returns:
        The number of bytes.
    """
    with bucket.errors(key.path):
        multipart = bucket.client.create_multipart_upload(
            **bucket.object_arguments(key.path), **headers_of(key)
        )["UploadId"]
    made = False
    try:
        parts = _in_parallel(pieces, partial(send, multipart))
        made = bucket.create(
            key.path,
            lambda: bucket.client.complete_multipart_upload(
                **bucket.object_arguments(key.path),
                UploadId=multipart,
                MultipartUpload=listing(parts),
                IfNoneMatch="*",
            ),
        )
    finally:
        if not made:  # parts of an upload that is neither completed nor aborted are paid for
            with suppress(Pt2hubError):
                bucket.abort(key.path, multipart)
    size = sum(part.size for part in parts)
    if not made:
        compare(bucket, key, size)
    return size


def compare(bucket: Bucket, key: StorageKey, size: int) -> None:
    """Compare what is stored by its size.

    Raises:
        DigestMismatch: It is damaged.
        StorageUnavailable: S3 said that it exists, and it does not.
    """
    stored = bucket.head(key.path)
    if stored is None:
        raise unavailable(bucket.address(key.path), "PreconditionFailed")
    kept(stored.size, size, key)


def listing(parts: Iterable[Part]) -> Any:
    """Return the parts as S3 wants them named at the end of an upload."""
    ordered = sorted(parts, key=lambda part: part.number)
    return {"Parts": [{"PartNumber": part.number, "ETag": part.etag} for part in ordered]}


def headers_of(key: StorageKey) -> dict[str, Any]:
    """Return what S3 is to say whenever the object is read."""
    return {"ContentType": key.content_type, "CacheControl": key.cache_control}


def checksum_of(key: StorageKey) -> str:
    """Return the digest as S3 takes it."""
    return base64.b64encode(bytes.fromhex(hex_of(key.digest))).decode()


def cut(chunks: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yield the pieces of exactly `size` bytes and a last one that may be shorter; one empty piece where there is nothing."""
    held: list[memoryview | bytes] = []
    room, empty = size, True
    for chunk in chunks:
        rest = memoryview(chunk)
        while len(rest) >= room:
            # What is cut already is passed on as it is: joining copies.
            yield chunk if len(chunk) == size and not held else b"".join([*held, rest[:room]])
            held, rest, room, empty = [], rest[room:], size, False
        if rest:
            held.append(rest)
            room -= len(rest)
    if held or empty:
        yield b"".join(held)


def _send(bucket: Bucket, key: StorageKey, multipart: str, number: int, data: bytes) -> Part:
    with bucket.errors(key.path):
        answer = bucket.client.upload_part(
            **bucket.object_arguments(key.path),
            UploadId=multipart,
            PartNumber=number,
            Body=_Body(data),
            ContentMD5=content_md5(data),
        )
    return Part(number, len(data), answer["ETag"])


def _in_parallel(pieces: Iterable[_P], send: Callable[[int, _P], Part]) -> list[Part]:
    """Send pieces while the next one is made; the first error ends it, once nothing is on its way any more."""
    sent: list[Part] = []
    running: set[Future[Part]] = set()
    with ThreadPoolExecutor(THREADS, thread_name_prefix="s3") as pool:
        try:
            for number, piece in enumerate(pieces, start=1):
                running.add(pool.submit(send, number, piece))
                if len(running) == THREADS:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    sent += [each.result() for each in done]
            sent += [each.result() for each in running]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return sent


def content_md5(data: bytes) -> str:
    """Return the MD5 of a request's body as S3 takes it."""
    # Every S3 server checks it, other digests are not known to all, and SeaweedFS 4.48 does not compare a part with
    # the digest in its signature. Against accidents only: what counts is the sha256 of the whole.
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


class _Body(io.BytesIO):
    """Bytes that http.client sends in large pieces: its own are of 16 KiB, at several microseconds each."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(size if size is None or size < 0 else max(size, CHUNK))
