"""What a reference names.

A module of its own: a load in a fresh process asks for this and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

from pt2hub.domain.digests import Digest
from pt2hub.printed import Printed


@dataclass(frozen=True, slots=True, repr=False)
class ArtifactRef(Printed):
    """One target's artifact of a resolved version.

    Attributes:
        target: The target's name.
        digest: Manifest digest.
        created_at: ISO 8601, UTC.
    """

    target: str
    digest: Digest
    created_at: str


@dataclass(frozen=True, slots=True, repr=False)
class Resolved(Printed):
    """What a reference names.

    Attributes:
        reference: As asked.
        model: The model's name.
        number: The version's number.
        artifacts: Its artifacts, one per succeeded target.
        alias: The alias that the reference went through, or None.
    """

    reference: str
    model: str
    number: int
    artifacts: tuple[ArtifactRef, ...]
    alias: str | None = None

    __repr__ = Printed.__str__  # what a prompt shows; no list holds them
