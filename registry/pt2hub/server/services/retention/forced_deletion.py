"""Forced deletion of versions whose bytes must not be served: leaked weights, personal data in example inputs.

Unlike a deletion, it does not stop at aliases, removes the objects at once instead of after a grace, and refuses their
digests from then on. What other versions share must be dealt with explicitly, so that none of them breaks.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import structlog

from pt2hub.domain.audit import Action
from pt2hub.domain.digests import Digest
from pt2hub.domain.names import Reference
from pt2hub.domain.storage import FIRST
from pt2hub.errors import Detail, InvalidInput, StillNeeded, TransientError
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.blobs.garbage import GarbageStore
from pt2hub.server.db.stores.promotion.aliases import AliasStore
from pt2hub.server.db.stores.retention.dependents import DependentStore
from pt2hub.server.db.stores.retention.shared_blobs import SharedBlobStore
from pt2hub.server.services.access import audit_log
from pt2hub.server.services.access.tokens import check_admin
from pt2hub.server.services.blobs.quarantine import empty_quarantine
from pt2hub.server.services.blobs.uploads import PRESIGNED_LIFETIME_S
from pt2hub.server.services.promotion.reasons import check_reason
from pt2hub.server.services.retention.deletion import delete_versions, find_version
from pt2hub.server.services.retention.earlier_documentation import find_earlier_documentation
from pt2hub.server.services.retention.plans import (
    TRIVIAL_BYTES,
    DeletionPlan,
    blob_title,
    find_needs,
    is_shared,
    list_goes,
    list_unfinished,
    must_be_decided,
    sharing_text,
)
from pt2hub.wire.retention import KeptThing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy.orm import Session

    from pt2hub.domain.storage import Kind
    from pt2hub.domain.tokens import Actor
    from pt2hub.server.blobs.ports import Storage
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.stores.retention.dependents import Doomed
    from pt2hub.server.db.stores.retention.shared_blobs import OwnedBlob
    from pt2hub.server.services.retention.deletion import DeletionService
    from pt2hub.wire.retention import DeletionView

_MAX_SHARING = 1000
_MAX_LEFT = 1000
"""Objects of one maintenance pass."""
_log = structlog.get_logger(__name__)


class ForcedDeletionService:
    """Deletes versions by force."""

    def __init__(self, sessions: Sessions, storage: Storage, deletion: DeletionService) -> None:
        self._sessions = sessions
        self._storage = storage
        self._deletion = deletion

    def delete(  # noqa: PLR0913  # all by name
        self,
        model: str,
        number: int,
        *,
        by: Actor,
        reason: str = "",
        also: Sequence[str] = (),
        keep_shared: bool = False,
        dry_run: bool = False,
    ) -> DeletionView:
        """Delete a version and remove its bytes at once.

        Aliases on it are removed, and documentation that it had before goes too. Its digests are not served any more and cannot
        be stored again, but for code that contains no weights.

        Args:
            also: Further versions, `team/name@4`, that are deleted with it because they share its bytes.
            keep_shared: Whether blobs that other versions need stay, and are served.
            dry_run: Only return what would be done.

        Raises:
            Forbidden: The actor is not an admin of each model.
            InvalidInput: A name or the reason is malformed.
            NotFound: A model or version does not exist.
            StorageUnavailable: The storage does not answer, so that documentation that it had before is not found.
            StillNeeded: A build has not ended, or other versions need its blobs and neither `also` nor `keep_shared`
                says what happens to them.
        """
        names = _versions(model, number, also)
        for name, _ in names:
            check_admin(by, name, doing="delete anything of it", where="version")
        why = reason if dry_run else check_reason(reason)
        earlier = find_earlier_documentation(self._sessions, self._storage, names)
        with self._sessions.begin() as session:
            doomed = tuple(find_version(session, *each, lock=not dry_run) for each in sorted(names))
            plan = _plan(session, f"{model}@{number}", doomed, earlier, keep_shared=keep_shared)
            refused = _refused(session, plan)
            if dry_run:
                return plan.view(deleted=False, forced=True, refused=[digest for _, digest in refused])
            plan.check()
            _check_shared(plan, keep_shared=keep_shared)
            exclusive = [(blob.kind, blob.digest) for blob in plan.blobs if blob.exclusive]
            _check_unneeded(session, plan, exclusive)
            removed = _remove_aliases(session, doomed, by, why)
            discarded = SharedBlobStore(session).discard(exclusive)
            main = next(each for each in doomed if (each.model, *each.versions.values()) == (model, number))
            for each in doomed:
                delete_versions(
                    session, each, by=by, reason=why, forced=True, refused=refused if each is main else ()
                )
            audit_log.record(
                session,
                by,
                Action.VERSION_DELETE,
                plan.name,
                models=sorted({each.model for each in doomed}),
                reason=why,
                forced=True,
                also=list(also),
                aliases=removed,
                artifacts=[artifact for each in doomed for artifact in each.artifacts],
                refused=[digest for _, digest in refused],
            )
        self._remove(_keys(discarded))
        self._deletion.write_documents()
        return plan.view(deleted=True, forced=True, refused=[digest for _, digest in refused])

    def find_sharing(self, model: str, number: int, also: Sequence[str] = ()) -> list[str]:
        """Return versions, `team/name@4`, that must be deleted with a version so that none of its bytes stays served.

        They share its bytes, or those of others among them. Versions that may not be read are left out; the deletion is
        refused for these.

        Raises:
            InvalidInput: A name is malformed, or there are too many.
            NotFound: A model or version does not exist.
        """
        known = set(_versions(model, number, also))
        with self._sessions.begin() as session:
            while len(known) <= _MAX_SHARING:
                doomed = [find_version(session, *each, lock=False) for each in sorted(known)]
                blobs = filter(must_be_decided, SharedBlobStore(session).of(*doomed))
                found = {_parse(name) for blob in blobs for name in blob.needed_by} - known
                if not found:
                    return [f"{name}@{each}" for name, each in sorted(known - {(model, number)})]
                known |= found
        raise InvalidInput(
            f"More than {_MAX_SHARING:,} versions share bytes with {model}@{number} or one another",
            where="also_sharing",
            hint="Delete them in several calls: name some in also, and leave the rest served with keep_shared.",
        )

    def remove_left(self) -> None:
        """Remove objects that a deletion left, and those that came back while presigned URLs of them are valid.

        A maintenance task. A process may have died, or the storage not have answered. An upload that was under way writes the
        object again, which nothing else removes before the collector.
        """
        with self._sessions.begin() as session:
            found = SharedBlobStore(session).left(timedelta(seconds=PRESIGNED_LIFETIME_S), _MAX_LEFT)
        removed = _keys(
            [(kind, digest, number) for kind, digest, number, state in found if state == "deleted"]
        )
        left = _keys([(kind, digest, number) for kind, digest, number, state in found if state == "deleting"])
        if removed:
            self._storage.remove(removed)
        if left:
            self._remove(left)

    def _remove(self, keys: list[StorageKey]) -> None:
        """Remove objects now: presigned URLs of them end too. Their rows are marked, so nothing serves them any more.

        Earlier generations that a collection has not removed yet are the same bytes, and what was damaged and put away
        mostly is: they go too.
        """
        try:
            self._storage.remove([earlier for key in keys for earlier in _generations(key)])
            empty_quarantine(self._storage, keys)
        except TransientError as error:
            _log.warning("objects of a forced deletion are removed later", error=str(error))
            return
        with self._sessions.begin() as session:
            GarbageStore(session).finish(keys)


def _keys(blobs: Sequence[tuple[Kind, str, int]]) -> list[StorageKey]:
    return [StorageKey(kind, Digest(digest), generation) for kind, digest, generation in blobs]


def _generations(key: StorageKey) -> list[StorageKey]:
    """Return a key in its generation and all before it."""
    return [key.at(generation) for generation in range(FIRST, (key.generation or FIRST) + 1)]


def _versions(model: str, number: int, also: Sequence[str]) -> list[tuple[str, int]]:
    if len(also) > _MAX_SHARING:
        raise InvalidInput(
            f"{len(also)} versions are too many (at most {_MAX_SHARING:,})",
            where="also",
            hint="Delete them in several calls.",
        )
    return list(dict.fromkeys([(model, number), *map(_parse, also)]))


def _parse(text: str) -> tuple[str, int]:
    """Return the model and number of a version."""
    wanted = Reference.parse(text)
    if wanted.number is None:
        raise InvalidInput(
            f"also must name a version by its number, got {text[:200]!r}",
            where="also",
            hint="Use team/name@4.",
        )
    return wanted.model, wanted.number


def _plan(
    session: Session,
    name: str,
    doomed: tuple[Doomed, ...],
    earlier: Sequence[StorageKey],
    *,
    keep_shared: bool,
) -> DeletionPlan:
    store = DependentStore(session)
    goes = [line for each in doomed for line in list_goes(each, store.measurements(each))]
    kept = [
        KeptThing(f"{each.model}@{number}", reasons)
        for each in doomed
        for number in each.versions.values()
        if (reasons := tuple(list_unfinished(each.builds)))
    ]
    shared = SharedBlobStore(session)
    found = [
        *shared.of(*doomed),
        *shared.exclusive_of(doomed, [(key.kind, key.digest) for key in earlier]),
    ]
    blobs = tuple({(blob.kind, blob.digest): blob for blob in found}.values())
    return DeletionPlan(
        name, doomed, tuple(goes), tuple(kept), blobs, tuple(_notes(session, doomed, blobs, keep_shared))
    )


def _notes(
    session: Session, doomed: Sequence[Doomed], blobs: Sequence[OwnedBlob], keep_shared: bool
) -> Iterator[str]:
    gone = {f"{each.model}@{number}" for each in doomed for number in each.versions.values()}
    for each in doomed:
        needs = find_needs(session, each)
        for aliases in needs.aliases.values():
            yield from (f"the alias {alias} of {each.model} is removed" for alias in aliases)
        for aliases in needs.rollbacks.values():
            yield from (f"{alias} of {each.model} cannot roll back to it any more" for alias in aliases)
        for names in needs.baselines.values():
            yield from (f"{name} loses its comparison with it" for name in names if name not in gone)
    for blob in (each for each in blobs if is_shared(each)):
        stays = keep_shared or not must_be_decided(blob)
        what = "stays and is served" if stays else "delete these versions too, or leave it served"
        yield f"{blob_title(blob)}, {sharing_text(blob)}: {what}"


def _check_shared(plan: DeletionPlan, *, keep_shared: bool) -> None:
    shared = [blob for blob in plan.blobs if must_be_decided(blob)]
    if not shared or keep_shared:
        return
    others = list(dict.fromkeys(name for blob in shared for name in blob.needed_by))
    raise StillNeeded(
        f"Cannot delete {plan.name} by force: other versions need {len(shared)} of its blobs",
        where="version",
        hint="To delete these versions too, set also_sharing, or name each in also. To leave the shared blobs served, "
        "set keep_shared.",
        details=tuple(Detail(blob_title(blob), sharing_text(blob)) for blob in shared),
        context={"shared": [blob.digest for blob in shared], "versions": others},
    )


def _check_unneeded(session: Session, plan: DeletionPlan, blobs: Sequence[tuple[Kind, str]]) -> None:
    """Refuse to remove blobs to which a publish began to refer after the plan was made; lock them otherwise."""
    needed = SharedBlobStore(session).lock_exclusive(plan.doomed, blobs)
    if needed:
        raise StillNeeded(
            f"Cannot delete {plan.name} by force: another version begins to need {needed[0]}",
            where="version",
            hint="Nothing was deleted. Look again: a dry run shows what shares its bytes.",
            context={"shared": needed},
        )


def _refused(session: Session, plan: DeletionPlan) -> tuple[tuple[str, str], ...]:
    """Return the blobs that nobody may store again: not empty documents, nor code, which other weights may use again.

    Code with weights in it (`weights: baked`) is refused.
    """
    artifacts = [artifact for each in plan.doomed for artifact in each.artifacts]
    code = SharedBlobStore(session).code_without_weights(artifacts, least=TRIVIAL_BYTES)
    return tuple(
        (blob.kind, blob.digest)
        for blob in plan.blobs
        if blob.exclusive and blob.size > TRIVIAL_BYTES and blob.digest not in code
    )


def _remove_aliases(session: Session, doomed: Sequence[Doomed], by: Actor, reason: str) -> list[str]:
    store, removed = AliasStore(session), []
    for each in doomed:
        for names in store.on_versions(each.versions).values():
            for name in names:
                alias = store.hold(each.model_id, name, create=False)
                if alias is not None:
                    store.move(alias, number=None, version_id=None, reason=reason, by=by.principal)
                    removed.append(f"{each.model}@{name}")
    return removed
