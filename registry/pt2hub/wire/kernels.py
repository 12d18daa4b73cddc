"""Kernels of artifacts in API responses."""

from __future__ import annotations

from dataclasses import dataclass

from pt2hub.domain.digests import Digest
from pt2hub.domain.fusion import FusedKernel, GraphNode
from pt2hub.renderable import Renderable


@dataclass(frozen=True, slots=True)
class ReusedPart:
    """A part of the code that comes from another artifact, which has its kernels.

    Attributes:
        calls: Number of calls.
        modules: Paths of the modules that are these calls; empty for a part between regions.
        artifact: Digest of the team's first artifact with this part; None if there is none any more.
        version: Version of that artifact, `team/name@3`; empty if there is none.
    """

    calls: int
    modules: tuple[str, ...] = ()
    artifact: Digest | None = None
    version: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class KernelsView(Renderable):
    """The kernels of an artifact's code, and the exported graph whose operations they hold.

    Attributes:
        artifact: Digest of the artifact.
        model: Name of the model.
        number: Number of the version.
        target: The target's name.
        compiled_for: Digest of the artifact that the code was compiled for; another one if the code is reused.
        kernels: Kernels in the order of their first call.
        graph: Nodes of the exported graph in order.
        left_out: Number of kernels and nodes beyond the limits of the record.
        reused_parts: Parts of code that was compiled by regions, whose kernels other artifacts have.
    """

    artifact: Digest
    model: str
    number: int
    target: str
    compiled_for: Digest
    kernels: tuple[FusedKernel, ...]
    graph: tuple[GraphNode, ...]
    left_out: int = 0
    reused_parts: tuple[ReusedPart, ...] = ()
