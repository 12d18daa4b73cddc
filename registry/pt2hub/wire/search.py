"""Results of the search over everything, in API responses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

SearchKind: TypeAlias = Literal["model", "version", "build", "target", "publisher"]


@dataclass(frozen=True, slots=True)
class SearchHit:
    """Something that was found.

    Attributes:
        kind: What it is.
        name: Its name: `team/name`, `team/name@3`, the id of a build, a target, or a publisher.
        detail: What distinguishes it, in short.
        exact: Whether it is what the text names, not just something whose name contains it.
        model: Name of its model, None for targets and publishers.
        number: Number of its version, None for models, targets and publishers.
    """

    kind: SearchKind
    name: str
    detail: str = ""
    exact: bool = False
    model: str | None = None
    number: int | None = None


@dataclass(frozen=True, slots=True)
class SearchResults:
    """What a search found: models, versions, builds, targets and publishers, in this order.

    Attributes:
        hits: Up to `limit` of each kind.
    """

    hits: tuple[SearchHit, ...]
