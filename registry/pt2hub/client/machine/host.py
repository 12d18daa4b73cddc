"""Description of this machine, and compatibility of artifacts with it. Never imports torch."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pt2hub.client.machine.gpus import compute_capability, shared_memory_bytes
from pt2hub.client.machine.processor import cpu_flags
from pt2hub.domain.compatibility import Host, assess_compatibility
from pt2hub.domain.targets import cpu_level
from pt2hub.errors import Incompatible

if TYPE_CHECKING:
    from pt2hub.domain.artifacts import ArtifactConfig
    from pt2hub.domain.compatibility import Compatibility


def this_host(*, gpu: bool = False, gpu_index: int = 0) -> Host:
    """Describe this machine.

    Args:
        gpu: Also ask the GPU driver, which takes up to a tenth of a second.

    Raises:
        BadConfiguration: `PT2HUB_CPU_LEVEL` is unknown, or above the CPU's level.
    """
    torch, cuda = torch_versions()
    release = re.match(r"\d+\.\d+", torch or "")
    return Host(
        os=sys.platform,
        machine=os.uname().machine,
        torch=release[0] if release else None,
        cpu_flags=cpu_flags(),
        cuda=cuda.replace(".", "") if cuda else None,
        sm=compute_capability(gpu_index) if gpu else None,
        glibc=_glibc(),
        shared_memory_bytes=shared_memory_bytes(gpu_index) if gpu else None,
    )


def check_host(config: ArtifactConfig, *, gpu_index: int = 0) -> None:
    """Check that an artifact runs on this machine, before any native code is loaded.

    Raises:
        Incompatible: The artifact does not run here.
    """
    host = this_host(gpu=config.target.device == "cuda", gpu_index=gpu_index)
    compatibility = assess_compatibility(config.target, host, config.native)
    if not compatibility.runs:
        raise refusal(compatibility, where=title(config), hint=advice(host))


def title(config: ArtifactConfig) -> str:
    """Return an artifact's title for errors."""
    return f"{config.version.model}@{config.version.number} for {config.target}"


def refusal(compatibility: Compatibility, *, where: str, hint: str | None = None) -> Incompatible:
    """Return the error for an incompatible artifact, with every failing axis in its context."""
    return Incompatible(
        str(compatibility),
        where=where,
        hint=hint,
        context={"findings": [asdict(item) for item in compatibility.failures]},
    )


def advice(host: Host) -> str | None:
    """Return a hint for when no published artifact runs on a machine."""
    if host.torch is None:
        return "Install torch to run it here. To pull it for another machine: --target TARGET"
    fitting = native_target(host)
    return f"To publish for this machine, add {fitting} to the spec's targets." if fitting else None


def native_target(host: Host) -> str:
    """Return the CPU target that fits a machine best, for hints; empty if there is none."""
    level = cpu_level(host.cpu_flags)
    return f"torch{host.torch}-cpu-{level}" if host.torch and level else ""


@functools.cache
def torch_versions() -> tuple[str | None, str | None]:
    """Return torch's full version and CUDA release from its version file: importing torch takes a second."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None, None
    try:
        text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None, None
    version = re.search(r"^__version__ = '([^']+)'", text, re.MULTILINE)
    cuda = re.search(r"^cuda\b[^=]*= '([\d.]+)'", text, re.MULTILINE)
    return (version[1] if version else None), (cuda[1] if cuda else None)


def _glibc() -> str | None:
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError):
        return None
    return version if name == "glibc" else None
