"""The checks of `pt2hub doctor`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from pt2hub.cli.access.login import describe_token
from pt2hub.errors import Pt2hubError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.client.client import Client
    from pt2hub.client.config import ClientConfig

_LOW_SPACE_BYTES = 2 << 30
"""Less free space than this is a warning: a model with its weights can be larger."""
_COMMAND_TIMEOUT_S = 150.0
"""The sandbox self-test has 120 s."""
_FOR_BUILDS = "needed only where a worker builds"


@dataclass(frozen=True, slots=True)
class Checkup:
    """The result of one check.

    Attributes:
        state: `warning` if only some commands need what is missing.
        message: What was found.
        cure: What to do; empty if nothing.
    """

    name: str
    state: Literal["ok", "warning", "failed"]
    message: str
    cure: str = ""


def run_checkups() -> list[Checkup]:
    """Run all checks; none raises."""
    return list(_all())


def _all() -> Iterator[Checkup]:
    from pt2hub.client.client import Client
    from pt2hub.client.config import ClientConfig

    try:
        config = ClientConfig.from_environ()
    except Pt2hubError as exc:
        yield _failure("settings", exc)
    else:
        with Client(config) as client:
            server = _check_server(client)
            yield server
            yield _check_token(client, server)
        yield _check_cache(config)
    yield _check_torch()
    yield _check_compiler()
    yield _check_gpu()
    yield _check_sandbox()


def _failure(name: str, exc: Pt2hubError) -> Checkup:
    where = f"{exc.where}: " if exc.where else ""
    return Checkup(name, "failed", f"{where}{exc.message}", exc.hint or "")


def _check_server(client: Client) -> Checkup:
    if client.config.availability.offline:
        return Checkup("server", "warning", "not checked: pt2hub is offline", "Unset PT2HUB_OFFLINE.")
    try:
        release = client.check_server()
    except Pt2hubError as exc:
        return _failure("server", exc)
    return Checkup("server", "ok", f"{client.config.url} is ready, pt2hub {release}")


def _check_token(client: Client, server: Checkup) -> Checkup:
    if client.config.token is None:
        cure = "Run pt2hub login; `pt2hub admin token` on the server's machine creates a token."
        return Checkup("token", "warning", "none: reading works, publishing does not", cure)
    if server.state != "ok":
        return Checkup("token", "warning", "not checked, since the server is not ready")
    try:
        identity = client.whoami()
    except Pt2hubError as exc:
        return _failure("token", exc)
    return Checkup(
        "token", "ok", f"{identity.name}, {describe_token(identity)}, from {client.config.token_from}"
    )


def _check_cache(config: ClientConfig) -> Checkup:
    from pt2hub.places import make_folder
    from pt2hub.rendering.quantities import format_bytes

    folder = config.cache
    try:
        make_folder(folder)
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free
    except OSError as exc:
        cure = "Correct its permissions, or set PT2HUB_CACHE to a directory that you can write."
        return Checkup("cache", "failed", f"{folder}: {exc.strerror or exc}", cure)
    text = f"{folder}, {format_bytes(free)} free"
    if free < _LOW_SPACE_BYTES:
        return Checkup("cache", "warning", text, "Make room: pt2hub cache prune --max-size 10GiB")
    return Checkup("cache", "ok", text)


def _check_torch() -> Checkup:
    if find_spec("torch") is None:
        cure = "To load models here: pip install torch, in the release of the artifacts' targets."
        return Checkup("torch", "warning", "not installed: models can be pulled and not loaded", cure)
    try:
        return Checkup("torch", "ok", version("torch"))
    except PackageNotFoundError:
        return Checkup("torch", "ok", "installed, without metadata of its release")


def _check_compiler() -> Checkup:
    named = os.environ.get("CXX") or "g++"
    found = shutil.which(named)
    if found is None:
        cure = "Install it (Debian: apt install g++), or set CXX to another compiler."
        return Checkup("compiler", "warning", f"{named} not found, {_FOR_BUILDS}", cure)
    try:
        done = _run([found, "--version"])
    except (OSError, subprocess.TimeoutExpired) as exc:
        return Checkup("compiler", "warning", f"{found} does not run: {exc}", "Set CXX to another compiler.")
    return Checkup("compiler", "ok", f"{found}: {(done.stdout.splitlines() or ['no version'])[0]}")


def _check_gpu() -> Checkup:
    from pt2hub.client.machine.gpus import compute_capability, gpu

    name = gpu()
    if name is None:
        return Checkup("gpu", "ok", "none: artifacts for CPUs run here")
    return Checkup("gpu", "ok", f"{name}, {compute_capability() or 'unknown compute capability'}")


def _check_sandbox() -> Checkup:
    if find_spec("pt2hub_workers") is None or find_spec("structlog") is None:
        return Checkup("sandbox", "ok", f"not checked: the worker is not installed, {_FOR_BUILDS}")
    try:
        done = _run([sys.executable, "-m", "pt2hub_workers.sandbox"])
        report = json.loads(done.stdout)
        confines, message, hint = report["confines"], report["message"], report["hint"]
    except (OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired) as exc:
        return Checkup(
            "sandbox", "warning", f"the self-test did not run: {exc}", "Run pt2hub worker for details."
        )
    state: Literal["ok", "warning"] = "ok" if confines else "warning"
    return Checkup("sandbox", state, message, hint)


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=False)
