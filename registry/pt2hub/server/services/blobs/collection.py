"""The blob collector: removes blobs that nothing needs, beside publishes, pulls, crashes and other collectors.

The steps are those of `db.stores.blobs.garbage`. Every batch is complete in itself: a process that dies loses only its
place, and two that run at once do each other's work. Nothing is removed but exact generations whose rows no push ever
returns to, so a collector may be arbitrarily late.
"""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING

import structlog

from pt2hub.domain.codec import encode
from pt2hub.errors import CollectionRefused, StorageUnavailable
from pt2hub.rendering.quantities import format_count
from pt2hub.server.blobs.ports import PresignedTransfers
from pt2hub.server.db.stores.blobs.collections import PATIENT, CollectionStore
from pt2hub.server.db.stores.blobs.garbage import GarbageStore
from pt2hub.server.db.stores.operations.reindex_state import ReindexState
from pt2hub.server.db.stores.retention.tombstones import TombstoneStore
from pt2hub.server.services.blobs.quarantine import empty_quarantine
from pt2hub.server.services.blobs.uploads import PRESIGNED_LIFETIME_S
from pt2hub.server.services.reindexing import explain_reindex_due
from pt2hub.wire.collections import CollectionReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pt2hub.domain.storage import CollectionSchedule, Kind
    from pt2hub.server.blobs.keys import StorageKey
    from pt2hub.server.blobs.ports import Storage
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.stores.blobs.garbage import Garbage

    OnProgress = Callable[[CollectionReport], object]

_BATCH = 1000
"""Rows of a transaction, and objects of a request to S3."""
_MAX_STUCK = 3
"""Objects in a row that cannot be removed: then the storage is away, and each would wait for its time-outs."""
_KINDS: tuple[Kind, ...] = ("blobs", "manifests")
_SCHEDULE, _OPERATOR = "schedule", "operator"
_log = structlog.get_logger(__name__)


