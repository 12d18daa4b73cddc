"""Published artifacts that run reused code, and how sure it is that the code is their own program's."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pt2hub.domain.digests import Digest


class Certainty(StrEnum):
    """How sure it is that reused code is what the artifact's own program would have become."""

    NAMED = "named"
    """The program key names every operator; nothing is to be done."""
    UNLIKELY = "unlikely"
    """The key is of an older schema, and the program calls no operator but torch's own, as far as its source says."""
    UNKNOWN = "unknown"
    """The key is of an older schema, and nothing that is stored says what the program calls."""
    MAY_DIFFER = "may_differ"
    """The key is of an older schema, which does not name what the program calls."""


AT_RISK = frozenset({Certainty.UNKNOWN, Certainty.MAY_DIFFER})


@dataclass(frozen=True, slots=True)
class KeyFinding:
    """An artifact whose build reused code.

    Attributes:
        artifact: Manifest digest.
        version: `team/name@3`.
        target: The target's name.
        key_schema: The schema of its program key.
        reused: Digest of the code layer that it reuses.
        operators: Operators of its program that are not torch's own, as far as they are known.
        certainty: What follows.
        why: What that rests on, in words.
    """

    artifact: Digest
    version: str
    target: str
    key_schema: int
    reused: Digest
    operators: tuple[str, ...]
    certainty: Certainty
    why: str
