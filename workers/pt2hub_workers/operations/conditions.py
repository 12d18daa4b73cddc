"""Conditions of a measurement: clocks, temperature, load. Unreadable ones are left out."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

import psutil
import structlog

from pt2hub.client.machine import fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable

    from pt2hub.domain.artifacts import Environment

LOOK_SECONDS = 0.1
"""Observation time of other processes' CPU use: ten ticks of the kernel's clock."""
_log = structlog.get_logger()


def look(device: str) -> dict[str, Any]:
    """Return the current clocks, load and GPU temperature.

    Args:
        device: `cpu` or a GPU's UUID (`Machine.device`).
    """
    found = {
        "load_average": _load(),
        "cpu_mhz": _cpu_mhz(),
        "gpu": None if device in ("cpu", "noop") else _gpu(device),
    }
    return {name: value for name, value in found.items() if value is not None}


def others_busy(wait: Callable[[float], object]) -> float | None:
    """Return the share of CPU time that other processes take; None if unknown."""
    with contextlib.suppress(OSError):
        before = _cpu_seconds()
        wait(LOOK_SECONDS)
        busy, whole = (now - then for now, then in zip(_cpu_seconds(), before, strict=True))
        return round(busy / whole, 3) if whole > 0 else None
    return None


def complete_environment(environment: Environment, *, isolation: str) -> dict[str, Any]:
    """Return the fields of an environment that a sandboxed probe cannot determine."""
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
    with contextlib.suppress(OSError, NotImplementedError):
        clocks = psutil.cpu_freq()
        return round(clocks.current) if clocks else None
    return None


def _cpu_seconds() -> tuple[float, float]:
    """Return the busy seconds and all seconds of the processors."""
    spent = psutil.cpu_times()
    whole = sum(spent[:8])  # `user` includes the time of guests
    return whole - spent.idle - spent.iowait, whole


def _gpu(device: str) -> dict[str, Any] | None:
    """Return clocks in MHz, temperature in Celsius and power in watts; None without the management library."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as error:  # noqa: BLE001  # an optional library and a driver: any failure means unknown
        _log.debug("cannot read the GPU's clocks", error=str(error))
        return None
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{device.removeprefix('GPU-')}")
        return _read_all(
            {
                "sm_mhz": lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
                "memory_mhz": lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
                "temperature_c": lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
                "power_w": lambda: round(pynvml.nvmlDeviceGetPowerUsage(handle) / 1000, 1),
            }
        )
    except pynvml.NVMLError as error:
        _log.debug("cannot read the GPU's clocks", error=str(error))
        return None
    finally:
        pynvml.nvmlShutdown()


def _read_all(reads: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """Return the readable values: a slice of a GPU provides only some."""
    found = {}
    for name, read in reads.items():
        with contextlib.suppress(Exception):
            found[name] = read()
    return found