class BlobCollection:
    """The steps of a collection, each of which may be the last of its process.

    Args:
        grace: How long ago a blob must have changed or lost its last reference.
    """

    def __init__(self, sessions: Sessions, storage: Storage, *, grace: timedelta) -> None:
        self._sessions = sessions
        self._storage = storage
        self._grace = grace
        # A presigned URL that was handed out a moment before the mark must work as long as it says.
        signs = isinstance(storage, PresignedTransfers)
        self._readable = timedelta(seconds=PRESIGNED_LIFETIME_S if signs else 0)

    def check(self) -> None:
        """Refuse to collect where references are missing, as after a restore of the database.

        Raises:
            CollectionRefused: An artifact or a version needs a blob that nothing refers to, or a reindex did not end
                or could not read everything.
        """
        with self._sessions.begin() as session:
            session.execute(PATIENT)
            due = explain_reindex_due(session)
            losses = ReindexState(session).losses()
            found = GarbageStore(session).unprotected() if losses == 0 else None
        if due:
            raise CollectionRefused(f"Nothing was collected: {due[0]}", hint=due[1])
        if losses is None:
            raise CollectionRefused(
                "Nothing was collected: a reindex has not ended, so that blobs lack references",
                hint="Wait for it. If none runs, run pt2hub admin reindex, and collect again.",
            )
        if losses:
            raise CollectionRefused(
                f"Nothing was collected: the last reindex could not read {format_count(losses, 'document')}, and what "
                "they name lacks references",
                hint="Run pt2hub admin heal, then pt2hub admin reindex, and collect again. If they are lost for good: "
                "pt2hub admin reindex --accept-losses lets the collector take what only they name.",
            )
        if found:
            raise CollectionRefused(
                f"Nothing was collected: nothing refers to {found[1]}, which {found[0]} needs",
                where=found[0],
                hint="The database lacks references. Run pt2hub admin reindex, which restores them, and collect again.",
            )

    def mark(self) -> Iterator[list[Garbage]]:
        """Mark what nothing needs, batch by batch; stop if a reindex begins, whose blobs lack references until it ends."""
        after = None
        while True:
            with self._sessions.begin() as session:
                session.execute(PATIENT)
                if ReindexState(session).losses() != 0:
                    return
                store = GarbageStore(session)
                found = store.candidates(after, grace=self._grace, limit=_BATCH)
                marked = store.mark(found, grace=self._grace) if found else []
            yield marked
            if len(found) < _BATCH:
                return
            after = found[-1]

    def marked(self) -> Iterator[list[Garbage]]:
        """Yield what is marked and can no longer be read by presigned URLs, batch by batch; stop if a reindex is due."""
        after = None
        while True:
            with self._sessions.begin() as session:
                session.execute(PATIENT)
                is_due = ReindexState(session).is_due()
                found = GarbageStore(session).marked(after, readable=self._readable, limit=_BATCH)
            if is_due or not found:
                return
            yield found
            after = found[-1].key

    def remove(self, garbage: Sequence[Garbage]) -> list[Garbage]:
        """Remove the objects of marked blobs; missing ones are ignored.

        Of blobs that a forced deletion refuses nothing stays in quarantine either.

        Returns:
            Those whose objects are gone: the storage may refuse single ones.
        """
        stuck = self._remove_objects([item.key for item in garbage])
        garbage = [item for item in garbage if item.key not in stuck]
        keys = [item.key for item in garbage]
        with self._sessions.begin() as session:
            refused = TombstoneStore(session).refused_among([key.digest for key in keys])
        empty_quarantine(self._storage, [key for key in keys if (key.kind, key.digest) in refused])
        return garbage

    def finish(self, garbage: Sequence[Garbage]) -> list[int]:
        """Turn the marks of removed blobs into tombstones; return the sizes of those that this call turned."""
        with self._sessions.begin() as session:
            return GarbageStore(session).finish([item.key for item in garbage])

    def sweep(self) -> Iterator[tuple[int, int, int, int]]:
        """List the storage and remove dead objects; stop if a reindex is due.

        Yields:
            The numbers of objects listed, removed, without a row, and that the storage did not remove, of each batch.
        """
        for kind in _KINDS:
            keys = iter(self._storage.keys(kind))
            while batch := list(islice(keys, _BATCH)):
                with self._sessions.begin() as session:
                    if ReindexState(session).is_due():  # another database, noticed since the collection began
                        return
                    found = GarbageStore(session).dead(batch, readable=self._readable)
                stuck = self._remove_objects(found.dead)
                yield len(batch), len(found.dead) - len(stuck), len(found.unknown), len(stuck)

    def _remove_objects(self, keys: Sequence[StorageKey]) -> set[StorageKey]:
        """Remove objects; return those that the storage refuses to remove, which must not keep the others.

        Raises:
            StorageUnavailable: It refuses several in a row, or does not answer.
        """
        if not keys:
            return set()
        try:
            self._storage.remove(keys)
        except StorageUnavailable:
            return self._remove_each(keys)
        return set()

    def _remove_each(self, keys: Sequence[StorageKey]) -> set[StorageKey]:
        stuck: set[StorageKey] = set()
        in_a_row = 0
        for key in keys:
            try:
                self._storage.remove([key])
                in_a_row = 0
            except StorageUnavailable as error:
                stuck.add(key)
                in_a_row += 1
                if in_a_row == _MAX_STUCK:
                    raise
                _log.warning("an object was not removed", path=key.path, error=str(error))
        return stuck


