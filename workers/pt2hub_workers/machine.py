"""What this worker is: its target, toolchain and environment, as the probe found them."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.domain.artifacts import Environment, Toolchain
from pt2hub.domain.codec import decode
from pt2hub.domain.targets import Target
from pt2hub.errors import BadConfiguration, UnknownTarget
from pt2hub_workers import sandbox

if TYPE_CHECKING:
    from collections.abc import Mapping


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


def probe_machine(environ: Mapping[str, str], target: str = "auto") -> Machine:
    """Asks a child process, so that the worker itself never imports torch.

    Args:
        environ: The environment of the children: their compiler is the one to record.
        target: What to be, of what the machine can be; `auto` for the best of it.

    Raises:
        BadConfiguration: torch cannot be imported, or its answer makes no sense.
        UnknownTarget: The machine cannot be that; the error lists what it can be.
    """
    try:
        answer = json.loads(sandbox.run_probe(environ, target))
    except (subprocess.CalledProcessError, ValueError) as error:
        raise BadConfiguration(
            f"the worker's torch does not start: {error}",
            where="worker",
            hint="Install the worker's packages: pip install 'pt2hub[worker]'.",
        ) from error
    if "candidates" in answer:
        raise UnknownTarget(
            f"this machine cannot be {target[:80]!r}",
            where="PT2HUB_WORKER_TARGET",
            hint=f"It can be: auto, {', '.join(answer['candidates'])}.",
        )
    return decode(Machine, answer)
