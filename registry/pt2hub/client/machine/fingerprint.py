"""Fingerprint of this machine, which makes measurements comparable. Never imports torch."""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pt2hub.client.machine.gpus import driver, gpu, gpu_limits
from pt2hub.client.machine.host import torch_versions
from pt2hub.client.machine.processor import cpu_flags, cpuinfo
from pt2hub.domain.artifacts import Environment
from pt2hub.domain.targets import cpu_level
from pt2hub.errors import BadConfiguration, InvalidInput

if TYPE_CHECKING:
    from pt2hub.client.machine.gpus import Limits

_FREQUENCY = Path("/sys/devices/system/cpu/cpu0/cpufreq")
_DEVICE = re.compile(r"(cpu|cuda)(?::([0-9]{1,3}))?")
_CGROUP = Path("/proc/self/cgroup")
_MARKS = {"docker": Path("/.dockerenv"), "podman": Path("/run/.containerenv")}
"""Files that only container engines create in their containers."""
_IN_CGROUP = (("kubepods", "kubernetes"), ("libpod", "podman"), ("docker", "docker"))
"""Substrings of cgroup v1 names that identify a container engine, outermost first."""


def environment(*, device: str | None = None) -> Environment:
    """Return the environment to report with measurements taken in this process.

        client.performance.report([{"artifact": digest, "metric": "latency_p50", "value": 3.1, "unit": "ms"}],
                      environment=pt2hub.environment())

    Call it where the figures were taken: threads and processors are the process's own. What cannot be read is None.

    Args:
        device: `cpu`, `cuda` or `cuda:1`; the GPU is left out for `cpu`, as it has no part in what runs there. Where
            omitted, the GPU that torch uses in this process, if it uses one. Asking for a GPU initialises its driver
            in this process, which must then not be forked.

    Raises:
        InvalidInput: `device` has another form.
        BadConfiguration: `device` is a GPU, and this process can use no such one; or `PT2HUB_CPU_LEVEL` is wrong.
    """
    index = _index(device)
    name = None if index is None else gpu(index)
    if device is not None and index is not None and name is None:
        raise BadConfiguration(
            f"GPU {device} not found or not usable by this process",
            where="device",
            hint="Check nvidia-smi and CUDA_VISIBLE_DEVICES. For measurements taken on the CPU, the device is cpu: "
            '`--environment auto`, or pt2hub.environment(device="cpu").',
        )
    return _describe_gpu(name, gpu_limits(index) if index is not None else None)


def _describe_gpu(name: str | None, limits: Limits | None) -> Environment:
    on_gpu = limits is not None
    torch, cuda = torch_versions()
    return Environment(
        cpu_model=cpuinfo().get("model name"),
        cpu_level=cpu_level(cpu_flags()),
        cores=cores(),
        memory_bytes=memory_bytes(),
        torch=torch,
        gpu=name,
        driver=driver() if on_gpu else None,
        cuda=cuda if on_gpu else None,
        triton=_version("triton"),
        threads=threads(),
        governor=governor(),
        cpu_max_mhz=cpu_max_mhz(),
        gpu_power_limit_w=limits.power_w if limits else None,
        gpu_max_mhz=limits.max_mhz if limits else None,
        container=container(),
        isolation="none",
    )


def cores() -> int:
    """Return the number of logical processors that this process may use."""
    return len(os.sched_getaffinity(0))


def memory_bytes() -> int | None:
    """Return the physical memory in bytes."""
    with suppress(ValueError, OSError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None


def threads() -> int | None:
    """Return the OpenMP threads of this process, from torch if it is imported, else from the environment."""
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_num_threads"):  # half imported it has not yet
        return int(torch.get_num_threads())
    first = (
        os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    )  # one number for each level of nesting
    return int(first) if first.isascii() and first.isdigit() and int(first) else None


def governor() -> str | None:
    """Return the CPU's frequency governor; None if the kernel shows none, as on most virtual machines."""
    return _read(_FREQUENCY / "scaling_governor")


def cpu_max_mhz() -> int | None:
    """Return the highest clock that the CPU may use, in MHz."""
    found = [_read(_FREQUENCY / name) for name in ("cpuinfo_max_freq", "scaling_max_freq")]
    clocks = [int(text) // 1000 for text in found if text and text.isdigit()]  # the kernel writes kHz
    return min(clocks) if clocks else None


def container() -> str:
    """Return `docker`, `kubernetes`, `podman` or `none`.

    Kubernetes comes first, because its containers may also have an engine's mark.
    """
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    for name, mark in _MARKS.items():
        if mark.exists():
            return name
    groups = _read(_CGROUP) or ""
    return next((name for word, name in _IN_CGROUP if word in groups), "none")


def _index(device: str | None) -> int | None:
    """Return the GPU's index as CUDA counts in this process; None for the CPU."""
    if device is None:
        return _in_use()
    found = _DEVICE.fullmatch(device)
    if not found:
        raise InvalidInput(
            f"Unknown device {device[:80]!a}",
            where="device",
            hint="Write cpu, cuda, or cuda:1 for the second GPU.",
        )
    return int(found[2] or 0) if found[1] == "cuda" else None


def _in_use() -> int | None:
    """Return the GPU that torch uses in this process."""
    torch = sys.modules.get("torch")
    used = torch is not None and hasattr(torch, "cuda") and torch.cuda.is_initialized()
    return int(torch.cuda.current_device()) if torch is not None and used else None


def _version(package: str) -> str | None:
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return None


def _read(path: Path) -> str | None:
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8").strip() or None
    return None
