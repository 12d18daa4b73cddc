"""Retrained versions, which are recognised by the code that they reuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.lineage import Relation
from pt2hub.domain.tokens import SERVER
from pt2hub.server.db.stores.publishing.lineage import LineageStore

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from pt2hub.domain.digests import Digest


def note_retrained(session: Session, artifact: Digest) -> None:
    """Record that the version of an artifact that reused code is a retrained one, unless its parents are known.

    The same code with other weights is the same program. From which weights the training began is not known, so nothing is
    recorded beyond that.
    """
    store = LineageStore(session)
    if (found := store.find_same_code(artifact)) is None:
        return
    version_id, parent = found
    if store.of(version_id):
        return
    store.lock()
    if parent.id is None or store.of(version_id) or store.is_ancestor(version_id, of=parent.id):
        return
    store.add(version_id, Relation.RETRAINED, parent, by=SERVER.principal, automatic=True)
