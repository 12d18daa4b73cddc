"""The worker's settings. Nothing else in the worker's parent process reads the environment."""

from __future__ import annotations

import os
import shlex
import tempfile
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pt2hub.errors import BadConfiguration
from pt2hub.server.config import ServerConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

SECRETS = ("PT2HUB_DATABASE_URL", "PT2HUB_TOKEN", "PT2HUB_STORAGE", "AWS_", "PG")
"""Beginnings of variables that no child process gets."""


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """The worker's settings.

    Attributes:
        server: Storage and heartbeat, shared with the server.
        database_url: The server's PostgreSQL (`PT2HUB_DATABASE_URL`, required).
        scratch: Where builds run. A fixed path: it becomes part of the compiled code.
        worker_id: Name of this process in the workers table.
        child_environ: Environment of the children; `PT2HUB_BUILD_ENV` ("CXX=/bin/false A=b") adds to it.
        gate_seconds: Time the gate's process has for one artifact (`PT2HUB_GATE_SECONDS`).
    """

    server: ServerConfig
    database_url: str
    scratch: Path
    worker_id: str
    child_environ: dict[str, str] = field(repr=False)
    gate_seconds: float = 300.0

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> WorkerConfig:
        """Reads the settings.

        Raises:
            BadConfiguration: A value is wrong or missing; the error names the variable.
        """
        server = ServerConfig.from_environ(environ)
        if server.database_url is None:
            raise BadConfiguration(
                "the worker needs the server's database",
                where="PT2HUB_DATABASE_URL",
                hint="Set it to the server's PostgreSQL, or run `pt2hub up`, which starts a worker itself.",
            )
        base = Path(environ.get("PT2HUB_SCRATCH") or tempfile.gettempdir())
        return cls(
            server=server,
            database_url=server.database_url,
            scratch=base / f"pt2hub-build-{os.getuid()}",
            worker_id=f"{os.uname().nodename}-{os.getpid()}-{uuid.uuid4().hex[:8]}",
            child_environ={**_harmless(environ), **_added(environ.get("PT2HUB_BUILD_ENV", ""))},
            gate_seconds=_seconds(environ.get("PT2HUB_GATE_SECONDS") or "300"),
        )


def _harmless(environ: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in environ.items() if not key.startswith(SECRETS)}


def _added(text: str) -> dict[str, str]:
    pairs = dict(word.partition("=")[::2] for word in shlex.split(text))
    if "" in pairs:
        raise BadConfiguration(
            f"{text!r} is no list of NAME=value",
            where="PT2HUB_BUILD_ENV",
            hint="Write CXX=g++-13 OMP_NUM_THREADS=4.",
        )
    return pairs


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
