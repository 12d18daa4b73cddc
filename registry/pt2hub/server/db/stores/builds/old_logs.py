"""Archived logs whose age limit is over: their references go, and the attempt notes when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from pt2hub.domain.artifacts import LOG_TYPE

if TYPE_CHECKING:
    from datetime import timedelta

    from sqlalchemy.orm import Session

_EXPIRE = text("""
    WITH old AS MATERIALIZED (
        SELECT build_id, attempt, log FROM build_attempts
        WHERE log IS NOT NULL AND ended_at < now() - CAST(:age AS interval)
        ORDER BY build_id, attempt LIMIT :most FOR UPDATE SKIP LOCKED)
    UPDATE build_attempts SET log = NULL, log_removed_at = now() FROM old
    WHERE (build_attempts.build_id, build_attempts.attempt) = (old.build_id, old.attempt)
    RETURNING old.build_id, old.attempt, old.log""")
# The log of the attempt that published an artifact is its referrer. After a reindex the artifact refers to its blobs too.
_UNREFER = text("""
    WITH old AS MATERIALIZED (
        SELECT * FROM unnest(CAST(:builds AS text[]), CAST(:attempts AS integer[]), CAST(:logs AS text[]))
            AS old (build_id, attempt, log)),
    referring AS MATERIALIZED (
        DELETE FROM referrers USING old JOIN artifacts USING (build_id, attempt)
        WHERE referrers.artifact = artifacts.digest AND referrers.artifact_type = :log_type
        RETURNING 'artifact:' || referrers.artifact AS owner, referrers.digest AS manifest, old.log),
    gone AS MATERIALIZED (
        SELECT held.kind, held.digest, held.owner FROM blob_references AS held
            JOIN old ON held.owner = 'log:' || old.build_id || ':' || old.attempt
        UNION
        SELECT held.kind, held.digest, held.owner FROM blob_references AS held JOIN referring USING (owner)
        WHERE (held.kind, held.digest) IN (('manifests', referring.manifest), ('blobs', referring.log))),
    held AS MATERIALIZED (
        SELECT blobs.kind, blobs.digest FROM blobs
        WHERE (blobs.kind, blobs.digest) IN (SELECT kind, digest FROM gone)
        ORDER BY blobs.kind, blobs.digest FOR UPDATE),
    touched AS (
        UPDATE blobs SET changed_at = now() FROM held
        WHERE (blobs.kind, blobs.digest) = (held.kind, held.digest) AND blobs.state IN ('pending', 'stored'))
    DELETE FROM blob_references AS held USING gone
    WHERE (held.kind, held.digest, held.owner) = (gone.kind, gone.digest, gone.owner)""")


class OldLogStore:
    """Archived logs whose age limit is over."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def remove(self, age: timedelta, limit: int) -> int:
        """Remove archived logs of attempts that ended longer ago; return how many.

        Their blobs are left to the collector, whose grace begins.
        """
        rows = self._session.execute(_EXPIRE, {"age": age, "most": limit}).all()
        if rows:
            given = {
                "builds": [build for build, _, _ in rows],
                "attempts": [attempt for _, attempt, _ in rows],
                "logs": [log for _, _, log in rows],
            }
            self._session.execute(_UNREFER, given | {"log_type": LOG_TYPE})
        return len(rows)
