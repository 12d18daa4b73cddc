"""Description of this machine, and compatibility of artifacts with it. Never imports torch."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import sys
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pt2hub.client.machine import gpus, libraries
from pt2hub.client.machine.processor import cpu_flags
from pt2hub.domain.compatibility.assessment import assess_compatibility
from pt2hub.domain.compatibility.findings import DAMAGED
from pt2hub.domain.compatibility.hosts import Host
from pt2hub.domain.targets import parse_target
from pt2hub.errors import BadConfiguration, BlobDamaged, Detail, Incompatible

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from typing import Any

    from pt2hub.domain.artifacts import ArtifactConfig, NativeCode
    from pt2hub.domain.compatibility.findings import Compatibility
    from pt2hub.domain.compatibility.selection import Candidate
    from pt2hub.domain.targets import Target


class CompatibilityWarning(UserWarning):
    """The artifact runs on this machine, but with reservations."""


def this_host(*, gpu: bool = False, gpu_index: int = 0) -> Host:
    """Describe this machine, without what only some artifacts depend on; see `host_for` and `whole_host`.

    Args:
        gpu: Also ask the GPU driver, which takes up to a tenth of a second.

    Raises:
        BadConfiguration: `PT2HUB_CPU_LEVEL` is unknown, or above the CPU's level.
    """
    torch, cuda = torch_versions()
    release = re.match(r"\d+\.\d+", torch or "")
    return Host(
        os=sys.platform,
        machine=os.uname().machine,
        torch=release[0] if release else None,
        cpu_flags=cpu_flags(),
        cuda=cuda.replace(".", "") if cuda else None,
        sm=gpus.compute_capability(gpu_index) if gpu else None,
        glibc=_glibc(),
        shared_memory_bytes=gpus.shared_memory_bytes(gpu_index) if gpu else None,
        glibcxx=libraries.glibcxx(),
        driver=gpus.driver() if gpu else None,
        driver_cuda=gpus.driver_cuda() if gpu else None,
    )


def whole_host() -> Host:
    """Describe this machine with everything that artifacts may depend on, as it is sent to a server."""
    return replace(
        this_host(gpu=True),
        aoti_symbols=libraries.aoti_symbols(),
        operator_libraries=libraries.operator_libraries(),
    )


def host_for(target: Target, native: NativeCode | None, host: Host) -> Host:
    """Return a description of this machine with what an artifact depends on."""
    if native is None:
        return host
    if target.torch != host.torch:
        host = replace(host, aoti_symbols=libraries.aoti_symbols())
    if native.operators:
        known = libraries.operator_libraries() | dict.fromkeys(_registered_namespaces(), "")
        host = replace(host, operator_libraries=known)
    return host


def check_host(config: ArtifactConfig, *, gpu_index: int = 0) -> Compatibility:
    """Check that an artifact runs on this machine, before any native code is loaded.

    Returns:
        The compatibility, which may be degraded.

    Raises:
        Incompatible: The artifact does not run here.
    """
    target, native = config.target, config.native
    host = this_host(gpu=target.device == "cuda", gpu_index=gpu_index)
    compatibility = assess_compatibility(target, host_for(target, native, host), native)
    if not compatibility.runs:
        version = f"{config.version.model}@{config.version.number}"
        raise refusal(
            compatibility,
            where=title(config),
            hint=advice(host, version, target.device, [target.name]),
            context={"model": config.version.model, "number": config.version.number},
        )
    return compatibility


def warn_of_compatibility(
    config: ArtifactConfig, compatibility: Compatibility, passed_over: Iterable[Candidate] = ()
) -> None:
    """Warn if an artifact is degraded here, or stands in for a better one that does not run here."""
    reasons = [f"it is degraded here ({item})" for item in compatibility.reasons]
    reasons += [f"{item.name} does not run here ({item.compatibility})" for item in passed_over]
    if reasons:
        warnings.warn(f"Using {title(config)}: {'; '.join(reasons)}", CompatibilityWarning, stacklevel=2)


def title(config: ArtifactConfig) -> str:
    """Return an artifact's title for errors."""
    return f"{config.version.model}@{config.version.number} for {config.target}"


