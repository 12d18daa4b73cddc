"""The client's settings as a list, each with its value and where it comes from."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.client.availability import write_duration
from pt2hub.client.config import ClientConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

_DEFAULT = "default"
_HIDDEN = "set (not shown)"
_VARIABLES = {
    "url": "PT2HUB_URL",
    "token": "PT2HUB_TOKEN",
    "home": "PT2HUB_HOME",
    "cache": "PT2HUB_CACHE",
    "shared_cache": "PT2HUB_SHARED_CACHE",
    "storage": "PT2HUB_STORAGE",
    "offline": "PT2HUB_OFFLINE",
    "max_age": "PT2HUB_MAX_AGE",
    "cpu_level": "PT2HUB_CPU_LEVEL",
    "torchvision_mirror": "PT2HUB_TORCHVISION_MIRROR",
}


@dataclass(frozen=True, slots=True)
class ClientSetting:
    """A setting of the client.

    Attributes:
        value: The value in use; None if unset. Tokens are not shown.
        origin: The environment variable, the file, or `default`.
        variable: The environment variable that sets it.
    """

    name: str
    value: str | None
    origin: str
    variable: str


def list_settings(environ: Mapping[str, str] | None = None) -> list[ClientSetting]:
    """Return all settings of the client.

    Args:
        environ: `os.environ` where omitted.

    Raises:
        BadConfiguration: A value is invalid; the error names the variable or the file.
    """
    given = os.environ if environ is None else environ
    config = ClientConfig.from_environ(given)
    values = {
        "url": config.url,
        "token": _HIDDEN if config.token else None,
        "home": str(config.home),
        "cache": str(config.cache),
        "shared_cache": str(config.shared_cache) if config.shared_cache else None,
        "storage": given.get("PT2HUB_STORAGE") or None,
        "offline": "yes" if config.availability.offline else "no",
        "max_age": write_duration(config.availability.max_age_s),
        "cpu_level": given.get("PT2HUB_CPU_LEVEL") or None,
        "torchvision_mirror": config.torchvision_mirror,
    }
    file = str(config.settings_file.path)
    stored = config.settings_file.read()
    return [
        ClientSetting(
            name, values[name], _origin(name, variable, given, file if name in stored else None), variable
        )
        for name, variable in _VARIABLES.items()
    ]


def _origin(name: str, variable: str, environ: Mapping[str, str], file: str | None) -> str:
    if environ.get(variable):
        return variable
    if name == "cache" and environ.get("PT2HUB_HOME"):
        return "PT2HUB_HOME"
    return file or _DEFAULT
