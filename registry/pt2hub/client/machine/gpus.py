"""NVIDIA GPUs, queried through the driver's libraries, without torch."""

from __future__ import annotations

import ctypes
import functools
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_DRIVER = Path("/proc/driver/nvidia/version")
_COMPUTE_CAPABILITY_MAJOR = 75
_COMPUTE_CAPABILITY_MINOR = 76
_SHARED_MEMORY_OPTIN = 97
"""Numbers of `CUdevice_attribute` in the CUDA driver API."""
_TEXT = 96
"""Buffer size for a name; NVML's longest is 96 bytes."""
_ADDRESS = 32
_SM_CLOCK = 1
"""`NVML_CLOCK_SM`: the clock of the multiprocessors."""
_MILLI = 1000


@dataclass(frozen=True, slots=True)
class Limits:
    """Power and clock limits of a GPU; None if unknown."""

    power_w: int | None = None
    max_mhz: int | None = None


def gpu(index: int = 0) -> str | None:
    """Return a GPU's name as torch reports it; None if there is no such GPU."""
    name = ctypes.create_string_buffer(_TEXT)
    found = _device(index)
    if found is None or found[0].cuDeviceGetName(name, len(name), found[1]):
        return None
    return name.value.decode(errors="replace") or None


@functools.cache
def compute_capability(index: int = 0) -> str | None:
    """Return a GPU's compute capability, such as `sm90`; None if there is no such GPU."""
    found, major, minor = _device(index), ctypes.c_int(), ctypes.c_int()
    if found is None:
        return None
    driver, device = found
    failed = driver.cuDeviceGetAttribute(
        ctypes.byref(major), _COMPUTE_CAPABILITY_MAJOR, device
    ) or driver.cuDeviceGetAttribute(ctypes.byref(minor), _COMPUTE_CAPABILITY_MINOR, device)
    return None if failed else f"sm{major.value}{minor.value}"


@functools.cache
def shared_memory_bytes(index: int = 0) -> int | None:
    """Return the most shared memory that a block may request on a GPU; None if there is no such GPU."""
    found, size = _device(index), ctypes.c_int()
    if found is None:
        return None
    driver, device = found
    failed = driver.cuDeviceGetAttribute(ctypes.byref(size), _SHARED_MEMORY_OPTIN, device)
    return None if failed else size.value


@functools.cache
def driver_cuda() -> str | None:
    """Return the newest CUDA release that the driver supports, such as `13.0`; None if there is no driver.

    It asks the library that programs use: with NVIDIA's forward compatibility package, it supports newer releases than
    the kernel's driver came with.
    """
    version = ctypes.c_int()
    with suppress(OSError, AttributeError):
        if not ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version)):
            return f"{version.value // 1000}.{version.value % 1000 // 10}"
    return None


def driver() -> str | None:
    """Return the release of NVIDIA's kernel driver."""
    with suppress(OSError, UnicodeDecodeError):
        match = re.search(r"Kernel Module\s+(?:for \S+\s+)?([\d.]+)", _DRIVER.read_text(encoding="utf-8"))
        return match[1] if match else None
    return None


def gpu_limits(index: int = 0) -> Limits:
    """Return a GPU's limits from NVML; all None if NVML does not report them, as for a slice of a GPU."""
    address = ctypes.create_string_buffer(_ADDRESS)
    found = _device(index)
    if found is None or found[0].cuDeviceGetPCIBusId(address, len(address), found[1]):
        return Limits()
    with suppress(OSError, AttributeError):  # no such library, or one without these functions
        return _read_limits(ctypes.CDLL("libnvidia-ml.so.1"), address.value)
    return Limits()


def _read_limits(library: ctypes.CDLL, address: bytes) -> Limits:
    if library.nvmlInit_v2():
        return Limits()
    try:
        handle, power, clock = ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_uint()
        if library.nvmlDeviceGetHandleByPciBusId_v2(address, ctypes.byref(handle)):
            return Limits()
        no_power = library.nvmlDeviceGetEnforcedPowerLimit(handle, ctypes.byref(power))  # in milliwatts
        no_clock = library.nvmlDeviceGetMaxClockInfo(handle, _SM_CLOCK, ctypes.byref(clock))
        return Limits(None if no_power else power.value // _MILLI, None if no_clock else clock.value)
    finally:
        library.nvmlShutdown()


def _device(index: int) -> tuple[ctypes.CDLL, ctypes.c_int] | None:
    device = ctypes.c_int()
    with suppress(OSError, AttributeError):
        driver = ctypes.CDLL("libcuda.so.1")
        failed = driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), index)
        return None if failed else (driver, device)
    return None