class CollectorService:
    """Collects blobs by schedule and on request.

    Args:
        check_writer: Notices another database that writes to the storage.
        chores: What is abandoned beside blobs: uploads and partly written files.
    """

    def __init__(
        self,
        sessions: Sessions,
        storage: Storage,
        *,
        schedule: CollectionSchedule,
        check_writer: Callable[[], object] = lambda: None,
        chores: Sequence[Callable[[], object]] = (),
    ) -> None:
        self._sessions = sessions
        self._storage = storage
        self._schedule = schedule
        self._check_writer = check_writer
        self._chores = chores

    def collect(
        self, *, grace: timedelta | None = None, on_progress: OnProgress | None = None
    ) -> CollectionReport:
        """Collect now.

        Args:
            grace: Instead of the schedule's.
            on_progress: Called after each batch.

        Raises:
            CollectionRefused: The database lacks references.
            StorageUnavailable: The storage does not answer; the next run goes on.
        """
        with self._sessions.begin() as session:
            run = CollectionStore(session).begin(_OPERATOR, every=timedelta())
        return self._run(run, grace, on_progress)

    def is_due(self) -> bool:
        """Return whether no process collected within the schedule's interval."""
        every = self._schedule.every
        if not every:
            return False
        with self._sessions.begin() as session:
            return CollectionStore(session).is_due(every=every)

    def collect_if_due(self) -> CollectionReport | None:
        """Collect if no process did within the schedule's interval; return None where nothing was due."""
        every = self._schedule.every
        if not every:
            return None
        with self._sessions.begin() as session:
            run = CollectionStore(session).begin(_SCHEDULE, every=every)
        if run is None:
            return None
        report = self._run(run, None, None)
        if report.removed or report.marked or report.orphans:
            _log.info("blobs collected", **encode(report))
        return report

    def preview(self, *, grace: timedelta | None = None) -> CollectionReport:
        """Return what a collection would mark now, and what already waits for its removal."""
        began = time.monotonic()
        with self._sessions.begin() as session:
            session.execute(PATIENT)
            store = GarbageStore(session)
            marked, size = store.summary(grace=self._schedule.grace if grace is None else grace)
            unneeded, whole = store.summary(grace=timedelta())
            report = CollectionReport(
                dry_run=True,
                marked=marked,
                marked_bytes=size,
                in_grace=max(0, unneeded - marked),
                in_grace_bytes=max(0, whole - size),
            )
        return replace(self._with_totals(report), seconds=time.monotonic() - began)

    def _run(
        self, run: int | None, grace: timedelta | None, on_progress: OnProgress | None
    ) -> CollectionReport:
        began = time.monotonic()
        steps = BlobCollection(
            self._sessions, self._storage, grace=self._schedule.grace if grace is None else grace
        )
        self._check_writer()
        steps.check()
        report = CollectionReport()
        for report in _reports(steps):
            if on_progress:
                on_progress(report)
        for chore in self._chores:
            chore()
        report = replace(self._with_totals(report), seconds=time.monotonic() - began)
        if run is not None:
            with self._sessions.begin() as session:
                CollectionStore(session).end(run, encode(report))
        return report

    def _with_totals(self, report: CollectionReport) -> CollectionReport:
        with self._sessions.begin() as session:
            session.execute(PATIENT)
            store = GarbageStore(session)
            waiting, waiting_bytes = store.waiting()
            stored, referenced = store.sharing()
        return replace(
            report,
            waiting=waiting,
            waiting_bytes=waiting_bytes,
            stored_bytes=stored,
            referenced_bytes=referenced,
        )


def _reports(steps: BlobCollection) -> Iterator[CollectionReport]:
    """Run all steps, and yield the counts after each batch."""
    report = CollectionReport()
    for marked in steps.mark():
        size = report.marked_bytes + sum(item.size for item in marked)
        yield (report := replace(report, marked=report.marked + len(marked), marked_bytes=size))
    for batch in steps.marked():
        gone = steps.remove(batch)
        sizes = steps.finish(gone)
        removed, size = report.removed + len(sizes), report.removed_bytes + sum(sizes)
        stuck = report.stuck + len(batch) - len(gone)
        yield (report := replace(report, removed=removed, removed_bytes=size, stuck=stuck))
    for listed, dead, unknown, stuck in steps.sweep():
        yield (
            report := replace(
                report,
                listed=report.listed + listed,
                orphans=report.orphans + dead,
                unknown=report.unknown + unknown,
                stuck=report.stuck + stuck,
            )
        )
