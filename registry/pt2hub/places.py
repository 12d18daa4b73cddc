"""Places of pt2hub's files on this machine."""

from __future__ import annotations

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


def _absolute(path: str | Path) -> Path:
    return Path(path).expanduser().absolute()


def _first(old: Path, new: Path) -> Path:
    """Return the new place, unless only the old one is in use."""
    new = _absolute(new)
    return old if old.exists() and not new.exists() else new
