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
from pt2hub.client.gpus import Limits, gpu_limits
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
    cpu = _cpuinfo()
    flags = frozenset(cpu.get("flags", "").split())
    level = cpu_level(flags) or "x86_64"
    targets = [*_gpu_targets(), Target(torch=_line(), device="cpu", arch=level)]
    if wanted != "auto":
        targets += _lower_levels(level)
    target = targets[0] if wanted == "auto" else next((t for t in targets if t.name == wanted), None)
    if target is None:
        return {"candidates": [t.name for t in targets]}
    return {**_machine(target, cpu, level), "cpu_flags": sorted(flags)}


def _machine(target: Target, cpu: dict[str, str], level: str) -> dict[str, Any]:
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
        cpu_model=cpu.get("model name", platform.processor() or "unknown"),
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


def _lower_levels(level: str) -> list[Target]:
    """CPU levels below this machine's, highest first, where this torch can compile for them.

    Without `cpp.march` the compiler builds host code for this very CPU, whatever level is asked for.
    """
    import torch._inductor.config as inductor

    if not hasattr(inductor.cpp, "march"):
        return []
    lower = list(CPU_LEVELS)[: list(CPU_LEVELS).index(level)]
    return [Target(torch=_line(), device="cpu", arch=name) for name in reversed(lower)]


def _cpuinfo() -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if not line.strip():
            break
        key, _, value = line.partition(":")
        fields[key.strip()] = value.strip()
    return fields


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
