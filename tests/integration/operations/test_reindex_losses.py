"""What a reindex cannot read, or did not come to: nothing is collected that only lacks its references."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.audit import Action, AuditFilter
from pt2hub.domain.digests import canonical_json, digest_bytes
from pt2hub.errors import CollectionRefused, StorageUnavailable
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.services.blobs.documents import read_manifest
from pt2hub.server.services.publishing.version_files import NewFile
from support.packages import WEIGHTS
from support.promoted import ADMIN, MODEL, published
from support.registry import AUTOTUNE, V4

if TYPE_CHECKING:
    from flask.testing import FlaskClient

    from pt2hub.domain.digests import Digest
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


def remove(registry: Registry, data: bytes) -> StorageKey:
    """Lose a blob from the storage."""
    key = StorageKey.blob(digest_bytes(data))
    del registry.services.storage._stored[key.exact]  # type: ignore[attr-defined]  # a MemoryStorage
    return key


@pytest.fixture
def lossy(served: Registry) -> tuple[Registry, Digest, StorageKey]:
    """A registry that lost its database and the code of its artifact, and was reindexed; by the artifact and the code."""
    artifact = published(served)
    key = StorageKey.blob(digest_bytes(b"code 0"))
    served.services.storage.remove([key.at(1)])
    lose_the_database(served)
    report = served.services.reindex.reindex()
    assert report["added"] == 1
    assert "missing from the storage" in report["damaged"][key.digest]
    return served, artifact, key


def test_everything_knows_of_files_that_are_missing_at_a_reindex(
    lossy: tuple[Registry, Digest, StorageKey], web: FlaskClient
) -> None:
    registry, artifact, key = lossy
    answer = web.get(f"/api/v1/blobs/{key.digest}")
    assert (answer.status_code, answer.get_json()["code"]) == (500, "blob_damaged")
    assert f"pt2hub admin heal {key.digest}" in answer.get_json()["hint"]
    view = web.get(f"/api/v1/artifacts/{artifact}").get_json()
    assert [(part["part"], part["problem"]) for part in view["damaged"]] == [("code", "missing")]
    findings = registry.services.storage_check.check().findings
    assert [(item.kind, item.what) for item in findings] == [("damaged", key.digest)]
    (outcome,) = registry.services.heal.heal([], [], by=ADMIN)
    assert (outcome.digest, outcome.state) == (key.digest, "damaged")
    assert outcome.needed_by == (f"{MODEL}@1 for {V4}",)
    assert registry.services.reindex.reindex()["added"] == 0


def test_a_missing_file_is_healed_by_a_writer_and_by_its_return(
    lossy: tuple[Registry, Digest, StorageKey], web: FlaskClient
) -> None:
    registry, _, key = lossy
    registry.services.storage.write(key.at(1), [b"code 0"])  # the operator copies it back
    assert registry.services.reindex.reindex()["damaged"] == {}
    assert web.get(f"/api/v1/blobs/{key.digest}").data == b"code 0"
    registry.services.storage.remove([key.at(1)])
    lose_the_database(registry)
    registry.services.reindex.reindex()
    registry.blob(b"code 0")
    assert registry.services.reindex.reindex()["damaged"] == {}
    assert web.get(f"/api/v1/blobs/{key.digest}").data == b"code 0"
    collect(registry)
    assert registry.services.storage_check.check().findings == ()


def test_a_missing_config_is_healed_before_its_artifact_comes_back(registry: Registry) -> None:
    artifact = published(registry)
    storage = registry.services.storage
    manifest = read_manifest(storage, artifact)
    config = b"".join(storage.read(StorageKey.blob(manifest.config.digest)))
    remove(registry, config)
    lose_the_database(registry)
    report = registry.services.reindex.reindex()
    assert (report["added"], set(report["unreadable"])) == (0, {artifact})
    assert manifest.config.digest in report["damaged"]
    (outcome,) = registry.services.heal.heal([], [], by=ADMIN)
    assert outcome.digest == manifest.config.digest
    registry.blob(config)
    report = registry.services.reindex.reindex()
    assert (report["added"], report["unreadable"], report["damaged"]) == (1, {}, {})


def test_files_of_attempts_that_were_overtaken_are_not_missed(registry: Registry) -> None:
    (build,) = registry.submit().builds
    first = registry.claim(build.id)
    registry.publication(first, code=b"overtaken")
    registry.services.builds.hand_back(first)
    second = registry.claim(build.id)
    registry.services.builds.publish(second, registry.publication(second))
    remove(registry, b"overtaken")
    lose_the_database(registry)
    assert registry.services.reindex.reindex()["damaged"] == {}


def test_documentation_comes_back_although_a_file_of_it_is_missing(registry: Registry) -> None:
    published(registry)
    for name, data in (("LICENSE", b"MIT"), ("README.md", b"# A net")):
        digest = registry.blob(data).digest
        registry.services.version_files.put(MODEL, 1, NewFile(name, digest), by=ADMIN)
    key = remove(registry, b"MIT")
    lose_the_database(registry)
    report = registry.services.reindex.reindex()
    assert (report["unreadable"], set(report["damaged"])) == ({}, {key.digest})
    files = registry.services.version_files.files(MODEL, 1).files
    assert [item.name for item in files] == ["LICENSE", "README.md"]
    assert registry.sql("SELECT count(*) FROM blob_references WHERE digest = %s", key.digest) == [(1,)]


def test_weights_that_a_version_lacks_are_damaged(registry: Registry) -> None:
    weights = registry.blob(WEIGHTS).digest
    registry.published(registry.submit(weights=weights), weights_data=WEIGHTS)
    remove(registry, WEIGHTS)
    lose_the_database(registry)
    assert set(registry.services.reindex.reindex()["damaged"]) == {weights}
    owners = registry.sql("SELECT split_part(owner, ':', 1) FROM blob_references WHERE digest = %s", weights)
    assert sorted(name for (name,) in owners) == ["artifact", "version"]
