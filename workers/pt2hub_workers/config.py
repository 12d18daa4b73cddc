"""Worker settings, the only reader of the environment in the worker's parent process."""

from __future__ import annotations

import os
import re
import shlex
import tempfile
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pt2hub.client.config import cpu_level_limit
from pt2hub.errors import BadConfiguration
from pt2hub.server.config import DEFAULT_DRAIN_SECONDS, ServerConfig
from pt2hub.server.db.embedded import EmbeddedPostgres
from pt2hub.system.home import Home
from pt2hub.system.redaction import known_secrets
from pt2hub_workers.sandbox import SandboxSettings, allow_variables, at_level
from pt2hub_workers.sandbox.limits import limits_from_environ
from pt2hub_workers.sandbox.workspaces import MAX_SLOTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pt2hub_workers.sandbox import Isolation

AUTO = "auto"
TOOLCHAINS = ("aoti", "noop")
NOOP_STEPS = ("export", "key", "compile", "reuse", "pack", "verify", "measure")
"""Steps of the no-op toolchain that may be slowed down: those of a build that are not the worker's own, and `measure`."""
MAX_NOOP_PAUSE_S = 3600.0


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Settings of a worker.

    Attributes:
        database_url: The server's PostgreSQL (`PT2HUB_DATABASE_URL`, by default that of a running `pt2hub up`).
        scratch: Where builds run. A fixed path: it becomes part of the compiled code.
        child_environ: Environment of child processes: the allowed part of the worker's own (`sandbox.environment`),
            with the additions of `PT2HUB_BUILD_ENV` ("CXX=/bin/false A=b") and the limit of `PT2HUB_CPU_LEVEL`.
        sandbox: Isolation and limits of child processes: `PT2HUB_ISOLATION`, which the server reads as well,
            `PT2HUB_BWRAP`, `PT2HUB_SANDBOX_READABLE` (paths separated by `:`) and the limits.
        headers: Directory of PyTorch's precompiled headers, shared by all workers of this user on this machine
            (`PT2HUB_HEADERS`). Not in the scratch directory, which may differ between workers.
        target: What to build for; `auto` is the machine's own target (`PT2HUB_WORKER_TARGET`).
        concurrency: Builds at a time (`PT2HUB_CONCURRENCY`).
        toolchain: `aoti`, or `noop`, which compiles nothing (`PT2HUB_TOOLCHAIN`).
        drain_seconds: How long running builds may continue after a stop signal (`PT2HUB_DRAIN_SECONDS`).
        verification_seconds: Time limit of the process that runs an artifact for its verification (`PT2HUB_VERIFICATION_SECONDS`).
        secrets: Values that must never appear in a log.
        noop_pauses: Seconds that steps of the no-op toolchain take (`PT2HUB_NOOP_PAUSES`: "compile=0.5,verify=0.2").
        image: Digest of the worker's container image, recorded in every artifact's provenance (`PT2HUB_IMAGE`).
    """

    server: ServerConfig
    database_url: str = field(repr=False)
    scratch: Path
    worker_id: str
    child_environ: dict[str, str] = field(repr=False)
    sandbox: SandboxSettings
    headers: Path
    target: str = AUTO
    concurrency: int = 1
    toolchain: str = "aoti"
    drain_seconds: float = DEFAULT_DRAIN_SECONDS
    verification_seconds: float = 300.0
    secrets: tuple[str, ...] = field(default=(), repr=False)
    noop_pauses: dict[str, float] = field(default_factory=dict)
    image: str | None = None

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> WorkerConfig:
        """Read the settings.

        Raises:
            BadConfiguration: A value is invalid or missing; the error names the variable.
        """
        server = ServerConfig.from_environ(environ)
        base = Path(environ.get("PT2HUB_SCRATCH") or tempfile.gettempdir())
        drain = server.drain_seconds
        headers = _headers(environ)
        return cls(
            server=server,
            database_url=server.database_url or _running_database_url(Home(server.home)),
            scratch=base / f"pt2hub-build-{os.getuid()}",
            worker_id=f"{host()}-{os.getpid()}-{uuid.uuid4().hex[:8]}",
            child_environ={
                **allow_variables(environ),
                **at_level(cpu_level_limit(environ)),
                **_parse_assignments(environ.get("PT2HUB_BUILD_ENV", "")),
                "PT2HUB_HEADERS": str(headers),
            },
            sandbox=_sandbox(environ, server.isolation, headers),
            headers=headers,
            target=environ.get("PT2HUB_WORKER_TARGET") or AUTO,
            concurrency=_concurrency(environ.get("PT2HUB_CONCURRENCY") or "1"),
            toolchain=_toolchain(environ.get("PT2HUB_TOOLCHAIN") or TOOLCHAINS[0]),
            drain_seconds=DEFAULT_DRAIN_SECONDS if drain is None else drain,
            verification_seconds=_seconds(environ.get("PT2HUB_VERIFICATION_SECONDS") or "300"),
            secrets=known_secrets(environ),
            noop_pauses=read_noop_pauses(environ.get("PT2HUB_NOOP_PAUSES", "")),
            image=environ.get("PT2HUB_IMAGE") or None,
        )

    @property
    def private(self) -> dict[str, Path]:
        """Directories that no build may read, by setting."""
        named = {"PT2HUB_SCRATCH": self.scratch, "PT2HUB_HOME": self.server.home}
        local = "://" not in self.server.storage
        return named | ({"PT2HUB_STORAGE": Path(self.server.storage)} if local else {})

    def check_storage(self) -> None:
        """Check that artifacts go to the server's storage.

        Raises:
            BadConfiguration: A database is set, no storage is, and no server ever ran on this home.
        """
        default = self.server.home / "server" / "blobs"
        if self.server.database_url and self.server.storage == str(default) and not default.is_dir():
            raise BadConfiguration(
                "the worker needs the server's storage as well as its database",
                where="PT2HUB_STORAGE",
                hint="Use the server's value: s3://bucket/prefix, or a directory that both can reach.",
            )


def read_noop_pauses(text: str) -> dict[str, float]:
    """Read `PT2HUB_NOOP_PAUSES`, such as `compile=0.5,verify=0.2`."""
    pauses = {}
    for word in text.replace(",", " ").split():
        name, _, value = word.partition("=")
        try:
            seconds = float(value)
        except ValueError:
            seconds = -1.0
        if name not in NOOP_STEPS or not 0 <= seconds <= MAX_NOOP_PAUSE_S:
            raise BadConfiguration(
                f"invalid pause {word[:80]!r}: must be STEP=SECONDS",
                where="PT2HUB_NOOP_PAUSES",
                hint=f"Write compile=0.5,verify=0.2. Steps: {', '.join(NOOP_STEPS)}; seconds from 0 to {MAX_NOOP_PAUSE_S:g}.",
            )
        pauses[name] = seconds
    return pauses


def host() -> str:
    """Return this machine's name."""
    return os.uname().nodename


