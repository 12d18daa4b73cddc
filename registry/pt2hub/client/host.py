"""What this machine is, as far as compatibility goes. Reads files and the GPU driver; never imports torch."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import re
import sys
from pathlib import Path

from pt2hub.client.processor import cpu_flags
from pt2hub.domain.targets import cpu_level
from pt2hub.domain.verdicts import Host

_COMPUTE_CAPABILITY_MAJOR = 75
_COMPUTE_CAPABILITY_MINOR = 76
"""Numbers of `CUdevice_attribute` in the CUDA driver API."""


def this_host(*, gpu: bool = False, gpu_index: int = 0) -> Host:
    """Describes this machine.

    Args:
        gpu: Also ask the GPU driver, which takes up to a tenth of a second.
        gpu_index: Which GPU, as CUDA counts them.

    Raises:
        BadConfiguration: `PT2HUB_CPU_LEVEL` is no level, or one that the CPU does not have.
    """
    torch, cuda = _torch()
    return Host(
        os=sys.platform,
        machine=os.uname().machine,
        torch=torch,
        cpu_flags=cpu_flags(),
        cuda=cuda,
        sm=_compute_capability(gpu_index) if gpu else None,
        glibc=_glibc(),
    )


def native_target(host: Host) -> str:
    """The CPU target that fits a machine best, for hints; an empty string where there is none."""
    level = cpu_level(host.cpu_flags)
    return f"torch{host.torch}-cpu-{level}" if host.torch and level else ""


@functools.cache
def _torch() -> tuple[str | None, str | None]:
    """Release line and CUDA release of the installed torch, out of its version file: importing takes a second."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None, None
    try:
        text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    except OSError:
        return None, None
    version = re.search(r"^__version__ = '(\d+\.\d+)", text, re.MULTILINE)
    cuda = re.search(r"^cuda\b[^=]*= '([\d.]+)'", text, re.MULTILINE)
    return (version[1] if version else None), (cuda[1].replace(".", "") if cuda else None)


def _glibc() -> str | None:
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError):
        return None
    return version if name == "glibc" else None


@functools.cache
def _compute_capability(index: int) -> str | None:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    status = (
        driver.cuInit(0)
        or driver.cuDeviceGet(ctypes.byref(device), index)
        or driver.cuDeviceGetAttribute(ctypes.byref(major), _COMPUTE_CAPABILITY_MAJOR, device)
        or driver.cuDeviceGetAttribute(ctypes.byref(minor), _COMPUTE_CAPABILITY_MINOR, device)
    )
    return None if status else f"sm{major.value}{minor.value}"
