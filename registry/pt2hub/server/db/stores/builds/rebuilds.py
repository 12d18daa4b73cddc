"""Rebuilds: rows of `builds` that name the artifact whose damaged files they replace."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import text

from pt2hub.domain.builds import BuildKind, BuildState, RebuildRequest
from pt2hub.domain.codec import encode
from pt2hub.domain.digests import Digest
from pt2hub.server.db.schema import Build as SQLBuild

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from pt2hub.domain.principals import Principal

# Files that were uploaded are named by the spec: no build makes them. The artifact that was built first is taken, since
# later ones may have its code. Its row is locked, so that concurrent requests join the same job.
_MAKERS = text("""
    SELECT artifacts.digest, builds.version_id, builds.target, builds.request
    FROM artifacts JOIN builds ON builds.id = artifacts.build_id JOIN versions ON versions.id = builds.version_id
    WHERE :digest IN (artifacts.code, artifacts.weights, versions.weights)
    AND strpos(CAST(versions.spec AS text), :digest) = 0
    ORDER BY builds.created_at, artifacts.digest LIMIT 1 FOR NO KEY UPDATE OF artifacts""")
_UNFINISHED = text("""
    SELECT id FROM builds WHERE version_id = :version AND kind = 'rebuild' AND state IN ('queued', 'running')
    AND request ->> 'artifact' = :artifact ORDER BY created_at, id LIMIT 1""")
_LATEST = text("""
    SELECT id, state, error FROM builds WHERE version_id = :version AND kind = 'rebuild'
    AND request ->> 'artifact' = :artifact ORDER BY created_at DESC, id LIMIT 1""")
_POSITION = text("SELECT coalesce(max(position), 0) + 1 FROM builds WHERE version_id = :version")
_DAMAGED = text("""
    SELECT needed.part, needed.digest FROM artifacts
    JOIN builds ON builds.id = artifacts.build_id JOIN versions ON versions.id = builds.version_id
    CROSS JOIN LATERAL (VALUES (1, 'version', versions.weights), (2, 'code', artifacts.code),
        (3, 'weights', artifacts.weights)) AS needed (place, part, digest)
    LEFT JOIN blobs ON (blobs.kind, blobs.digest) = ('blobs', needed.digest)
    WHERE artifacts.digest = :artifact AND strpos(CAST(versions.spec AS text), needed.digest) = 0
    AND blobs.state IS DISTINCT FROM 'stored'
    ORDER BY needed.place""")


@dataclass(frozen=True, slots=True)
class Rebuildable:
    """An artifact whose build made a blob."""

    artifact: Digest
    version_id: int
    request: RebuildRequest


@dataclass(frozen=True, slots=True)
class Rebuild:
    """A rebuild.

    Attributes:
        error: Fields of its error, if it failed.
    """

    id: str
    state: BuildState
    error: dict[str, Any] | None


class RebuildStore:
    """Rebuilds."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def find(self, digest: Digest) -> Rebuildable | None:
        """Lock and return the artifact whose build made a code or weights blob; None for what was uploaded."""
        row = self._session.execute(_MAKERS, {"digest": digest}).first()
        if row is None:
            return None
        artifact, version_id, target, request = row
        return Rebuildable(Digest(artifact), version_id, RebuildRequest(target, Digest(artifact), request))

    def unfinished(self, wanted: Rebuildable) -> str | None:
        """Return the rebuild of an artifact that is queued or running."""
        given = {"version": wanted.version_id, "artifact": wanted.artifact}
        return cast("str | None", self._session.scalar(_UNFINISHED, given))

    def latest(self, wanted: Rebuildable) -> Rebuild | None:
        """Return the latest rebuild of an artifact."""
        given = {"version": wanted.version_id, "artifact": wanted.artifact}
        row = self._session.execute(_LATEST, given).first()
        return Rebuild(row[0], BuildState(row[1]), row[2]) if row else None

    def add(self, wanted: Rebuildable, *, by: Principal) -> str:
        """Add a queued rebuild; return its id."""
        build_id = secrets.token_hex(8)
        self._session.add(
            SQLBuild(
                id=build_id,
                kind=BuildKind.REBUILD,
                version_id=wanted.version_id,
                target=wanted.request.target,
                position=self._session.scalar(_POSITION, {"version": wanted.version_id}),
                request=encode(wanted.request),
                first_submitted=False,
                state=BuildState.QUEUED,
                priority=0,
                requested_by=encode(by),
            )
        )
        return build_id

    def damaged(self, artifact: Digest) -> dict[str, Digest]:
        """Return which files of an artifact are damaged or not stored: `version` (its weights), `code`, `weights`."""
        rows = self._session.execute(_DAMAGED, {"artifact": artifact})
        return {part: Digest(digest) for part, digest in rows}
