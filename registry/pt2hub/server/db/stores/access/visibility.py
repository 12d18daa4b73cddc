"""The models that ids and digests belong to, compared with those that the request may read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select, text

from pt2hub.server.db.reading import only_readable, readable
from pt2hub.server.db.schema import Artifact as SQLArtifact
from pt2hub.server.db.schema import Build as SQLBuild
from pt2hub.server.db.schema import Model as SQLModel
from pt2hub.server.db.schema import Version as SQLVersion

if TYPE_CHECKING:
    from sqlalchemy import Select
    from sqlalchemy.orm import Session

# References are owned by `version:<id>`, `documentation:<version>`, `artifact:<digest>` or `log:<build>:<attempt>`.
_BLOB = text("""
    SELECT EXISTS (
        SELECT 1 FROM blob_references AS referred
        LEFT JOIN artifacts ON artifacts.digest = CASE split_part(referred.owner, ':', 1)
            WHEN 'artifact' THEN substr(referred.owner, 10) END
        LEFT JOIN builds ON builds.id = CASE split_part(referred.owner, ':', 1)
            WHEN 'log' THEN split_part(referred.owner, ':', 2) ELSE artifacts.build_id END
        JOIN versions ON versions.id = CASE split_part(referred.owner, ':', 1)
            WHEN 'version' THEN CAST(split_part(referred.owner, ':', 2) AS bigint)
            WHEN 'documentation' THEN CAST(split_part(referred.owner, ':', 2) AS bigint) ELSE builds.version_id END
        JOIN models ON models.id = versions.model_id
        WHERE referred.kind = 'blobs' AND referred.digest = :digest AND models.name ~ :readable
    )
""")


class VisibilityStore:
    """Whether the current request may read something."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def build(self, build_id: str) -> bool:
        """Return whether the build belongs to a model that may be read."""
        return self._any(_builds().where(SQLBuild.id == build_id))

    def artifact(self, digest: str) -> bool:
        """Return whether the artifact belongs to a model that may be read."""
        of_artifact = SQLArtifact.build_id == SQLBuild.id
        return self._any(_builds().join(SQLArtifact, of_artifact).where(SQLArtifact.digest == digest))

    def blob(self, digest: str) -> bool:
        """Return whether something of a model that may be read refers to the blob."""
        given = {"digest": digest, "readable": readable().expression}
        return bool(self._session.scalar(_BLOB, given))

    def _any(self, found: Select[int]) -> bool:
        return self._session.scalar(found.limit(1)) is not None


def _builds() -> Select[int]:
    """Select the versions of builds whose models may be read."""
    return (
        select(SQLVersion.id)
        .join(SQLModel, SQLModel.id == SQLVersion.model_id)
        .join(SQLBuild, SQLBuild.version_id == SQLVersion.id)
        .where(*only_readable(SQLModel.name))
    )
