"""Lineage: which versions, and which models elsewhere, a version is derived from.

A derivation is written as `relation:parent`, such as `fine-tuned:vision/resnet18@3` or `quantized:hf:team/name@revision`.
It is no part of the version's identity, and nothing of an external parent is fetched.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from pt2hub.domain.labels import is_url
from pt2hub.domain.names import MODEL_PATTERN, Reference
from pt2hub.domain.plain_text import find_control
from pt2hub.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_PARENTS = 8
"""Parents of one version."""
MAX_DERIVATION_CHARS = 500
MAX_DEPTH = 10
"""Generations of a lineage, in each direction."""
DEFAULT_DEPTH = 4
_SHOWN = 80
_WORD = "[A-Za-z0-9_.-]{1,96}"
_HUB_PATTERN = rf"hf:({_WORD}(?:/{_WORD})?)@([A-Za-z0-9_./-]{{1,128}})"
_HUB = re.compile(_HUB_PATTERN)
_PARENT_FORMS = "team/name@3, team/name@prod, hf:team/name@revision or https://..."


class Relation(StrEnum):
    """How a version was made from its parent."""

    RETRAINED = "retrained"
    """The same program with weights of another training."""
    FINE_TUNED = "fine-tuned"
    """Trained further from the parent's weights."""
    QUANTIZED = "quantized"
    """The parent's weights with fewer bits."""
    DISTILLED = "distilled"
    """Trained to reproduce the parent's outputs."""
    OTHER = "other"


DERIVATION_PATTERN = rf"(?:{'|'.join(Relation)}):(?:{_HUB_PATTERN}|{MODEL_PATTERN}@[1-9][0-9]{{0,8}})"
"""The usual forms, for the API's document; `parse_derivation` takes aliases and addresses too."""


@dataclass(frozen=True, slots=True)
class Derivation:
    """What a version is derived from.

    Attributes:
        parent: The parent, as it was written: a reference of this server, or an external one.
        reference: The reference, if the parent is a version of this server; it has a number or an alias.
    """

    relation: Relation
    parent: str
    reference: Reference | None = None


def parse_derivations(texts: Sequence[str], *, where: str = "derived_from") -> tuple[Derivation, ...]:
    """Return derivations from their texts, each once.

    Raises:
        InvalidInput: There are too many, one is malformed, or a parent has two relations.
    """
    if len(texts) > MAX_PARENTS:
        raise too_many(len(texts), where=where)
    found: dict[str, Derivation] = {}
    for index, text in enumerate(texts):
        item = parse_derivation(text, where=f"{where}[{index}]")
        if found.setdefault(item.parent, item) != item:
            raise InvalidInput(
                f"{item.parent[:_SHOWN]} is given with two relations",
                where=f"{where}[{index}]",
                hint="Keep the one that describes it best.",
            )
    return tuple(found.values())


def parse_derivation(text: str, *, where: str = "derived_from") -> Derivation:
    """Return the derivation that `relation:parent` names.

    Raises:
        InvalidInput: The relation is unknown, or the parent is malformed.
    """
    relation, colon, parent = text.strip().partition(":")
    if not colon or relation not in list(Relation):
        raise InvalidInput(
            f"Invalid derivation {text[:_SHOWN]!a}",
            where=where,
            hint=f"Write RELATION:PARENT with one of {', '.join(Relation)}, such as fine-tuned:vision/resnet18@3.",
        )
    return _derivation(Relation(relation), parent, where)


def too_many(count: int, *, where: str = "derived_from") -> InvalidInput:
    """Return the error for more parents than a version may have."""
    return InvalidInput(
        f"Too many parents ({count}, at most {MAX_PARENTS})",
        where=where,
        hint="Name the ones that its weights come from directly; their own parents are shown with them.",
    )


def external_link(parent: str) -> str | None:
    """Return the address of an external parent; None for a version of this server."""
    if found := _HUB.fullmatch(parent):
        return f"https://huggingface.co/{found[1]}/tree/{found[2]}"
    return parent if parent.startswith(("http://", "https://")) else None


def _derivation(relation: Relation, parent: str, where: str) -> Derivation:
    if len(parent) > MAX_DERIVATION_CHARS or find_control(parent):
        raise _malformed(parent, where, "Use visible characters, at most 500.")
    if parent.startswith("hf:"):
        if not _HUB.fullmatch(parent):
            raise _malformed(parent, where, "Name a revision, which stays what it is: hf:team/name@revision.")
        return Derivation(relation, parent)
    if parent.startswith(("http://", "https://")):
        if not is_url(parent):
            raise _malformed(parent, where, "Give an address with a host, and without a user or spaces.")
        return Derivation(relation, parent)
    try:
        reference = Reference.parse(parent)
    except InvalidInput as exc:
        raise _malformed(parent, where, f"Use {_PARENT_FORMS}.") from exc
    if reference.number is None and reference.alias is None:
        raise _malformed(parent, where, "Name a version, by its number or by an alias: team/name@3.")
    return Derivation(relation, parent, reference)


def _malformed(parent: str, where: str, hint: str) -> InvalidInput:
    return InvalidInput(f"Invalid parent {parent[:_SHOWN]!a}", where=where, hint=hint)
