"""Rebuilds the documentation of versions from its manifests, without changes that were refused.

A change stores its manifest before the database accepts or refuses it: another change may have been first, the team may
have used up its quota, or the process may have died. Until the collector takes it, such a manifest looks like any other,
with the highest revision of all. The audit entry of an accepted change names its manifest, and comes back from the journal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.artifacts import IDENTITY, MODEL, VERSION
from pt2hub.domain.digests import Digest
from pt2hub.errors import BadResponse, BlobDamaged, Conflict, NotFound, TooLarge
from pt2hub.server.db.stores.access.audit_log import AuditLogStore
from pt2hub.server.db.stores.blobs.damage import DamageStore
from pt2hub.server.db.stores.publishing.documentation import DocumentationStore
from pt2hub.server.db.stores.publishing.versions import VersionStore
from pt2hub.server.services.blobs.documentation_manifests import read_change, refer_documentation
from pt2hub.server.services.blobs.documents import named_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.orm import Session

    from pt2hub.domain.artifacts import Manifest
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.stores.access.audit_log import DocumentationEntries
    from pt2hub.server.db.stores.publishing.documentation import DocumentationChange
    from pt2hub.server.db.stores.publishing.versions import StoredVersion
    from pt2hub.server.services.blobs.damage import DamageService


class DocumentationIndex:
    """Adds the documentation that manifests contain to the database."""

    def __init__(self, sessions: Sessions, damage: DamageService) -> None:
        self._sessions = sessions
        self._damage = damage

    def restore(
        self, manifests: Sequence[Manifest], unreadable: dict[str, str], *, is_journal_whole: bool
    ) -> None:
        """Restore each version's newest accepted documentation, unless the version is lost or has a later one.

        Call it when the audit log is restored.

        Args:
            manifests: All manifests of documentation.
            unreadable: Takes the digests of malformed ones, with reasons.
            is_journal_whole: Whether nothing of the journal was unreadable. Otherwise the audit log may lack entries, and
                the newest documentation is taken for accepted: one that was refused is more seldom than an accepted one.
        """
        changes = []
        for manifest in manifests:
            try:
                changes.append((manifest, read_change(manifest)))
            except BadResponse as exc:
                unreadable[manifest.digest] = str(exc)
        with self._sessions.begin() as session:
            entries = AuditLogStore(session).documentation_entries(
                {_name(manifest) for manifest in manifests}
            )
        changes.sort(key=lambda pair: not _is_named(pair[0], entries))
        for manifest, change in changes:
            if is_journal_whole and not _is_accepted(manifest, change, entries):
                continue
            try:
                self._restore(manifest, change)
            except (BlobDamaged, Conflict, NotFound, TooLarge) as exc:
                unreadable[manifest.digest] = str(exc)

    def _restore(self, manifest: Manifest, change: DocumentationChange) -> None:
        with self._sessions.begin() as session:
            version = _documented(session, manifest)
            if version is None or not DocumentationStore(session).is_older(version.id, change):
                return
        self._damage.record_missing(named_by(manifest), f"documentation:{version.id}")
        with self._sessions.begin() as session:
            missing = {
                item.digest for item in DamageStore(session).among([item.digest for item in change.files])
            }
            kept = [item for item in change.files if item.digest in missing]
            if DocumentationStore(session).restore(version.id, change):
                refer_documentation(session, version.id, manifest, before=kept)


def _is_named(manifest: Manifest, entries: DocumentationEntries) -> bool:
    return manifest.digest in entries.manifests


def _is_accepted(manifest: Manifest, change: DocumentationChange, entries: DocumentationEntries) -> bool:
    """Return whether the audit log has the change, or has nothing of its version, as without a journal.

    Entries of older releases name no manifest; each of them is one revision.
    """
    name = _name(manifest)
    return (
        _is_named(manifest, entries)
        or name not in entries.published
        or change.revision <= entries.unnamed.get(name, 0)
    )


def _name(manifest: Manifest) -> str:
    return f"{manifest.annotations.get(MODEL, '')}@{manifest.annotations.get(VERSION, '')}"


def _documented(session: Session, manifest: Manifest) -> StoredVersion | None:
    """Return the version that documentation belongs to, None if it is not there.

    A deleted version's content may be published again, under another number.
    """
    given = manifest.annotations
    versions = VersionStore(session)
    model_id = versions.model_id(given.get(MODEL, ""))
    found = versions.by_identity(model_id, Digest(given.get(IDENTITY, ""))) if model_id else None
    return found if found and str(found.number) == given.get(VERSION) else None
