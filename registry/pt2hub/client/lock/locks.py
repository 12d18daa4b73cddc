"""Lock files and the cache: locking, and pulling what is locked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pt2hub.client.lock.lock_file import read_lock, write_lock
from pt2hub.client.lock.locked_puller import LockedPuller
from pt2hub.domain.locks import Lock
from pt2hub.errors import InvalidInput, LockOutdated, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from pt2hub.client.artifacts.puller import Puller
    from pt2hub.client.availability import Availability
    from pt2hub.client.blobs.cache import BlobCache
    from pt2hub.client.config import ClientConfig
    from pt2hub.client.http.transport import Transport
    from pt2hub.client.lock.declarations import Project
    from pt2hub.client.lock.locker import Upgrade


class MakePuller(Protocol):
    """Makes a puller."""

    def __call__(self, availability: Availability, *, server: str | None = None) -> Puller:
        """Return a puller.

        Args:
            server: Address of a server that only the lock names; it gets no token.
        """
        ...


@dataclass(frozen=True, slots=True)
class LockUpdate:
    """An update of a lock file.

    Attributes:
        before: The lock before; None if there was none.
        after: The lock now.
        written: Whether the file changed.
    """

    before: Lock | None
    after: Lock
    written: bool


class Locks:
    """Lock files of one client. Nothing is sent before the first method is called."""

    def __init__(
        self, config: ClientConfig, connect: Callable[[str | None], Transport], make_puller: MakePuller
    ) -> None:
        self._config = config
        self._connect = connect
        self._make_puller = make_puller

    def update(
        self,
        project: Project,
        references: Collection[str] = (),
        *,
        removed: Collection[str] = (),
        targets: Sequence[str] | None = None,
        upgrade: Upgrade,
    ) -> LockUpdate:
        """Bring a lock file up to date with what is declared; locked versions are kept unless they are upgraded.

        Args:
            references: Further references, if no file declares them.
            removed: References to remove, likewise.
            targets: The only targets to lock, empty for all; as declared, or else as before, where omitted.

        Raises:
            InvalidInput: Nothing is to be locked, or the references are declared in a file.
            Pt2hubError: As for `Locker.lock`, `read_lock` and `write_lock`.
        """
        from pt2hub.client.lock.locker import Locker

        before = read_lock(project.lock) if project.lock.exists() else None
        wanted = _wanted(project, before, references, removed)
        if targets is None:
            declared = project.declaration.targets if project.declaration else ()
            targets = declared or (before.targets if before else ())
        server = self._server_of(before)
        puller = self._make_puller(self._config.availability, server=server)
        locker = Locker(lambda: self._connect(server), puller, server or self._config.url)
        after = locker.lock(before, wanted, targets, upgrade)
        return LockUpdate(before, after, write_lock(project.lock, after))

    def check(self, project: Project) -> Lock:
        """Return the lock of a project, unchanged.

        Raises:
            LockOutdated: It does not match what is declared; the details name each difference.
            NotFound: There is none.
        """
        lock = read_lock(project.lock)
        differences = project.declaration.differences(lock) if project.declaration else ()
        if differences:
            raise LockOutdated(
                where=str(project.lock),
                hint="To bring it up to date: pt2hub lock",
                details=differences,
            )
        return lock

    def cache(self) -> BlobCache:
        """Return the cache of pulled files."""
        from pt2hub.client.blobs.cache import BlobCache

        return BlobCache(self._config.cache, shared=self._config.shared_cache)

    def puller(
        self, path: str | Path, *, lock: Lock | None = None, availability: Availability | None = None
    ) -> LockedPuller:
        """Return what pulls from a lock: from the configured server, or the lock's if none is configured.

        Args:
            path: The lock file.
            lock: Its content, if it was read already.
            availability: What holds while the server is away; as configured where omitted.
        """
        found = lock or read_lock(Path(path))
        given = availability or self._config.availability
        given = replace(given, storage=given.storage or found.storage)
        server = self._server_of(found)
        puller = self._make_puller(given, server=server)
        return LockedPuller(puller, found, Path(path), server or self._config.url)

    def _server_of(self, lock: Lock | None) -> str | None:
        """Return the lock's server if none is configured; None for the configured one."""
        return None if lock is None or self._config.has_server else lock.server.rstrip("/")


def _wanted(
    project: Project, before: Lock | None, references: Collection[str], removed: Collection[str]
) -> set[str]:
    declaration = project.declaration
    if declaration is None:
        locked = set(before.references) if before else set()
        if unknown := sorted(set(removed) - locked):
            raise NotFound(
                f"{', '.join(unknown)} is not locked",
                where=str(project.lock),
                hint=f"Locked: {', '.join(sorted(locked)) or 'nothing'}.",
            )
        wanted = locked - set(removed) | set(references)
        if not wanted and before is None:
            raise InvalidInput(
                "Nothing to lock",
                where=str(project.lock),
                hint="Name references, as in pt2hub lock vision/resnet18@prod, or declare them in pyproject.toml: "
                '[tool.pt2hub] models = ["vision/resnet18@prod"]',
            )
        return wanted
    if removed or not set(references) <= set(declaration.models):
        named = ", ".join(sorted({*removed, *references}.difference(set(declaration.models) - set(removed))))
        raise InvalidInput(
            f"The locked references are declared in {declaration.file.name}",
            where=str(declaration.file),
            hint=f"Change models of [tool.pt2hub] there ({named}), then run pt2hub lock.",
        )
    return set(declaration.models)
