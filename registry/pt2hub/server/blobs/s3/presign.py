"""Presigned URLs for clients, each for one request and valid for a few minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pt2hub.server.blobs.ports import PresignedRequest
from pt2hub.server.blobs.s3.writer import checksum_of, headers_of

if TYPE_CHECKING:
    from pt2hub.server.blobs.keys import StorageKey
    from pt2hub.server.blobs.s3.bucket import Bucket


def sign_read(bucket: Bucket, path: str, seconds: float) -> PresignedRequest:
    """Presign reading an object; see `ports.Transfers.sign_read`."""
    return PresignedRequest("GET", _sign(bucket, "get_object", bucket.object_arguments(path), seconds))


def sign_write(bucket: Bucket, key: StorageKey, size: int, seconds: float) -> PresignedRequest:
    """Presign creating an object; see `ports.Transfers.sign_write`."""
    headers = {
        "Content-Length": str(size),
        "If-None-Match": "*",
        "x-amz-checksum-sha256": checksum_of(key),
        "Content-Type": key.content_type,
        "Cache-Control": key.cache_control,
    }
    asked = bucket.object_arguments(key.path) | headers_of(key)
    asked |= {"ContentLength": size, "IfNoneMatch": "*", "ChecksumSHA256": checksum_of(key)}
    return PresignedRequest("PUT", _sign(bucket, "put_object", asked, seconds), headers)


def sign_part(bucket: Bucket, named: dict[str, Any], size: int, md5: str, seconds: float) -> PresignedRequest:
    """Presign uploading a part; see `ports.Transfers.sign_part`.

    Args:
        named: boto3's arguments that name the part.
        size: In bytes.
        md5: Of the part, base64.
        seconds: For how long it is good.
    """
    asked = named | {"ContentLength": size, "ContentMD5": md5}
    headers = {"Content-Length": str(size), "Content-MD5": md5}
    return PresignedRequest("PUT", _sign(bucket, "upload_part", asked, seconds), headers)


def _sign(bucket: Bucket, operation: str, asked: dict[str, Any], seconds: float) -> str:
    with bucket.errors(str(asked["Key"]).removeprefix(bucket.prefix)):
        return bucket.client.generate_presigned_url(operation, Params=asked, ExpiresIn=max(1, round(seconds)))
