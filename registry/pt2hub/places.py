"""Places of pt2hub's files on this machine."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from pt2hub.errors import BadConfiguration

if TYPE_CHECKING:
    from collections.abc import Mapping

SETTINGS_NAME = "config.toml"
CACHE_NAME = "cache"


@dataclass(frozen=True, slots=True)
class Places:
    """Places of the home, the client's settings and its cache.

    Attributes:
        home: Data of the embedded server (`PT2HUB_HOME`).
        settings: The client's settings file, with a server's address and a token.
        cache: Directory of pulled files (`PT2HUB_CACHE`).
        shared_cache: Directory of pulled files that the machine's users share (`PT2HUB_SHARED_CACHE`), None if unset.
    """

    home: Path
    settings: Path
    cache: Path
    shared_cache: Path | None = None

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Places:
        """Return the places; a home that is named contains everything.

        Without one they are where the operating system expects them. Until release 0.2 everything was in the home: what
        is there already is used until there is something in the new place.

        Raises:
            BadConfiguration: The user has no home directory.
        """
        try:
            return cls._find(environ)
        except RuntimeError as exc:  # a user without an entry in the password file, as in some containers
            raise BadConfiguration(
                "The user has no home directory",
                where="HOME",
                hint="Set PT2HUB_HOME to a directory that the user can write.",
            ) from exc

    @classmethod
    def _find(cls, environ: Mapping[str, str]) -> Places:
        named, chosen, shared = (
            _absolute(value) if (value := environ.get(name)) else None
            for name in ("PT2HUB_HOME", "PT2HUB_CACHE", "PT2HUB_SHARED_CACHE")
        )
        if named:
            return cls(named, named / SETTINGS_NAME, chosen or named / CACHE_NAME, shared)
        data = _absolute(platformdirs.user_data_path("pt2hub"))
        settings = _first(data / SETTINGS_NAME, platformdirs.user_config_path("pt2hub") / SETTINGS_NAME)
        cache = chosen or _first(data / CACHE_NAME, platformdirs.user_cache_path("pt2hub"))
        return cls(data, settings, cache, shared)


def make_folder(path: Path, mode: int = 0o700) -> None:
    """Create a folder and missing parents with exactly this mode, whatever the umask; existing ones keep theirs.

    Raises:
        OSError: A folder cannot be created.
    """
    if path.is_dir():
        return
    if path.parent != path:
        make_folder(path.parent, mode)
    with suppress(
        FileExistsError
    ):  # another process was faster; a file in its place is found when it is used
        path.mkdir(mode=0o700)
        path.chmod(mode)


def _absolute(path: str | Path) -> Path:
    return Path(path).expanduser().absolute()


def _first(old: Path, new: Path) -> Path:
    """Return the new place, unless only the old one is in use."""
    new = _absolute(new)
    return old if os.path.exists(old) and not os.path.exists(new) else new  # noqa: PTH110  # pathlib raises where nobody may look
