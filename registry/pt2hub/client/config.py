"""The client's settings. Nothing else in the client reads the environment."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs

from pt2hub.errors import BadConfiguration

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_URL = "http://127.0.0.1:8400"
_URL = re.compile(r"https?://[^\s/?#]+(/[^\s?#]*)?")


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """The client's settings.

    Attributes:
        home: Where the cache and `config.toml` live (`PT2HUB_HOME`).
        url: The server (`PT2HUB_URL`, else `url` in `config.toml`, else this machine's default).
        token: Proves who publishes (`PT2HUB_TOKEN`, else `token` in `config.toml`); reading needs none.
        url_from: Which setting `url` comes from, for errors; None where the program gave it.
        token_from: The same for `token`.
    """

    home: Path
    url: str = DEFAULT_URL
    token: str | None = field(default=None, repr=False)
    url_from: str | None = field(default=None, compare=False)
    token_from: str | None = field(default=None, compare=False)

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
        unset = f"pt2hub's default, since neither PT2HUB_URL nor {file} names another"
        return cls(
            home=home,
            url=_checked(url, "PT2HUB_URL") if url else stored.get("url", DEFAULT_URL),
            token=token or stored.get("token"),
            url_from="PT2HUB_URL" if url else str(file) if "url" in stored else unset,
            token_from="PT2HUB_TOKEN" if token else str(file),
        )

    @property
    def cache(self) -> Path:
        """Where pulled files are kept."""
        return self.home / "cache"


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
    if "url" in found:
        _checked(found["url"], f"{path}: url")
    return found


def _text(value: Any, name: str, path: Path) -> str:  # noqa: ANN401  # any TOML value
    if not isinstance(value, str):
        raise BadConfiguration(f"{name} is no string", where=str(path), hint=f'Write {name} = "..." there.')
    return value


def _checked(url: str, where: str) -> str:
    if not _URL.fullmatch(url):
        raise BadConfiguration(
            f"{url[:80]!r} is no server address", where=where, hint=f"Write it like {DEFAULT_URL}."
        )
    return url.rstrip("/")
