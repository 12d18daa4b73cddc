"""A storage in an S3 bucket; the only module that imports boto3.

Objects are read and written by the plain client. boto3's transfer manager is not used, for two reasons: it may
choose its CRT client, which ignores the configured endpoint and goes to AWS (boto3 #4839), and it cannot hash
bytes on their way.
"""

from __future__ import annotations

import base64
import time
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from pt2hub.domain.digests import CHUNK, hex_of
from pt2hub.errors import NotFound, StorageFull, StorageUnavailable
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.blobs.verifying import file_chunks, kept, verified, write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from types_boto3_s3 import S3Client

    from pt2hub.server.blobs.keys import Kind

PART_BYTES = 32 << 20
"""Size of a part of a large object, which is also what an upload holds in memory; 10,000 parts make 320 GB."""
_NOT_FOUND, _RACE, _EXISTS = 404, 409, 412
_FORBIDDEN, _FULL = 403, 507
_CONFLICT_WAITS = (0.05, 0.1, 0.2, 0.4)
"""Seconds before a create that met another one (409, which AWS answers) is tried again."""
_CONFIG = Config(
    connect_timeout=5,
    read_timeout=60,
    retries={"mode": "standard", "max_attempts": 4},
    max_pool_connections=32,
    # Our own sha256 travels with every object; the default's CRC trailers are unknown to some servers.
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
)


class S3Storage:
    """Keeps each digest's bytes as an object, created only where none exists."""

    def __init__(
        self, bucket: str, prefix: str = "", *, client: S3Client | None = None, part_bytes: int = PART_BYTES
    ) -> None:
        """Uses a bucket; nothing is sent yet.

        Args:
            bucket: The bucket, which exists.
            prefix: Folder in it, or an empty string.
            client: A client to use; by default one by boto3's usual variables and files.
            part_bytes: Size of a part of a large object; S3 takes no less than 5 MiB.

        Raises:
            StorageUnavailable: boto3's settings are wrong.
        """
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._part_bytes = part_bytes
        self._bucket_seen = False
        with _wrapped(f"s3://{bucket}"):
            self._client = client or _client()

    def size(self, key: StorageKey) -> int | None:
        """See `Reads.size`."""
        with self._wrapped(key):
            try:
                return self._client.head_object(**self._named(key))["ContentLength"]
            except ClientError as error:
                if _status(error) != _NOT_FOUND:
                    raise
            self._check_bucket()
        return None

    def read(self, key: StorageKey, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """See `Reads.read`."""
        if stop is not None and stop <= start:
            if self.size(key) is None:
                raise _not_found(key)
            return
        asked = self._named(key) | ({} if (start, stop) == (0, None) else {"Range": _range(start, stop)})
        with self._wrapped(key):
            try:
                body = self._client.get_object(**asked)["Body"]
            except ClientError as error:
                if _code(error) == "InvalidRange":  # the range begins at the end of the object, or after it
                    return
                raise
        with closing(body):
            yield from self._pieces(key, body)

    def fetch(self, key: StorageKey, path: Path) -> None:
        """See `Reads.fetch`."""
        write_atomically(path, verified(self.read(key), key.digest))

    def write(self, key: StorageKey, chunks: Iterable[bytes], *, limit: int | None = None) -> int:
        """See `Writes.write`."""
        checked = verified(chunks, key.digest, limit=limit)
        stored = self.size(key)
        if stored is not None:
            return kept(stored, sum(len(chunk) for chunk in checked), key)
        parts = _parts(checked, self._part_bytes)
        first = next(parts)
        second = next(parts, None)
        if second is None:
            return self._put(key, first)
        return self._put_parts(key, _chained(first, second, parts))

    def write_file(self, key: StorageKey, path: Path) -> int:
        """See `Writes.write_file`."""
        stored = self.size(key)
        return self.write(key, file_chunks(path)) if stored is None else stored

    def keys(self, kind: Kind) -> Iterator[StorageKey]:
        """See `Lists.keys`."""
        pages = iter(
            self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=f"{self._prefix}{kind}/"
            )
        )
        while True:
            with _wrapped(f"s3://{self._bucket}/{self._prefix}{kind}/"):
                page = next(pages, None)
            if page is None:
                return
            for item in page.get("Contents", ()):
                key = StorageKey.from_path(item["Key"].removeprefix(self._prefix))
                if key is not None:
                    yield key

    def free(self) -> int | None:
        """See `Measures.free`."""
        return None

    def _put(self, key: StorageKey, data: bytes) -> int:
        checksum = base64.b64encode(bytes.fromhex(hex_of(key.digest))).decode()
        self._create(
            key,
            lambda: self._client.put_object(
                **self._named(key), Body=data, ChecksumSHA256=checksum, IfNoneMatch="*", **_headers(key)
            ),
            len(data),
        )
        return len(data)

    def _put_parts(self, key: StorageKey, parts: Iterator[bytes]) -> int:
        with self._wrapped(key):
            upload = self._client.create_multipart_upload(**self._named(key), **_headers(key))["UploadId"]
        created = False
        try:
            size, sent = self._send_parts(key, upload, parts)
            # Reached only where the digest was right: `verified` raises at the end of the bytes.
            created = self._create(
                key,
                lambda: self._client.complete_multipart_upload(
                    **self._named(key), UploadId=upload, MultipartUpload={"Parts": sent}, IfNoneMatch="*"
                ),
                size,
            )
        finally:
            if not created:  # parts of an upload that is neither completed nor aborted are paid for
                with suppress(ClientError, BotoCoreError):
                    self._client.abort_multipart_upload(**self._named(key), UploadId=upload)
        return size

    def _send_parts(self, key: StorageKey, upload: str, parts: Iterator[bytes]) -> tuple[int, list[Any]]:
        size = 0
        sent: list[Any] = []
        for number, part in enumerate(parts, start=1):
            with self._wrapped(key):
                answer = self._client.upload_part(
                    **self._named(key), UploadId=upload, PartNumber=number, Body=part
                )
            sent.append({"ETag": answer["ETag"], "PartNumber": number})
            size += len(part)
        return size, sent

    def _create(
        self,
        key: StorageKey,
        send: Callable[[], object],
        size: int,
        waits: tuple[float, ...] = _CONFLICT_WAITS,
    ) -> bool:
        """Sends a conditional create until it is decided who made the object; whether it was us."""
        with self._wrapped(key):
            try:
                send()
            except ClientError as error:
                if _status(error) == _EXISTS:
                    return self._compare(key, size)
                if _status(error) != _RACE or not waits:
                    raise
            else:
                return True
        time.sleep(waits[0])
        return self._create(key, send, size, waits[1:])

    def _compare(self, key: StorageKey, size: int) -> bool:
        stored = self.size(key)
        if stored is None:
            raise _unavailable(self._address(key), "412 for an object that is gone")
        kept(stored, size, key)
        return False

    def _pieces(self, key: StorageKey, body: Any) -> Iterator[bytes]:  # noqa: ANN401  # botocore's stream
        pieces = body.iter_chunks(CHUNK)
        while True:
            with self._wrapped(key):
                piece = next(pieces, None)
            if piece is None:
                return
            yield piece

    def _check_bucket(self) -> None:
        # To HEAD, a missing bucket looks like a missing object; asked once, at the first object missed.
        if self._bucket_seen:
            return
        try:
            self._client.head_bucket(Bucket=self._bucket)
        except ClientError as error:
            if _status(error) == _NOT_FOUND:
                raise _unavailable(f"s3://{self._bucket}", "NoSuchBucket") from error
            if _status(error) != _FORBIDDEN:  # the right to ask is not needed for anything else
                raise
        self._bucket_seen = True

    def _named(self, key: StorageKey) -> dict[str, Any]:
        return {"Bucket": self._bucket, "Key": self._prefix + key.path}

    def _address(self, key: StorageKey) -> str:
        return f"s3://{self._bucket}/{self._prefix}{key.path}"

    @contextmanager
    def _wrapped(self, key: StorageKey) -> Iterator[None]:
        try:
            with _wrapped(self._address(key)):
                yield
        except NotFound as error:
            raise _not_found(key) from error.__cause__


