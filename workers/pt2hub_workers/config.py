"""The worker's settings. Nothing else in the worker's parent process reads the environment."""

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
from pt2hub.server.home import Home
from pt2hub.server.redaction import known_secrets
from pt2hub_workers.noop import read_pauses
from pt2hub_workers.rooms import MAX_SLOTS
from pt2hub_workers.sandbox import SandboxSettings, allowed, at_level
from pt2hub_workers.sandbox.limits import limits_from_environ

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pt2hub_workers.sandbox import Isolation

AUTO = "auto"
TOOLCHAINS = ("aoti", "noop")


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """The worker's settings.

    Attributes:
        server: Storage and heartbeat, shared with the server.
        database_url: The server's PostgreSQL (`PT2HUB_DATABASE_URL`, else that of a running `pt2hub up`).
        scratch: Where builds run. A fixed path: it becomes part of the compiled code.
        worker_id: Name of this process in the workers table.
        child_environ: Environment of the children: what of the worker's own they may see (`sandbox.environment`);
            `PT2HUB_BUILD_ENV` ("CXX=/bin/false A=b") adds to it, and `PT2HUB_CPU_LEVEL` holds it to a CPU level.
        sandbox: How children are confined and what each may use: `PT2HUB_ISOLATION`, which the server reads as well,
            `PT2HUB_BWRAP`, `PT2HUB_SANDBOX_READABLE` (paths with `:` between them) and the limits.
        headers: Where PyTorch's precompiled headers are kept, for all workers of this user on this machine
            (`PT2HUB_HEADERS`). Not in the scratch directory: it may be another one for each worker.
        target: What to build for, `auto` for what the machine is (`PT2HUB_WORKER_TARGET`).
        concurrency: Builds at a time (`PT2HUB_CONCURRENCY`).
        toolchain: `aoti`, or `noop`, which compiles nothing (`PT2HUB_TOOLCHAIN`).
        drain_seconds: How long builds may go on once the worker is told to stop (`PT2HUB_DRAIN_SECONDS`).
        gate_seconds: Time the gate's process has for one artifact (`PT2HUB_GATE_SECONDS`).
        secrets: What must never stand in a log.
        noop_pauses: Seconds that steps of the no-op toolchain take (`PT2HUB_NOOP_PAUSES`: "compile=0.5,verify=0.2").
        image: Digest of the container image that it runs in, which every artifact's provenance names (`PT2HUB_IMAGE`).
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
    gate_seconds: float = 300.0
    secrets: tuple[str, ...] = field(default=(), repr=False)
    noop_pauses: dict[str, float] = field(default_factory=dict)
    image: str | None = None

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> WorkerConfig:
        """Reads the settings.

        Raises:
            BadConfiguration: A value is wrong or missing; the error names the variable.
        """
        server = ServerConfig.from_environ(environ)
        base = Path(environ.get("PT2HUB_SCRATCH") or tempfile.gettempdir())
        drain = server.drain_seconds
        headers = _headers(environ)
        return cls(
            server=server,
            database_url=server.database_url or _of_running_up(Home(server.home)),
            scratch=base / f"pt2hub-build-{os.getuid()}",
            worker_id=f"{host()}-{os.getpid()}-{uuid.uuid4().hex[:8]}",
            child_environ={
                **allowed(environ),
                **at_level(cpu_level_limit(environ)),
                **_added(environ.get("PT2HUB_BUILD_ENV", "")),
                "PT2HUB_HEADERS": str(headers),
            },
            sandbox=_sandbox(environ, server.isolation, headers),
            headers=headers,
            target=environ.get("PT2HUB_WORKER_TARGET") or AUTO,
            concurrency=_concurrency(environ.get("PT2HUB_CONCURRENCY") or "1"),
            toolchain=_toolchain(environ.get("PT2HUB_TOOLCHAIN") or TOOLCHAINS[0]),
            drain_seconds=DEFAULT_DRAIN_SECONDS if drain is None else drain,
            gate_seconds=_seconds(environ.get("PT2HUB_GATE_SECONDS") or "300"),
            secrets=known_secrets(environ),
            noop_pauses=read_pauses(environ.get("PT2HUB_NOOP_PAUSES", "")),
            image=environ.get("PT2HUB_IMAGE") or None,
        )

    @property
    def private(self) -> dict[str, Path]:
        """Directories that no build may read, by the setting that names each."""
        named = {"PT2HUB_SCRATCH": self.scratch, "PT2HUB_HOME": self.server.home}
        local = "://" not in self.server.storage
        return named | ({"PT2HUB_STORAGE": Path(self.server.storage)} if local else {})

    def check_storage(self) -> None:
        """Refuses to publish into a directory where nobody would find it.

        Raises:
            BadConfiguration: A database is named, no storage is, and no server ever ran on this home.
        """
        default = self.server.home / "server" / "blobs"
        if self.server.database_url and self.server.storage == str(default) and not default.is_dir():
            raise BadConfiguration(
                "the worker needs the server's storage as well as its database",
                where="PT2HUB_STORAGE",
                hint="Set it as for the server: s3://bucket/prefix, or a directory that both reach.",
            )


def host() -> str:
    """This machine's name."""
    return os.uname().nodename


def _of_running_up(home: Home) -> str:
    embedded = EmbeddedPostgres(home.database)
    if embedded.in_use():
        return embedded.url
    raise BadConfiguration(
        f"the worker needs the server's database; none is named, and no `pt2hub up` runs on {home.path}",
        where="PT2HUB_DATABASE_URL",
        hint="Set it to the server's PostgreSQL and PT2HUB_STORAGE to its storage, or set PT2HUB_HOME to the home of "
        "a running `pt2hub up`. `pt2hub up` itself starts a worker, too.",
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
            f"{text[:200]!r} is no path of something that is there",
            where="PT2HUB_SANDBOX_READABLE",
            hint="Write absolute paths of what builds need to read, with ':' between them: /opt/models:/opt/compilers.",
        )
    return path


def _added(text: str) -> dict[str, str]:
    pairs = dict(word.partition("=")[::2] for word in shlex.split(text))
    if "" in pairs:
        raise BadConfiguration(
            f"{text!r} is no list of NAME=value",
            where="PT2HUB_BUILD_ENV",
            hint="Write CXX=g++-13 OMP_NUM_THREADS=4.",
        )
    return pairs


def _concurrency(text: str) -> int:
    if not re.fullmatch(r"\d{1,4}", text) or not 1 <= int(text) <= MAX_SLOTS:
        raise BadConfiguration(
            f"{text!r} is no whole number from 1 to {MAX_SLOTS}",
            where="PT2HUB_CONCURRENCY",
            hint="It is the number of builds at a time; the default is 1.",
        )
    return int(text)


def _toolchain(text: str) -> str:
    if text not in TOOLCHAINS:
        raise BadConfiguration(
            f"{text[:80]!r} is no toolchain",
            where="PT2HUB_TOOLCHAIN",
            hint=f"Known: {', '.join(TOOLCHAINS)}.",
        )
    return text


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 1 <= value <= 86400:  # noqa: PLR2004  # a day
        raise BadConfiguration(
            f"{text!r} is no number of seconds from 1 to 86400", where="PT2HUB_GATE_SECONDS"
        )
    return value
