"""Documentation files of versions, since it was first changed after the publication."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, cast

from sqlalchemy.dialects.postgresql import insert

from pt2hub.domain.attached_files.files import AttachedFile, published_files
from pt2hub.domain.codec import decode, encode
from pt2hub.domain.digests import Digest
from pt2hub.domain.principals import Principal, read_principal
from pt2hub.server.db.schema import VersionDocumentation as SQLVersionDocumentation
from pt2hub.server.db.stores.values import stamp

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Table
    from sqlalchemy.orm import Session

    from pt2hub.server.db.stores.publishing.versions import StoredVersion

_TABLE = cast("Table", SQLVersionDocumentation.__table__)


@dataclass(frozen=True, slots=True)
class Documentation:
    """The documentation of a version.

    Attributes:
        files: Its files, by name.
        revision: How often it was changed after the publication.
        changed_by: Who changed it last.
        changed_at: ISO 8601, UTC; None if it is as it was published.
    """

    files: tuple[AttachedFile, ...]
    revision: int = 0
    changed_by: Principal | None = None
    changed_at: str | None = None


@dataclass(frozen=True, slots=True)
class DocumentationChange:
    """The documentation that a change makes.

    Attributes:
        revision: Its number, one more than that of the documentation before.
        manifest: Digest of the manifest with the files.
    """

    files: tuple[AttachedFile, ...]
    revision: int
    manifest: Digest
    at: datetime
    by: Principal | None


class DocumentationStore:
    """Documentation of versions."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def of(self, version: StoredVersion) -> Documentation:
        """Return the present documentation of a version."""
        row = self._session.get(SQLVersionDocumentation, version.id)
        if row is None:
            return Documentation(
                tuple(item for item in published_files(version.pins) if item.is_documentation)
            )
        files = decode(tuple[AttachedFile, ...], row.files, where="files")
        return Documentation(files, row.revision, read_principal(row.changed_by), stamp(row.changed_at))

    def replace(self, version_id: int, change: DocumentationChange) -> bool:
        """Replace the documentation of the revision before; return False if there is another one by now."""
        return self._put(version_id, change, _TABLE.c.revision == change.revision - 1)

    def is_older(self, version_id: int, change: DocumentationChange) -> bool:
        """Return whether the present documentation of a version is of an earlier revision."""
        row = self._session.get(SQLVersionDocumentation, version_id)
        return row is None or row.revision < change.revision

    def restore(self, version_id: int, change: DocumentationChange) -> bool:
        """Add documentation from a manifest; return False if there is the same or a later one."""
        return self._put(version_id, change, _TABLE.c.revision < change.revision)

    def _put(self, version_id: int, change: DocumentationChange, allowed: ColumnElement[bool]) -> bool:
        values = {
            "revision": change.revision,
            "manifest": change.manifest,
            "files": encode(change.files),
            "changed_by": encode(change.by),
            "changed_at": change.at,
        }
        statement = insert(_TABLE).values(version_id=version_id, **values)
        statement = statement.on_conflict_do_update(index_elements=["version_id"], set_=values, where=allowed)
        return self._session.execute(statement.returning(_TABLE.c.version_id)).first() is not None
