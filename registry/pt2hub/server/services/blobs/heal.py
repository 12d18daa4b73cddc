"""Replaces damaged blobs by right bytes from elsewhere."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pt2hub.domain.damage import HealOutcome
from pt2hub.domain.tokens import SERVER
from pt2hub.errors import DigestMismatch, DigestRefused, NotFound
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.blobs.verification import file_chunks
from pt2hub.server.db.stores.blobs.damage import DamageStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pt2hub.domain.digests import Digest
    from pt2hub.domain.tokens import Actor
    from pt2hub.server.db.engine import Sessions
    from pt2hub.server.db.stores.blobs.damage import BlobOwner
    from pt2hub.server.services.blobs.blob_writes import BlobService
    from pt2hub.server.services.blobs.damage import DamageService

_HOLDER = "api"
_PAGE = 100
_UPLOADED = "Publish the same spec with the same files again: the client uploads what is damaged, and nothing is built."
_BUILT = (
    "No command reproduces it: compilers do not write the same bytes twice. A cache of a client that pulled it, a mirror "
    "or a backup may have it; otherwise yank the version and publish it anew."
)
_DOCUMENTATION = (
    "Attach the file again: pt2hub file add. A manifest is replaced by the next change of the documentation."
)
_LOG = "The log is lost; nothing else needs it."
_UNNEEDED = "Nothing refers to it."


class HealSource(Protocol):
    """Where right bytes may come from.

    Attributes:
        name: How outcomes name it.
    """

    name: str

    def fetch(self, digest: Digest, folder: Path, models: Sequence[str]) -> Path | None:
        """Return a file with the bytes of a digest, which the caller verifies; None where it has none.

        Args:
            folder: Where the file may be made.
            models: Models to which a manifest may belong.
        """
        ...


class HealService:
    """Replaces damaged blobs."""

    def __init__(self, sessions: Sessions, blobs: BlobService, damage: DamageService) -> None:
        self._sessions = sessions
        self._blobs = blobs
        self._damage = damage

    def heal(
        self, digests: Sequence[Digest], sources: Sequence[HealSource], *, by: Actor = SERVER
    ) -> Iterator[HealOutcome]:
        """Replace damaged blobs, and yield what became of each.

        The right bytes are stored as the next generation, as those of any writer are, and refused as theirs are.

        Args:
            digests: Which ones, checked first; empty for all that are known to be damaged.
            sources: Where to look for the bytes, in this order.
            by: Who replaces them, for the audit log.
        """
        self._damage.recheck()
        if not digests:
            for key in self._known():
                yield self._heal(key, sources, by)
            return
        for digest in digests:
            keys = self._examine(digest)
            for key in keys:
                yield self._heal(key, sources, by)
            if not keys:
                yield HealOutcome("blobs", digest, "intact")

    def _examine(self, digest: Digest) -> list[StorageKey]:
        """Return which of the blob and the manifest with a digest are damaged, or needed and not stored.

        Raises:
            NotFound: There is neither.
        """
        keys = StorageKey.blob(digest), StorageKey.manifest(digest)
        for key in keys:
            self._damage.check_key(key, by="admin")
        with self._sessions.begin() as session:
            store = DamageStore(session)
            rows = [store.row(key) for key in keys]
            unstored = store.unstored([digest])
        if not any(rows) and not unstored:
            raise NotFound(
                f"The server never had a blob {digest}.",
                where=digest,
                hint="pt2hub admin fsck lists what is wrong.",
            )
        damaged = {StorageKey(row.key.kind, digest) for row in rows if row and row.state == "damaged"}
        return sorted(damaged | set(unstored))

    def _heal(self, key: StorageKey, sources: Sequence[HealSource], by: Actor) -> HealOutcome:
        with self._sessions.begin() as session:
            owners = DamageStore(session).owners(key)
        models = sorted({owner.model for owner in owners if owner.model})
        needed_by = tuple(map(str, owners))
        for source in sources:
            with (
                tempfile.TemporaryDirectory(prefix="pt2hub-heal-") as folder,
                suppress(DigestMismatch, NotFound),
            ):
                path = source.fetch(key.digest, Path(folder), models)
                if path is None:
                    continue
                try:
                    self._blobs.write(key, file_chunks(path), holder=_HOLDER, by=by)
                except DigestRefused as refused:  # by a forced deletion
                    advice = f"{refused.message} {refused.hint or ''}".strip()
                    return HealOutcome(key.kind, key.digest, "damaged", None, needed_by, advice)
                return HealOutcome(key.kind, key.digest, "healed", source.name, needed_by)
        return HealOutcome(key.kind, key.digest, "damaged", None, needed_by, _advice(owners))

    def _known(self) -> Iterator[StorageKey]:
        after = ("", "")
        while True:
            found = self._damage.list_damaged(_PAGE, after)
            for damage in found:
                yield StorageKey(damage.kind, damage.digest)
            if len(found) < _PAGE:
                return
            after = found[-1].kind, found[-1].digest


def _advice(owners: Sequence[BlobOwner]) -> str:
    """Return what can be done about a blob that no source has."""
    kinds = {owner.name.partition(":")[0] for owner in owners}
    if "version" in kinds:
        return _UPLOADED
    if "artifact" in kinds:
        return _BUILT
    if "documentation" in kinds:
        return _DOCUMENTATION
    return _LOG if kinds else _UNNEEDED
