"""`python -m pt2hub_workers.inside.probe`: what this machine and its torch are, as JSON on standard output."""

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
from pt2hub.domain.artifacts import Environment, Toolchain
from pt2hub.domain.codec import encode
from pt2hub.domain.targets import Target, cpu_level

PINNED = ("torch", "torchvision", "triton", "numpy", "safetensors")
"""Packages whose versions a submission pins."""


def probe() -> dict[str, Any]:
    """Target, toolchain, environment, package versions and CPU flags."""
    import torch

    cpu = _cpuinfo()
    flags = frozenset(cpu.get("flags", "").split())
    level = cpu_level(flags) or "x86_64"
    cuda = torch.version.cuda if torch.cuda.is_available() else None
    packages = _packages()
    line = ".".join(torch.__version__.split("+")[0].split(".")[:2])
    driver = _driver() if cuda else None
    target = Target(torch=line, device="cpu", arch=level)
    if cuda:
        major, minor = torch.cuda.get_device_capability(0)
        target = Target(torch=line, device="cuda", arch=f"sm{major}{minor}", cuda=cuda.replace(".", ""))
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
    environment = Environment(
        cpu_model=cpu.get("model name", platform.processor() or "unknown"),
        cpu_level=level,
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        torch=torch.__version__,
        gpu=torch.cuda.get_device_name(0) if cuda else None,
        driver=driver,
        cuda=cuda,
        triton=packages.get("triton"),
    )
    return {
        "target": encode(target),
        "toolchain": encode(toolchain),
        "environment": encode(environment),
        "packages": packages,
        "cpu_flags": sorted(flags),
    }


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
    json.dump(probe(), sys.stdout)
