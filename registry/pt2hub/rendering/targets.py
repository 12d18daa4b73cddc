"""Short names of targets for people."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from pt2hub.domain.targets import Target, parse_target
from pt2hub.errors import UnknownTarget

if TYPE_CHECKING:
    from collections.abc import Iterable

_GPUS = {
    "sm70": "V100",
    "sm75": "T4",
    "sm80": "A100",
    "sm86": "A10",
    "sm89": "L4",
    "sm90": "H100",
    "sm100": "B200",
    "sm120": "RTX 50",
}
"""The GPU by which people know a compute capability (NVIDIA, "CUDA GPU Compute Capability")."""

_KEPT = 1000
"""Names that are remembered: a page of a model asks for each of its targets some hundred times."""


def short_target(name: str, among: Iterable[str] = ()) -> str:
    """Return a target's short name, such as `H100 · torch 2.13` or `CPU v4 · torch 2.13`.

    Args:
        name: The target's name; an unknown one is returned as it is.
        among: Names that are shown beside it. Where another target has the same short name, CUDA's release
            is added, or the name stays whole.
    """
    target = _parse(name)
    if target is None:
        return name
    short = _short(target)
    others = (other for other in map(_parse, among) if other is not None and other.name != name)
    alike = [other for other in others if _short(other) == short]
    if not alike:
        return short
    return name if any(other.cuda == target.cuda for other in alike) else f"{short} · cu{target.cuda}"


def name_platforms(names: Iterable[str]) -> list[str]:
    """Return the devices of targets with the releases of torch they need: `A100, H100 with torch 2.13`, one item per release."""
    devices: dict[str, list[str]] = {}
    for name in names:
        device, _, release = short_target(name).partition(" · ")
        devices.setdefault(release, []).append(device)
    return [
        f"{', '.join(dict.fromkeys(found))}{f' with {release}' if release else ''}"
        for release, found in devices.items()
    ]


def describe_target(name: str) -> str:
    """Return where artifacts of a target run: `torch 2.13, CUDA 13.0, GPUs of compute capability 9.0`."""
    target = _parse(name)
    if target is None or not target.exists:
        return "nowhere: a placeholder" if target else name
    release = f"torch {target.torch}"
    if target.cuda:
        capability = target.arch.removeprefix("sm").rstrip("a")
        cuda = f"CUDA {target.cuda[:-1]}.{target.cuda[-1]}"
        return f"{release}, {cuda}, GPUs of compute capability {capability[:-1]}.{capability[-1]}"
    return f"{release}, {target.arch.replace('x86_64_', 'x86-64-').replace('x86_64', 'x86-64')} CPUs"


@lru_cache(_KEPT)
def _parse(name: str) -> Target | None:
    try:
        return parse_target(name)
    except UnknownTarget:
        return None


def _short(target: Target) -> str:
    if not target.exists:
        return f"no-op {target.arch}"
    release = f"torch {target.torch}"
    if target.device == "cuda":
        return f"{_GPUS.get(target.arch.rstrip('a'), target.arch)} · {release}"
    level = target.arch.removeprefix("x86_64").removeprefix("_")
    return f"CPU {level or 'x86-64'} · {release}"
