"""Destinations of exports: a directory, or a place in a bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.errors import Conflict, HomeUnusable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_S3 = "s3://"


def is_bucket(destination: str) -> bool:
    """Return whether a destination is in a bucket."""
    return destination.startswith(_S3)


def send(files: Mapping[str, Path], destination: str) -> None:
    """Upload files to a bucket with the caller's own credentials.

    Args:
        files: The files, by their path below the destination; empty for the destination itself.
        destination: `s3://bucket/prefix`.

    Raises:
        BadConfiguration: boto3 is not installed, or the destination is invalid.
        StorageUnavailable: The bucket cannot be written.
    """
    from pt2hub.client.blobs.bucket_upload import upload_file

    for name, path in files.items():
        upload_file(path, f"{destination.rstrip('/')}/{name}" if name else destination)


def make_new(folder: Path) -> None:
    """Create a folder that must not exist yet.

    Raises:
        Conflict: It exists.
        HomeUnusable: It cannot be created.
    """
    try:
        folder.mkdir(parents=True)
    except FileExistsError as exc:
        raise taken(folder) from exc
    except OSError as exc:
        raise HomeUnusable(
            f"Cannot create the folder: {exc.strerror}", where=str(folder), hint="Choose another place."
        ) from exc


def taken(path: Path) -> Conflict:
    """Return the error for a destination that exists."""
    return Conflict(
        f"{path} already exists", where=str(path), hint="Choose another place, or delete it first."
    )
