"""Damage that is on record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pt2hub.domain.damage import Damage, DamageProblem
from pt2hub.server.db.stores.blobs.damage import DamageStore

if TYPE_CHECKING:
    from pt2hub.server.blobs.keys import StorageKey
    from support.registry import Registry


def spoil(registry: Registry, key: StorageKey) -> None:
    """Records damage as a scrub would."""
    damage = Damage(key.kind, key.digest, 1, DamageProblem.DIGEST, 4, 4, key.digest, "scrub")
    with registry.services._sessions.begin() as session:
        assert DamageStore(session).add(damage)
