"""Compatibility of an artifact with a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.compatibility.findings import Compatibility
from pt2hub.domain.compatibility.gpu_axes import check_gpu_axes
from pt2hub.domain.compatibility.host_axes import check_host_axes

if TYPE_CHECKING:
    from pt2hub.domain.artifacts import NativeCode
    from pt2hub.domain.compatibility.hosts import Host
    from pt2hub.domain.targets import Target


def assess_compatibility(target: Target, host: Host, native: NativeCode | None = None) -> Compatibility:
    """Check a target, and the code's own requirements if known, against a machine.

    Args:
        target: The artifact's target.
        native: Requirements of the code's libraries; None before the config is read. They never improve the state, so
            an artifact whose target is incompatible needs no config.
    """
    gpu = check_gpu_axes(target, host, native) if target.device == "cuda" else ()
    return Compatibility((*check_host_axes(target, host, native), *gpu))
