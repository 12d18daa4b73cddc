"""Replaces damaged blobs by right bytes from elsewhere."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pt2hub.domain.damage import HealOutcome
from pt2hub.domain.storage import QUARANTINE
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
    from pt2hub.server.services.builds.rebuilds import RebuildService

_HOLDER = "api"
_PAGE = 100
_UPLOADED = (
    "Publish the same spec with the same files again: the client uploads what is damaged, and nothing is built. Labels of the "
    "publication replace the present ones: leave out those that were changed since."
)
_BUILT = (
    "A build wrote it. A cache of a client that pulled it, a mirror or a backup may have it, and pt2hub admin heal --rebuild "
    "builds it again, which helps if the build writes the same bytes; otherwise yank the version and publish it anew."
)
_RECORDED = (
    "No build writes it again: it contains times. A cache of a client that pulled it, a mirror or a backup may have it; "
    "otherwise yank the version and publish it anew."
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

    def __init__(
        self, sessions: Sessions, blobs: BlobService, damage: DamageService, rebuilds: RebuildService
    ) -> None:
        self._sessions = sessions
        self._blobs = blobs
        self._damage = damage
        self._rebuilds = rebuilds

    def heal(
        self,
        digests: Sequence[Digest],
        sources: Sequence[HealSource],
        *,
        rebuild: bool = False,
        by: Actor = SERVER,
    ) -> Iterator[HealOutcome]:
        """Replace damaged blobs, and yield what became of each.

        What was put away comes first, since it is right where a machine with bad memory read it wrong.
        The right bytes are stored as the next generation, as those of any writer are, and refused as theirs are.

        Args:
            digests: Which ones, checked first; empty for all that are known to be damaged.
            sources: Where to look for the bytes, in this order.
            rebuild: Whether to have built again what no source has and a build made.
            by: Who replaces them, for the audit log.
        """
        self._damage.recheck()
        if not digests:
            for key in self._known():
                yield self._heal(key, sources, by, rebuild=rebuild)
            return
        for digest in digests:
            keys = self._examine(digest)
            for key in keys:
                yield self._heal(key, sources, by, rebuild=rebuild)
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

    def _heal(
        self, key: StorageKey, sources: Sequence[HealSource], by: Actor, *, rebuild: bool
    ) -> HealOutcome:
        with self._sessions.begin() as session:
            owners = DamageStore(session).owners(key)
        models = sorted({owner.model for owner in owners if owner.model})
        needed_by = tuple(map(str, owners))
        with suppress(DigestMismatch, DigestRefused, NotFound):
            self._blobs.write(key, self._damage.read_quarantined(key), holder=_HOLDER, by=by)
            return HealOutcome(key.kind, key.digest, "healed", QUARANTINE, needed_by)
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
        if rebuild and key.kind == "blobs" and (build := self._rebuilds.request(key.digest, by=by)):
            advice = f"Build {build} builds it again: pt2hub logs -f {build}"
            return HealOutcome(key.kind, key.digest, "damaged", None, needed_by, advice, rebuild=build)
        return self._describe(key, owners, needed_by)

    def _describe(
        self, key: StorageKey, owners: Sequence[BlobOwner], needed_by: tuple[str, ...]
    ) -> HealOutcome:
        """Return what can be done about a blob that no source has, and what became of its latest rebuild."""
        built = key.kind == "blobs" and self._rebuilds.can_rebuild(key.digest)
        latest = self._rebuilds.latest(key.digest) if built else None
        advice = _advice(owners, built=built)
        if latest:
            told = (latest.error or {}).get("message")
            result = f"{latest.state}: {told}" if told else str(latest.state)
            advice = f"Rebuild {latest.id} {result}. {advice}"
        return HealOutcome(
            key.kind, key.digest, "damaged", None, needed_by, advice, rebuild=latest.id if latest else None
        )

    def _known(self) -> Iterator[StorageKey]:
        after = ("", "")
        while True:
            found = self._damage.list_damaged(_PAGE, after)
            for damage in found:
                yield StorageKey(damage.kind, damage.digest)
            if len(found) < _PAGE:
                return
            after = found[-1].kind, found[-1].digest


def _advice(owners: Sequence[BlobOwner], *, built: bool) -> str:
    """Return what can be done about a blob that no source has.

    Args:
        built: Whether it is code or weights that a build made.
    """
    if built:
        return _BUILT
    kinds = {owner.name.partition(":")[0] for owner in owners}
    if "version" in kinds:
        return _UPLOADED
    if "artifact" in kinds:
        return _RECORDED
    if "documentation" in kinds:
        return _DOCUMENTATION
    return _LOG if kinds else _UNNEEDED
