"""Object streams that resume after broken connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from pt2hub.domain.digests import CHUNK
from pt2hub.errors import NotFound, StorageUnavailable
from pt2hub.server.blobs.s3.errors import code_of, unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.server.blobs.s3.bucket import Bucket

VAIN_TRIES = 3
"""Connections in a row that bring nothing."""


def stream(bucket: Bucket, path: str, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
    """Yield an object's bytes, or a range of them, clipped as a slice is.

    A connection that breaks, or ends before all is there, is followed by another one that goes on from there, until
    some in a row bring nothing: a reset throws away what had arrived and was not read yet, so one alone says little.

    Args:
        start: First byte.
        stop: First byte no longer wanted, greater than `start`; None means to the end.

    Raises:
        NotFound: The object does not exist; raised when the first chunk is requested.
    """
    answer = _request(bucket, path, start, stop)
    at, vain = start, 0
    while answer is not None:
        begun = at
        try:
            for piece in _pieces(bucket, path, answer["Body"]):
                at += len(piece)
                yield piece
        except StorageUnavailable:
            vain = 0 if at > begun else vain + 1
            if vain == VAIN_TRIES:
                raise
        else:
            return
        finally:
            answer["Body"].close()
        answer = _again(bucket, path, (at, stop), answer["ETag"])


def _request(bucket: Bucket, path: str, start: int, stop: int | None, **more: Any) -> Any | None:
    """Request a range; None if it starts at or after the end of the object."""
    if (start, stop) != (0, None):
        more["Range"] = f"bytes={start}-{'' if stop is None else stop - 1}"
    with bucket.errors(path):
        try:
            return bucket.client.get_object(**bucket.object_arguments(path), **more)
        except ClientError as error:
            if code_of(error) == "InvalidRange":
                return None
            raise


def _again(bucket: Bucket, path: str, rest: tuple[int, int | None], etag: str) -> Any | None:
    try:
        return _request(bucket, path, *rest, IfMatch=etag)
    except NotFound as error:  # half of it was read, which does not tell whether it is stored
        raise unavailable(bucket.address(path), "NoSuchKey") from error


def _pieces(bucket: Bucket, path: str, body: Any) -> Iterator[bytes]:
    pieces = body.iter_chunks(CHUNK)
    while True:
        with bucket.errors(path):
            piece = next(pieces, None)
        if piece is None:
            return
        yield piece
