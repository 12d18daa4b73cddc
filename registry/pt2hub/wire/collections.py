"""Collections: what a run of the blob collector removed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CollectionReport:
    """A run of the blob collector, or what one would do.

    Attributes:
        dry_run: Whether nothing was removed.
        marked: Blobs that nothing needs any more, marked for removal by this run.
        marked_bytes: Their size.
        in_grace: Blobs that nothing needs any more, and whose grace has not ended; counted by a dry run only.
        in_grace_bytes: Their size.
        removed: Blobs that were removed.
        removed_bytes: Their size.
        waiting: Blobs that are marked and can still be read by presigned URLs; a later run removes them.
        waiting_bytes: Their size.
        orphans: Objects that a crash or a late writer had left behind, found by listing and removed.
        unknown: Objects without a row, which stay: `pt2hub admin reindex` adds rows for them.
        stuck: Objects that the storage refused to remove; later runs try again.
        listed: Objects that were listed.
        stored_bytes: Size of all stored blobs after it.
        referenced_bytes: Size of what artifacts refer to, each blob counted for each artifact.
        seconds: How long it took.
    """

    dry_run: bool = False
    marked: int = 0
    marked_bytes: int = 0
    in_grace: int = 0
    in_grace_bytes: int = 0
    removed: int = 0
    removed_bytes: int = 0
    waiting: int = 0
    waiting_bytes: int = 0
    orphans: int = 0
    unknown: int = 0
    stuck: int = 0
    listed: int = 0
    stored_bytes: int = 0
    referenced_bytes: int = 0
    seconds: float = 0.0
