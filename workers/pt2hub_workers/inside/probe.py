"""`python -m pt2hub_workers.inside.probe [TARGET]`: what this machine and its torch are, as JSON."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from pt2hub import __version__
from pt2hub.client.config import cpu_level_limit
from pt2hub.client.gpus import Limits, gpu_limits
from pt2hub.client.processor import cpu_flags, cpuinfo
from pt2hub.domain.artifacts import Environment, Toolchain
from pt2hub.domain.codec import encode
from pt2hub.domain.targets import CPU_LEVELS, Target, cpu_level

PINNED = ("torch", "torchvision", "timm", "transformers", "triton", "numpy", "safetensors")
"""Packages whose versions a submission pins."""


def probe(wanted: str = "auto") -> dict[str, Any]:
    """What this machine is as a worker, or what else it could be.

    Args:
        wanted: The target to be; `auto` is the best this machine can be: its GPU, else its highest CPU level.

    Returns:
        Target, toolchain, environment, package versions, CPU flags and the device that timings hold alone; or
        `candidates`, where the machine cannot be what is wanted.
    """
    flags = cpu_flags()
    level = cpu_level(flags) or "x86_64"
    targets = [*_gpu_targets(), *_cpu_targets(level)]
    if wanted != "auto":
        targets += _lower_levels(level)
    target = next((t for t in targets if wanted in ("auto", t.name)), None)
    if target is None:
        return {"candidates": [t.name for t in targets]}
    return {**_machine(target, level), "cpu_flags": sorted(flags)}


def _machine(target: Target, level: str) -> dict[str, Any]:
    import torch

    packages = _packages()
    # A CPU target is the same on a machine that also has a GPU: neither its code nor its timings use one.
    on_gpu = target.device == "cuda"
    cuda, driver = (torch.version.cuda, _driver()) if on_gpu else (None, None)
    toolchain = Toolchain(
        torch=torch.__version__,
        python=platform.python_version(),
        compiler=_compiler(),
        libc=" ".join(platform.libc_ver()),
        pt2hub=__version__,
        triton=packages.get("triton"),
        cuda=cuda,
        driver=driver,
    )
    limits = gpu_limits() if on_gpu else Limits()
    environment = Environment(
        cpu_model=cpuinfo().get("model name", platform.processor() or "unknown"),
        cpu_level=level,
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        torch=torch.__version__,
        gpu=torch.cuda.get_device_name(0) if on_gpu else None,
        driver=driver,
        cuda=cuda,
        triton=packages.get("triton"),
        threads=torch.get_num_threads(),
        gpu_power_limit_w=limits.power_w,
        gpu_max_mhz=limits.max_mhz,
    )
    return {
        "target": encode(target),
        "toolchain": encode(toolchain),
        "environment": encode(environment),
        "packages": packages,
        "device": str(torch.cuda.get_device_properties(0).uuid) if on_gpu else "cpu",
    }


def _line() -> str:
    import torch

    return ".".join(torch.__version__.split("+")[0].split(".")[:2])


def _gpu_targets() -> list[Target]:
    import torch

    if not torch.cuda.is_available():
        return []
    major, minor = torch.cuda.get_device_capability(0)
    cuda = str(torch.version.cuda).replace(".", "")
    return [Target(torch=_line(), device="cuda", arch=f"sm{major}{minor}", cuda=cuda)]


def _cpu_targets(level: str) -> list[Target]:
    """The CPU target of this machine; none where a lowered level is asked of a torch that cannot compile for it."""
    held = cpu_level_limit() is not None
    return [] if held and not _compiles_below() else [Target(torch=_line(), device="cpu", arch=level)]


def _compiles_below() -> bool:
    """Whether this torch compiles for other CPUs than this one: without `cpp.march` its host code is for this very CPU."""
    import torch._inductor.config as inductor

    return hasattr(inductor.cpp, "march")


def _lower_levels(level: str) -> list[Target]:
    """CPU levels below this machine's, highest first, where this torch can compile for them."""
    if not _compiles_below():
        return []
    lower = list(CPU_LEVELS)[: list(CPU_LEVELS).index(level)]
    return [Target(torch=_line(), device="cpu", arch=name) for name in reversed(lower)]


def _packages() -> dict[str, str]:
    found = {}
    for name in PINNED:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _compiler() -> str:
    """First line of the compiler's `--version`: that of CXX, or of g++ where CXX does not answer.

    A CXX that is no compiler (`/bin/false`, to show that a build needs none) compiles nothing, so it has no part
    in what the code of this worker is.
    """
    for program in (os.environ.get("CXX"), "g++"):
        path = shutil.which(program.split()[0]) if program else None
        if path:
            done = subprocess.run(
                [path, "--version"], capture_output=True, text=True, timeout=30, check=False
            )
            if done.returncode == 0 and done.stdout.strip():
                return done.stdout.splitlines()[0]
    return "no C++ compiler"


def _driver() -> str | None:
    with contextlib.suppress(OSError):
        match = re.search(
            r"Kernel Module\s+(?:for \S+\s+)?([\d.]+)", Path("/proc/driver/nvidia/version").read_text()
        )
        return match[1] if match else None
    return None


if __name__ == "__main__":
    json.dump(probe(*sys.argv[1:2]), sys.stdout)
