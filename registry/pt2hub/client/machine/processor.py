"""CPU features as the kernel reports them, limited by the settings. Never imports torch."""

from __future__ import annotations

import functools
from pathlib import Path

from pt2hub.client.config import CPU_LEVEL, cpu_level_limit
from pt2hub.domain.targets import cpu_level, flags_of_level
from pt2hub.errors import BadConfiguration

_CPUINFO = Path("/proc/cpuinfo")


def cpu_flags() -> frozenset[str]:
    """Return the CPU's instruction-set flags, in the kernel's spelling.

    This is the only place that decides which instruction set pt2hub believes in: targets, compatibility and
    fingerprints follow from it. `PT2HUB_CPU_LEVEL` hides every flag that its level does not promise.

    Raises:
        BadConfiguration: `PT2HUB_CPU_LEVEL` is unknown, or above the CPU's level.
    """
    return limit_flags(frozenset(cpuinfo().get("flags", "").split()), cpu_level_limit())


def limit_flags(flags: frozenset[str], limit: str | None) -> frozenset[str]:
    """Return the CPU flags that a level guarantees; all of them without a level.

    Raises:
        BadConfiguration: The CPU does not have that level: code for it would crash here.
    """
    if limit is None:
        return flags
    promised = flags_of_level(limit)
    if missing := sorted(promised - flags):
        raise BadConfiguration(
            f"This CPU is below {limit}: it lacks {', '.join(missing)}",
            where=CPU_LEVEL,
            hint=f"The setting can only lower the CPU level; this CPU is {cpu_level(flags) or 'unknown'}.",
        )
    return promised


def cpuinfo() -> dict[str, str]:
    """Return the kernel's fields of the first processor; empty if there are none."""
    return dict(_read())


@functools.cache
def _read() -> tuple[tuple[str, str], ...]:
    try:
        text = _CPUINFO.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ()
    first = text.strip().partition("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return tuple((key.strip(), value.strip()) for key, _, value in pairs)
