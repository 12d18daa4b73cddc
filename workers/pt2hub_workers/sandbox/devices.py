"""The device nodes of NVIDIA GPUs: those that all share, and the one of the GPU that a child works on.

Everything is read below /proc and /dev as the driver and container runtimes make them; `pt2hub worker` logs the profile,
which names the nodes it found.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pt2hub.errors import SandboxUnavailable

SHARED = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
"""Nodes that every CUDA program opens."""
CAPABILITIES = "nvidia-caps"
"""Folder of the nodes that open parts of a GPU (MIG); there only where the driver offers them."""
_PROC, _DEV = Path("/proc"), Path("/dev")
_FIELD = re.compile(r"^(?P<name>[^:]+):\s*(?P<value>.*?)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU of this machine.

    Attributes:
        uuid: As CUDA names it, without `GPU-`; None where the driver does not say.
        minor: Number of its node, /dev/nvidia<minor>.
    """

    uuid: str | None
    minor: int


def find_gpus(proc: Path = _PROC, dev: Path = _DEV) -> tuple[Gpu, ...]:
    """The GPUs whose nodes are there, by number.

    Args:
        proc: Where /proc is mounted.
        dev: Where device nodes are.
    """
    described = {
        gpu.minor: gpu for gpu in map(_read, sorted(proc.glob("driver/nvidia/gpus/*/information"))) if gpu
    }
    nodes = [int(node.name.removeprefix("nvidia")) for node in dev.glob("nvidia[0-9]*")]
    return tuple(described.get(minor, Gpu(None, minor)) for minor in sorted(nodes))


def choose(device: str, gpus: tuple[Gpu, ...]) -> Gpu:
    """The GPU of a UUID.

    Args:
        device: With or without `GPU-`.
        gpus: Those of the machine.

    Raises:
        SandboxUnavailable: It cannot be told which node it has.
    """
    wanted = device.removeprefix("GPU-").lower()
    for gpu in gpus:
        if gpu.uuid == wanted:
            return gpu
    if len(gpus) == 1:  # a part of it (MIG), or a container that shows no /proc/driver/nvidia
        return gpus[0]
    found = ", ".join(f"/dev/nvidia{gpu.minor} ({gpu.uuid or 'no UUID'})" for gpu in gpus) or "none"
    raise SandboxUnavailable(
        f"the node of GPU {device[:80]} is not known: /proc/driver/nvidia and /dev show {found}",
        where="gpu",
        hint="Give the worker's container one GPU only, or set PT2HUB_ISOLATION=process on server and worker.",
    )


def nodes(gpus: tuple[Gpu, ...], dev: Path = _DEV) -> tuple[str, ...]:
    """The device nodes, of those that are there, that a child needs for some GPUs; empty without a GPU.

    Args:
        gpus: What it may use.
        dev: Where device nodes are.
    """
    if not gpus:
        return ()
    names = (*SHARED, *(f"nvidia{gpu.minor}" for gpu in gpus), CAPABILITIES)
    return tuple(str(dev / name) for name in names if (dev / name).exists())


def visible(gpu: Gpu) -> dict[str, str]:
    """Variables that name the GPU to CUDA: what the worker's own say counts GPUs that the child does not see."""
    return {"CUDA_VISIBLE_DEVICES": f"GPU-{gpu.uuid}"} if gpu.uuid else {}


def _read(path: Path) -> Gpu | None:
    try:
        fields = {match["name"].strip(): match["value"] for match in _FIELD.finditer(path.read_text())}
        uuid = fields.get("GPU UUID", "").removeprefix("GPU-").lower()
        return Gpu(uuid if "?" not in uuid and uuid else None, int(fields["Device Minor"]))
    except (OSError, KeyError, ValueError):
        return None
