"""Retrieval of one blob into a folder, by whichever of the machine's processes leads its download."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from pt2hub.client.blobs.cache import mismatch
from pt2hub.client.blobs.download import Download
from pt2hub.client.blobs.folder import FILE_MODE
from pt2hub.client.blobs.leader import Election
from pt2hub.client.blobs.partial import LeadershipLost, PartialFile
from pt2hub.client.blobs.records import regular_stamp
from pt2hub.client.blobs.sweep import sweep
from pt2hub.client.http.ranges import SourceChanged
from pt2hub.domain.digests import hex_of
from pt2hub.errors import BadResponse, TransientError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pt2hub.client.blobs.download import BlobSource
    from pt2hub.client.blobs.folder import BlobFolder, Verify
    from pt2hub.client.blobs.leader import Leader
    from pt2hub.client.blobs.records import Stamp
    from pt2hub.domain.digests import Digest

_POLL_SECONDS = (0.05, 0.2)
"""How often a process looks at another one's download; random, so that many do not look at once."""


class Retrieval:
    """The retrieval of one blob.

    Args:
        seen: Takes the number of bytes that are there.
    """

    def __init__(
        self,
        folder: BlobFolder,
        digest: Digest,
        size: int,
        source: BlobSource,
        seen: Callable[[int], None],
        *,
        damaged: Stamp | None,
    ) -> None:
        self._folder = folder
        self._digest = digest
        self._size = size
        self._source = source
        self._seen = seen
        self._path = folder.path(digest)
        self._refused = damaged

    def run(self, verify: Verify) -> Path:
        """Download the blob, or wait until another process did; see `BlobCache.get`."""
        self._folder.make()
        sweep(self._folder)
        election = Election(self._folder.leaders / hex_of(self._digest), self._source.server)
        while True:
            leader = election.try_lead()
            try:
                if found := self._find(verify):
                    return found
                if leader:
                    return self._lead(leader)
            except LeadershipLost:  # this process was stopped for a while, and another one goes on
                continue
            finally:
                if leader:
                    leader.release()
            self._seen(election.received)
            time.sleep(random.uniform(*_POLL_SECONDS))  # noqa: S311  # no secret depends on it

    def _find(self, verify: Verify) -> Path | None:
        """Return the file if another process stored it meanwhile."""
        now = regular_stamp(self._path)
        if now == self._refused:
            return None
        self._refused = now
        return self._folder.find(self._digest, verify=verify)

    def _lead(self, leader: Leader) -> Path:
        def watch(done: int) -> None:
            leader.beat(done)
            self._seen(done)

        name = hex_of(self._digest)
        partial = PartialFile.open(
            self._folder.partial, name, self._size, watch=watch, resume=leader.exclusive
        )
        try:
            self._fill(partial, watch)
            partial.finish(self._path, FILE_MODE)
        except TransientError as exc:
            leader.fail(exc)
            raise
        finally:
            partial.leave()
        if found := regular_stamp(self._path):
            self._folder.record(self._path, found)
        return self._path

    def _fill(self, partial: PartialFile, watch: Callable[[int], None]) -> None:
        """Download what is missing; begin anew once if what earlier processes left turns out to be wrong."""
        changed = False
        while True:
            try:
                found = Download(self._source, partial, watch).run()
            except SourceChanged as exc:
                partial.reset()
                if changed:
                    raise BadResponse(
                        "The blob changes while it is downloaded",
                        where=self._source.url,
                        hint="Check for a proxy or a storage that answers with different files.",
                    ) from exc
                changed = True
                continue
            if found == self._digest:
                return
            resumed = partial.resumed
            partial.reset()
            if not resumed:
                raise mismatch(found, self._digest)
