"""What else may explain a figure: clocks, temperature, load. What cannot be read is left out."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import structlog

from pt2hub.client import fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable

    from pt2hub.domain.artifacts import Environment

_CPUINFO = Path("/proc/cpuinfo")
_STAT = Path("/proc/stat")
_CLOCKS = re.compile(r"^cpu MHz\s*:\s*([\d.]+)", re.MULTILINE)
_IDLE = (3, 4)
"""Columns of /proc/stat: idle, and waiting for a disk."""
LOOK_SECONDS = 0.1
"""How long it is watched what others do: ten ticks of the kernel's clock."""
_log = structlog.get_logger()


def look(device: str) -> dict[str, Any]:
    """Clocks, load and the GPU's temperature as they are now.

    Args:
        device: What is measured on: `cpu` or a GPU's UUID, as of `Machine.device`.
    """
    found = {
        "load_average": _load(),
        "cpu_mhz": _cpu_mhz(),
        "gpu": None if device in ("cpu", "noop") else _gpu(device),
    }
    return {name: value for name, value in found.items() if value is not None}


def others_busy(wait: Callable[[float], object]) -> float | None:
    """Share of the machine's CPU time that others take while we do nothing; None where the kernel does not say.

    Args:
        wait: Waits some seconds.
    """
    before = _ticks()
    wait(LOOK_SECONDS)
    after = _ticks()
    if before is None or after is None or after[1] <= before[1]:
        return None
    return round((after[0] - before[0]) / (after[1] - before[1]), 3)


def completed(environment: Environment, *, isolation: str) -> dict[str, Any]:
    """The fields of an environment that a sandboxed probe cannot see, or does not know.

    Args:
        environment: What the probe found.
        isolation: How the worker confines what it runs.
    """
    found: dict[str, Any] = {
        "governor": fingerprint.governor(),
        "cpu_max_mhz": fingerprint.cpu_max_mhz(),
        "container": fingerprint.container(),
        "isolation": isolation,
    }
    return {name: value for name, value in found.items() if getattr(environment, name) is None}


def _load() -> float | None:
    with contextlib.suppress(OSError):
        return round(os.getloadavg()[0], 2)
    return None


def _cpu_mhz() -> int | None:
    with contextlib.suppress(OSError):
        clocks = [float(found) for found in _CLOCKS.findall(_CPUINFO.read_text(encoding="utf-8"))]
        return round(fmean(clocks)) if clocks else None
    return None


def _ticks() -> tuple[int, int] | None:
    """Ticks in which the processors did something, and all ticks."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        numbers = [int(word) for word in _STAT.read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
        whole = sum(numbers)
        return whole - sum(numbers[column] for column in _IDLE), whole
    return None


def _gpu(device: str) -> dict[str, Any] | None:
    """Clocks in MHz, temperature in Celsius, power in watts; None where the management library is not there."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as error:  # noqa: BLE001  # an optional library over a driver's: whatever fails is unknown
        _log.debug("the GPU's clocks are not known", error=str(error))
        return None
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{device.removeprefix('GPU-')}")
        return _told(
            {
                "sm_mhz": lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
                "memory_mhz": lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
                "temperature_c": lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
                "power_w": lambda: round(pynvml.nvmlDeviceGetPowerUsage(handle) / 1000, 1),
            }
        )
    except pynvml.NVMLError as error:
        _log.debug("the GPU's clocks are not known", error=str(error))
        return None
    finally:
        pynvml.nvmlShutdown()


def _told(reads: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """What can be read, one by one: a slice of a GPU tells only some of it."""
    found = {}
    for name, read in reads.items():
        with contextlib.suppress(Exception):
            found[name] = read()
    return found
