"""The parts of two artifacts that differ, without their values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChangedParts:
    """The parts in which two artifacts differ.

    Attributes:
        has_other_weights: Whether the weights differ.
        spec: Paths of the spec's fields that differ, such as `source.seed`.
        key: Names of the program key's fields that differ, such as `graph`.
    """

    has_other_weights: bool
    spec: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
