"""Whole files in a bucket, such as backups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.storage import S3_ADDRESS
from pt2hub.errors import Conflict, InvalidInput
from pt2hub.server.blobs.s3.bucket import Bucket
from pt2hub.server.blobs.s3.client import connect
from pt2hub.server.blobs.s3.reader import stream
from pt2hub.server.blobs.verification import os_errors, write_atomically

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES = 5 << 30
"""S3's limit of one request."""


def upload(path: Path, url: str) -> None:
    """Store a file as an object.

    Args:
        url: `s3://bucket/key`.

    Raises:
        InvalidInput: The address is malformed, or the file too large for one request.
        Conflict: The object exists.
        StorageUnavailable: S3 does not answer, or does not let it be written.
    """
    bucket, key = _locate(url)
    with os_errors(path):
        size = path.stat().st_size
    if size > MAX_BYTES:
        raise InvalidInput(
            f"The file is too large for one object of S3 ({size} bytes, at most {MAX_BYTES})",
            where=url,
            hint="Write it to a file and copy that with a client of S3.",
        )
    with os_errors(path), path.open("rb") as file:

        def send() -> None:
            file.seek(0)
            bucket.client.put_object(**bucket.object_arguments(key), Body=file, IfNoneMatch="*")

        if not bucket.create(key, send):
            raise Conflict("The object already exists", where=url, hint="Choose another name.")


def download(url: str, path: Path) -> None:
    """Write an object to a file.

    Raises:
        InvalidInput: The address is malformed.
        NotFound: The object does not exist.
        StorageUnavailable: S3 does not answer.
    """
    bucket, key = _locate(url)
    write_atomically(path, stream(bucket, key))


def _locate(url: str) -> tuple[Bucket, str]:
    found = S3_ADDRESS.fullmatch(url)
    if found is None or not found["prefix"]:
        raise InvalidInput(
            f"invalid address {url[:200]!r}", where="FILE", hint="Use s3://bucket/key, or a file."
        )
    return Bucket(found["bucket"], "", connect(), connect(asking=True)), found["prefix"]
