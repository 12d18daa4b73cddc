"""Device nodes of NVIDIA GPUs: the common ones, and the one of a child's GPU.

They are read below /proc and /dev as drivers and container runtimes create them. `pt2hub worker` logs the profile, which
lists the nodes found.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pt2hub.errors import SandboxUnavailable

SHARED = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
"""Nodes that every CUDA program opens."""
CAPABILITIES = "nvidia-caps"
"""Directory of the nodes of GPU partitions (MIG), if the driver offers them."""
_PROC, _DEV = Path("/proc"), Path("/dev")
_FIELD = re.compile(r"^(?P<name>[^:]+):\s*(?P<value>.*?)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU of this machine.

    Attributes:
        uuid: As CUDA names it, without `GPU-`; None if the driver does not report it.
    """

    uuid: str | None
    minor: int


def find_gpus(proc: Path = _PROC, dev: Path = _DEV) -> tuple[Gpu, ...]:
    """Return the GPUs with device nodes, by number."""
    described = {
        gpu.minor: gpu for gpu in map(_read, sorted(proc.glob("driver/nvidia/gpus/*/information"))) if gpu
    }
    nodes = [int(node.name.removeprefix("nvidia")) for node in dev.glob("nvidia[0-9]*")]
    return tuple(described.get(minor, Gpu(None, minor)) for minor in sorted(nodes))


def choose(device: str, gpus: tuple[Gpu, ...]) -> Gpu:
    """Return the GPU with a UUID.

    Args:
        device: With or without `GPU-`.
    """
    wanted = device.removeprefix("GPU-").lower()
    for gpu in gpus:
        if gpu.uuid == wanted:
            return gpu
    if len(gpus) == 1:  # a partition of it (MIG), or a container without /proc/driver/nvidia
        return gpus[0]
    found = ", ".join(f"/dev/nvidia{gpu.minor} ({gpu.uuid or 'no UUID'})" for gpu in gpus) or "none"
    raise SandboxUnavailable(
        f"device node of GPU {device[:80]} not found: /proc/driver/nvidia and /dev have {found}",
        where="gpu",
        hint="Give the worker's container a single GPU, or set PT2HUB_ISOLATION=process on server and worker.",
    )


def nodes(gpus: tuple[Gpu, ...], dev: Path = _DEV) -> tuple[str, ...]:
    """Return the existing device nodes that a child needs for some GPUs; empty without a GPU."""
    if not gpus:
        return ()
    names = (*SHARED, *(f"nvidia{gpu.minor}" for gpu in gpus), CAPABILITIES)
    return tuple(str(dev / name) for name in names if (dev / name).exists())


def visible(gpu: Gpu) -> dict[str, str]:
    """Return the variables that select the GPU for CUDA: the worker's own number GPUs that the child does not see."""
    return {"CUDA_VISIBLE_DEVICES": f"GPU-{gpu.uuid}"} if gpu.uuid else {}


def _read(path: Path) -> Gpu | None:
    try:
        fields = {match["name"].strip(): match["value"] for match in _FIELD.finditer(path.read_text())}
        uuid = fields.get("GPU UUID", "").removeprefix("GPU-").lower()
        return Gpu(uuid if "?" not in uuid and uuid else None, int(fields["Device Minor"]))
    except (OSError, KeyError, ValueError):
        return None
