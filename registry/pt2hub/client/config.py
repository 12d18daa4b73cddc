"""The client's settings. Nothing else in the client reads the environment."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs

from pt2hub.domain.targets import CPU_LEVELS
from pt2hub.errors import BadConfiguration

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_URL = "http://127.0.0.1:8400"
CPU_LEVEL = "PT2HUB_CPU_LEVEL"
"""Names the CPU level that this machine is to pass for."""
_URL = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")
_TOKEN = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """The client's settings.

    Attributes:
        home: Where the cache and `config.toml` live (`PT2HUB_HOME`).
        url: The server (`PT2HUB_URL`, else `url` in `config.toml`, else this machine's default).
        token: Proves who publishes (`PT2HUB_TOKEN`, else `token` in `config.toml`, which goes to no other server
            than the `url` beside it); reading needs none.
        url_from: Which setting `url` comes from, for errors; None where the program gave it.
        token_from: The same for `token`.
        torchvision_mirror: Takes the place of scheme and host where torchvision's weights are fetched
            (`PT2HUB_TORCHVISION_MIRROR`); None for torchvision's own.
    """

    home: Path
    url: str = DEFAULT_URL
    token: str | None = field(default=None, repr=False)
    url_from: str | None = field(default=None, compare=False)
    token_from: str | None = field(default=None, compare=False)
    torchvision_mirror: str | None = None

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> ClientConfig:
        """Reads the settings; variables that are empty count as unset.

        Args:
            environ: `os.environ` where omitted.

        Raises:
            BadConfiguration: A value is wrong; the error names the variable or the file.
        """
        given = os.environ if environ is None else environ
        home = Path(given.get("PT2HUB_HOME") or platformdirs.user_data_path("pt2hub")).expanduser().absolute()
        file = home / "config.toml"
        stored = _stored(file)
        url, token = given.get("PT2HUB_URL"), given.get("PT2HUB_TOKEN")
        mirror = given.get("PT2HUB_TORCHVISION_MIRROR")
        if url and stored.get("url", url).rstrip("/") != url.rstrip("/"):
            stored.pop("token", None)
        unset = f"pt2hub's default, since neither PT2HUB_URL nor {file} names another"
        return cls(
            home=home,
            url=checked_url(url, "PT2HUB_URL") if url else stored.get("url", DEFAULT_URL),
            token=checked_token(token, "PT2HUB_TOKEN") if token else stored.get("token"),
            url_from="PT2HUB_URL" if url else str(file) if "url" in stored else unset,
            token_from="PT2HUB_TOKEN" if token else str(file),
            torchvision_mirror=checked_url(mirror, "PT2HUB_TORCHVISION_MIRROR") if mirror else None,
        )

    def at(self, url: str) -> ClientConfig:
        """The same settings for a server that the program names.

        Raises:
            BadConfiguration: It is no address.
        """
        checked = checked_url(url, "url")
        bound = self.url_from is not None and self.url_from == self.token_from  # both of one file
        token = None if bound and checked != self.url else self.token
        return replace(self, url=checked, url_from=None, token=token)

    @property
    def cache(self) -> Path:
        """Where pulled files are kept."""
        return self.home / "cache"


def cpu_level_limit(environ: Mapping[str, str] | None = None) -> str | None:
    """Return the CPU level that this machine is to pass for (`PT2HUB_CPU_LEVEL`); None for what it is.

    Args:
        environ: `os.environ` where omitted.

    Raises:
        BadConfiguration: It is no level.
    """
    level = (os.environ if environ is None else environ).get(CPU_LEVEL) or None
    if level is not None and level not in CPU_LEVELS:
        raise BadConfiguration(
            f"Unknown CPU level {level[:80]!r}",
            where=CPU_LEVEL,
            hint=f"Known levels: {', '.join(CPU_LEVELS)}.",
        )
    return level


def _stored(path: Path) -> dict[str, str]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        raise BadConfiguration(
            f"The file cannot be read: {exc}",
            where=str(path),
            hint="Mend or delete it; `pt2hub up` writes it anew.",
        ) from exc
    found: dict[str, str] = {
        name: _text(document[name], name, path) for name in ("url", "token") if name in document
    }
    checks = {"url": checked_url, "token": checked_token}
    return {name: checks[name](value, f"{path}: {name}") for name, value in found.items()}


def _text(value: Any, name: str, path: Path) -> str:  # noqa: ANN401  # any TOML value
    if not isinstance(value, str):
        raise BadConfiguration(f"{name} is no string", where=str(path), hint=f'Write {name} = "..." there.')
    return value


def checked_url(url: str, where: str) -> str:
    """A server's address without a slash at the end.

    Args:
        url: As given.
        where: Which setting it is, for the error.

    Raises:
        BadConfiguration: It is none, or holds a password, which would then stand in every error.
    """
    if not _URL.fullmatch(url):
        shown = re.sub(r"[^/]*@", "***@", url)
        raise BadConfiguration(
            f"{shown[:80]!r} is no server address", where=where, hint=f"Write it like {DEFAULT_URL}."
        )
    return url.rstrip("/")


def checked_token(token: str, where: str) -> str:
    """A token without white space around it, such as the line end of the file it was read from.

    Args:
        token: As given.
        where: Which setting it is, for the error, which does not show the token.

    Raises:
        BadConfiguration: It holds characters that no header can carry.
    """
    stripped = token.strip()
    if not _TOKEN.fullmatch(stripped):
        raise BadConfiguration(
            "It holds characters that no token has",
            where=where,
            hint="Copy it whole, as `pt2hub admin token` printed it.",
        )
    return stripped
