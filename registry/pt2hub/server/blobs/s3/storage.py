"""S3 storage: the adapter of the storage ports."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pt2hub.domain.storage import StorageLocation, is_aws
from pt2hub.errors import NotFound
from pt2hub.server.blobs.keys import StorageKey, StoredObject, blob_missing
from pt2hub.server.blobs.s3 import pending_uploads, presign, probe
from pt2hub.server.blobs.s3.bucket import CONFLICT_TRIES, Bucket, Stored
from pt2hub.server.blobs.s3.client import connect
from pt2hub.server.blobs.s3.errors import translate_errors
from pt2hub.server.blobs.s3.reader import stream
from pt2hub.server.blobs.s3.writer import content_md5, cut, upload
from pt2hub.server.blobs.verification import (
    file_chunks,
    kept,
    os_errors,
    verify_digest,
    verify_stored,
    write_atomically,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from types_boto3_s3 import S3Client

    from pt2hub.domain.digests import Digest
    from pt2hub.domain.storage import Kind
    from pt2hub.server.blobs.ports import PresignedRequest

PART_BYTES = 8 << 20
"""Part size of large objects; chosen together with `writer.THREADS`."""
SINGLE_BYTES = 64 << 20
"""A client sends no more in one request: a broken one begins anew, and one connection is slow over a long way. What
it sends in parts the server must hash again."""
_MAX_PARTS = 10_000
"""S3's limit of parts per object."""
_MAX_STREAM_BYTES = _MAX_PARTS * (64 << 20)
"""Largest size of a body of unknown length that is sent in parts, since some parts are held in memory."""


