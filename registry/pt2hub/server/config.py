"""Server configuration from environment variables; with `provider_settings`, the only place in the server that reads them.

Credentials, region, endpoint and addressing style of S3 use boto3's variables (`AWS_ACCESS_KEY_ID`,
`AWS_ENDPOINT_URL_S3` and so on), which boto3 reads itself.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pt2hub.domain.limits import Limits
from pt2hub.domain.publishing.spec import DEFAULT_FACTORIES
from pt2hub.domain.reading import ReadMode
from pt2hub.domain.sign_in import SignInProvider
from pt2hub.domain.storage import S3_ADDRESS, CollectionSchedule
from pt2hub.errors import BadConfiguration
from pt2hub.places import Places
from pt2hub.server.provider_settings import read_provider

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_PORT = 8400
MAX_PORT = 65535
MAX_PROCESSES = 64
DEFAULT_SCRUB_BYTES_PER_S = 4 << 20
"""350 GB a day: a pass over a terabyte takes three days and a quarter of a percent of one core."""
DEFAULT_MAX_BLOB_BYTES = 1 << 35
"""32 GiB, larger than the weights of models that fit into one machine's memory today."""
DEFAULT_HEARTBEAT_SECONDS = 3.0
DEFAULT_LOST_WORKER_SECONDS = 15.0
"""Half of the 30 s within which a build must continue after a fault; the other half is for the next worker."""
DEFAULT_DRAIN_SECONDS = 20.0
"""Orchestrators usually kill after 30 s; the rest is for handing builds back."""
MISSED_HEARTBEATS = 3
"""A live worker may miss two heartbeats in a row because of a slow disk or a database failover."""
LOG_LEVELS = ("debug", "info", "warning", "error")
ISOLATIONS = ("sandbox", "process", "auto")
DEFAULT_PROXIES = ("127.0.0.1", "::1")
_DATABASE = re.compile(r"postgres(ql)?(\+psycopg)?://.*")


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Server configuration.

    Attributes:
        home: Directory with the data of the embedded default (`PT2HUB_HOME`).
        database_url: URL of a PostgreSQL database, None for the embedded one (`PT2HUB_DATABASE_URL`).
        storage: `s3://bucket/prefix` or a directory (`PT2HUB_STORAGE`).
        host: Address to listen on (`PT2HUB_HOST`).
        port: Port to listen on, 0 for any free one (`PT2HUB_PORT`).
        api_processes: Number of API processes, each with its own threads and database connections
            (`PT2HUB_API_PROCESSES`).
        max_blob_bytes: Largest upload (`PT2HUB_MAX_BLOB_BYTES`).
        scrub_bytes_per_s: Rate at which stored blobs are read again, 0 for never (`PT2HUB_SCRUB_BYTES_PER_S`).
        heartbeat_seconds: Interval of workers' heartbeats (`PT2HUB_HEARTBEAT_SECONDS`).
        factories: Modules with factories that specs may use (`PT2HUB_FACTORIES`, comma-separated).
        lost_worker_seconds: Heartbeat timeout after which a worker is lost (`PT2HUB_LOST_WORKER_SECONDS`).
        grace_seconds: How long a stopping API finishes pending requests (`PT2HUB_GRACE_SECONDS`).
        drain_seconds: How long a stopping worker continues its builds (`PT2HUB_DRAIN_SECONDS`); None for the worker's
            own default, which is zero under `pt2hub up`.
        isolation: Required isolation of models' code (`PT2HUB_ISOLATION`): `sandbox`, or `process`, which lets it do
            whatever the worker's user may do; None if unset, which means `sandbox` for the server. `auto` is for
            workers and `pt2hub up`: `sandbox` if the machine supports it, else `process`.
        s3_public_endpoint_url: Where clients reach the S3 server, if not where this process does
            (`PT2HUB_S3_PUBLIC_ENDPOINT_URL`).
        trusted_proxies: Addresses and networks of proxies with trusted `X-Forwarded-Proto` and `X-Forwarded-For`
            (`PT2HUB_TRUSTED_PROXIES`, comma-separated).
        log_level: Minimum log level: `debug`, `info`, `warning` or `error` (`PT2HUB_LOG_LEVEL`).
        read: Who may read (`PT2HUB_READ`): `public`, `authenticated` or `team`; None if unset, see `reading`.
        read_beyond_loopback: `public` if public reads are meant to be possible from other machines
            (`PT2HUB_READ_BEYOND_LOOPBACK`).
        collection: When blobs are collected that nothing needs (`PT2HUB_COLLECT_GRACE_SECONDS`,
            `PT2HUB_COLLECT_EVERY_SECONDS`), and old logs of builds (`PT2HUB_KEEP_LOGS_DAYS`).
        limits: What tokens, addresses and teams may use.
        webhook_receivers: Host and port of receivers of webhooks that may have private addresses and speak plain HTTP
            (`PT2HUB_WEBHOOK_ALLOW`, comma-separated).
        provider: The OpenID Connect provider with which people sign in (`PT2HUB_OIDC_ISSUER` and others); None if unset.
        client_settings: Settings file of clients on this machine, which `pt2hub up` writes; None for the home's.
    """

    home: Path
    storage: str
    database_url: str | None = None
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    api_processes: int = 1
    max_blob_bytes: int = DEFAULT_MAX_BLOB_BYTES
    scrub_bytes_per_s: int = DEFAULT_SCRUB_BYTES_PER_S
    heartbeat_seconds: float = DEFAULT_HEARTBEAT_SECONDS
    lost_worker_seconds: float = DEFAULT_LOST_WORKER_SECONDS
    factories: tuple[str, ...] = DEFAULT_FACTORIES
    grace_seconds: float = 10.0
    drain_seconds: float | None = None
    isolation: str | None = None
    s3_public_endpoint_url: str | None = None
    trusted_proxies: tuple[str, ...] = DEFAULT_PROXIES
    log_level: str = LOG_LEVELS[1]
    read: ReadMode | None = None
    read_beyond_loopback: str | None = None
    limits: Limits = field(default_factory=Limits)
    webhook_receivers: tuple[tuple[str, int], ...] = ()
    provider: SignInProvider | None = None
    collection: CollectionSchedule = field(default_factory=CollectionSchedule)
    storage_is_own: bool = field(default=False, compare=False)
    client_settings: Path | None = field(default=None, compare=False)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> ServerConfig:
        """Read the configuration; empty variables count as unset.

        Args:
            environ: Usually `os.environ`.

        Raises:
            BadConfiguration: A value is invalid; the error names the variable.
        """
        places = Places.from_environ(environ)
        home = places.home
        heartbeat = _number(
            environ, "PT2HUB_HEARTBEAT_SECONDS", DEFAULT_HEARTBEAT_SECONDS, low=0.1, high=3600
        )
        return cls(
            home=home,
            client_settings=places.settings,
            storage_is_own=not environ.get("PT2HUB_STORAGE"),
            storage=_storage(environ.get("PT2HUB_STORAGE") or str(_own_storage(home))),
            database_url=_database_url(environ.get("PT2HUB_DATABASE_URL")),
            host=environ.get("PT2HUB_HOST") or "127.0.0.1",
            port=_integer(environ, "PT2HUB_PORT", DEFAULT_PORT, low=0, high=MAX_PORT),
            api_processes=_integer(environ, "PT2HUB_API_PROCESSES", 1, low=1, high=MAX_PROCESSES),
            max_blob_bytes=_integer(
                environ, "PT2HUB_MAX_BLOB_BYTES", DEFAULT_MAX_BLOB_BYTES, low=1, high=1 << 50
            ),
            scrub_bytes_per_s=_integer(
                environ, "PT2HUB_SCRUB_BYTES_PER_S", DEFAULT_SCRUB_BYTES_PER_S, low=0, high=1 << 40
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
            read=_read_mode(environ.get("PT2HUB_READ")),
            read_beyond_loopback=environ.get("PT2HUB_READ_BEYOND_LOOPBACK") or None,
            limits=_limits(environ),
            webhook_receivers=_receivers(environ.get("PT2HUB_WEBHOOK_ALLOW")),
            provider=read_provider(environ),
            collection=_collection(environ),
        )

    @property
    def reading(self) -> ReadMode:
        """Who may read: what is set, else everybody on this machine, and beyond it whoever has a token."""
        return self.read or (ReadMode.PUBLIC if is_loopback(self.host) else ReadMode.AUTHENTICATED)

    def check_exposure(self) -> None:
        """Refuse to serve everybody's reads to other machines unless that was said twice.

        Raises:
            BadConfiguration: Reads are public beyond loopback, and only one setting says so.
        """
        if self.reading is not ReadMode.PUBLIC or is_loopback(self.host):
            return
        if self.read_beyond_loopback != ReadMode.PUBLIC:
            raise BadConfiguration(
                f"Everybody who reaches {self.host} could read all weights, code and logs",
                where="PT2HUB_READ",
                hint="Unset it to require a token of readers, listen on 127.0.0.1, or, if public reads are meant, also set "
                "PT2HUB_READ_BEYOND_LOOPBACK=public.",
            )


def log_level(environ: Mapping[str, str]) -> str:
    """Return the minimum log level.

    Args:
        environ: Usually `os.environ`.

    Raises:
        BadConfiguration: The level is unknown.
    """
    name = environ.get("PT2HUB_LOG_LEVEL", "").strip().lower() or LOG_LEVELS[1]
    if name not in LOG_LEVELS:
        raise BadConfiguration(
            f"unknown log level {name[:80]!r}",
            where="PT2HUB_LOG_LEVEL",
            hint=f"Use {', '.join(LOG_LEVELS[:-1])} or {LOG_LEVELS[-1]}; the default is {LOG_LEVELS[1]}.",
        )
    return name


def is_loopback(host: str) -> bool:
    """Return whether an address or host is of this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _read_mode(value: str | None) -> ReadMode | None:
    if value and value not in set(ReadMode):
        raise BadConfiguration(
            f"unknown mode {value[:80]!r}",
            where="PT2HUB_READ",
            hint="Use public, authenticated (any valid token reads everything) or team (a token reads the models that its "
            "patterns cover).",
        )
    return ReadMode(value) if value else None


