"""Selection among the artifacts of a version for this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.client.machine.host import host_for, none_fits, this_host
from pt2hub.domain.compatibility.assessment import assess_compatibility
from pt2hub.domain.compatibility.findings import DAMAGED, Compatibility, finding
from pt2hub.domain.compatibility.selection import Candidate, select
from pt2hub.domain.targets import parse_target
from pt2hub.errors import BadCall, UnknownTarget

if TYPE_CHECKING:
    from collections.abc import Callable

    from pt2hub.domain.artifacts import ArtifactConfig
    from pt2hub.domain.compatibility.hosts import Host
    from pt2hub.domain.digests import Digest
    from pt2hub.domain.targets import Target
    from pt2hub.wire.resolution import ResolvedReference


@dataclass(frozen=True, slots=True)
class Device:
    """A requested device.

    Attributes:
        kind: `cpu` or `cuda`; None for whichever suits the machine best.
        index: Number of the GPU.
    """

    kind: str | None = None
    index: int = 0


def parse_device(text: str | None) -> Device:
    """Parse a device such as `cuda:1`.

    Raises:
        BadCall: It has another form.
    """
    if text is None:
        return Device()
    kind, colon, index = str(text).partition(":")  # a torch.device is as good
    if kind in ("cpu", "cuda") and (not colon or (index.isascii() and index.isdigit())):
        return Device(kind, int(index or 0))
    raise BadCall(f"Unknown device {text!r:.80}", where="device", hint='Write "cpu" or "cuda:0".')


def select_artifact(
    resolved: ResolvedReference,
    read_config: Callable[[Digest], ArtifactConfig],
    device: Device,
) -> tuple[Candidate, tuple[Candidate, ...]]:
    """Select the artifact that suits this machine best. Only small files are read, and as few as decide.

    Args:
        resolved: The version and those of its artifacts that may be selected.

    Returns:
        The artifact, and the better ones that were built for such machines and do not run on this one.

    Raises:
        Incompatible: None of them runs here; the error says why for each one, and how to build one that does.
        BlobDamaged: One would, but it is damaged on the server.
    """
    known = [(item, known_target(item.target)) for item in resolved.artifacts]
    devices = {target.device for _, target in known if target}
    host = this_host(gpu="cuda" in devices and device.kind != "cpu", gpu_index=device.index)

    def assess(candidate: Candidate) -> Compatibility:
        assert candidate.target is not None, "an unknown target never runs"
        native = read_config(candidate.digest).native
        return assess_compatibility(candidate.target, host_for(candidate.target, native, host), native)

    candidates = (
        Candidate(
            item.target,
            target,
            item.digest,
            item.created_at,
            DAMAGED if item.damaged else _by_target(target, host, device),
        )
        if target
        else Candidate(item.target, None, item.digest, item.created_at)
        for item, target in known
    )
    selection = select(candidates, host, assess)
    if selection.chosen is None:
        preferred = device.kind or ("cuda" if "cuda" in devices else "cpu")
        model, number = resolved.model, resolved.number
        raise none_fits(selection.candidates, host, model=model, number=number, device=preferred)
    return selection.chosen, selection.passed_over


def known_target(name: str) -> Target | None:
    """Parse a target from a response; None if its name has a form that only a newer pt2hub knows."""
    try:
        return parse_target(name)
    except UnknownTarget:
        return None


def _by_target(target: Target, host: Host, device: Device) -> Compatibility:
    """Return the compatibility by an artifact's target alone."""
    if device.kind in (None, target.device):
        return assess_compatibility(target, host)
    other = finding("device", ok=False, needs=target.device, has=f"{device.kind}, as requested")
    return Compatibility((other,))
