"""Kernels of artifacts in API responses."""

from __future__ import annotations

from dataclasses import dataclass

from pt2hub.domain.digests import Digest
from pt2hub.domain.fusion import FusedKernel, GraphNode
from pt2hub.renderable import Renderable


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
    """

    artifact: Digest
    model: str
    number: int
    target: str
    compiled_for: Digest
    kernels: tuple[FusedKernel, ...]
    graph: tuple[GraphNode, ...]
    left_out: int = 0
