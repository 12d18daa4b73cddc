"""What a reindex cannot read, or did not come to: nothing is collected that only lacks its references."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.audit import Action, AuditFilter
from pt2hub.domain.digests import canonical_json, digest_bytes
from pt2hub.errors import CollectionRefused, StorageUnavailable
from pt2hub.server.blobs.keys import StorageKey
from support.promoted import ADMIN, MODEL, published
from support.registry import AUTOTUNE

if TYPE_CHECKING:
    from support.registry import Registry

TABLES = "models, targets, environments, workers, blobs, blob_leases, blob_references, tombstones"


def lose_the_database(registry: Registry) -> None:
    registry.sql(f"TRUNCATE {TABLES} CASCADE")


def damage(registry: Registry, key: StorageKey) -> bytes:
    """Change a stored object; return what it was."""
    stored = registry.services.storage._stored  # type: ignore[attr-defined]  # a MemoryStorage
    right: bytes = stored[key.exact]
    stored[key.exact] = bytes([right[0] ^ 1]) + right[1:]
    return right


def collect(registry: Registry) -> None:
    registry.services.collector.collect(grace=timedelta())


def stored(registry: Registry) -> set[StorageKey]:
    storage = registry.services.storage
    return {*storage.keys("blobs"), *storage.keys("manifests")}


def test_a_damaged_tombstone_is_named_and_the_rest_restored(registry: Registry) -> None:
    published(registry)
    published(registry)
    registry.services.deletion.version(MODEL, 1, by=ADMIN, reason="old")
    (tombstone,) = registry.services.storage.keys("tombstones")
    damage(registry, tombstone)
    lose_the_database(registry)
    report = registry.services.reindex.reindex()
    assert tombstone.digest in report["unreadable"]
    assert registry.services.resolve.resolve(f"{MODEL}@2").number == 2


def test_after_an_interrupted_reindex_nothing_is_collected(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    published(registry)
    before = stored(registry)
    lose_the_database(registry)

    def stop(path: str) -> object:
        raise StorageUnavailable("The storage does not answer.", where=path)

    with monkeypatch.context() as cut_off:
        cut_off.setattr(registry.services.storage, "list_objects", stop)  # the journal's
        with pytest.raises(StorageUnavailable):
            registry.services.reindex.reindex()
    assert registry.sql("SELECT count(*) FROM blobs WHERE state = 'stored'") == [(len(before),)]
    with pytest.raises(CollectionRefused, match="a reindex has not ended") as caught:
        collect(registry)
    assert "pt2hub admin reindex" in str(caught.value.hint)
    registry.services.reindex.reindex()
    collect(registry)
    assert stored(registry) == before


def test_parts_of_a_damaged_manifest_stay_until_it_is_healed(registry: Registry) -> None:
    artifact = published(registry)
    before = stored(registry)
    key = StorageKey.manifest(artifact)
    right = damage(registry, key)
    lose_the_database(registry)
    for _ in range(2):  # the first one puts it away, so that the second does not find it
        assert set(registry.services.reindex.reindex()["unreadable"]) == {artifact}
        with pytest.raises(CollectionRefused, match="could not read 1 document") as caught:
            collect(registry)
        assert "--accept-losses" in str(caught.value.hint)
    registry.services.blobs.write(key, [right], holder="test")
    assert registry.services.reindex.reindex()["added"] == 1
    collect(registry)
    assert {item.digest for item in stored(registry)} == {item.digest for item in before}


def test_losses_that_the_operator_accepts_are_collected(registry: Registry) -> None:
    artifact = published(registry)
    damage(registry, StorageKey.manifest(artifact))
    lose_the_database(registry)
    assert registry.services.reindex.reindex(accept_losses=True)["unreadable"]
    collect(registry)
    assert stored(registry) == set()
    wanted = AuditFilter(action=Action.REINDEX_ACCEPT_LOSSES)
    (entry,) = registry.services.audit_log.entries(wanted).entries
    assert (entry.principal.kind, entry.change) == ("server", {"documents": 1, "lost": [artifact]})
    registry.services.reindex.reindex(accept_losses=True)  # nothing is lost by this one
    assert len(registry.services.audit_log.entries(wanted).entries) == 1


def test_a_damaged_table_keeps_no_artifact_away_and_comes_back_healed(registry: Registry) -> None:
    artifact = published(registry)
    before = registry.services.resolve.artifact(artifact).autotune
    table = canonical_json(AUTOTUNE)
    damage(registry, StorageKey.blob(digest_bytes(table)))
    lose_the_database(registry)
    report = registry.services.reindex.reindex()
    assert (report["added"], len(report["unreadable"])) == (1, 1)
    assert registry.services.resolve.artifact(artifact).autotune == ()
    with pytest.raises(CollectionRefused):
        collect(registry)
    registry.blob(table)
    assert registry.services.reindex.reindex()["unreadable"] == {}
    assert registry.services.resolve.artifact(artifact).autotune == before != ()
    collect(registry)