def refusal(
    compatibility: Compatibility,
    *,
    where: str,
    hint: str | None = None,
    context: Mapping[str, Any] | None = None,
) -> Incompatible:
    """Return the error for an incompatible artifact, with every failing axis in its context."""
    return Incompatible(
        str(compatibility),
        where=where,
        hint=hint,
        context={"findings": [asdict(item) for item in compatibility.failures], **(context or {})},
    )


def none_fits(
    candidates: Iterable[Candidate], host: Host, *, model: str, number: int, device: str
) -> Incompatible | BlobDamaged:
    """Return the error for a version without an artifact for a machine: a table of artifacts and reasons, or the damage.

    Args:
        device: Preferred device of an artifact that is yet to be built.
    """
    known = list(candidates)
    version = f"{model}@{number}"
    if damaged := [item.name for item in known if _would_fit(item, host)]:
        return BlobDamaged(
            f"The artifact for {', '.join(damaged)} is damaged on the server",
            where=version,
            hint="The server's operator mends it: pt2hub admin heal.",
        )
    return Incompatible(
        "No artifact of the version runs on this machine",
        where=version,
        hint=advice(host, version, device, [item.name for item in known]),
        details=tuple(
            Detail(item.name, str(reason)) for item in known for reason in item.compatibility.failures
        ),
        context={
            "model": model,
            "number": number,
            "targets": {item.name: str(item.compatibility) for item in known},
        },
    )


def _would_fit(candidate: Candidate, host: Host) -> bool:
    """Return whether nothing but damage on the server keeps an artifact from a machine, as far as its target says."""
    if candidate.compatibility != DAMAGED or candidate.target is None:
        return False
    return not assess_compatibility(candidate.target, host).failures


def advice(host: Host, version: str, device: str, present: Collection[str]) -> str | None:
    """Return a hint for when no published artifact runs on a machine; it ends with the command that builds one.

    Args:
        version: Reference of the version.
        device: Preferred device of the new artifact.
        present: Targets that the version has artifacts for.
    """
    if host.torch is None:
        return "Install torch to run it here. To pull it for another machine, name the target: `--target`, or target= in Python."
    target = host.native_target(device)
    if target and target in present:
        if parse_target(target).device != device:
            return f"This machine has no {device} device that torch can use. Leave the device out, or name a target."
        return (
            f"The artifact for {target}, this machine's own target, was built on a newer system: have a worker on a system "
            "like this one build the model as a new version."
        )
    return (
        f"To build it for this machine: pt2hub build {version} --target {target} --wait" if target else None
    )


def require_native_target(device: str) -> str:
    """Return the target to build for this machine; see `Host.native_target`.

    Raises:
        BadConfiguration: It has none: torch is not installed, or no target is for such machines.
    """
    host = this_host(gpu=device == "cuda")
    target = host.native_target(device)
    if target is None:
        raise BadConfiguration(
            "This machine has no target",
            where="target",
            hint="Install torch to run models here, or name the target of another machine."
            if host.torch is None
            else f"Targets are offered for Linux on x86_64; this is {host.os} on {host.machine}. Name another target.",
        )
    return target


@functools.cache
def torch_versions() -> tuple[str | None, str | None]:
    """Return torch's full version and CUDA release from its version file: importing torch takes a second."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None, None
    try:
        text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None, None
    version = re.search(r"^__version__ = '([^']+)'", text, re.MULTILINE)
    cuda = re.search(r"^cuda\b[^=]*= '([\d.]+)'", text, re.MULTILINE)
    return (version[1] if version else None), (cuda[1] if cuda else None)


def _registered_namespaces() -> frozenset[str]:
    """Return the namespaces of the operators that are registered in this process; empty before torch is imported."""
    torch = sys.modules.get("torch")
    names = torch._C._dispatch_get_all_op_names() if torch is not None and hasattr(torch, "_C") else []  # noqa: SLF001  # torch has no public name for it
    return frozenset(name.partition("::")[0] for name in names)


def _glibc() -> str | None:
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError):
        return None
    return version if name == "glibc" else None
