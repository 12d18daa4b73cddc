"""Multipart uploads by clients: stored separately until hashed, then copied to their keys by S3."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from pt2hub.domain.digests import Digest
from pt2hub.errors import DigestMismatch, NotFound, Pt2hubError, UploadIncomplete
from pt2hub.server.blobs.s3.errors import code_of
from pt2hub.server.blobs.s3.reader import stream
from pt2hub.server.blobs.s3.writer import Part, assemble, listing, put
from pt2hub.server.blobs.verification import kept

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pt2hub.server.blobs.keys import StorageKey
    from pt2hub.server.blobs.s3.bucket import Bucket, Stored

FOLDER = "incoming/"
COPIED_BYTES = 256 << 20
"""What one request copies: less than S3's 5 GiB, so that a slow server answers before the request times out."""
_INCOMPLETE = frozenset({"EntityTooSmall", "InvalidPart", "InvalidPartOrder", "MalformedXML", "NoSuchUpload"})


def path_of(upload: str) -> str:
    """Return the path of a pending upload."""
    return f"{FOLDER}{upload}"


def begin(bucket: Bucket, upload: str) -> str:
    """See `ports.Transfers.begin_parts`."""
    path = path_of(upload)
    with bucket.errors(path):
        return bucket.client.create_multipart_upload(**bucket.object_arguments(path))["UploadId"]


def finish(bucket: Bucket, upload: str, multipart: str, etags: Sequence[str]) -> int:
    """See `ports.Transfers.finish_parts`."""
    path = path_of(upload)
    parts = listing(Part(number, 0, etag) for number, etag in enumerate(etags, start=1))
    refusal = None
    with bucket.errors(path):
        try:
            bucket.client.complete_multipart_upload(
                **bucket.object_arguments(path), UploadId=multipart, MultipartUpload=parts
            )
        except ClientError as error:
            if code_of(error) not in _INCOMPLETE:
                raise
            refusal = code_of(error)
    # Also where it was put together before, which may look like parts that are gone.
    stored = bucket.head(path)
    if stored is None:
        raise _incomplete(upload, refusal or "nothing")
    return stored.size


def digest(bucket: Bucket, upload: str, on_bytes: Callable[[int], None]) -> Digest:
    """See `ports.Transfers.hash_parts`."""
    hasher = hashlib.sha256()
    size = 0
    try:
        for piece in stream(bucket, path_of(upload)):
            hasher.update(piece)
            size += len(piece)
            on_bytes(size)
    except NotFound as error:
        raise _incomplete(upload, "nothing") from error
    return Digest(f"sha256:{hasher.hexdigest()}")


def admit(bucket: Bucket, upload: str, key: StorageKey, size: int) -> None:
    """See `ports.Transfers.admit`."""
    there = bucket.head(key.path)
    if there is not None:
        kept(there.size, size, key)
        return
    source = bucket.head(path_of(upload))
    if source is None:
        raise _incomplete(upload, "nothing")
    if source.size != size:
        raise DigestMismatch(
            f"The upload has {source.size} bytes, but {size} were announced.",
            where=key.digest,
            hint="Upload it again with the correct size.",
        )
    if size == 0:
        put(bucket, key, b"")  # nothing can be copied of it
        return
    assemble(bucket, key, _ranges(size), partial(_copy, bucket, source, key.path))


def move(bucket: Bucket, key: StorageKey) -> None:
    """See `ports.BlobQuarantine.quarantine`: the storage copies the bytes, then the object is deleted."""
    source = bucket.head(key.path)
    if source is None:
        return
    if source.size <= COPIED_BYTES:
        _copy_whole(bucket, source, key.quarantine_path)
    else:
        _copy_parts(bucket, source, key.quarantine_path)
    bucket.delete(key.path)


def discard(bucket: Bucket, upload: str, multipart: str | None) -> None:
    """See `ports.Transfers.discard`."""
    if multipart is not None:
        bucket.abort(path_of(upload), multipart)
    bucket.delete(path_of(upload))


def _copy(bucket: Bucket, source: Stored, path: str, multipart: str, number: int, of: range) -> Part:
    with bucket.errors(path):
        answer = bucket.client.upload_part_copy(
            **bucket.object_arguments(path),
            UploadId=multipart,
            PartNumber=number,
            **_source_arguments(bucket, source),
            CopySourceRange=f"bytes={of.start}-{of.stop - 1}",
        )
    return Part(number, len(of), answer["CopyPartResult"]["ETag"])


def _copy_whole(bucket: Bucket, source: Stored, path: str) -> None:
    with bucket.errors(path):
        bucket.client.copy_object(**bucket.object_arguments(path), **_source_arguments(bucket, source))


def _copy_parts(bucket: Bucket, source: Stored, path: str) -> None:
    arguments = bucket.object_arguments(path)
    with bucket.errors(path):
        multipart = bucket.client.create_multipart_upload(**arguments)["UploadId"]
    try:
        numbered = enumerate(_ranges(source.size), start=1)
        parts = listing([_copy(bucket, source, path, multipart, number, of) for number, of in numbered])
        with bucket.errors(path):
            bucket.client.complete_multipart_upload(**arguments, UploadId=multipart, MultipartUpload=parts)
    except BaseException:  # parts of an upload that is neither completed nor aborted are paid for
        with suppress(Pt2hubError):
            bucket.abort(path, multipart)
        raise


def _source_arguments(bucket: Bucket, source: Stored) -> dict[str, Any]:
    return {
        "CopySource": {"Bucket": bucket.name, "Key": bucket.prefix + source.path},
        "CopySourceIfMatch": source.etag,
    }


def _ranges(size: int) -> Iterator[range]:
    for start in range(0, size, COPIED_BYTES):
        yield range(start, min(start + COPIED_BYTES, size))


def _incomplete(upload: str, answer: str) -> UploadIncomplete:
    return UploadIncomplete(
        f"S3 does not have the given parts (it returned {answer}).",
        where=upload,
        hint="Send all parts, then give their ETags in order; or start a new upload.",
    )
