"""Deletion of versions, models, builds and blobs that nothing needs.

A deletion removes rows and references in one transaction and leaves a tombstone; the collector removes the blobs that
nothing else refers to, after its grace.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import structlog

from pt2hub.domain.audit import Action
from pt2hub.domain.digests import Digest
from pt2hub.domain.names import parse_model_name
from pt2hub.errors import Conflict, NotFound, StillNeeded, TransientError
from pt2hub.rendering.quantities import format_count
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.reading import readable
from pt2hub.server.db.stores.access.visibility import VisibilityStore
from pt2hub.server.db.stores.blobs.garbage import GarbageStore
from pt2hub.server.db.stores.retention.dependents import DependentStore, Doomed
from pt2hub.server.db.stores.retention.shared_blobs import SharedBlobStore
from pt2hub.server.db.stores.retention.tombstones import Tombstone, TombstoneStore
from pt2hub.server.services import not_found
from pt2hub.server.services.access import audit_log
from pt2hub.server.services.access.tokens import check_admin
from pt2hub.server.services.promotion.reasons import check_reason
from pt2hub.server.services.retention.plans import MAX_NAMED, DeletionPlan, find_needs, list_goes, list_needs
from pt2hub.wire.retention import KeptThing

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.orm import Session

    from pt2hub.domain.tokens import Actor
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.stores.retention.shared_blobs import OwnedBlob
    from pt2hub.server.services.blobs.tombstone_documents import TombstoneDocuments
    from pt2hub.wire.retention import DeletionView

_DELETE = "delete anything of it"
_NO_GRACE = timedelta()
_log = structlog.get_logger(__name__)


class DeletionService:
    """Deletes what nothing needs."""

    def __init__(self, sessions: Sessions, documents: TombstoneDocuments) -> None:
        self._sessions = sessions
        self._documents = documents

    def version(
        self,
        model: str,
        number: int,
        *,
        by: Actor,
        reason: str = "",
        dry_run: bool = False,
        unless: Callable[[Session], bool] | None = None,
    ) -> DeletionView:
        """Delete a version with its builds, artifacts, logs and measurements; its number is not used again.

        Args:
            dry_run: Only return what would be done.
            unless: Asked once the version is locked; nothing is deleted if it answers yes.

        Raises:
            Forbidden: The actor is not an admin of the model.
            InvalidInput: The name of the model or the reason is malformed.
            NotFound: The model or version does not exist.
            Deleted: It was deleted before.
            StillNeeded: An alias, a comparison or an unfinished build needs it.
        """
        check_admin(by, parse_model_name(model), doing=_DELETE, where="version")
        why = reason if dry_run else check_reason(reason)
        with self._sessions.begin() as session:
            doomed = find_version(session, model, number, lock=not dry_run)
            plan = _plan(session, f"{model}@{number}", doomed)
            if dry_run or (unless is not None and unless(session)):
                return plan.view(deleted=False)
            plan.check()
            delete_versions(session, doomed, by=by, reason=why)
            audit_log.record(
                session,
                by,
                Action.VERSION_DELETE,
                plan.name,
                models=[model],
                reason=why,
                artifacts=doomed.artifacts,
            )
        self.write_documents()
        return plan.view(deleted=True)

    def model(self, model: str, *, by: Actor, reason: str = "", dry_run: bool = False) -> DeletionView:
        """Delete a model with all its versions, its aliases and their history; nothing goes if anything is needed.

        Raises:
            Forbidden: The actor is not an admin of the model.
            InvalidInput: The name or the reason is malformed.
            NotFound: The model does not exist.
            StillNeeded: Something needs one of its versions.
        """
        check_admin(by, parse_model_name(model), doing=_DELETE, where="model")
        why = reason if dry_run else check_reason(reason)
        with self._sessions.begin() as session:
            store = DependentStore(session)
            model_id = store.lock_model(model)
            if model_id is None:
                raise not_found.no_model(session, model)
            doomed = store.find(model, model_id, lock=not dry_run)
            plan = _plan(session, model, doomed, extra=("the model, its aliases and their history",))
            if dry_run:
                return plan.view(deleted=False)
            plan.check()
            delete_versions(session, doomed, by=by, reason=why)
            store.remove_model(model_id)
            TombstoneStore(session).add(Tombstone("model", model, why, by.principal, model))
            audit_log.record(
                session,
                by,
                Action.MODEL_DELETE,
                model,
                models=[model],
                reason=why,
                versions=list(doomed.versions.values()),
            )
        self.write_documents()
        return plan.view(deleted=True)

    def build(self, build_id: str, *, by: Actor, reason: str = "", dry_run: bool = False) -> DeletionView:
        """Delete a build with its artifact, logs and measurements; its version stays.

        Raises:
            Forbidden: The actor is not an admin of the model.
            InvalidInput: The reason is malformed.
            NotFound: The build does not exist.
            StillNeeded: It has not ended, or something needs its artifact.
            Conflict: It is the only build of its version.
        """
        why = reason if dry_run else check_reason(reason)
        with self._sessions.begin() as session:
            store = DependentStore(session)
            doomed = store.find_build(build_id, lock=not dry_run)
            if doomed is None:
                raise not_found.no_build(session, build_id)
            check_admin(by, doomed.model, doing=_DELETE, where="build")
            (version, number), (build,) = next(iter(doomed.versions.items())), doomed.builds
            if build.kind == "build" and store.siblings(version) == 1:
                raise Conflict(
                    f"{build_id} is the only build of {doomed.model}@{number}",
                    where="build",
                    hint=f"Delete the version: pt2hub delete {doomed.model}@{number}",
                )
            plan = _plan(session, build_id, doomed)
            if dry_run:
                return plan.view(deleted=False)
            plan.check()
            store.unlink(doomed.owners)
            store.remove(doomed)
            TombstoneStore(session).add(
                Tombstone(
                    "build", build_id, why, by.principal, doomed.model, artifacts=tuple(doomed.artifacts)
                )
            )
            audit_log.record(
                session,
                by,
                Action.BUILD_DELETE,
                build_id,
                models=[doomed.model],
                reason=why,
                version=f"{doomed.model}@{number}",
                target=build.target,
            )
        self.write_documents()
        return plan.view(deleted=True)

    def blob(self, digest: Digest, *, by: Actor, dry_run: bool = False) -> DeletionView:
        """Delete a blob that nothing refers to, at the next collection and without its grace.

        Raises:
            NotFound: It is not stored, or only models that may not be read refer to it.
            StillNeeded: A version or an artifact refers to it, or an upload or a build is about to.
        """
        with self._sessions.begin() as session:
            found = SharedBlobStore(session).single(digest)
            # What nothing refers to belongs to no team.
            if found is None or (found.others and not _is_readable(session, digest)):
                raise NotFound(f"Blob {digest} not found.", where=digest)
            plan = DeletionPlan(digest, (), ("the blob",), _needs_of_blob(digest, found), (found,))
            if dry_run:
                return plan.view(deleted=False)
            plan.check()
            key = StorageKey(found.kind, digest)
            if not GarbageStore(session).mark([key], grace=_NO_GRACE):
                raise StillNeeded(
                    f"Cannot delete {digest}: something begins to refer to it",
                    where=digest,
                    hint="Look again: a dry run shows what needs it.",
                )
            audit_log.record(session, by, Action.BLOB_DELETE, digest, size=found.size)
        return plan.view(deleted=True)

    def accept(self, digest: Digest, *, reason: str, by: Actor) -> None:
        """Let bytes be stored again that a forced deletion had refused.

        Raises:
            InvalidInput: The reason is malformed.
            NotFound: The digest is not refused.
            StorageUnavailable: The storage does not answer; it is still refused.
        """
        why = check_reason(reason)
        with self._sessions.begin() as session:
            at = TombstoneStore(session).accept(digest)
            if at is None:
                raise NotFound(
                    f"{digest} is not refused",
                    where="digest",
                    hint="Only digests of forced deletions are refused.",
                )
            audit_log.record(session, by, Action.BLOB_ACCEPT, digest, reason=why)
            # Before the commit: a rebuild would refuse again what only the database knows to be accepted.
            self._documents.accept(digest, reason=why, by=by.principal, at=at)

    def accept_version(self, model: str, number: int, *, reason: str, by: Actor) -> list[Digest]:
        """Let everything be stored again that the forced deletion of a version had refused; return the digests.

        Raises:
            InvalidInput: The reason is malformed.
            NotFound: The version was not deleted by force, or nothing of it is refused.
            StorageUnavailable: The storage does not answer; what is left is still refused.
        """
        with self._sessions.begin() as session:
            store = TombstoneStore(session)
            tombstone = store.version(model, number)
            digests = [Digest(digest) for _, digest in tombstone.refused] if tombstone else []
            refused = {digest for _, digest in store.refused_among(digests)}
        accepted = [digest for digest in digests if digest in refused]
        if not accepted:
            raise NotFound(
                f"Nothing of {model}@{number} is refused",
                where="version",
                hint="Name a version that was deleted by force, or a digest.",
            )
        for digest in accepted:
            self.accept(digest, reason=reason, by=by)
        return accepted

    def write_documents(self) -> None:
        """Write tombstones to storage; maintenance repeats it where the storage does not answer."""
        try:
            self._documents.write()
        except TransientError as error:
            _log.warning("tombstones are written to storage later", error=str(error))


def find_version(session: Session, model: str, number: int, *, lock: bool) -> Doomed:
    """Return a version with all that goes with it.

    Raises:
        NotFound: The model or version does not exist.
        Deleted: It was deleted before.
    """
    store = DependentStore(session)
    model_id = store.lock_model(model)
    doomed = store.find(model, model_id, number, lock=lock) if model_id is not None else None
    if doomed is None or not doomed.versions:
        raise not_found.no_version(session, model, number)
    return doomed


def delete_versions(
    session: Session,
    doomed: Doomed,
    *,
    by: Actor,
    reason: str,
    refused: tuple[tuple[str, str], ...] = (),
    forced: bool = False,
) -> None:
    """Remove versions with their rows and references, and leave a tombstone for each.

    Args:
        refused: Kind and digest of blobs that nobody may store again.
    """
    store = DependentStore(session)
    store.unlink(doomed.owners)
    store.remove(doomed)
    for version, number in doomed.versions.items():
        builds = [build for build in doomed.builds if build.version == version]
        tombstone = Tombstone(
            "version",
            f"{doomed.model}@{number}",
            reason,
            by.principal,
            doomed.model,
            number,
            forced,
            artifacts=tuple(build.artifact for build in builds if build.artifact),
            refused=refused,
            builds=tuple(build.id for build in builds),
        )
        TombstoneStore(session).add(tombstone)


def _is_readable(session: Session, digest: Digest) -> bool:
    return readable().everything or VisibilityStore(session).blob(digest)


def _needs_of_blob(digest: Digest, blob: OwnedBlob) -> tuple[KeptThing, ...]:
    named = blob.needed_by[:MAX_NAMED]
    reasons = [f"{name} needs it" for name in named]
    hidden = blob.others - len(named)
    if hidden:
        reasons.append(f"{format_count(hidden, 'other version')} or logs need it")
    if blob.leased:
        reasons.append("an upload or a build is about to refer to it, for at most six hours")
    return (KeptThing(digest, tuple(reasons)),) if reasons else ()


def _plan(session: Session, name: str, doomed: Doomed, *, extra: tuple[str, ...] = ()) -> DeletionPlan:
    store = DependentStore(session)
    return DeletionPlan(
        name,
        (doomed,),
        (*list_goes(doomed, store.measurements(doomed)), *extra),
        list_needs(doomed, find_needs(session, doomed)),
        tuple(SharedBlobStore(session).of(doomed)),
    )