def _limits(environ: Mapping[str, str]) -> Limits:
    usual = Limits()

    def read(name: str, default: int, high: int = 1_000_000_000) -> int:
        return _integer(environ, name, default, low=0, high=high)

    return Limits(
        requests_per_token=read("PT2HUB_MAX_REQUESTS", usual.requests_per_token),
        sign_ins_per_address=read("PT2HUB_MAX_SIGN_INS", usual.sign_ins_per_address),
        uploads_per_token=read("PT2HUB_MAX_UPLOADS", usual.uploads_per_token),
        waits_per_token=read("PT2HUB_MAX_WAITS", usual.waits_per_token),
        builds_per_team=read("PT2HUB_MAX_TEAM_BUILDS", usual.builds_per_team),
        bytes_per_team=read("PT2HUB_MAX_TEAM_BYTES", usual.bytes_per_team, 1 << 60),
    )


def _collection(environ: Mapping[str, str]) -> CollectionSchedule:
    usual = CollectionSchedule()

    def read(name: str, default: timedelta) -> timedelta:
        return timedelta(seconds=_number(environ, name, default.total_seconds(), low=0, high=31_536_000))

    return CollectionSchedule(
        grace=read("PT2HUB_COLLECT_GRACE_SECONDS", usual.grace),
        every=read("PT2HUB_COLLECT_EVERY_SECONDS", usual.every),
        keep_logs=timedelta(days=_integer(environ, "PT2HUB_KEEP_LOGS_DAYS", 0, low=0, high=36_500)),
    )


