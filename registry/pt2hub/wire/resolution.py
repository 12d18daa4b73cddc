"""Resolved references.

A separate module, because loading an artifact in a fresh process needs nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

from pt2hub.domain.digests import Digest
from pt2hub.domain.storage import StorageLocation
from pt2hub.renderable import Renderable


@dataclass(frozen=True, slots=True, repr=False)
class ArtifactRef(Renderable):
    """An artifact of a resolved version.

    Attributes:
        target: Name of the target.
        digest: Manifest digest.
        created_at: ISO 8601, UTC.
    """

    target: str
    digest: Digest
    created_at: str


@dataclass(frozen=True, slots=True, repr=False)
class ResolvedReference(Renderable):
    """A resolved reference.

    Attributes:
        reference: The requested reference.
        model: Name of the model.
        number: Number of the version.
        artifacts: Artifacts of the version, one per succeeded target.
        alias: The alias in the reference, or None.
        storage: The bucket with the artifacts, or None if the server keeps them in a directory.
    """

    reference: str
    model: str
    number: int
    artifacts: tuple[ArtifactRef, ...]
    alias: str | None = None
    storage: StorageLocation | None = None

    __repr__ = Renderable.__str__  # shown at the Python prompt; never part of lists
