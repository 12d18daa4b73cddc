"""Startup checks of an S3 server's guarantees, and removal of abandoned uploads."""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from pt2hub.errors import StorageUnsafe
from pt2hub.server.blobs.s3 import pending_uploads
from pt2hub.server.blobs.s3.errors import status_of, translate_configuration_errors

if TYPE_CHECKING:
    from pt2hub.server.blobs.s3.bucket import Bucket

CONDITIONAL = "probe/conditional-put"
CHECKSUM = "probe/checksum"
WRITE = "probe/write"
_DATA = b"pt2hub tries here what it relies on; see docs/how-to/own-postgresql-and-s3.md\n"
_BAD_REQUEST, _NOT_FOUND = 400, 404


def check(bucket: Bucket) -> bool:
    """See `ports.Checks.check`.

    Returns:
        Whether the server compares bytes with the sha256 that is sent along.
    """
    with translate_configuration_errors():
        with bucket.errors(""):  # first of all: some servers make a bucket for whoever writes to it
            bucket.asking.list_objects_v2(Bucket=bucket.name, Prefix=f"{bucket.prefix}probe/", MaxKeys=1)
        if _makes(bucket) and _makes(bucket):
            raise StorageUnsafe(
                "The S3 server ignores the condition If-None-Match.",
                where="PT2HUB_STORAGE",
                hint="Stored objects could be overwritten. Use a server that returns 412 PreconditionFailed: AWS and "
                "SeaweedFS 4 do; others may need a newer release.",
            )
        return _refuses(bucket)


def try_write(bucket: Bucket) -> None:
    """See `ports.StorageHealth.probe`: one request, whose object is replaced each time."""
    with bucket.errors(WRITE):
        bucket.client.put_object(**bucket.object_arguments(WRITE), Body=_DATA)


def sweep(bucket: Bucket, older_than: float) -> int:
    """See `ports.StorageHealth.sweep`: uploads in parts, and what clients left under `incoming/`."""
    until = datetime.now(UTC) - timedelta(seconds=older_than)
    left = [
        (item["Key"].removeprefix(bucket.prefix), item["UploadId"])
        for folder in ("blobs/", "manifests/", pending_uploads.FOLDER)
        for page in bucket.pages("list_multipart_uploads", folder)
        for item in page.get("Uploads", ())
        if item["Initiated"] <= until and not _goes_on(bucket, item, until)
    ]
    for path, multipart in left:
        bucket.abort(path, multipart)
    objects = [item.path for item in bucket.list_objects(pending_uploads.FOLDER) if item.modified <= until]
    for path in objects:
        bucket.delete(path)
    return len(left) + len(objects)


def _goes_on(bucket: Bucket, upload: dict[str, Any], since: datetime) -> bool:
    """Return whether a part of an upload came after a time; a slow client may send for days."""
    parts = bucket.asking.get_paginator("list_parts").paginate(
        Bucket=bucket.name, Key=upload["Key"], UploadId=upload["UploadId"]
    )
    with bucket.errors(upload["Key"].removeprefix(bucket.prefix)):
        try:
            return any(part["LastModified"] > since for page in parts for part in page.get("Parts", ()))
        except ClientError as error:
            if status_of(error) == _NOT_FOUND:  # it ended meanwhile
                return True
            raise


def _makes(bucket: Bucket) -> bool:
    """Return whether a conditional create made an object."""
    return bucket.create(
        CONDITIONAL,
        lambda: bucket.client.put_object(**bucket.object_arguments(CONDITIONAL), Body=_DATA, IfNoneMatch="*"),
    )


def _refuses(bucket: Bucket) -> bool:
    """Return whether bytes are refused that another digest was announced for."""
    another = base64.b64encode(hashlib.sha256(b"").digest()).decode()
    with bucket.errors(CHECKSUM):
        try:
            bucket.client.put_object(**bucket.object_arguments(CHECKSUM), Body=_DATA, ChecksumSHA256=another)
        except ClientError as error:
            if status_of(error) == _BAD_REQUEST:
                return True
            raise
    return False
