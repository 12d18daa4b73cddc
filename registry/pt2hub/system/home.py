"""The home directory with the embedded default's data, used by one server at a time."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import filelock

from pt2hub.errors import HomeInUse, HomeUnusable
from pt2hub.places import SETTINGS_NAME
from pt2hub.system.settings_file import SettingsFile

if TYPE_CHECKING:
    from collections.abc import Iterator

_ANOTHER = "Set PT2HUB_HOME to a writable directory."


@dataclass(frozen=True, slots=True)
class Home:
    """The paths of one home.

    Attributes:
        settings: Settings file of clients on this machine, with the server's URL and a token; in the home if omitted.
    """

    path: Path
    settings: Path | None = None

    @property
    def database(self) -> Path:
        """Directory of the embedded PostgreSQL."""
        return self.path / "server" / "db"

    @property
    def logs(self) -> Path:
        """Directory of the API's and the worker's logs."""
        return self.path / "server" / "logs"

    @property
    def settings_file(self) -> SettingsFile:
        """Settings file of clients on this machine."""
        return SettingsFile(self.settings or self.path / SETTINGS_NAME)

    @property
    def _state(self) -> Path:
        return self.path / "server" / "up.json"

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Create the home if necessary and lock it against other servers.

        Raises:
            HomeUnusable: It cannot be created or written.
            HomeInUse: Another server holds it; the error says which.
        """
        lock = filelock.FileLock(self.path / "server" / "lock", timeout=0, mode=0o600)
        with self._writing():
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self.path / "server").mkdir(mode=0o700, exist_ok=True)
            try:
                lock.acquire()
            except filelock.Timeout as exc:
                raise self._in_use() from exc
        try:
            yield
        finally:
            self._state.unlink(missing_ok=True)
            lock.release()

    def announce(self, url: str) -> None:
        """Record the holder of the home, for the error of a second server."""
        with self._writing():
            self._state.write_text(json.dumps({"pid": os.getpid(), "url": url}))

    def _in_use(self) -> HomeInUse:
        state: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            state = json.loads(self._state.read_text())
        holder = f"process {state['pid']}, serving {state['url']}," if state else "another process"
        return HomeInUse(
            f"The home is in use by {holder.rstrip(',')}.",
            where=str(self.path),
            hint="Use that server, stop it first, or set PT2HUB_HOME to another directory.",
            context=state,
        )

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise HomeUnusable(
                f"The home is not writable: {exc.strerror}.", where=str(self.path), hint=_ANOTHER
            ) from exc
