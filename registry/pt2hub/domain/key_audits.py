"""Audit of artifacts that reused code under older key schemas."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pt2hub.domain.digests import Digest


class Certainty(StrEnum):
    """Certainty that reused code equals what the artifact's own program compiles to."""

    NAMED = "named"
    """The program key covers every operator; no action is needed."""
    UNLIKELY = "unlikely"
    """The key has an older schema, and according to its source the program calls only torch operators."""
    UNKNOWN = "unknown"
    """The key has an older schema, and the stored data does not show which operators the program calls."""
    MAY_DIFFER = "may_differ"
    """The key has an older schema, which does not cover the custom operators that the program calls."""


AT_RISK = frozenset({Certainty.UNKNOWN, Certainty.MAY_DIFFER})


@dataclass(frozen=True, slots=True)
class KeyFinding:
    """An artifact that reused code.

    Attributes:
        artifact: Manifest digest.
        version: `team/name@3`.
        target: The target's name.
        key_schema: Schema version of its program key.
        reused: Digest of the reused code layer.
        operators: Known custom operators of its program.
        certainty: Certainty that the reused code is correct.
        why: The reason for it.
    """

    artifact: Digest
    version: str
    target: str
    key_schema: int
    reused: Digest
    operators: tuple[str, ...]
    certainty: Certainty
    why: str
