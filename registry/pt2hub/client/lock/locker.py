"""Locking: resolves declared references at the server, and keeps what is locked already."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pt2hub.client.artifacts.puller import resolve
from pt2hub.domain.locks import LOCK_SCHEMA, Lock, LockedArtifact, LockedModel, locked_files
from pt2hub.domain.names import Reference
from pt2hub.errors import BadResponse, LockMismatch, NotFound, NotReady

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from pt2hub.client.artifacts.puller import Puller
    from pt2hub.client.http.transport import Transport
    from pt2hub.domain.locks import LockedFile
    from pt2hub.domain.storage import StorageLocation
    from pt2hub.wire.resolution import ResolvedReference


@dataclass(frozen=True, slots=True)
class Upgrade:
    """Which locked references are resolved anew.

    Attributes:
        names: References, or models for all of their references.
        every: Whether all are.
    """

    names: tuple[str, ...] = ()
    every: bool = False

    def covers(self, locked: LockedModel) -> bool:
        """Return whether a locked reference is resolved anew."""
        return self.every or locked.reference in self.names or locked.model in self.names


class Locker:
    """Makes locks. Only new and upgraded references are resolved; nothing is sent for others.

    Args:
        connect: Gives the transport.
        puller: Reads manifests.
        server: Address of the server.
    """

    def __init__(self, connect: Callable[[], Transport], puller: Puller, server: str) -> None:
        self._connect = connect
        self._puller = puller
        self._server = server
        self._storage: StorageLocation | None = None
        self._asked = False

    def lock(
        self, previous: Lock | None, references: Collection[str], targets: Sequence[str], upgrade: Upgrade
    ) -> Lock:
        """Lock references.

        Args:
            previous: The lock so far, whose versions are kept.
            targets: The only targets to lock; empty for all of each version.

        Raises:
            NotFound: A reference, or a target of its version, does not exist.
            NotReady: A version has no artifact yet.
            LockMismatch: The lock so far belongs to another server.
            Pt2hubError: The server's own error.
        """
        _check_names(previous, upgrade)
        wanted = tuple(sorted(set(targets)))
        models = tuple(
            self._lock_one(reference, previous, wanted, upgrade) for reference in sorted(set(references))
        )
        if previous and not self._asked:
            return replace(previous, models=models, targets=wanted, schema=_schema(models))
        return Lock(_schema(models), self._server, models, self._storage, wanted)

    def _lock_one(
        self, reference: str, previous: Lock | None, wanted: tuple[str, ...], upgrade: Upgrade
    ) -> LockedModel:
        locked = previous.get(reference) if previous else None
        if previous is None or locked is None or upgrade.covers(locked):
            return self._resolve(reference, reference, wanted, previous)
        if _has_all(locked, wanted, all_before=not previous.targets):
            return locked.only(wanted) if wanted else locked
        pinned = f"{locked.model}@{locked.version}"  # more of the same version's targets
        if Reference.parse(reference).digest_start:  # one artifact, which no other target's may join
            pinned = reference
        return self._resolve(pinned, reference, wanted, previous)

    def _resolve(
        self, asked: str, reference: str, wanted: tuple[str, ...], previous: Lock | None
    ) -> LockedModel:
        if previous and previous.server.rstrip("/") != self._server:
            raise LockMismatch(
                f"The lock file belongs to {previous.server}, this client uses {self._server}",
                where=reference,
                hint=f"Set PT2HUB_URL={previous.server}. If the server moved, write its new address in the lock file's "
                "server line; to change to another one, delete the lock file first.",
            )
        resolved = resolve(self._connect(), asked)
        self._storage, self._asked = resolved.storage, True
        self._puller.warn_of_yank(resolved)
        only = Reference.parse(asked).digest_start
        found = {item.target: item for item in resolved.artifacts if item.digest.startswith(only)}
        names = wanted or tuple(sorted(found))
        if not names:
            raise NotReady(where=f"{resolved.model}@{resolved.number}")
        if missing := [name for name in names if name not in found]:
            raise NotFound(
                f"{resolved.model}@{resolved.number} has no artifact for {', '.join(missing)}",
                where=reference,
                hint=f"Its targets: {', '.join(sorted(found)) or 'none'}.",
            )
        described = [self._artifact(resolved, name) for name in names]
        artifacts, files = zip(*described, strict=True)
        if len(set(files)) > 1:
            raise BadResponse(
                "The artifacts of the version have different files",
                where=f"{resolved.model}@{resolved.number}",
                hint="Nothing was locked. Report this to the server's operator.",
            )
        return LockedModel(reference, resolved.number, artifacts, files[0])

    def _artifact(
        self, resolved: ResolvedReference, target: str
    ) -> tuple[LockedArtifact, tuple[LockedFile, ...]]:
        digest = next(item.digest for item in resolved.artifacts if item.target == target)
        size, manifest = self._puller.describe(resolved.model, digest)
        locked = LockedArtifact.of(target, size, digest, manifest)
        if locked is None:
            raise BadResponse(
                "The manifest lacks a layer that this pt2hub knows",
                where=f"{resolved.model}@{digest}",
                hint="A newer pt2hub may have written it; upgrade this one.",
            )
        return locked, locked_files(manifest)


def _schema(models: Sequence[LockedModel]) -> int:
    """Return the oldest schema that has what is locked, so that older clients read it if they can."""
    return LOCK_SCHEMA if any(model.files for model in models) else 1


def _check_names(previous: Lock | None, upgrade: Upgrade) -> None:
    known = {name for item in previous.models for name in (item.reference, item.model)} if previous else set()
    for name in upgrade.names:
        if name not in known:
            locked = ", ".join(previous.references) if previous else ""
            raise NotFound(f"{name} is not locked", where="upgrade", hint=f"Locked: {locked or 'nothing'}.")


def _has_all(locked: LockedModel, wanted: tuple[str, ...], *, all_before: bool) -> bool:
    """Return whether an entry has every wanted target; without names, those that its version had when it was locked."""
    return set(wanted) <= set(locked.targets) if wanted else all_before
