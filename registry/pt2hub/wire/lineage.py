"""Lineage of versions: derivations, in both directions."""

from __future__ import annotations

from dataclasses import dataclass

from pt2hub.domain.digests import Digest
from pt2hub.domain.principals import Principal


@dataclass(frozen=True, slots=True)
class DerivationView:
    """A version and what it is derived from.

    Attributes:
        version: The derived version, `team/name@4`.
        relation: `retrained`, `fine-tuned`, `quantized`, `distilled` or `other`.
        parent: A version of this server, `team/name@3`, or an external reference such as `hf:team/name@revision`.
        identity: Identity of the parent when it was recorded; None for an external one.
        link: Address of an external parent; None for a version of this server.
        deleted: Whether the parent was a version of this server that no longer exists.
        automatic: Whether pt2hub recorded it, because both versions have the same compiled code with other weights.
        by: Who recorded it.
        at: When it was recorded, ISO 8601, UTC.
    """

    version: str
    relation: str
    parent: str
    identity: Digest | None = None
    link: str | None = None
    deleted: bool = False
    automatic: bool = False
    by: Principal | None = None
    at: str = ""


@dataclass(frozen=True, slots=True)
class DerivationList:
    """What a version is derived from.

    Attributes:
        derived_from: Its derivations, in the order in which they were recorded.
    """

    derived_from: tuple[DerivationView, ...]


@dataclass(frozen=True, slots=True)
class LineageView:
    """What a version is derived from, and what is derived from it, over several generations.

    Attributes:
        model: Name of the model.
        number: Number of the version.
        ancestors: Derivations of the version, of its parents, and so on; nearest first.
        descendants: Derivations whose parent is the version, or one derived from it; nearest first.
        truncated: Whether some derivations are left out, since there are too many or they are too far away.
    """

    model: str
    number: int
    ancestors: tuple[DerivationView, ...] = ()
    descendants: tuple[DerivationView, ...] = ()
    truncated: bool = False