def _own_storage(home: Path) -> Path:
    return home / "server" / "blobs"


def _storage(value: str) -> str:
    if "://" not in value and not value.lower().startswith("s3:"):  # a typo such as s3:/ is not a directory
        return str(Path(value).expanduser().absolute())
    if not S3_ADDRESS.fullmatch(value):
        raise BadConfiguration(
            f"invalid storage {value!r}",
            where="PT2HUB_STORAGE",
            hint="Use s3://bucket/prefix or a directory.",
        )
    return value.rstrip("/")


def _database_url(value: str | None) -> str | None:
    if value and not _DATABASE.fullmatch(value):
        # The value may contain a password, so it is not repeated.
        raise BadConfiguration(
            "The database URL must be a PostgreSQL URL",
            where="PT2HUB_DATABASE_URL",
            hint="Use postgresql://user@host/database, or unset it for the embedded PostgreSQL.",
        )
    return value or None


def _isolation(value: str | None) -> str | None:
    if value and value not in ISOLATIONS:
        raise BadConfiguration(
            f"unknown isolation {value[:80]!r}",
            where="PT2HUB_ISOLATION",
            hint="Use sandbox, the default, or process, which lets models' code do whatever the worker's user may do.",
        )
    return value or None


def _public_endpoint(value: str | None) -> str | None:
    if not value:
        return None
    try:
        parts = urlsplit(value)
        right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # such as a malformed port or an unbalanced bracket
        right, parts = False, urlsplit("")
    if not right or parts.path.rstrip("/") or parts.query or parts.fragment or "@" in parts.netloc:
        # Not repeated: it may contain credentials, which must not get into logs.
        raise BadConfiguration(
            "The value must be the URL at which clients reach the S3 server",
            where="PT2HUB_S3_PUBLIC_ENDPOINT_URL",
            hint="Use a URL such as https://s3.example.org or http://127.0.0.1:8333, without a path; the bucket is in PT2HUB_STORAGE.",
        )
    return value.rstrip("/")