def _running_database_url(home: Home) -> str:
    embedded = EmbeddedPostgres(home.database)
    if embedded.in_use():
        return embedded.worker_url
    raise BadConfiguration(
        f"the server's database is required: PT2HUB_DATABASE_URL is not set, and no `pt2hub up` runs on {home.path}",
        where="PT2HUB_DATABASE_URL",
        hint="Set it to the server's PostgreSQL and PT2HUB_STORAGE to its storage, or set PT2HUB_HOME to the home of "
        "a running `pt2hub up`, which also starts a worker of its own.",
    )


def _headers(environ: Mapping[str, str]) -> Path:
    named = environ.get("PT2HUB_HEADERS")
    return Path(named or Path(tempfile.gettempdir(), f"pt2hub-headers-{os.getuid()}")).absolute()


def _sandbox(environ: Mapping[str, str], isolation: str | None, headers: Path) -> SandboxSettings:
    named = filter(None, environ.get("PT2HUB_SANDBOX_READABLE", "").split(os.pathsep))
    return SandboxSettings(
        isolation=cast("Isolation", isolation or "sandbox"),  # the server's settings refuse other values
        limits=limits_from_environ(environ),
        bwrap=environ.get("PT2HUB_BWRAP") or None,
        readable=(*(_readable(path) for path in named), headers),
    )


def _readable(text: str) -> Path:
    path = Path(text)
    if not path.is_absolute() or not path.exists():
        raise BadConfiguration(
            f"invalid path {text[:200]!r}: must be absolute and exist",
            where="PT2HUB_SANDBOX_READABLE",
            hint="Write absolute paths that builds need to read, separated by ':': /opt/models:/opt/compilers.",
        )
    return path


def _parse_assignments(text: str) -> dict[str, str]:
    pairs = dict(word.partition("=")[::2] for word in shlex.split(text))
    if "" in pairs:
        raise BadConfiguration(
            f"invalid variables {text!r}: must be a list of NAME=value",
            where="PT2HUB_BUILD_ENV",
            hint="Write CXX=g++-13 OMP_NUM_THREADS=4.",
        )
    return pairs


def _concurrency(text: str) -> int:
    if not re.fullmatch(r"\d{1,4}", text) or not 1 <= int(text) <= MAX_SLOTS:
        raise BadConfiguration(
            f"concurrency must be a whole number from 1 to {MAX_SLOTS}, got {text!r}",
            where="PT2HUB_CONCURRENCY",
            hint="It is the number of builds at a time; the default is 1.",
        )
    return int(text)


def _toolchain(text: str) -> str:
    if text not in TOOLCHAINS:
        raise BadConfiguration(
            f"unknown toolchain {text[:80]!r}",
            where="PT2HUB_TOOLCHAIN",
            hint=f"Use one of: {', '.join(TOOLCHAINS)}.",
        )
    return text


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 1 <= value <= 86400:  # noqa: PLR2004  # a day
        raise BadConfiguration(
            f"the time limit must be from 1 to 86400 seconds, got {text!r}",
            where="PT2HUB_VERIFICATION_SECONDS",
        )
    return value
