"""Uploads, as the API answers them."""

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
"""What an S3 server answers that has no room, besides the status 507; clients and servers alike hear it."""


@dataclass(frozen=True, slots=True)
class UploadRequest:
    """A request that the client is to send, to the storage or to this server.

    Attributes:
        method: Of the request.
        url: Whole address, or a path of this server (then with the client's token). A whole address holds a secret
            in its query.
        headers: To be sent as they are.
    """

    method: str
    url: str = field(repr=False)
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UploadView:
    """An upload, and what is to be done next.

    Attributes:
        digest: Of the bytes.
        size: Their number.
        state: `stored` (nothing is to be done), `open` (send the bytes), `checking` (the server hashes them) or
            `failed`.
        id: Names the upload; None where the bytes were there already.
        request: The one request that sends everything; None where it goes in parts.
        part_bytes: Size of every part but the last; None where one request sends everything.
        checked_bytes: How many bytes the server has hashed.
        expires_at: When the server forgets it, ISO 8601, UTC.
        error: Why it failed, as a problem.
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
    """Where one part goes.

    Attributes:
        number: From 1.
        request: Sends it.
    """

    number: int
    request: UploadRequest


@dataclass(frozen=True, slots=True)
class PartRequests:
    """Where parts go.

    Attributes:
        parts: In the order asked for.
    """

    parts: tuple[PartRequest, ...]
