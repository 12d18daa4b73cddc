"""The client's settings. No other module of the client reads the environment."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.client.availability import Availability
from pt2hub.domain.targets import CPU_LEVELS
from pt2hub.errors import BadConfiguration
from pt2hub.places import CACHE_NAME, SETTINGS_NAME, Places
from pt2hub.system.settings_file import SettingsFile

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_URL = "http://127.0.0.1:8400"
CPU_LEVEL = "PT2HUB_CPU_LEVEL"
"""Environment variable that lowers the CPU level of this machine."""
ID_TOKEN = "PT2HUB_ID_TOKEN"  # noqa: S105  # a variable's name
"""Environment variable with an ID token, as GitLab's `id_tokens` and other systems set it."""
GITHUB_URL = "ACTIONS_ID_TOKEN_REQUEST_URL"
GITHUB_TOKEN = "ACTIONS_ID_TOKEN_REQUEST_TOKEN"  # noqa: S105  # a variable's name
_CI_JOBS = {
    "GITHUB_ACTIONS": (
        *("GITHUB_SHA", "GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_REF_NAME", "GITHUB_RUN_ID"),
    ),
    "GITLAB_CI": ("CI_COMMIT_SHA", "CI_PROJECT_URL", "CI_COMMIT_REF_NAME", "CI_JOB_URL"),
    "JENKINS_URL": ("GIT_COMMIT", "GIT_URL", "GIT_BRANCH", "BUILD_URL"),
}
"""By a variable that marks the system, the variables with a job's commit, repository, branch and run."""
_UNSET = "pt2hub's default"
URL_PATTERN = r"https?://[^\s/?#@]+(?:/[^\s?#]*)?"
"""Addresses of servers: without a password, which errors would show."""
_URL = re.compile(URL_PATTERN)
_TOKEN = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """The client's settings.

    Attributes:
        home: Contains the cache and `config.toml`, where they have no place of their own (`PT2HUB_HOME`).
        url: The server (`PT2HUB_URL`, else `url` in `config.toml`, else this machine's default).
        token: Sent with every request (`PT2HUB_TOKEN`, else `token` in `config.toml`, which is sent only to the `url`
            in the same file); a public server needs none for reading.
        url_from: The setting that `url` comes from, for errors; None if the program gave it.
        token_from: The setting that `token` comes from.
        torchvision_mirror: Replaces scheme and host of the URLs of torchvision's weights
            (`PT2HUB_TORCHVISION_MIRROR`).
        settings: The settings file; `config.toml` in the home if omitted.
        cache_folder: Directory of pulled files (`PT2HUB_CACHE`); `cache` in the home if omitted.
        shared_cache: Directory of files that the machine's users share (`PT2HUB_SHARED_CACHE`).
        availability: What holds while the server is away.
    """

    home: Path
    url: str = DEFAULT_URL
    token: str | None = field(default=None, repr=False)
    url_from: str | None = field(default=None, compare=False)
    token_from: str | None = field(default=None, compare=False)
    torchvision_mirror: str | None = None
    settings: Path | None = field(default=None, compare=False)
    cache_folder: Path | None = None
    shared_cache: Path | None = None
    availability: Availability = field(default_factory=Availability)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> ClientConfig:
        """Read the settings; empty variables count as unset.

        Args:
            environ: `os.environ` where omitted.

        Raises:
            BadConfiguration: A value is invalid; the error names the variable or the file.
        """
        given = os.environ if environ is None else environ
        places = Places.from_environ(given)
        file = places.settings
        stored = _read_file(SettingsFile(file))
        url, token = given.get("PT2HUB_URL"), given.get("PT2HUB_TOKEN")
        mirror = given.get("PT2HUB_TORCHVISION_MIRROR")
        if url and stored.get("url", url).rstrip("/") != url.rstrip("/"):
            stored.pop("token", None)
        unset = f"{_UNSET}, since neither PT2HUB_URL nor {file} sets another"
        return cls(
            home=places.home,
            url=checked_url(url, "PT2HUB_URL") if url else stored.get("url", DEFAULT_URL),
            token=checked_token(token, "PT2HUB_TOKEN") if token else stored.get("token"),
            url_from="PT2HUB_URL" if url else str(file) if "url" in stored else unset,
            token_from="PT2HUB_TOKEN" if token else str(file),
            torchvision_mirror=checked_url(mirror, "PT2HUB_TORCHVISION_MIRROR") if mirror else None,
            settings=file,
            cache_folder=places.cache,
            shared_cache=places.shared_cache,
            availability=Availability.from_environ(given),
        )

    def at(self, url: str) -> ClientConfig:
        """Return the same settings with another server.

        Raises:
            BadConfiguration: The address is invalid.
        """
        checked = checked_url(url, "url")
        bound = self.token_from == str(self.settings_file.path)  # a file's token belongs to the file's url
        token = None if bound and checked != self.url else self.token
        return replace(self, url=checked, url_from=None, token=token)

    @property
    def settings_file(self) -> SettingsFile:
        """The file with address and token."""
        return SettingsFile(self.settings or self.home / SETTINGS_NAME)

    @property
    def has_server(self) -> bool:
        """Whether a setting or the program names the server; otherwise the address is only pt2hub's default."""
        return not (self.url_from or "").startswith(_UNSET)

    @property
    def cache(self) -> Path:
        """Directory of pulled files."""
        return self.cache_folder or self.home / CACHE_NAME