def _proxies(text: str | None) -> tuple[str, ...]:
    given = tuple(part.strip() for part in (text or "").split(",") if part.strip())
    for part in given:
        try:
            ipaddress.ip_network(part)
        except ValueError as exc:
            raise BadConfiguration(
                f"invalid address or network {part[:80]!r}",
                where="PT2HUB_TRUSTED_PROXIES",
                hint="Use a list such as 10.0.0.5,10.1.0.0/16: numeric, without host names; the host bits of a network must be 0.",
            ) from exc
    return given or DEFAULT_PROXIES


def _receivers(text: str | None) -> tuple[tuple[str, int], ...]:
    return tuple(_receiver(part.strip()) for part in (text or "").split(",") if part.strip())


def _receiver(text: str) -> tuple[str, int]:
    """Return host and port, as the parts of an address that a webhook names."""
    try:
        parts = urlsplit(f"//{text}")
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        parts, host, port = urlsplit(""), "", None
    if not host or not port or parts.netloc != text or "@" in text:
        raise BadConfiguration(
            f"invalid receiver {text[:80]!r}",
            where="PT2HUB_WEBHOOK_ALLOW",
            hint="Use a list of hosts and ports, as webhooks name them, such as 127.0.0.1:9000,hooks.internal:443.",
        )
    return host, port


def _modules(text: str | None) -> tuple[str, ...]:
    names = tuple(name.strip() for name in (text or "").split(",") if name.strip())
    for name in names:
        if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", name):
            raise BadConfiguration(
                f"invalid module name {name[:80]!r}",
                where="PT2HUB_FACTORIES",
                hint="Use a list such as torchvision.models,my.models.",
            )
    return names or DEFAULT_FACTORIES


def _integer(environ: Mapping[str, str], name: str, default: int, *, low: int, high: int) -> int:
    text = environ.get(name) or str(default)
    if not re.fullmatch(r"\d{1,18}", text) or not low <= int(text) <= high:
        raise BadConfiguration(
            f"must be an integer from {low} to {high}, got {text!r}",
            where=name,
            hint=f"The default is {default}.",
        )
    return int(text)


def _number(environ: Mapping[str, str], name: str, default: float, *, low: float, high: float) -> float:
    text = environ.get(name) or str(default)
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text) or not low <= float(text) <= high:
        raise BadConfiguration(
            f"must be a number of seconds from {low:g} to {high:g}, got {text!r}",
            where=name,
            hint=f"The default is {default:g}.",
        )
    return float(text)
