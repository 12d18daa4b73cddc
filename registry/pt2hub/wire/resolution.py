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
        damaged: Whether the server's copy of its manifest, config, code or weights is damaged.
    """

    target: str
    digest: Digest
    created_at: str
    damaged: bool = False


@dataclass(frozen=True, slots=True)
class Yank:
    """The yank of a version, which hides it from names without a version and from alias moves.

    Attributes:
        reason: Reason given for it.
        by: Name of the token that yanked it.
        at: ISO 8601, UTC.
    """

    reason: str
    by: str
    at: str


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
        yanked: The version's yank, or None if it is not yanked.
    """

    reference: str
    model: str
    number: int
    artifacts: tuple[ArtifactRef, ...]
    alias: str | None = None
    storage: StorageLocation | None = None
    yanked: Yank | None = None

    __repr__ = Renderable.__str__  # shown at the Python prompt; never part of lists