def variables_before_file(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the environment variables that are set and used before the settings file.

    Args:
        environ: `os.environ` where omitted.
    """
    given = os.environ if environ is None else environ
    return tuple(name for name in ("PT2HUB_URL", "PT2HUB_TOKEN") if given.get(name))


def ci_variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables by which a CI job gets its ID token, those that are set.

    Args:
        environ: `os.environ` where omitted.
    """
    given = os.environ if environ is None else environ
    return {name: given[name] for name in (ID_TOKEN, GITHUB_URL, GITHUB_TOKEN) if given.get(name)}


def ci_job(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables that say what a CI job works on; empty outside of GitHub Actions, GitLab and Jenkins.

    Args:
        environ: `os.environ` where omitted.
    """
    given = os.environ if environ is None else environ
    wanted = next((names for mark, names in _CI_JOBS.items() if given.get(mark)), ())
    return {name: given[name] for name in wanted if given.get(name)}


def cpu_level_limit(environ: Mapping[str, str] | None = None) -> str | None:
    """Return the CPU level that `PT2HUB_CPU_LEVEL` sets for this machine; None if unset.

    Args:
        environ: `os.environ` where omitted.

    Raises:
        BadConfiguration: The level is unknown.
    """
    level = (os.environ if environ is None else environ).get(CPU_LEVEL) or None
    if level is not None and level not in CPU_LEVELS:
        raise BadConfiguration(
            f"Unknown CPU level {level[:80]!r}",
            where=CPU_LEVEL,
            hint=f"Known levels: {', '.join(CPU_LEVELS)}.",
        )
    return level


def _read_file(file: SettingsFile) -> dict[str, str]:
    document, path = file.read(), file.path
    found: dict[str, str] = {
        name: _text(document[name], name, path) for name in ("url", "token") if name in document
    }
    checks = {"url": checked_url, "token": checked_token}
    return {name: checks[name](value, f"{path}: {name}") for name, value in found.items()}


def _text(value: Any, name: str, path: Path) -> str:
    if not isinstance(value, str):
        raise BadConfiguration(
            f"{name} must be a string", where=str(path), hint=f'Write {name} = "..." in the file.'
        )
    return value


def checked_url(url: str, where: str) -> str:
    """Return a server's address without a trailing slash.

    Raises:
        BadConfiguration: The address is invalid, or contains a password, which errors would show.
    """
    if not _URL.fullmatch(url):
        shown = re.sub(r"[^/]*@", "***@", url)
        raise BadConfiguration(
            f"Invalid server address {shown[:80]!r}",
            where=where,
            hint=f"Write an address such as {DEFAULT_URL}.",
        )
    return url.rstrip("/")


def checked_token(token: str, where: str) -> str:
    """Return a token without surrounding white space.

    Raises:
        BadConfiguration: The token contains characters that an HTTP header cannot carry.
    """
    stripped = token.strip()
    if not _TOKEN.fullmatch(stripped):
        raise BadConfiguration(
            "The token contains invalid characters",
            where=where,
            hint="Copy the whole token, as `pt2hub admin token` printed it.",
        )
    return stripped
