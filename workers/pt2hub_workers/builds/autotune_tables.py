"""Autotuning's measurements on the worker's side: kept for a team, a machine's model and a toolchain.

A build gets the table of its team's earlier builds and hands over what it measured. The table is data: the worker checks
its form and size, and no build can reach the directory. Another team's builds have another table, since times that are
lies would make slow code of a choice (never wrong code: verification follows).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import re
import time
from typing import TYPE_CHECKING, Any

import structlog

from pt2hub.domain.digests import digest_json, hex_of
from pt2hub_workers.inside.builds.compile.known_times import KERNELS, OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pt2hub_workers.operations.machine import Machine

MAX_BYTES = 4 << 20
"""Size of a table, and of what one build hands over: a matrix product of 20 candidates has about 3 KB."""
UNUSED_SECONDS = 90 * 86400.0
"""Age after which a table is removed if no build used it."""
_TOOLS = ("torch", "triton", "cuda", "compiler", "driver")
_PRECISIONS = ("highest", "high", "medium")
_CONFIG_FILE = re.compile(r"[a-z0-9]{2}/[a-z0-9]{16,128}\.best_config")
_FIELD = re.compile(r"[A-Za-z_]\w{0,63}")
_MAX_TEXT = 20_000
"""Characters of a name: Inductor's key of an operation's inputs lists every size and stride."""
_MAX_REASON = 500
_MAX_MILLISECONDS = 1e9
_MAX_FIELDS = 64
_MAX_VALUE = 1e12
_log = structlog.get_logger()


class AutotuneTables:
    """Tables of one worker's machine and toolchain, in a directory that only the worker reaches.

    Args:
        folder: Directory of the tables, shared by the user's workers on this machine; made when first written to.
    """

    def __init__(self, folder: Path, machine: Machine) -> None:
        self._folder = folder
        self._identity = identity(machine)

    def fetch(self, team: str, into: Path) -> bool:
        """Copy a team's table; return whether there is one."""
        path = self._path(team)
        try:
            found = check_table(path.read_bytes())
            into.write_text(json.dumps(found))
            os.utime(path)
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as error:
            _log.warning("the autotuning table cannot be used", path=str(path), error=str(error)[:200])
            return False
        return True

    def add(self, team: str, sent: Path) -> bool:
        """Add what a build measured, which is untrusted; return whether it was usable."""
        try:
            with sent.open("rb") as file:
                new = check_table(file.read(MAX_BYTES + 1))
            self._merge(team, new)
        except (OSError, ValueError) as error:
            _log.warning("a build's autotuning times are not kept", team=team, error=str(error)[:200])
            return False
        return True

    def _merge(self, team: str, new: Mapping[str, Any]) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._path(team)
        with _alone(self._folder):
            self._remove_unused()
            merged = _shorten(_join(self._read(path), new))
            part = path.with_suffix(".part")
            part.write_text(json.dumps(merged))
            part.replace(path)

    def _read(self, path: Path) -> dict[str, Any]:
        try:
            return check_table(path.read_bytes())
        except (OSError, ValueError):
            return {OPERATIONS: {}, KERNELS: {}}

    def _path(self, team: str) -> Path:
        return self._folder / f"{hex_of(digest_json({**self._identity, 'team': team}))[:32]}.json"

    def _remove_unused(self) -> None:
        oldest = time.time() - UNUSED_SECONDS
        for path in self._folder.glob("*.json"):
            if path.stat().st_mtime < oldest:
                path.unlink(missing_ok=True)


def identity(machine: Machine) -> dict[str, Any]:
    """Return what times depend on: the model of the GPU or CPU, and the toolchain."""
    environment = machine.environment
    device = (
        [environment.gpu]
        if machine.target.device == "cuda"
        else [environment.cpu_model, environment.cpu_level, environment.cores, environment.threads]
    )
    toolchain = {name: getattr(machine.toolchain, name) for name in _TOOLS}
    return {"schema": 1, "target": machine.target.name, "device": device, "toolchain": toolchain}


def check_table(data: bytes) -> dict[str, Any]:
    """Parse a table, which a build wrote.

    Raises:
        ValueError: It is too large, or no table.
    """
    if len(data) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES >> 20} MiB")
    try:
        document = json.loads(data)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(document, dict) or set(document) != {OPERATIONS, KERNELS}:
        raise ValueError("unknown form")
    for operation, inputs in _entries(document[OPERATIONS]):
        _require(bool(operation) and inputs is not None)
        for _, precisions in _entries(inputs):
            for precision, times in _entries(precisions):
                _require(precision in _PRECISIONS)
                _require(all(_is_time(value) for _, value in _entries(times)))
    for file, fields in _entries(document[KERNELS]):
        _require(bool(_CONFIG_FILE.fullmatch(file)))
        values = list(_entries(fields))
        _require(len(values) <= _MAX_FIELDS)
        _require(all(_FIELD.fullmatch(name) and _is_value(value) for name, value in values))
    return document


def _entries(value: Any) -> Iterator[tuple[str, Any]]:
    _require(isinstance(value, dict))
    for name, item in value.items():
        _require(len(name) <= _MAX_TEXT)
        yield name, item


def _require(condition: bool) -> None:  # like assert, for untrusted values
    if not condition:
        raise ValueError("invalid entry")


def _is_time(value: object) -> bool:
    """Return whether a value is a candidate's milliseconds, or the reason for none."""
    if isinstance(value, str):
        return len(value) <= _MAX_REASON
    return isinstance(value, float) and math.isfinite(value) and 0 <= value <= _MAX_MILLISECONDS


def _is_value(value: object) -> bool:
    """Return whether a value may be in a kernel's configuration."""
    if value is None or isinstance(value, bool):
        return True
    if isinstance(value, str):
        return len(value) <= _MAX_REASON
    return isinstance(value, int | float) and -_MAX_VALUE <= value <= _MAX_VALUE


def _join(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return both tables, the new entries last; an operation's candidates are replaced as a whole."""
    operations = {name: dict(inputs) for name, inputs in old[OPERATIONS].items()}
    for operation, inputs in new[OPERATIONS].items():
        own = operations.setdefault(operation, {})
        for key, precisions in inputs.items():
            own[key] = {**own.pop(key, {}), **precisions}
    kernels = {name: value for name, value in old[KERNELS].items() if name not in new[KERNELS]}
    return {OPERATIONS: operations, KERNELS: {**kernels, **new[KERNELS]}}


def _shorten(table: dict[str, Any]) -> dict[str, Any]:
    """Drop the oldest half of the entries until the table has a permitted size."""
    while len(json.dumps(table)) > MAX_BYTES:
        operations = {name: _newest(inputs) for name, inputs in table[OPERATIONS].items()}
        table = {
            OPERATIONS: {name: inputs for name, inputs in operations.items() if inputs},
            KERNELS: _newest(table[KERNELS]),
        }
    return table


def _newest(entries: Mapping[str, Any]) -> dict[str, Any]:
    items = list(entries.items())
    return dict(items[(len(items) + 1) // 2 :])


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock the directory against other workers; the kernel releases the lock with its process."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
