"""Uploads in API responses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pt2hub.domain.digests import Digest

FULL_CODES = frozenset(
    {
        "InsufficientStorage",
        "QuotaExceeded",  # Ceph
        "ServiceQuotaExceeded",
        "StorageFull",
        "XMinioAdminBucketQuotaExceeded",
        "XMinioStorageFull",
    }
)
"""Error codes of S3 servers without free space, in addition to status 507; seen by clients and servers."""


@dataclass(frozen=True, slots=True)
class UploadRequest:
    """A request that the client must send to the storage or to this server.

    Attributes:
        method: HTTP method.
        url: Absolute presigned URL with a secret in its query, or a path on this server, to be used with the client's
            token.
        headers: Headers to send unchanged.
    """

    method: str
    url: str = field(repr=False)
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UploadView:
    """State of an upload.

    Attributes:
        digest: Digest of the content.
        size: Size in bytes.
        state: `stored` (complete), `open` (waiting for the content), `checking` (the server is hashing it) or
            `failed`.
        id: Id of the upload; None if the blob was already stored.
        request: The request that uploads everything; None for an upload in parts.
        part_bytes: Size of every part except the last; None for an upload in one request.
        checked_bytes: Number of bytes hashed so far.
        expires_at: When the upload expires, ISO 8601, UTC.
        error: Why it failed, as a problem document.
    """

    digest: Digest
    size: int
    state: str
    id: str | None = None
    request: UploadRequest | None = None
    part_bytes: int | None = None
    checked_bytes: int = 0
    expires_at: str | None = None
    error: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class PartRequest:
    """Upload request of a part.

    Attributes:
        number: Number of the part, from 1.
        request: The request that uploads it.
    """

    number: int
    request: UploadRequest


@dataclass(frozen=True, slots=True)
class PartRequests:
    """Upload requests of parts.

    Attributes:
        parts: The parts, in the requested order.
    """

    parts: tuple[PartRequest, ...]


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A stored blob.

    Attributes:
        digest: Digest of the content.
        size: Size in bytes.
    """

    digest: str
    size: int
