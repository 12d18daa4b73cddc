"""`python -m pt2hub_workers.inside.operations.probe [TARGET]`: prints this machine's target and toolchain as JSON."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from typing import Any

from pt2hub.client.artifacts.imports import collector_paused
from pt2hub.client.config import cpu_level_limit
from pt2hub.client.machine.gpus import Limits, driver, gpu_limits
from pt2hub.client.machine.processor import cpu_flags, cpuinfo
from pt2hub.domain.artifacts import Environment, Toolchain
from pt2hub.domain.codec import encode
from pt2hub.domain.targets import CPU_LEVELS, Target, cpu_level
from pt2hub.version import __version__

PINNED = ("torch", "torchvision", "timm", "transformers", "triton", "numpy", "safetensors")
"""Packages with versions that a submission pins."""


def probe(wanted: str = "auto") -> dict[str, Any]:
    """Describe this machine as a worker for a target.

    Returns:
        Target, toolchain, environment, package versions, CPU flags and the device to lock for timings; or `candidates`,
        the possible targets, if the machine cannot build for the wanted one.
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
    with collector_paused():
        import torch

    packages = _packages()
    # A CPU target is the same on a machine with a GPU: neither its code nor its timings use it.
    on_gpu = target.device == "cuda"
    cuda, kernel_driver = (torch.version.cuda, driver()) if on_gpu else (None, None)
    toolchain = Toolchain(
        torch=torch.__version__,
        python=platform.python_version(),
        compiler=_compiler(),
        libc=" ".join(platform.libc_ver()),
        pt2hub=__version__,
        triton=packages.get("triton"),
        cuda=cuda,
        driver=kernel_driver,
    )
    limits = gpu_limits() if on_gpu else Limits()
    environment = Environment(
        cpu_model=cpuinfo().get("model name", platform.processor() or "unknown"),
        cpu_level=level,
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        torch=torch.__version__,
        gpu=torch.cuda.get_device_name(0) if on_gpu else None,
        driver=kernel_driver,
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


def _torch_release() -> str:
    import torch

    return ".".join(torch.__version__.split("+")[0].split(".")[:2])


def _gpu_targets() -> list[Target]:
    import torch

    if not torch.cuda.is_available():
        return []
    major, minor = torch.cuda.get_device_capability(0)
    cuda = str(torch.version.cuda).replace(".", "")
    return [Target(torch=_torch_release(), device="cuda", arch=f"sm{major}{minor}", cuda=cuda)]


def _cpu_targets(level: str) -> list[Target]:
    """Return this machine's CPU target; none if the level is lowered and this torch cannot compile for it."""
    held = cpu_level_limit() is not None
    return (
        []
        if held and not _can_compile_for_lower_levels()
        else [Target(torch=_torch_release(), device="cpu", arch=level)]
    )


def _can_compile_for_lower_levels() -> bool:
    """Return whether this torch can compile for lower CPU levels: without `cpp.march` its host code fits this CPU only."""
    import torch._inductor.config as inductor

    return hasattr(inductor.cpp, "march")


def _lower_levels(level: str) -> list[Target]:
    """Return the targets of CPU levels below this machine's, highest first, if this torch can compile for them."""
    if not _can_compile_for_lower_levels():
        return []
    lower = list(CPU_LEVELS)[: list(CPU_LEVELS).index(level)]
    return [Target(torch=_torch_release(), device="cpu", arch=name) for name in reversed(lower)]


def _packages() -> dict[str, str]:
    found = {}
    for name in PINNED:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _compiler() -> str:
    """Return the first line of `CXX --version`, or of `g++ --version` if CXX fails.

    A CXX that is not a compiler (`/bin/false`, to show that a build needs none) compiles nothing, so it does not affect
    this worker's code.
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


if __name__ == "__main__":
    json.dump(probe(*sys.argv[1:2]), sys.stdout)
