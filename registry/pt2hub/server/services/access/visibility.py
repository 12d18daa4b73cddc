"""Whether the current request may read a build, an artifact or a blob."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.server.db.stores.access.visibility import VisibilityStore
from pt2hub.server.services.not_found import deleted_artifact, deleted_build

if TYPE_CHECKING:
    from pt2hub.server.db.engine import Sessions


class VisibilityService:
    """Looks up what ids and digests belong to; what is unknown may not be read either."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def build(self, build_id: str) -> bool:
        """Return whether the build belongs to a model that may be read, or did before it was deleted."""
        with self._sessions.begin() as session:
            return VisibilityStore(session).build(build_id) or bool(deleted_build(session, build_id))

    def artifact(self, digest: str) -> bool:
        """Return whether the artifact belongs to a model that may be read, or did before it was deleted."""
        with self._sessions.begin() as session:
            return VisibilityStore(session).artifact(digest) or bool(deleted_artifact(session, digest))

    def blob(self, digest: str) -> bool:
        """Return whether a version, an artifact or a log of a model that may be read refers to the blob."""
        with self._sessions.begin() as session:
            return VisibilityStore(session).blob(digest)
