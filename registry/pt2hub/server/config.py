"""The server's settings. Nothing else in the server reads the environment.

Credentials, region, endpoint and addressing style of S3 are boto3's usual variables (`AWS_ACCESS_KEY_ID`,
`AWS_ENDPOINT_URL_S3` and so on); boto3 reads those itself.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import platformdirs

from pt2hub.domain.specs import DEFAULT_FACTORIES
from pt2hub.errors import BadConfiguration
from pt2hub.server.blobs.opening import S3_ADDRESS

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_PORT = 8400
MAX_PORT = 65535
MAX_PROCESSES = 64
DEFAULT_MAX_BLOB_BYTES = 1 << 35
"""32 GiB: above the weights of every model that fits one machine's memory today."""
DEFAULT_HEARTBEAT_SECONDS = 3.0
DEFAULT_LOST_WORKER_SECONDS = 15.0
"""Half of the 30 s within which a build goes on after a fault: the other half is for the worker that takes it over."""
DEFAULT_DRAIN_SECONDS = 20.0
"""Orchestrators commonly give 30 s before they kill: the rest is for handing back."""
MISSED_HEARTBEATS = 3
"""A worker may miss two heartbeats in a row, to a slow disk or a database failing over, and still be alive."""
LOG_LEVELS = ("debug", "info", "warning", "error")
ISOLATIONS = ("sandbox", "process", "auto")
DEFAULT_PROXIES = ("127.0.0.1", "::1")
_DATABASE = re.compile(r"postgres(ql)?(\+psycopg)?://.*")


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The server's settings.

    Attributes:
        home: Everything of the embedded default lives here (`PT2HUB_HOME`).
        database_url: Any PostgreSQL, None for the embedded one (`PT2HUB_DATABASE_URL`).
        storage: `s3://bucket/prefix` or a directory (`PT2HUB_STORAGE`).
        host: Address to listen on (`PT2HUB_HOST`).
        port: Port to listen on, 0 for any free one (`PT2HUB_PORT`).
        api_processes: Processes that answer requests, each with threads and database connections of its own
            (`PT2HUB_API_PROCESSES`).
        max_blob_bytes: Largest upload (`PT2HUB_MAX_BLOB_BYTES`).
        heartbeat_seconds: How often a worker says that it lives (`PT2HUB_HEARTBEAT_SECONDS`).
        factories: Modules whose factories a spec may name (`PT2HUB_FACTORIES`, separated by commas).
        lost_worker_seconds: Silence after which its builds go to others (`PT2HUB_LOST_WORKER_SECONDS`).
        grace_seconds: How long the API, told to stop, answers what it was asked before (`PT2HUB_GRACE_SECONDS`).
        drain_seconds: How long a worker, told to stop, goes on with what it builds (`PT2HUB_DRAIN_SECONDS`); None
            for the worker's own default, and for none at all under `pt2hub up`.
        isolation: How workers must confine models' code (`PT2HUB_ISOLATION`): `sandbox`, or `process`, which lets it do
            whatever the worker's user may do; None where nothing was said, which for the server is `sandbox`.
            `auto` is for workers and `pt2hub up`: `sandbox` where the machine can, else `process`.
        s3_public_endpoint_url: Where clients reach the S3 server, if not where this process does
            (`PT2HUB_S3_PUBLIC_ENDPOINT_URL`).
        trusted_proxies: Addresses and networks of the proxies whose `X-Forwarded-Proto` is believed
            (`PT2HUB_TRUSTED_PROXIES`, separated by commas).
        log_level: What is logged at least: `debug`, `info`, `warning` or `error` (`PT2HUB_LOG_LEVEL`).
        storage_is_own: Whether no storage was named, so that blobs are kept in the home.
    """

    home: Path
    storage: str
    database_url: str | None = None
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    api_processes: int = 1
    max_blob_bytes: int = DEFAULT_MAX_BLOB_BYTES
    heartbeat_seconds: float = DEFAULT_HEARTBEAT_SECONDS
    lost_worker_seconds: float = DEFAULT_LOST_WORKER_SECONDS
    factories: tuple[str, ...] = DEFAULT_FACTORIES
    grace_seconds: float = 10.0
    drain_seconds: float | None = None
    isolation: str | None = None
    s3_public_endpoint_url: str | None = None
    trusted_proxies: tuple[str, ...] = DEFAULT_PROXIES
    log_level: str = LOG_LEVELS[1]
    storage_is_own: bool = field(default=False, compare=False)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> ServerConfig:
        """Reads the settings; variables that are empty count as unset.

        Args:
            environ: Usually `os.environ`.

        Raises:
            BadConfiguration: A value is wrong; the error names the variable.
        """
        home = (
            Path(environ.get("PT2HUB_HOME") or platformdirs.user_data_path("pt2hub")).expanduser().absolute()
        )
        heartbeat = _number(
            environ, "PT2HUB_HEARTBEAT_SECONDS", DEFAULT_HEARTBEAT_SECONDS, low=0.1, high=3600
        )
        return cls(
            home=home,
            storage_is_own=not environ.get("PT2HUB_STORAGE"),
            storage=_storage(environ.get("PT2HUB_STORAGE") or str(_own_storage(home))),
            database_url=_database_url(environ.get("PT2HUB_DATABASE_URL")),
            host=environ.get("PT2HUB_HOST") or "127.0.0.1",
            port=_integer(environ, "PT2HUB_PORT", DEFAULT_PORT, low=0, high=MAX_PORT),
            api_processes=_integer(environ, "PT2HUB_API_PROCESSES", 1, low=1, high=MAX_PROCESSES),
            max_blob_bytes=_integer(
                environ, "PT2HUB_MAX_BLOB_BYTES", DEFAULT_MAX_BLOB_BYTES, low=1, high=1 << 50
            ),
            heartbeat_seconds=heartbeat,
            lost_worker_seconds=_number(
                environ,
                "PT2HUB_LOST_WORKER_SECONDS",
                max(DEFAULT_LOST_WORKER_SECONDS, MISSED_HEARTBEATS * heartbeat),
                low=MISSED_HEARTBEATS * heartbeat,
                high=86400,
            ),
            factories=_modules(environ.get("PT2HUB_FACTORIES")),
            grace_seconds=_number(environ, "PT2HUB_GRACE_SECONDS", 10.0, low=0, high=3600),
            drain_seconds=_number(environ, "PT2HUB_DRAIN_SECONDS", DEFAULT_DRAIN_SECONDS, low=0, high=86400)
            if environ.get("PT2HUB_DRAIN_SECONDS")
            else None,
            isolation=_isolation(environ.get("PT2HUB_ISOLATION")),
            s3_public_endpoint_url=_public_endpoint(environ.get("PT2HUB_S3_PUBLIC_ENDPOINT_URL")),
            trusted_proxies=_proxies(environ.get("PT2HUB_TRUSTED_PROXIES")),
            log_level=log_level(environ),
        )


def log_level(environ: Mapping[str, str]) -> str:
    """What is logged at least.

    Args:
        environ: Usually `os.environ`.

    Raises:
        BadConfiguration: There is no such level.
    """
    name = environ.get("PT2HUB_LOG_LEVEL", "").strip().lower() or LOG_LEVELS[1]
    if name not in LOG_LEVELS:
        raise BadConfiguration(
            f"{name[:80]!r} is no level of a log",
            where="PT2HUB_LOG_LEVEL",
            hint=f"Write {', '.join(LOG_LEVELS[:-1])} or {LOG_LEVELS[-1]}; the default is {LOG_LEVELS[1]}.",
        )
    return name


def _own_storage(home: Path) -> Path:
    return home / "server" / "blobs"


def _storage(value: str) -> str:
    if "://" not in value and not value.lower().startswith("s3:"):  # one slash is missing soon
        return str(Path(value).expanduser().absolute())
    if not S3_ADDRESS.fullmatch(value):
        raise BadConfiguration(
            f"{value!r} names no storage",
            where="PT2HUB_STORAGE",
            hint="Write s3://bucket/prefix or a directory.",
        )
    return value.rstrip("/")


def _database_url(value: str | None) -> str | None:
    if value and not _DATABASE.fullmatch(value):
        # The value may hold a password, so it is not repeated.
        raise BadConfiguration(
            "The database's address is not one of PostgreSQL",
            where="PT2HUB_DATABASE_URL",
            hint="Write postgresql://user@host/database, or unset it for the embedded PostgreSQL.",
        )
    return value or None


def _isolation(value: str | None) -> str | None:
    if value and value not in ISOLATIONS:
        raise BadConfiguration(
            f"{value[:80]!r} is no way to confine models' code",
            where="PT2HUB_ISOLATION",
            hint="Write sandbox, the default, or process, which lets models' code do whatever the worker's user may do.",
        )
    return value or None


def _public_endpoint(value: str | None) -> str | None:
    if not value:
        return None
    try:
        parts = urlsplit(value)
        right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number, a bracket too many
        right, parts = False, urlsplit("")
    if not right or parts.path.rstrip("/") or parts.query or parts.fragment or "@" in parts.netloc:
        # Not repeated: who writes credentials into it must not find them in a log.
        raise BadConfiguration(
            "The value is no address of an S3 server as clients reach it",
            where="PT2HUB_S3_PUBLIC_ENDPOINT_URL",
            hint="Write https://s3.example.org or http://127.0.0.1:8333, without a path; the bucket is PT2HUB_STORAGE's.",
        )
    return value.rstrip("/")


def _proxies(text: str | None) -> tuple[str, ...]:
    given = tuple(part.strip() for part in (text or "").split(",") if part.strip())
    for part in given:
        try:
            ipaddress.ip_network(part)
        except ValueError as exc:
            raise BadConfiguration(
                f"{part[:80]!r} is no address and no network",
                where="PT2HUB_TRUSTED_PROXIES",
                hint="Write 10.0.0.5,10.1.0.0/16: numbers, no names; a network's last bits are 0.",
            ) from exc
    return given or DEFAULT_PROXIES


def _modules(text: str | None) -> tuple[str, ...]:
    names = tuple(name.strip() for name in (text or "").split(",") if name.strip())
    for name in names:
        if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", name):
            raise BadConfiguration(
                f"{name[:80]!r} is no module",
                where="PT2HUB_FACTORIES",
                hint="Write torchvision.models,my.models.",
            )
    return names or DEFAULT_FACTORIES


def _integer(environ: Mapping[str, str], name: str, default: int, *, low: int, high: int) -> int:
    text = environ.get(name) or str(default)
    if not re.fullmatch(r"\d{1,18}", text) or not low <= int(text) <= high:
        raise BadConfiguration(
            f"{text!r} is no whole number from {low} to {high}", where=name, hint=f"The default is {default}."
        )
    return int(text)


def _number(environ: Mapping[str, str], name: str, default: float, *, low: float, high: float) -> float:
    text = environ.get(name) or str(default)
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text) or not low <= float(text) <= high:
        raise BadConfiguration(
            f"{text!r} is no number of seconds from {low:g} to {high:g}",
            where=name,
            hint=f"The default is {default:g}.",
        )
    return float(text)
