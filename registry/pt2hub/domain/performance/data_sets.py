"""Data sets that versions are evaluated on, named as in the label `data`: `name@sha256:<digest>`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pt2hub.domain.digests import DIGEST_PATTERN, Digest

DATA_SET_PATTERN = rf"(?:[^@]{{1,200}}@)?{DIGEST_PATTERN}"
_DATA_SET = re.compile(rf"(?:(?P<name>[^@]{{1,200}})@)?(?P<digest>{DIGEST_PATTERN})")


@dataclass(frozen=True, slots=True)
class DataSet:
    """A data set. The digest identifies it; the name is for people.

    Attributes:
        name: Empty where only the digest is known.
    """

    digest: Digest
    name: str = ""

    def __str__(self) -> str:
        return f"{self.name}@{self.digest[:15]}" if self.name else self.digest[:15]


def parse_data_set(text: str) -> DataSet | None:
    """Return the data set that a text names; None if it has no digest or is malformed."""
    found = _DATA_SET.fullmatch(text)
    return DataSet(Digest(found["digest"]), found["name"] or "") if found else None
