"""Pulls what a lock file pins."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from pt2hub.client.lock.lock_verification import require_targets
from pt2hub.errors import Incompatible, LockMismatch, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pt2hub.client.artifacts.local import LocalArtifact
    from pt2hub.client.artifacts.puller import Puller
    from pt2hub.client.blobs.cache import Verify
    from pt2hub.domain.locks import Lock, LockedModel


class LockedPuller:
    """Pulls what a lock file pins. No server is asked what a reference means.

    Args:
        puller: Pulls from where the lock says.
        path: The lock file, for errors.
        server: Address of the server that is asked for files.
    """

    def __init__(self, puller: Puller, lock: Lock, path: Path, server: str) -> None:
        self.lock = lock
        self._puller = puller
        self._path = path
        self._server = server

    def close(self) -> None:
        """Close idle connections."""
        self._puller.close()

    def pull(  # the options of a pull, by name
        self,
        name: str,
        *,
        target: str | None = None,
        device: str | None = None,
        verify: Verify = "stat",
        progress: bool | None = None,
        files: bool = True,
    ) -> LocalArtifact:
        """Bring a locked artifact into the cache.

        Args:
            name: A locked reference, or a model of which one reference is locked.
            target: The target wanted; where omitted, the locked one that suits this machine best.
            device: As for `Puller.pull`.
            files: Whether the attached files are pulled too.

        Raises:
            NotFound: The reference or the target is not locked.
            Incompatible: None of the locked artifacts runs here.
            LockMismatch: The artifact is not as it was locked, or does not exist.
            Pt2hubError: As for `Puller.pull`.
        """
        locked = self.lock.find(name, where=str(self._path))
        if target and target not in locked.targets:
            raise NotFound(
                f"{locked.reference} is not locked for {target}",
                where=str(self._path),
                hint=f"Locked targets: {', '.join(locked.targets)}.",
            )
        with self._errors(locked):
            return self._puller.pull(
                locked.reference,
                target=target,
                device=device,
                verify=verify,
                progress=progress,
                locked=locked,
                files=files,
            )

    def pull_all(
        self, targets: Sequence[str] = (), *, progress: bool | None = None
    ) -> Iterator[tuple[LockedModel, LocalArtifact]]:
        """Bring every locked reference into the cache, and check every entry, for other machines too.

        Args:
            targets: The targets wanted, of each reference those that are locked; where omitted, the one that suits this
                machine best.

        Raises:
            NotFound: Nothing is locked for a target, or a reference for none of them.
            Pt2hubError: As for `pull`.
        """
        require_targets(self.lock, targets, where=str(self._path))
        for locked in self.lock.models:
            with self._errors(locked):
                self._puller.check(locked)
            for target in self._targets(locked, targets):
                yield locked, self.pull(locked.reference, target=target, progress=progress)

    def _targets(self, locked: LockedModel, targets: Sequence[str]) -> Sequence[str | None]:
        if not targets:
            return [None]
        return [target for target in locked.targets if target in targets]

    @contextmanager
    def _errors(self, locked: LockedModel) -> Iterator[None]:
        """Say where the lock is in errors about it."""
        try:
            yield
        except Incompatible as exc:
            if (exc.hint or "").endswith("--wait"):  # the command that builds one
                exc.hint = f"{exc.hint}, then lock it: pt2hub lock --upgrade {locked.reference}"
            raise
        except LockMismatch as exc:
            exc.where = f"{self._path}: {exc.where}"
            raise
        except NotFound as exc:
            other = (
                ""
                if self._server == self.lock.server
                else f" It was written for {self.lock.server}: set PT2HUB_URL."
            )
            raise LockMismatch(
                f"{self._server} does not have what is locked: {exc.message}",
                where=f"{self._path}: {locked.reference}",
                hint=f"The lock file was edited, or the artifact was removed.{other} To lock it again: pt2hub lock "
                f"--upgrade {locked.reference}",
            ) from exc
