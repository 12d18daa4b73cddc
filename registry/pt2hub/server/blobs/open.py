"""Opens the configured storage."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pt2hub.domain.storage import S3_ADDRESS
from pt2hub.errors import BadConfiguration
from pt2hub.extras import lacking
from pt2hub.server.blobs.local import LocalStorage

if TYPE_CHECKING:
    from pt2hub.server.blobs.ports import Storage


def open_storage(url: str, public_endpoint: str | None = None) -> Storage:
    """Open a storage.

    Args:
        url: `s3://bucket/prefix`, or a directory. Endpoint, region and credentials of S3 come from boto3's
            usual variables and files.
        public_endpoint: Where clients reach S3, if not where this process does.

    Raises:
        BadConfiguration: The URL is invalid, or boto3 is not installed.
        StorageUnavailable: The directory cannot be created.
    """
    if "://" not in url:
        return LocalStorage(Path(url))
    match = S3_ADDRESS.fullmatch(url)
    if match is None:
        raise BadConfiguration(
            f"invalid storage {url[:200]!r}",
            where="PT2HUB_STORAGE",
            hint="Use s3://bucket/prefix (bucket names have 3 to 63 lowercase characters) or a directory.",
        )
    if find_spec("boto3") is None:
        raise lacking("A storage in S3", ["boto3"])
    from pt2hub.server.blobs.s3 import S3Storage  # boto3 takes 0.3 s to import, needed for S3 only

    return S3Storage(match["bucket"], match["prefix"] or "", public_endpoint=public_endpoint)
