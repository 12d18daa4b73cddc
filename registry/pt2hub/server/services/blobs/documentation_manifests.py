"""Manifests of documentation: what a version's documentation is since it was last changed."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pt2hub.domain.artifacts import (
    CHANGED_BY,
    CREATED,
    DOCUMENTATION_TYPE,
    EMPTY_TYPE,
    IDENTITY,
    MODEL,
    REVISION,
    VERSION,
    Descriptor,
    Manifest,
)
from pt2hub.domain.attached_files.files import AttachedFile, files_of
from pt2hub.domain.codec import encode
from pt2hub.domain.digests import canonical_json, digest_bytes
from pt2hub.domain.principals import read_principal
from pt2hub.errors import BadResponse, InvalidInput, NotFound
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.blobs.blobs import BlobStore
from pt2hub.server.db.stores.publishing.documentation import DocumentationChange
from pt2hub.server.db.stores.values import moment
from pt2hub.server.services.blobs.blob_writes import BlobChunk
from pt2hub.server.services.blobs.documents import named_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.orm import Session

    from pt2hub.domain.tokens import Actor
    from pt2hub.server.db.stores.publishing.versions import StoredVersion

_EMPTY = b"{}"
_REVISION = re.compile(r"[1-9]\d{0,17}")


def compose_documentation(
    version: StoredVersion, files: Sequence[AttachedFile], revision: int, by: Actor
) -> Manifest:
    """Return the manifest of a version's documentation.

    Args:
        files: All of it.
        revision: How often it was changed, with this change.
        by: Who changed it.
    """
    empty = Descriptor(EMPTY_TYPE, digest_bytes(_EMPTY), len(_EMPTY))
    return Manifest(
        artifactType=DOCUMENTATION_TYPE,
        config=empty,
        layers=tuple(item.as_layer() for item in files) or (empty,),  # OCI wants one at least
        annotations={
            CREATED: datetime.now(UTC).isoformat(timespec="seconds"),
            MODEL: version.model,
            VERSION: str(version.number),
            IDENTITY: version.identity,
            REVISION: str(revision),
            CHANGED_BY: canonical_json(encode(by.principal)).decode(),
        },
    )


def documentation_chunks(manifest: Manifest) -> list[BlobChunk]:
    """Return the chunks to store for the manifest; its files are stored already."""
    data = manifest.as_bytes()
    return [
        BlobChunk(StorageKey.blob(manifest.config.digest), len(_EMPTY), _EMPTY),
        BlobChunk(StorageKey.manifest(manifest.digest), len(data), data),
    ]


def read_change(manifest: Manifest) -> DocumentationChange:
    """Return the documentation that a manifest contains.

    Raises:
        BadResponse: It is malformed, or has names that are not allowed.
    """
    given = manifest.annotations
    at, revision = moment(given.get(CREATED)), given.get(REVISION, "")
    if at is None or not _REVISION.fullmatch(revision):
        raise BadResponse("The documentation has no time or revision", where=manifest.digest)
    try:
        files = files_of(manifest)
        by = read_principal(json.loads(given.get(CHANGED_BY, "null")))
    except (InvalidInput, ValueError, RecursionError) as exc:
        raise BadResponse(f"The documentation is malformed: {exc}", where=manifest.digest) from exc
    return DocumentationChange(files, int(revision), manifest.digest, at, by)


def refer_documentation(
    session: Session, version_id: int, manifest: Manifest, *, before: Sequence[AttachedFile] = ()
) -> None:
    """Protect a version's documentation from collection, and that before it no longer.

    Args:
        before: The documentation before. What stays of it keeps the references that it has, so that a damaged file is
            in no other's way.

    Raises:
        NotFound: A file was not uploaded, or is being deleted.
    """
    owner, needed, blobs = f"documentation:{version_id}", named_by(manifest), BlobStore(session)
    kept = {StorageKey.blob(item.digest) for item in before}
    missing = needed.keys() - kept - blobs.refer_stored(needed, owner)
    if missing:  # seen a moment ago, but unconfirmed or being deleted
        raise not_uploaded(min(missing).digest)
    blobs.release(owner, kept=needed)


def not_uploaded(digest: str) -> NotFound:
    """Return the error for a file whose bytes are not stored."""
    return NotFound(
        "The content of the file was not uploaded",
        where="digest",
        hint="Upload it first: POST /api/v1/uploads, or PUT /api/v1/blobs/<digest> (pt2hub file add does it).",
        context={"digest": digest},
    )
