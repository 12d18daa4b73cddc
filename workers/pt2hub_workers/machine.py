"""What this worker is: its target, toolchain and environment, as the probe found them."""

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
from pt2hub_workers import conditions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pt2hub_workers.sandbox import Launcher, Level

_INSTALL = "Install the worker's packages: pip install 'pt2hub[worker]'."
_IN_SANDBOX = "If it starts outside of the sandbox, something that it reads lies elsewhere: name it in PT2HUB_SANDBOX_READABLE."


@dataclass(frozen=True, slots=True)
class Machine:
    """What this worker is.

    Attributes:
        target: What it builds for.
        toolchain: The versions that shape its code.
        environment: What makes its timings comparable.
        packages: Versions a submission pins.
        cpu_flags: The CPU's instruction-set flags.
        device: What its timings hold alone: `cpu`, the GPU's UUID, or `noop` where nothing is timed.
    """

    target: Target
    toolchain: Toolchain
    environment: Environment
    packages: dict[str, str]
    cpu_flags: tuple[str, ...]
    device: str = "cpu"


def probe_machine(launcher: Launcher, environ: Mapping[str, str], target: str = "auto") -> Machine:
    """Asks a child process, so that the worker itself never imports torch, and torch is seen to start where builds run.

    Args:
        launcher: Starts it as it starts builds.
        environ: The environment of the children: their compiler is the one to record.
        target: What to be, of what the machine can be; `auto` for the best of it.

    Raises:
        BadConfiguration: torch cannot be imported, or its answer makes no sense.
        UnknownTarget: The machine cannot be that; the error lists what it can be.
    """
    try:
        answer = json.loads(launcher.run_probe(environ, target))
    except (subprocess.SubprocessError, ValueError) as error:
        raise _no_torch(launcher.level, error) from error
    if "candidates" in answer:
        raise _no_target(target, answer["candidates"])
    machine = decode(Machine, answer)
    # In a sandbox the probe sees neither the container around the worker nor the processors' settings.
    seen = conditions.completed(machine.environment, isolation=launcher.level)
    return replace(machine, environment=replace(machine.environment, **seen))


def _no_target(target: str, candidates: list[str]) -> UnknownTarget | BadConfiguration:
    if not candidates:
        return BadConfiguration(
            "This torch compiles for the machine's own CPU only, so its level cannot be lowered",
            where=CPU_LEVEL,
            hint="Unset it, or install a newer torch.",
        )
    return UnknownTarget(
        f"this machine cannot be {target[:80]!r}",
        where="PT2HUB_WORKER_TARGET",
        hint=f"It can be: auto, {', '.join(candidates)}.",
    )


def _no_torch(level: Level, error: Exception) -> BadConfiguration:
    where, hint = (" in the sandbox", f"{_INSTALL} {_IN_SANDBOX}") if level == "sandbox" else ("", _INSTALL)
    # Not the whole command: in a sandbox it names every mount.
    why = f"exit code {error.returncode}" if isinstance(error, subprocess.CalledProcessError) else str(error)
    return BadConfiguration(
        f"the worker's torch does not start{where}: {why[:300]}", where="worker", hint=hint
    )
