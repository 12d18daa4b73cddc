"""Deletes again what tombstones name: a restored backup has what was deleted after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.audit import Action
from pt2hub.server.db.stores.retention.dependents import DependentStore
from pt2hub.server.db.stores.retention.tombstones import TombstoneStore
from pt2hub.server.services.access import audit_log

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from pt2hub.domain.tokens import Actor
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.queue import BuildQueue
    from pt2hub.server.db.stores.retention.dependents import Doomed


class TombstoneApplication:
    """Deletes rows of versions, builds and models that have a tombstone, whatever needs them.

    What needed them before their deletion was dealt with then, in the database that was lost. Digests that a forced
    deletion refuses are refused as soon as its tombstone is restored.
    """

    def __init__(self, sessions: Sessions, queue: BuildQueue) -> None:
        self._sessions = sessions
        self._queue = queue

    def apply(self, by: Actor) -> list[str]:
        """Delete what tombstones name; return it: `team/name@3`, ids of builds, `team/name`."""
        with self._sessions.begin() as session:
            store = TombstoneStore(session)
            versions, builds = store.present_versions(), store.present_builds()
        done = [name for model, number in versions if (name := self._delete_version(model, number, by))]
        done += [build for build in builds if self._delete_build(build, by)]
        with self._sessions.begin() as session:
            models = TombstoneStore(session).present_models()
        return done + [model for model in models if self._delete_model(model, by)]

    def _delete_version(self, model: str, number: int, by: Actor) -> str:
        """Delete a version in a transaction; return its name, nothing if another process was first."""
        with self._sessions.begin() as session:
            store = DependentStore(session)
            model_id = store.lock_model(model)
            if model_id is None:
                return ""
            doomed = store.find(model, model_id, number, lock=True)
            if not doomed.versions:
                return ""
            store.leave(doomed)
            self._remove(session, doomed)
            name = f"{model}@{number}"
            _record(session, by, name, model)
            return name

    def _delete_build(self, build_id: str, by: Actor) -> bool:
        with self._sessions.begin() as session:
            doomed = DependentStore(session).find_build(build_id, lock=True)
            if doomed is None:  # with its version, or by another process
                return False
            self._remove(session, doomed)
            _record(session, by, build_id, doomed.model)
            return True

    def _delete_model(self, model: str, by: Actor) -> bool:
        with self._sessions.begin() as session:
            store = DependentStore(session)
            model_id = store.lock_model(model)
            if model_id is None or model not in TombstoneStore(session).present_models():
                return False
            store.remove_model(model_id)
            _record(session, by, model, model)
            return True

    def _remove(self, session: Session, doomed: Doomed) -> None:
        store = DependentStore(session)
        for build in doomed.builds:
            self._queue.withdraw(session, build.id)
        store.unlink(doomed.owners)
        store.remove(doomed)


def _record(session: Session, by: Actor, name: str, model: str) -> None:
    audit_log.record(session, by, Action.TOMBSTONE_APPLY, name, models=[model])
