"""Layout of a blob storage, for the server that writes it and for clients that read a bucket themselves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypeAlias, cast
from urllib.parse import urlsplit

from pt2hub.domain.digests import Digest, hex_of

Kind: TypeAlias = Literal["blobs", "manifests", "tombstones"]
"""Folders of a storage. `tombstones` has the documents of what was deleted, so that a rebuild does not bring it back."""
FIRST = 1
"""The generation of what was never deleted."""
QUARANTINE = "quarantine"
"""Folder of damaged objects, which nobody reads."""
S3_ADDRESS = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<prefix>[^?#]*))?")
"""Form of S3 storage URLs: a bucket and an optional prefix."""
_PATH = re.compile(r"(blobs|manifests|tombstones)/sha256/([0-9a-f]{2})/(\2[0-9a-f]{62})(?:\.([1-9]\d{0,8}))?")


@dataclass(frozen=True, slots=True)
class CollectionSchedule:
    """When blobs are collected that nothing needs.

    Attributes:
        grace: How long a blob stays after its last reference is gone.
        every: Interval between scheduled collections; zero for none.
        keep_logs: How long logs of builds stay after the end of their attempt; zero for ever.
    """

    grace: timedelta = timedelta(days=1)
    every: timedelta = timedelta(hours=1)
    keep_logs: timedelta = timedelta()


@dataclass(frozen=True, slots=True)
class StorageLocation:
    """The bucket in which a server keeps its blobs.

    Attributes:
        url: `s3://bucket/prefix`.
        endpoint: Address of the S3 server; None for AWS.
        region: Region of the bucket, or None.
    """

    url: str
    endpoint: str | None = None
    region: str | None = None


def is_aws(endpoint: str) -> bool:
    """Return whether the address of an S3 server is one of AWS."""
    return (urlsplit(endpoint).hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn"))


def object_path(kind: Kind, digest: Digest, generation: int = FIRST) -> str:
    """Return the path of an object below the root of the storage; the first two digits keep folders small.

    The first generation's is the digest alone, so that nearly everything is found at once.
    """
    digits = hex_of(digest)
    suffix = f".{generation}" if generation > FIRST else ""
    return f"{kind}/sha256/{digits[:2]}/{digits}{suffix}"


def parse_object_path(path: str) -> tuple[Kind, Digest, int] | None:
    """Return kind, digest and generation of a path; None for anything else in the storage."""
    match = _PATH.fullmatch(path)
    if match is None:
        return None
    kind = cast("Kind", match[1])
    generation = int(match[4] or FIRST)
    if match[4] and generation == FIRST:
        return None
    return kind, Digest(f"sha256:{match[3]}"), generation
