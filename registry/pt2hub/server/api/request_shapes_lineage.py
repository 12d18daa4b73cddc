"""Shapes of requests about lineage."""

from typing import Annotated

from pydantic import Field

from pt2hub.domain.lineage import (
    DEFAULT_DEPTH,
    DERIVATION_PATTERN,
    MAX_DEPTH,
    MAX_DERIVATION_CHARS,
    MAX_PARENTS,
)
from pt2hub.domain.publishing.spec_base import whole
from pt2hub.server.api.request_shapes import Body, Parameters

_Parent = Annotated[str, Field(min_length=1, max_length=MAX_DERIVATION_CHARS)]
_Derivation = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_DERIVATION_CHARS,
        json_schema_extra={"pattern": whole(DERIVATION_PATTERN)},
    ),
]


class LineageQuery(Parameters):
    """How far a lineage is followed."""

    depth: Annotated[int, Field(ge=1, le=MAX_DEPTH, description="Generations in each direction")] = (
        DEFAULT_DEPTH
    )


class LineageChange(Body):
    """A change of a version's parents; those that are not named stay."""

    add: Annotated[
        list[_Derivation],
        Field(
            default_factory=list,
            max_length=MAX_PARENTS,
            description="Derivations, `relation:parent`: `fine-tuned:team/name@3`, `quantized:hf:team/name@revision`",
        ),
    ]
    remove: Annotated[
        list[_Parent],
        Field(default_factory=list, max_length=MAX_PARENTS, description="Parents; missing ones are ignored"),
    ]
