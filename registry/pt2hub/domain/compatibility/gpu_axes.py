"""The axes of a GPU: device, compute capability, shared memory, CUDA and its driver."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pt2hub.domain.compatibility.findings import AxisFinding, CompatibilityState, finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.domain.artifacts import NativeCode
    from pt2hub.domain.compatibility.hosts import Host
    from pt2hub.domain.targets import Target

_ARCH = re.compile(r"sm([0-9]{1,2})([0-9])a?")
_CUDA = re.compile(r"([0-9]{1,3})\.?([0-9])")
_KIB = 1024
_SHARED_KIB = {
    "sm75": 64,
    "sm80": 163,
    "sm86": 99,
    "sm87": 163,
    "sm89": 99,
    "sm90": 227,
    "sm100": 227,
    "sm103": 227,
    "sm120": 99,
    "sm121": 99,
}
"""Most shared memory per block, for machines that do not state it (CUDA C++ Programming Guide, "Technical Specifications
per Compute Capability")."""
_BASE_DRIVERS = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
"""Oldest Linux driver for each major release of CUDA (docs.nvidia.com/deploy/cuda-compatibility, "Minor Version
Compatibility"; the patch releases are those of the CUDA Toolkit's release notes)."""


def check_gpu_axes(target: Target, host: Host, native: NativeCode | None) -> Iterator[AxisFinding]:
    """Yield the findings on the axes of a CUDA target."""
    yield finding("device", ok=host.sm is not None, needs="a CUDA GPU", has=host.sm or "no GPU")
    if host.torch is not None:  # otherwise torch itself is missing
        yield _cuda(target, host)
    if host.sm is None:
        return
    yield from _driver(target, host)
    capability = _compute_capability(target, host.sm)
    yield capability
    if native:
        yield from _shared_memory(native.shared_memory_bytes, host, known_gpu=host.sm == target.arch)


def _cuda(target: Target, host: Host) -> AxisFinding:
    """Compare the CUDA releases that torch was built for.

    Within a major release CUDA's libraries are binary compatible, so another minor release is degraded; across major
    releases nothing is promised (docs.nvidia.com/deploy/cuda-compatibility).
    """
    needs, has = _release(target.cuda), _release(host.cuda)
    if has is None:
        return finding("cuda", ok=False, needs=_cuda_text(needs), has="a CPU build of torch")
    state = CompatibilityState.COMPATIBLE
    if needs is None or needs != has:
        same_major = needs is not None and needs[0] == has[0]
        state = CompatibilityState.DEGRADED if same_major else CompatibilityState.INCOMPATIBLE
    return AxisFinding("cuda", state, _cuda_text(needs), _cuda_text(has))


def _driver(target: Target, host: Host) -> Iterator[AxisFinding]:
    """Compare the driver with the artifact's CUDA release.

    A driver runs code of every CUDA release up to its own. Code of a newer minor release runs on every driver of the same
    major release ("minor version compatibility", docs.nvidia.com/deploy/cuda-compatibility), with a limited feature set,
    hence degraded. Code of a newer major release does not run.
    """
    needs, offers = _release(target.cuda), _driver_release(host)
    if needs is None or offers is None or (host.driver_cuda is None and needs[0] not in _BASE_DRIVERS):
        return
    state = CompatibilityState.INCOMPATIBLE
    if offers >= needs:
        state = CompatibilityState.COMPATIBLE
    elif offers[0] == needs[0]:
        state = CompatibilityState.DEGRADED
    oldest = _BASE_DRIVERS.get(needs[0]) if state is CompatibilityState.INCOMPATIBLE else None
    at_least = f", {oldest} or newer" if oldest else ""
    names = (host.driver, f"CUDA {host.driver_cuda}" if host.driver_cuda else None)
    yield AxisFinding(
        "driver",
        state,
        f"a driver for CUDA {_cuda_text(needs)}{at_least}",
        ", ".join(name for name in names if name),
    )


def _driver_release(host: Host) -> tuple[int, int] | None:
    """Return the CUDA release of the driver.

    The driver's own release tells only the major one, so its first minor release is returned.
    """
    if host.driver_cuda or not host.driver:
        return _release(host.driver_cuda)
    have = _version(host.driver)
    return max(
        ((major, 0) for major, base in _BASE_DRIVERS.items() if _version(base) <= have), default=(0, 0)
    )


def _compute_capability(target: Target, has: str) -> AxisFinding:
    """Compare compute capabilities.

    Machine code for X.y runs on GPUs of X.z with z >= y, and on no others (CUDA C++ Programming Guide, "Binary
    Compatibility"); it was tuned for another GPU there, hence degraded. Architecture-specific code (`sm_90a`, `sm_100a`,
    `sm_120a`; the same guide, "Feature Set Compiler Targets") runs only on GPUs of exactly its capability, and from 9.0 on
    Triton compiles nothing else.
    """
    axis = "compute capability"
    needs, found = _capability(target.arch), _capability(has)
    if needs is None or found is None:
        return finding(axis, ok=target.arch == has, needs=target.arch, has=has)
    if needs == found:
        return finding(axis, ok=True, needs=target.arch, has=has)
    if not target.is_portable:
        return finding(axis, ok=False, needs=f"exactly {target.arch}, as its code is specific to it", has=has)
    newer = needs[0] == found[0] and needs < found
    state = CompatibilityState.DEGRADED if newer else CompatibilityState.INCOMPATIBLE
    return AxisFinding(axis, state, target.arch if newer else f"{target.arch} or newer of its family", has)


def _shared_memory(needs: int, host: Host, *, known_gpu: bool) -> Iterator[AxisFinding]:
    """Compare what the largest kernel requests with what a block may have: 163 KiB on sm80, 99 KiB on sm86.

    A kernel that requests more does not launch, although the GPU runs its code. On the GPU that it was built for it fits;
    elsewhere an unknown limit counts as too small.
    """
    limit = host.shared_memory_bytes
    if limit is None and (kib := _SHARED_KIB.get(host.sm or "")):
        limit = kib * _KIB
    if needs == 0 or (limit is None and known_gpu):
        return
    has = "an unknown limit" if limit is None else f"{limit / _KIB:g} KiB"
    yield finding(
        "shared memory",
        ok=limit is not None and needs <= limit,
        needs=f"{needs / _KIB:g} KiB per block",
        has=has,
    )


def _capability(arch: str) -> tuple[int, int] | None:
    """Return major and minor compute capability: `sm86` is (8, 6)."""
    match = _ARCH.fullmatch(arch)
    return (int(match[1]), int(match[2])) if match else None


def _release(cuda: str | None) -> tuple[int, int] | None:
    """Return major and minor release of CUDA: `130` and `13.0` are (13, 0)."""
    match = _CUDA.fullmatch(cuda or "")
    return (int(match[1]), int(match[2])) if match else None


def _cuda_text(release: tuple[int, int] | None) -> str:
    return f"{release[0]}.{release[1]}" if release else "unknown"


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
