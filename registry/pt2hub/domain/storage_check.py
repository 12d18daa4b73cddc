"""Findings of `pt2hub admin fsck`, which compares the database and the storage."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FindingKind(StrEnum):
    """What is wrong, between the database and the storage."""

    DAMAGED = "damaged"
    MISSING_OBJECT = "missing_object"
    WRONG_SIZE = "wrong_size"
    UNKNOWN_OBJECT = "unknown_object"
    LEFTOVER_OBJECT = "leftover_object"
    UNSTORED_REFERENCE = "unstored_reference"
    MISSING_MANIFEST = "missing_manifest"
    UNINDEXED_MANIFEST = "unindexed_manifest"
    EXPIRED_LEASE = "expired_lease"
    ORPHANED_LEASE = "orphaned_lease"
    UNREADABLE_JOURNAL = "unreadable_journal"


_HEAL = "pt2hub admin heal {what}"
_SCRUB = "pt2hub admin scrub --all"
"""Without `--all`, blobs that were checked within a week are left out."""
CURES: dict[FindingKind, str] = {
    FindingKind.DAMAGED: _HEAL,
    FindingKind.MISSING_OBJECT: _SCRUB + ", then " + _HEAL,
    FindingKind.WRONG_SIZE: _SCRUB + ", then " + _HEAL,
    FindingKind.UNKNOWN_OBJECT: "pt2hub admin reindex",
    FindingKind.LEFTOVER_OBJECT: "none: no reader finds it, and the collector deletes it",
    FindingKind.UNSTORED_REFERENCE: _HEAL,
    FindingKind.MISSING_MANIFEST: _HEAL,
    FindingKind.UNINDEXED_MANIFEST: "pt2hub admin reindex",
    FindingKind.EXPIRED_LEASE: "start a server: its maintenance drops expired leases every ten seconds",
    FindingKind.ORPHANED_LEASE: "start a server: its maintenance drops the lease when it expires",
    FindingKind.UNREADABLE_JOURNAL: "restore {what} from a copy of the storage; or, if the database lost nothing, "
    "pt2hub admin reindex --accept-losses, which writes the journal anew",
}
"""The cure of each kind of finding."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        what: Digest of the blob, manifest or artifact, or path of the journal's file.
        detail: What was found, in a few words.
        cure: What to do about it.
    """

    kind: FindingKind
    what: str
    detail: str
    cure: str

    @classmethod
    def of(cls, kind: FindingKind, what: str, detail: str) -> Finding:
        """Return a finding with the cure of its kind."""
        return cls(kind, what, detail, CURES[kind].format(what=what))


@dataclass(frozen=True, slots=True)
class StorageCheck:
    """Result of a comparison of the database and the storage.

    Attributes:
        objects: Objects in the storage.
        rows: Rows of blobs and manifests.
        findings: What is wrong; of each kind at most `MAX_LISTED`.
        counts: Number of findings by kind, including those that are not listed.
    """

    objects: int
    rows: int
    findings: tuple[Finding, ...]
    counts: dict[str, int]


MAX_LISTED = 1000
