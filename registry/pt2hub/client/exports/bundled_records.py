"""Version records of bundles: written at the export, checked and kept at the import."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pt2hub.client.exports.bundle import read_digest
from pt2hub.client.exports.bundled_blobs import bring_blob, read_manifest
from pt2hub.client.records.record_store import RecordStore
from pt2hub.client.records.version_records import (
    MAX_RECORD_BYTES,
    RECORD_TYPE,
    VersionRecord,
    parse_record,
    read_record,
    record_entry,
)
from pt2hub.domain.artifacts import Descriptor, Manifest
from pt2hub.domain.attached_files.files import files_of
from pt2hub.domain.digests import Digest, digest_bytes
from pt2hub.errors import CorruptArchive, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.client.blobs.cache import BlobCache
    from pt2hub.client.connection import Connection
    from pt2hub.client.exports.bundle import Bundle
    from pt2hub.client.exports.exporter import ImportedArtifact
    from pt2hub.client.http.transport import Transport


@dataclass(frozen=True, slots=True)
class ExportedRecord:
    """A version record as part of a bundle.

    Attributes:
        entry: Its entry in the bundle's index.
        files: Its manifest, the record, and documentation that was attached later.
    """

    entry: Descriptor
    files: dict[Digest, Path]


@dataclass(frozen=True, slots=True)
class BundledRecord:
    """A version record of a bundle, checked.

    Attributes:
        record: The record.
        manifest: Its manifest, whose layers are documentation.
    """

    record: VersionRecord
    manifest: Manifest


def export_record(
    transport: Transport, cache: BlobCache, model: str, number: int, *, progress: bool | None
) -> ExportedRecord | None:
    """Return the record of a version for a bundle; None if the server is too old to have one."""
    record = read_record(transport, model, number, at=float(int(time.time())))
    if record is None:
        return None
    entry, blobs = record_entry(record)
    files = {digest: cache.put(digest, data) for digest, data in blobs.items()}
    for item in record.later_files:
        source = partial(transport.blob, f"/api/v1/blobs/{item.digest}", item.size)
        files[item.digest] = cache.get(
            item.digest, item.size, source, title=f"pulling {item.name}", progress=progress
        )
    return ExportedRecord(entry, files)


def read_records(bundle: Bundle) -> list[BundledRecord]:
    """Return the version records of a bundle.

    Raises:
        CorruptArchive: One is malformed, or says what no server accepts.
    """
    return [_read(bundle, read_digest(item["digest"], bundle)) for item in bundle.records]


def import_records(
    connection: Connection,
    cache: BlobCache,
    bundle: Bundle,
    records: Sequence[BundledRecord],
    found: Sequence[ImportedArtifact],
    *,
    progress: bool | None,
) -> None:
    """Keep the records of a bundle for the time when no server is asked.

    Raises:
        CorruptArchive: A record is of a version without an artifact in the bundle, or names another artifact.
        DigestMismatch: Documentation was changed on the way.
    """
    store = RecordStore(connection.config.cache, connection.config.url)
    for item in records:
        _check_artifacts(item.record, found, bundle)
        for layer in item.manifest.layers:
            bring_blob(bundle, cache, layer, progress=progress)
        store.keep(item.record)


def _read(bundle: Bundle, digest: Digest) -> BundledRecord:
    where = f"{bundle.path}: {digest}"
    _, manifest = read_manifest(bundle, digest)
    config = manifest.config
    if manifest.artifactType != RECORD_TYPE:
        raise CorruptArchive("An entry is not a version record", where=where)
    if (size := bundle.size(config.digest)) > MAX_RECORD_BYTES:
        raise CorruptArchive(
            f"A version record has {size:,} bytes, at most {MAX_RECORD_BYTES:,} are read", where=where
        )
    data = b"".join(bundle.chunks(config.digest, 0, size))
    if digest_bytes(data) != config.digest:
        raise CorruptArchive("A version record has another digest", where=where)
    record = parse_record(data, where)
    try:
        layers = files_of(manifest)
    except InvalidInput as exc:
        raise CorruptArchive(f"A version record is invalid: {exc.message}", where=where) from exc
    listed = {(item.name, item.digest, item.size) for item in record.later_files}
    if {(item.name, item.digest, item.size) for item in layers} != listed or len(layers) < len(
        manifest.layers
    ):
        raise CorruptArchive("A version record and its files differ", where=where)
    return BundledRecord(record, manifest)


def _check_artifacts(record: VersionRecord, found: Sequence[ImportedArtifact], bundle: Bundle) -> None:
    own = {item.target: item.digest for item in found if item.reference == record.reference}
    named = {item.target: item.artifact for item in record.version.builds if item.artifact}
    if not own or any(named.get(target) != digest for target, digest in own.items()):
        raise CorruptArchive(
            f"The version record of {record.reference} is not of the artifacts in the bundle",
            where=str(bundle.path),
        )