class S3Storage:
    """Storage with one S3 object per blob, created only if it does not exist; supports presigned transfers.

    Attributes:
        single_bytes: See `ports.Transfers`; 0 before `check` found out.
        part_bytes: Likewise; larger for objects of more than 10,000 such parts.
        location: Likewise.

    Args:
        prefix: Folder in it, or an empty string.
        client: A client to use; by default one by boto3's usual variables and files.
        public_endpoint: Where clients reach S3, if not where this process does.
        part_bytes: Size of a part of a large object; S3 takes no less than 5 MiB.
        conflict_tries: How often a create is sent that meets another one (409).
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        client: S3Client | None = None,
        public_endpoint: str | None = None,
        part_bytes: int = PART_BYTES,
        conflict_tries: int = CONFLICT_TRIES,
    ) -> None:
        folder = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        with translate_errors(f"s3://{bucket}"):
            self._bucket = Bucket(
                bucket, folder, client or connect(), client or connect(asking=True), conflict_tries
            )
            self._public = (
                replace(self._bucket, client=connect(public_endpoint)) if public_endpoint else self._bucket
            )
        self.single_bytes = 0
        self.part_bytes = part_bytes
        self.location = _locate(self._public)

    def size(self, key: StorageKey) -> int | None:
        """See `Reads.size`."""
        found = self._find(key)
        return None if found is None else found.size

    def read(self, key: StorageKey, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """See `Reads.read`."""
        if stop is not None and stop <= start:
            if self.size(key) is None:
                raise blob_missing(key)
            return
        try:
            yield from stream(self._bucket, key.path, start, stop)
        except NotFound as error:  # nothing was read of it yet, else it would be another error
            other = self._other(key)
            if other is None:
                raise blob_missing(key) from error
            yield from stream(self._bucket, other.path, start, stop)

    def fetch(self, key: StorageKey, path: Path) -> None:
        """See `Reads.fetch`."""
        write_atomically(path, verify_stored(self.read(key), key))

    def write(self, key: StorageKey, chunks: Iterable[bytes], *, limit: int | None = None) -> int:
        """See `Writes.write`."""
        checked = verify_digest(chunks, key.digest, limit=limit)
        stored = self.size(key.exact)
        if stored is not None:
            return kept(stored, sum(len(chunk) for chunk in checked), key)
        part_bytes = self._part_bytes(min(limit or 0, _MAX_STREAM_BYTES))
        return upload(self._bucket, key.exact, cut(checked, part_bytes))

    def write_file(self, key: StorageKey, path: Path) -> int:
        """See `Writes.write_file`."""
        stored = self.size(key.exact)
        if stored is not None:
            return stored
        with os_errors(path):
            part_bytes = self._part_bytes(path.stat().st_size)
        checked = verify_digest(file_chunks(path, piece=part_bytes), key.digest)
        return upload(self._bucket, key.exact, cut(checked, part_bytes))

    def quarantine(self, key: StorageKey) -> None:
        """See `BlobQuarantine.quarantine`."""
        pending_uploads.move(self._bucket, key.exact)

    def read_quarantined(self, key: StorageKey) -> Iterator[bytes]:
        """See `BlobQuarantine.read_quarantined`."""
        try:
            yield from stream(self._bucket, key.exact.quarantine_path, 0, None)
        except NotFound as error:
            raise blob_missing(key) from error

    def keys(self, kind: Kind) -> Iterator[StorageKey]:
        """See `Lists.keys`."""
        for item in self.objects(kind):
            yield item.key

    def objects(self, kind: Kind) -> Iterator[StoredObject]:
        """See `BlobLister.objects`."""
        for item in self._bucket.list_objects(f"{kind}/"):
            key = StorageKey.from_path(item.path)
            if key is not None:
                yield StoredObject(key.exact, item.size)

    def remove(self, keys: Sequence[StorageKey]) -> None:
        """See `BlobRemover.remove`."""
        self._bucket.delete_all([key.exact.path for key in keys])

    def free(self) -> int | None:
        """See `Measures.free`."""
        return None

    def check(self) -> None:
        """See `Checks.check`."""
        self.single_bytes = SINGLE_BYTES if probe.check(self._bucket) else 0

    def probe(self) -> None:
        """See `StorageHealth.probe`."""
        probe.try_write(self._bucket)

    def sweep(self, older_than: float) -> int:
        """See `StorageHealth.sweep`."""
        return probe.sweep(self._bucket, older_than)

    def sign_read(self, key: StorageKey, *, seconds: float) -> PresignedRequest:
        """See `Transfers.sign_read`."""
        found = self._find(key)
        if found is None:
            raise blob_missing(key)
        return replace(presign.sign_read(self._public, found.path, seconds), size=found.size)

    def sign_write(self, key: StorageKey, size: int, *, seconds: float) -> PresignedRequest:
        """See `Transfers.sign_write`."""
        return presign.sign_write(self._public, key.exact, size, seconds)

    def begin_parts(self, upload: str) -> str:
        """See `Transfers.begin_parts`."""
        return pending_uploads.begin(self._bucket, upload)

    def sign_part(
        self, upload: str, multipart: str, number: int, *, size: int, md5: str, seconds: float
    ) -> PresignedRequest:
        """See `Transfers.sign_part`."""
        named = self._public.object_arguments(pending_uploads.path_of(upload)) | {
            "UploadId": multipart,
            "PartNumber": number,
        }
        return presign.sign_part(self._public, named, size, md5, seconds)

    def finish_parts(self, upload: str, multipart: str, etags: Sequence[str]) -> int:
        """See `Transfers.finish_parts`."""
        return pending_uploads.finish(self._bucket, upload, multipart, etags)

    def hash_parts(self, upload: str, on_bytes: Callable[[int], None]) -> Digest:
        """See `Transfers.hash_parts`."""
        return pending_uploads.digest(self._bucket, upload, on_bytes)

    def admit(self, upload: str, key: StorageKey, size: int) -> None:
        """See `Transfers.admit`."""
        pending_uploads.admit(self._bucket, upload, key.exact, size)

    def discard(self, upload: str, multipart: str | None) -> None:
        """See `Transfers.discard`."""
        pending_uploads.discard(self._bucket, upload, multipart)

    def create_object(self, path: str, data: bytes) -> bool:
        """See `NamedObjects.create_object`."""
        named = self._bucket.object_arguments(path) | {"ContentMD5": content_md5(data), "IfNoneMatch": "*"}
        return self._bucket.create(path, lambda: self._bucket.client.put_object(**named, Body=data))

    def read_object(self, path: str) -> bytes:
        """See `NamedObjects.read_object`."""
        return b"".join(stream(self._bucket, path, 0, None))

    def list_objects(self, folder: str) -> Iterator[tuple[str, int]]:
        """See `NamedObjects.list_objects`."""
        yield from ((item.path, item.size) for item in self._bucket.list_objects(folder))

    def delete_object(self, path: str) -> None:
        """See `NamedObjects.delete_object`."""
        self._bucket.delete(path)

    def _find(self, key: StorageKey) -> Stored | None:
        """Return the object, with one request if it was never deleted."""
        return self._bucket.head(key.path) or self._other(key)

    def _other(self, key: StorageKey) -> Stored | None:
        """Return an object of any generation, if the key allows it."""
        if key.generation is not None:
            return None
        named = (
            (StorageKey.from_path(item.path), item) for item in self._bucket.list_objects(f"{key.path}.")
        )
        found = {each: item for each, item in named if each is not None}
        return found[min(found)] if found else None

    def _part_bytes(self, size: int) -> int:
        """Return the part size for an object of at most this size."""
        return max(self.part_bytes, -(-size // _MAX_PARTS))


def _locate(bucket: Bucket) -> StorageLocation:
    meta = bucket.client.meta
    endpoint = None if is_aws(meta.endpoint_url) else meta.endpoint_url
    return StorageLocation(bucket.address("").rstrip("/"), endpoint, meta.region_name)