@contextmanager
def _wrapped(where: str) -> Iterator[None]:
    """The seam of S3: errors of botocore become ours; no request or credential is repeated in them."""
    try:
        yield
    except ClientError as error:
        if _code(error) in {"NoSuchKey", "404"}:
            raise NotFound("Nothing is stored there.", where=where) from error
        if _status(error) == _FULL:
            raise StorageFull(
                f"S3 answered {_code(error)}.", where=where, hint="Free space on the S3 server, or add disks."
            ) from error
        raise _unavailable(where, _code(error)) from error
    except BotoCoreError as error:
        raise _unavailable(where, type(error).__name__) from error


_HINTS = {
    "NoSuchBucket": "Create the bucket, or correct PT2HUB_STORAGE.",
    "AccessDenied": "Give these credentials the right to list, read and write the bucket.",
    "403": "Check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and their rights on the bucket.",
    "InvalidAccessKeyId": "Check AWS_ACCESS_KEY_ID.",
    "SignatureDoesNotMatch": "Check AWS_SECRET_ACCESS_KEY and AWS_REGION.",
    "NoCredentialsError": "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
    "EndpointConnectionError": "Check AWS_ENDPOINT_URL_S3 and that the S3 server runs.",
}


def _unavailable(where: str, code: str) -> StorageUnavailable:
    return StorageUnavailable(
        f"S3 answered {code}.",
        where=where,
        hint=_HINTS.get(code, "Try again; if it stays so, look at the S3 server's log."),
        context={"s3_code": code},
    )


def _not_found(key: StorageKey) -> NotFound:
    return NotFound("Nothing is stored under this digest.", where=key.digest)


def _client() -> S3Client:
    session = boto3.session.Session()
    client: S3Client = session.client("s3", config=_CONFIG)
    host = urlsplit(client.meta.endpoint_url).hostname or ""
    styled = (getattr(client.meta.config, "s3", None) or {}).get("addressing_style")
    if styled or host.endswith((".amazonaws.com", ".amazonaws.com.cn")):
        return client
    # Few servers other than AWS answer to bucket.host; those that do take host/bucket too.
    return session.client("s3", config=_CONFIG.merge(Config(s3={"addressing_style": "path"})))


def _headers(key: StorageKey) -> dict[str, Any]:
    return {"ContentType": key.content_type, "CacheControl": key.cache_control}


def _range(start: int, stop: int | None) -> str:
    return f"bytes={start}-{'' if stop is None else stop - 1}"


def _status(error: ClientError) -> int:
    return error.response["ResponseMetadata"]["HTTPStatusCode"]


def _code(error: ClientError) -> str:
    return error.response["Error"]["Code"]


def _parts(chunks: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Pieces of exactly `size` bytes and a shorter last one; one empty piece where there is nothing."""
    held = bytearray()
    whole = False
    for chunk in chunks:
        held += chunk
        while len(held) > size:
            whole = True
            yield bytes(held[:size])
            del held[:size]
    if held or not whole:
        yield bytes(held)


def _chained(first: bytes, second: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield second
    yield from rest
