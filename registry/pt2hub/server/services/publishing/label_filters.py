"""Checks of filters by labels: what can never match is refused with what may be meant."""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING

from pt2hub.domain.labels import WELL_KNOWN, is_part_of_commit
from pt2hub.domain.version_filters import FIELDS, LABEL_PREFIX
from pt2hub.errors import InvalidInput
from pt2hub.server.db.stores.publishing.labels import LabelStore
from pt2hub.server.services.suggestions import suggest_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.orm import Session

    from pt2hub.domain.version_filters import LabelFilter

_BEGINNING = re.compile(r"[0-9a-f]{1,64}")
_MAX_COMMITS = 3
"""Commits that are named for an abbreviated one."""
_SHOWN = 80


class LabelOwners(Enum):
    """Owners of the labels that a filter is about, as errors name them."""

    VERSIONS = "version"
    MODELS = "model"
    ALL = "model or version"

    @property
    def on_versions(self) -> tuple[bool, ...]:
        """Whether the owners are versions, as `LabelStore` takes it, for each kind of them."""
        return {LabelOwners.VERSIONS: (True,), LabelOwners.MODELS: (False,)}.get(self, (True, False))

    @property
    def where(self) -> str:
        """The parameter with the filter: versions are searched for by conditions of several kinds."""
        return "where" if self is LabelOwners.VERSIONS else "label"


def check_label_filters(session: Session, wanted: Sequence[LabelFilter], owners: LabelOwners) -> None:
    """Refuse keys that no owner has, and values that none can have: an empty list would hide a misspelling.

    Raises:
        InvalidInput: The hint names what may be meant.
    """
    store = LabelStore(session)
    for label in wanted:
        if label.value is not None and is_part_of_commit(label.key, label.value):
            raise _part_of_commit(store, label.key, label.value, owners)
        if label.key not in WELL_KNOWN and not _has_key(store, label.key, owners):
            raise _unknown_key(store, label.key, owners)


def _has_key(store: LabelStore, key: str, owners: LabelOwners) -> bool:
    return any(store.has_key(key, on_versions=kind) for kind in owners.on_versions)


def _unknown_key(store: LabelStore, key: str, owners: LabelOwners) -> InvalidInput:
    """Return the error for a key that no owner has."""
    fields = FIELDS if owners is LabelOwners.VERSIONS else ()
    keys = (known for kind in owners.on_versions for known in store.known_keys(on_versions=kind))
    near = suggest_words(key, {*fields, *WELL_KNOWN, *keys})
    hint = f"Fields are {', '.join(fields)}." if fields else "Show a model's labels with pt2hub label ls."
    if owners is LabelOwners.MODELS and _has_key(store, key, LabelOwners.VERSIONS):
        near, hint = [], _list_versions(f"{LABEL_PREFIX if key in FIELDS else ''}{key}")
    return InvalidInput(
        f"No {owners.value} has a label {key}",
        where=owners.where,
        hint=f"Did you mean {' or '.join(near)}?" if near else hint,
        context={"suggestions": near},
    )


def _part_of_commit(store: LabelStore, key: str, value: str, owners: LabelOwners) -> InvalidInput:
    """Return the error for a commit that is not its full hash, with the commits that begin so."""
    is_beginning = _BEGINNING.fullmatch(value) is not None
    found = _commits(store, key, value, owners) if is_beginning else []
    if found:
        hint = f"Did you mean {' or '.join(f'{key}={commit}' for commit in found)}?"
    elif not is_beginning:
        hint = "`git rev-parse NAME` returns the full hash of a branch, a tag or an abbreviated commit."
    elif owners is LabelOwners.MODELS and (others := _commits(store, key, value, LabelOwners.VERSIONS)):
        hint = _list_versions(f"{key}={others[0]}")
    else:
        hint = f"No {owners.value} has a {key} that begins so; `git rev-parse {value}` returns the full hash."
    return InvalidInput(
        f"{key} is compared whole: it must be a full hash of 40 or 64 hex digits, got {value[:_SHOWN]!a}",
        where=owners.where,
        hint=hint,
        context={"suggestions": found},
    )


def _commits(store: LabelStore, key: str, beginning: str, owners: LabelOwners) -> list[str]:
    found = (
        store.commits(key, beginning, on_versions=kind, limit=_MAX_COMMITS) for kind in owners.on_versions
    )
    return sorted({commit for commits in found for commit in commits})[:_MAX_COMMITS]


def _list_versions(condition: str) -> str:
    return f"Versions have it. To list them: pt2hub versions --where {condition}"
