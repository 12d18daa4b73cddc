"""Settings for the time when the server is away."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pt2hub.domain.storage import S3_ADDRESS, StorageLocation
from pt2hub.errors import BadConfiguration

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_MAX_AGE = "7d"
"""A server that is away over a long weekend stops no pipeline."""
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([smhdw]?)")
_UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SWITCHES = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


@dataclass(frozen=True, slots=True)
class Availability:
    """Settings for the time when the server is away.

    Attributes:
        offline: Whether no server is asked at all (`PT2HUB_OFFLINE`).
        max_age_s: Age in seconds up to which a last known resolution is used (`PT2HUB_MAX_AGE`).
        storage: The server's bucket, with the endpoint from boto3's settings; None unless `PT2HUB_STORAGE` names one.
    """

    offline: bool = False
    max_age_s: float = 7 * 86400.0
    storage: StorageLocation | None = None

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Availability:
        """Read the settings; empty variables count as unset.

        Raises:
            BadConfiguration: A value is invalid; the error names the variable.
        """
        return cls(
            offline=_switch(environ.get("PT2HUB_OFFLINE") or "0", "PT2HUB_OFFLINE"),
            max_age_s=parse_duration(environ.get("PT2HUB_MAX_AGE") or DEFAULT_MAX_AGE, "PT2HUB_MAX_AGE"),
            storage=_bucket(environ.get("PT2HUB_STORAGE") or ""),
        )

    def override(self, *, offline: bool | None, max_age: timedelta | float | None) -> Availability:
        """Return the settings with the arguments of a call; None keeps a setting, and offline cannot be undone.

        Args:
            max_age: A duration, or seconds.

        Raises:
            BadConfiguration: The age is negative or not a number.
        """
        seconds: Any = max_age.total_seconds() if isinstance(max_age, timedelta) else max_age
        if seconds is None:
            seconds = self.max_age_s
        if type(seconds) not in (int, float) or not seconds >= 0:
            raise BadConfiguration(
                f"max_age must be a duration of 0 s or more, got {max_age!r}",
                where="max_age",
                hint="Pass seconds or a datetime.timedelta, such as timedelta(days=7).",
            )
        return Availability(self.offline or bool(offline), float(seconds), self.storage)


def parse_duration(text: str, where: str) -> float:
    """Return the seconds of a duration such as `90s`, `12h` or `7d`; a number alone means seconds.

    Raises:
        BadConfiguration: The text has another form.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise BadConfiguration(
            f"Invalid duration {text[:80]!r}",
            where=where,
            hint="Use a number with s, m, h, d or w, such as 12h or 7d.",
        )
    return float(match[1]) * _UNITS_S[match[2]]


def write_duration(seconds: float) -> str:
    """Return a duration as `parse_duration` reads it, in days, hours or minutes where these are whole."""
    whole = [unit for unit in "dhm" if seconds and not seconds % _UNITS_S[unit]]
    unit = whole[0] if whole else "s"
    return f"{seconds / _UNITS_S[unit]:g}{unit}"


def _switch(text: str, where: str) -> bool:
    value = _SWITCHES.get(text.strip().lower())
    if value is None:
        raise BadConfiguration(f"Invalid value {text[:80]!r}", where=where, hint="Use 1 or 0.")
    return value


def _bucket(text: str) -> StorageLocation | None:
    """Return the bucket that the server's own setting names; a directory or anything else concerns only the server."""
    return StorageLocation(text.rstrip("/")) if S3_ADDRESS.fullmatch(text) else None
