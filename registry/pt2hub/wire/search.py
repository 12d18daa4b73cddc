"""Results of the search over everything, in API responses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

SearchKind: TypeAlias = Literal["model", "version", "build", "target", "publisher", "owner"]


@dataclass(frozen=True, slots=True)
class SearchHit:
    """Something that was found.

    Attributes:
        kind: What it is.
        name: Its name: `team/name`, `team/name@3`, the id of a build, a target, a publisher, or an owner (`owner=...` labels).
        detail: What distinguishes it, in short; of an owner `owns models` or `owns versions`.
        exact: Whether it is what the text names, not just something whose name contains it.
        model: Name of its model, None for targets and people.
        number: Number of its version, None for models, targets and people.
    """

    kind: SearchKind
    name: str
    detail: str = ""
    exact: bool = False
    model: str | None = None
    number: int | None = None


@dataclass(frozen=True, slots=True)
class SearchResults:
    """What a search found: models, versions, builds, targets, publishers and owners, in this order.

    Attributes:
        hits: Up to `limit` of each kind.
    """

    hits: tuple[SearchHit, ...]
