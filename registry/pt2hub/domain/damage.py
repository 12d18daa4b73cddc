"""Damage of stored blobs, as scrubs and reads find it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pt2hub.domain.digests import Digest
from pt2hub.domain.storage import Kind


class DamageProblem(StrEnum):
    """What is wrong with a stored blob."""

    DIGEST = "digest"
    """Its bytes have another digest."""
    SIZE = "size"
    """It has another length, and another digest."""
    MISSING = "missing"
    """It is not in the storage."""
    UNREADABLE = "unreadable"
    """The disk cannot read it."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged blob or manifest.

    Attributes:
        kind: `blobs` or `manifests`.
        generation: Generation of the bytes that are damaged.
        expected_bytes: Length of the right bytes.
        found_bytes: Length of the stored ones; None if they are missing.
        found_digest: Digest of the stored ones; None if they are missing or unreadable.
        found_by: What found it: `scrub`, `read`, `upload`, `admin` or `report` (of a client).
        found_at: ISO 8601, UTC; None before it is recorded.
    """

    kind: Kind
    digest: Digest
    generation: int
    problem: DamageProblem
    expected_bytes: int
    found_bytes: int | None
    found_digest: Digest | None
    found_by: str
    found_at: str | None = None


@dataclass(frozen=True, slots=True)
class ScrubReport:
    """What a scrub checked and found.

    Attributes:
        blobs: Blobs and manifests that were read.
        bytes: Bytes that were read.
        damaged: Damage that this scrub found; at most `MAX_LISTED_DAMAGE` items.
        restored: Blobs that were missing or unreadable and are intact again.
        known: Number of blobs whose damage was found before and is not mended.
        documents: Paths of files of the journal and of tombstones that were damaged or missing, with what was wrong.
    """

    blobs: int
    bytes: int
    damaged: tuple[Damage, ...]
    restored: int
    known: int = 0
    documents: tuple[tuple[str, str], ...] = ()


MAX_LISTED_DAMAGE = 1000


@dataclass(frozen=True, slots=True)
class HealOutcome:
    """What became of a damaged blob.

    Attributes:
        kind: `blobs` or `manifests`.
        state: `healed`, `intact` or `damaged`.
        source: Where the right bytes came from; None if nothing has them.
        needed_by: What refers to it, such as `vision/resnet18@3 for torch2.13-cpu-x86_64_v3`.
        advice: What else can be done; empty unless it is still damaged.
        rebuild: The build that makes it again, or the last one that tried; None without one.
    """

    kind: Kind
    digest: Digest
    state: str
    source: str | None = None
    needed_by: tuple[str, ...] = ()
    advice: str = ""
    rebuild: str | None = None
