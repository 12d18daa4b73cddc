"""Target, toolchain and environment of a worker, as probed in a child process."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pt2hub.client.config import CPU_LEVEL
from pt2hub.domain.artifacts import Environment, Toolchain
from pt2hub.domain.codec import decode
from pt2hub.domain.targets import Target
from pt2hub.errors import BadConfiguration, UnknownTarget
from pt2hub_workers.operations import conditions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pt2hub_workers.sandbox import Launcher, Level

_INSTALL = "Install the worker's packages: pip install 'pt2hub[worker]'."
_IN_SANDBOX = "If it starts outside the sandbox, add the paths that it reads to PT2HUB_SANDBOX_READABLE."


@dataclass(frozen=True, slots=True)
class Machine:
    """Machine of a worker.

    Attributes:
        device: Device that timings lock: `cpu`, the GPU's UUID, or `noop` if nothing is timed.
    """

    target: Target
    toolchain: Toolchain
    environment: Environment
    packages: dict[str, str]
    cpu_flags: tuple[str, ...]
    device: str = "cpu"


def probe_machine(launcher: Launcher, environ: Mapping[str, str], target: str = "auto") -> Machine:
    """Probe the machine in a child process: the worker never imports torch, and torch provably starts where builds run.

    Args:
        target: Name of a possible target; `auto` is the best one.

    Raises:
        UnknownTarget: The machine cannot build for the target; the error lists the possible ones.
    """
    try:
        answer = json.loads(launcher.run_probe(environ, target))
    except (subprocess.SubprocessError, ValueError) as error:
        raise _no_torch(launcher.level, error) from error
    if "candidates" in answer:
        raise _no_target(target, answer["candidates"])
    machine = decode(Machine, answer)
    # A sandboxed probe sees neither the worker's container nor the processors' settings.
    seen = conditions.complete_environment(machine.environment, isolation=launcher.level)
    return replace(machine, environment=replace(machine.environment, **seen))


def _no_target(target: str, candidates: list[str]) -> UnknownTarget | BadConfiguration:
    if not candidates:
        return BadConfiguration(
            "this torch compiles only for the machine's own CPU, so its level cannot be lowered",
            where=CPU_LEVEL,
            hint="Unset it, or install a newer torch.",
        )
    return UnknownTarget(
        f"this machine cannot build for {target[:80]!r}",
        where="PT2HUB_WORKER_TARGET",
        hint=f"Use one of: auto, {', '.join(candidates)}.",
    )


def _no_torch(level: Level, error: Exception) -> BadConfiguration:
    where, hint = (" in the sandbox", f"{_INSTALL} {_IN_SANDBOX}") if level == "sandbox" else ("", _INSTALL)
    # Not the whole command: in a sandbox it names every mount.
    why = f"exit code {error.returncode}" if isinstance(error, subprocess.CalledProcessError) else str(error)
    return BadConfiguration(
        f"the worker's torch does not start{where}: {why[:300]}", where="worker", hint=hint
    )
