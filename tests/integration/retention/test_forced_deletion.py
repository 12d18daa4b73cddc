"""Forced deletion: bytes are not served from one moment on and cannot be stored again."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.digests import Digest, digest_bytes
from pt2hub.domain.reading import EVERYTHING, Readable
from pt2hub.domain.tokens import Actor
from pt2hub.errors import (
    CollectionRefused,
    Deleted,
    DigestRefused,
    Forbidden,
    NotFound,
    StillNeeded,
    StorageUnavailable,
)
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.reading import limit_reading
from pt2hub.server.db.stores.retention.tombstones import TombstoneStore
from pt2hub.server.services.blobs.collection import BlobCollection
from pt2hub.server.services.retention import forced_deletion
from support.planted import Disk
from support.promoted import ADMIN, MODEL, move, published

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from flask.testing import FlaskClient

    from support.registry import Registry

LEAKED = b"weights with a secret in them, longer than an empty document is, by some more bytes"


def leak(registry: Registry, seed: int = 0) -> Digest:
    """A version with weights that must not be served."""
    view = registry.submit(source={"factory": "torchvision.models:resnet18", "seed": 100 + seed})
    return registry.published(view, code=b"code of %d" % seed, weights_data=LEAKED)


def force(registry: Registry, number: int = 1, **options: object) -> object:
    return registry.services.forced_deletion.delete(
        MODEL,
        number,
        by=ADMIN,
        reason="leaked weights",
        **options,  # type: ignore[arg-type]
    )


def test_its_artifact_is_said_to_be_deleted_and_all_of_it_can_be_accepted_again(
    served: Registry, web: FlaskClient
) -> None:
    manifest = leak(served)
    force(served)
    for page in (f"/api/v1/artifacts/{manifest}", f"/artifacts/{manifest}"):
        answer = web.get(page)
        assert (answer.status_code, "leaked weights" in answer.get_data(as_text=True)) == (410, True)
    assert f'href="/models/{MODEL}"' in web.get(f"/artifacts/{manifest}").get_data(as_text=True)
    for typed, page in ((manifest, f"/artifacts/{manifest}"), (f"{MODEL}@1", f"/models/{MODEL}/versions/1")):
        answer = web.get("/search", query_string={"q": typed})
        assert (answer.status_code, answer.headers.get("Location")) == (302, page)
    limit_reading(Readable(("nobody/*",)))
    assert not any(map(served.services.search.is_deleted, (manifest, f"{MODEL}@1")))
    limit_reading(EVERYTHING)
    deletion = served.services.deletion
    accepted = deletion.accept_version(MODEL, 1, reason="a false alarm", by=ADMIN)
    assert {digest_bytes(LEAKED), manifest} <= set(accepted)
    assert served.sql("SELECT count(*) FROM refused_digests") == [(0,)]
    leak(served)
    for number in (1, 9):
        with pytest.raises(NotFound, match="Nothing of vision/resnet18@"):
            deletion.accept_version(MODEL, number, reason="again", by=ADMIN)


def test_its_bytes_are_gone_at_once_and_cannot_be_stored_again(served: Registry, web: FlaskClient) -> None:
    manifest = leak(served)
    digest = digest_bytes(LEAKED)
    assert web.get(f"/api/v1/blobs/{digest}").data == LEAKED
    dry = served.services.forced_deletion.delete(MODEL, 1, by=ADMIN, dry_run=True)
    assert (dry.deleted, dry.forced, digest in dry.refused) == (False, True, True)
    force(served)
    answer = web.get(f"/api/v1/blobs/{digest}")
    assert (answer.status_code, answer.get_json()["code"]) == (410, "deleted")
    assert "leaked weights" in answer.get_json()["detail"]
    storage = served.services.storage
    assert storage.size(StorageKey.blob(digest)) is None
    assert storage.size(StorageKey.manifest(manifest)) is None
    with pytest.raises(DigestRefused, match="leaked weights") as caught:
        served.blob(LEAKED)
    assert f"pt2hub admin accept {digest}" in str(caught.value.hint)
    token = served.services.access.create_token("ci")
    put = web.put(f"/api/v1/blobs/{digest}", data=LEAKED, headers={"Authorization": f"Bearer {token}"})
    assert (put.status_code, put.get_json()["code"]) == (409, "digest_refused")
    storage.write(StorageKey.blob(digest).at(1), [LEAKED])  # a presigned PUT that was under way
    assert web.get(f"/api/v1/blobs/{digest}").status_code == 410
    served.sql("DELETE FROM blob_leases")
    served.services.collector.collect(grace=timedelta())
    assert storage.size(StorageKey.blob(digest)) is None


def test_who_may_not_read_the_model_learns_neither_name_nor_person_nor_reason(registry: Registry) -> None:
    leak(registry)
    force(registry)
    digest = digest_bytes(LEAKED)
    limit_reading(Readable(("text/*",)))
    try:
        with pytest.raises(DigestRefused) as refused:
            registry.blob(LEAKED)
        with pytest.raises(Deleted) as deleted:
            registry.services.damage.find_readable(StorageKey.blob(digest))
    finally:
        limit_reading(EVERYTHING)
    assert refused.value.message == f"{digest} cannot be stored: a version was deleted by force"
    assert refused.value.context == {"digest": digest}
    assert (deleted.value.message, deleted.value.context) == (f"Blob {digest} was deleted", {"forced": True})
    with pytest.raises(DigestRefused, match=f"{MODEL}@1 was deleted by .*: leaked weights"):
        registry.blob(LEAKED)


def test_an_operator_lets_the_bytes_be_stored_again(registry: Registry) -> None:
    leak(registry)
    force(registry)
    digest = digest_bytes(LEAKED)
    registry.services.deletion.accept(digest, reason="it was a false alarm", by=ADMIN)
    registry.blob(LEAKED)
    registry.services.damage.find_readable(StorageKey.blob(digest))
    with pytest.raises(NotFound, match="is not refused"):
        registry.services.deletion.accept(digest, reason="again", by=ADMIN)


def test_what_other_versions_share_must_be_named(registry: Registry) -> None:
    leak(registry, 0)
    leak(registry, 1)
    with pytest.raises(StillNeeded, match="other versions need 2 of its blobs") as caught:
        force(registry)
    assert caught.value.context["versions"] == [f"{MODEL}@2"]
    assert "also_sharing" in str(caught.value.hint)
    digest = digest_bytes(LEAKED)
    named = {detail.path: detail.message for detail in caught.value.details}
    assert named[f"weights of {MODEL}@1 ({digest[:19]}, {len(LEAKED)} B)"] == f"also needed by {MODEL}@2"
    assert registry.services.resolve.resolve(f"{MODEL}@1").number == 1
    view = force(registry, also=[f"{MODEL}@2"])
    assert view.deleted  # type: ignore[attr-defined]
    for number in (1, 2):
        with pytest.raises(Deleted, match="leaked weights"):
            registry.services.resolve.resolve(f"{MODEL}@{number}")
    with pytest.raises(Deleted):
        registry.services.damage.find_readable(StorageKey.blob(digest))


def test_all_versions_that_share_bytes_are_found_also_over_others(registry: Registry) -> None:
    for seed in range(12):
        leak(registry, seed)
    for seed in (50, 60):
        view = registry.submit(source={"factory": "torchvision.models:resnet18", "seed": seed})
        claim = registry.claim(view.builds[0].id)
        own = b"weights of %d, longer than an empty document is, by some more bytes" % seed
        publication = registry.publication(claim, code=b"code of %d" % seed, weights_data=own)
        registry.services.builds.publish(claim, replace(publication, referrers=()))
    for number in (5, 13):
        registry.attach(
            "README.md", b"the card of one that leaks, and of one that does not" * 3, number=number
        )
    with pytest.raises(StillNeeded) as caught:
        force(registry)
    assert caught.value.context["versions"] == [f"{MODEL}@{number}" for number in range(2, 13)]
    found = registry.services.forced_deletion.find_sharing(MODEL, 1)
    assert found == [f"{MODEL}@{number}" for number in range(2, 14)], "the 13th shares the card of the 5th"
    assert force(registry, also=found).deleted  # type: ignore[attr-defined]
    assert registry.services.resolve.resolve(f"{MODEL}@14").number == 14


def test_a_dry_run_says_that_shared_code_stays(registry: Registry) -> None:
    code = b"code that both versions have, longer than an empty document" * 4
    for seed, weights in ((100, LEAKED), (200, b"weights of another version")):
        view = registry.submit(source={"factory": "torchvision.models:resnet18", "seed": seed})
        registry.published(view, code=code, weights_data=weights)
    notes = registry.services.forced_deletion.delete(MODEL, 1, by=ADMIN, dry_run=True).notes
    (of_code,) = [note for note in notes if note.startswith(f"code of {MODEL}@1 (sha256:")]
    assert of_code.endswith(f", also needed by {MODEL}@2: stays and is served")


def test_what_is_shared_can_stay_and_breaks_nothing(registry: Registry) -> None:
    leak(registry, 0)
    leak(registry, 1)
    force(registry, keep_shared=True)
    registry.sql("DELETE FROM blob_leases")
    registry.services.collector.collect(grace=timedelta())
    storage = registry.services.storage
    for kind, digest in registry.sql("SELECT kind, digest FROM blob_references"):
        assert storage.size(StorageKey(kind, digest)) is not None
    assert registry.services.resolve.resolve(MODEL).number == 2


def test_aliases_on_it_are_removed_with_the_reason_in_their_history(registry: Registry) -> None:
    leak(registry)
    move(registry, 1, None)
    dry = registry.services.forced_deletion.delete(MODEL, 1, by=ADMIN, dry_run=True)
    assert f"the alias prod of {MODEL} is removed" in dry.notes
    force(registry)
    last = registry.services.aliases.alias(MODEL, "prod").last
    assert (last.before, last.after, last.reason) == (1, None, "leaked weights")
    entries = registry.sql("SELECT change FROM audit_log WHERE action = 'version.delete'")
    assert [(entry["forced"], entry["aliases"]) for (entry,) in entries] == [(True, [f"{MODEL}@prod"])]


def test_code_without_weights_may_be_built_again(registry: Registry) -> None:
    view = registry.submit(source={"factory": "torchvision.models:resnet18", "seed": 1})
    code = b"compiled code that is the same for all weights of this model, and longer than 64 bytes"
    registry.published(view, code=code, weights_data=LEAKED)
    force(registry)
    registry.blob(code)


def test_it_needs_an_admin_of_each_model_and_ended_builds(registry: Registry) -> None:
    build = registry.submit().builds[0].id
    with pytest.raises(StillNeeded, match=f"pt2hub cancel {build}"):
        force(registry)
    eve = Actor("eve", admin=True, patterns=("vision/*",))
    with pytest.raises(Forbidden):
        registry.services.forced_deletion.delete(MODEL, 1, by=eve, reason="x", also=["text/bert@1"])


def test_a_rebuild_keeps_refusing_and_removes_what_is_left(registry: Registry) -> None:
    leak(registry)
    published(registry)
    force(registry, keep_shared=True)
    digest = digest_bytes(LEAKED)
    registry.sql(
        "TRUNCATE models, targets, environments, workers, blobs, blob_leases, blob_references, tombstones CASCADE"
    )
    registry.services.storage.write(StorageKey.blob(digest), [LEAKED])  # it had not been removed
    registry.services.reindex.reindex()
    with pytest.raises(Deleted, match="leaked weights"):
        registry.services.damage.find_readable(StorageKey.blob(digest))
    registry.services.collector.collect(grace=timedelta(days=1))
    assert registry.services.storage.size(StorageKey.blob(digest)) is None
    with pytest.raises(DigestRefused):
        registry.blob(LEAKED)


def test_what_an_operator_accepted_is_not_refused_after_a_rebuild(registry: Registry) -> None:
    leak(registry)
    force(registry)
    for (digest,) in registry.sql("SELECT digest FROM refused_digests"):
        registry.services.deletion.accept(Digest(digest), reason="a false alarm", by=ADMIN)
    leak(registry, 1)
    leak(registry, 2)
    tables = "models, targets, environments, workers, blobs, blob_leases, blob_references"
    registry.sql(f"TRUNCATE {tables}, tombstones CASCADE")
    registry.services.reindex.reindex()
    weights = StorageKey.blob(digest_bytes(LEAKED))
    registry.services.damage.find_readable(weights)
    assert registry.services.resolve.resolve(f"{MODEL}@2").number == 2
    force(registry, 2, also=[f"{MODEL}@3"])  # later than it was accepted
    registry.sql(f"TRUNCATE {tables}, tombstones CASCADE")
    registry.services.reindex.reindex()
    with pytest.raises(Deleted, match="leaked weights"):
        registry.services.damage.find_readable(weights)
    with pytest.raises(DigestRefused):
        registry.blob(LEAKED)


def test_an_earlier_generation_that_is_not_collected_yet_goes_too(registry: Registry) -> None:
    registry.blob(LEAKED)  # nothing refers to it, and a collection begins
    registry.sql("DELETE FROM blob_leases")
    services = registry.services
    steps = BlobCollection(services.collector._sessions, services.storage, grace=timedelta())
    assert list(steps.mark())
    leak(registry)
    key, storage = StorageKey.blob(digest_bytes(LEAKED)), services.storage
    assert [storage.size(key.at(generation)) for generation in (1, 2)] == [len(LEAKED)] * 2
    force(registry)
    assert [storage.size(key.at(generation)) for generation in (1, 2)] == [None, None]


@pytest.mark.parametrize("answers", [True, False])
def test_damaged_bytes_that_were_put_away_go_too(
    served: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    leak(served)
    key, disk = StorageKey.blob(digest_bytes(LEAKED)), Disk(root=tmp_path / "blobs")
    for generation in (1, 2):
        disk.plant(key.at(generation))
        assert served.services.damage.check_key(key, by="scrub")
        assert disk.read(key.at(generation).quarantine_path)
        served.blob(LEAKED)
    if not answers:
        monkeypatch.setattr(type(served.services.storage), "remove", _unavailable)
    force(served)
    if not answers:
        assert disk.read(key.quarantine_path)
        monkeypatch.undo()
        served.services.collector.collect(grace=timedelta(days=1))
    assert [disk.read(key.at(number).quarantine_path) for number in (1, 2)] == [None, None]
    assert served.services.storage.size(key) is None


def _unavailable(*_: object) -> None:
    raise StorageUnavailable


def test_documentation_that_it_had_before_goes_too(registry: Registry) -> None:
    leak(registry)
    published(registry)
    card, shared = b"# a card with a secret in it" * 4, b"a license that another version has" * 4
    registry.attach("README.md", card)
    registry.attach("LICENSE", shared)
    registry.attach("LICENSE", shared, number=2)
    for name in ("README.md", "LICENSE"):
        registry.services.version_files.remove(MODEL, 1, name, by=ADMIN)
    force(registry, keep_shared=True)
    with pytest.raises(Deleted):
        registry.services.damage.find_readable(StorageKey.blob(digest_bytes(card)))
    assert registry.services.storage.size(StorageKey.blob(digest_bytes(card))) is None
    registry.services.damage.find_readable(StorageKey.blob(digest_bytes(shared)))
    left = [
        b"".join(registry.services.storage.read(key)) for key in registry.services.storage.keys("manifests")
    ]
    assert not [data for data in left if digest_bytes(card).encode() in data]


def test_a_version_whose_documentation_shares_the_bytes_is_named(registry: Registry) -> None:
    leak(registry)
    published(registry)
    registry.attach("README.md", LEAKED, number=2)
    with pytest.raises(StillNeeded) as caught:
        force(registry)
    assert caught.value.context["versions"] == [f"{MODEL}@2"]


def test_what_was_missing_when_it_was_refused_does_not_come_back(served: Registry, tmp_path: Path) -> None:
    leak(served)
    key, disk = StorageKey.blob(digest_bytes(LEAKED)), Disk(root=tmp_path / "blobs")
    disk.plant(key, "lose")
    assert served.services.damage.check_key(key, by="scrub")
    refuse(served)
    (tmp_path / "blobs" / key.path).write_bytes(LEAKED)
    assert served.services.damage.recheck() == 0
    with pytest.raises(Deleted):
        served.services.damage.find_readable(key)


def refuse(registry: Registry) -> None:
    """Restores the tombstone of a forced deletion that a later database has."""
    view = registry.submit(source={"factory": "torchvision.models:resnet18", "seed": 7})
    registry.published(view, code=b"code of 7", key="key 7")
    force(registry, view.number, keep_shared=True)
    with registry.services._sessions.begin() as session:
        found = TombstoneStore(session).version(MODEL, view.number)
        assert found
        refused = (("blobs", digest_bytes(LEAKED)),)
        TombstoneStore(session).restore(replace(found, refused=refused), "sha256:" + "0" * 64, {})


def test_healing_tells_what_is_refused_and_goes_on(served: Registry, tmp_path: Path) -> None:
    leak(served)
    disk, other = Disk(root=tmp_path / "blobs"), b"other bytes that are damaged"
    damaged = {digest_bytes(data): data for data in (LEAKED, other)}
    served.blob(other)
    for digest in damaged:
        disk.plant(StorageKey.blob(digest))
        assert served.services.damage.check_key(StorageKey.blob(digest), by="scrub")
    refuse(served)
    served.sql("UPDATE blobs SET state = 'damaged' WHERE digest = %s", digest_bytes(LEAKED))
    outcomes = {each.digest: each for each in served.services.heal.heal([], [_Source(damaged)])}
    assert {each.state for each in outcomes.values()} == {"healed", "damaged"}
    assert outcomes[digest_bytes(other)].state == "healed"
    assert "pt2hub admin accept" in outcomes[digest_bytes(LEAKED)].advice


def test_a_publish_that_begins_to_need_the_bytes_meanwhile_keeps_them(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    leak(registry)
    digest = digest_bytes(LEAKED)
    plan = forced_deletion._refused

    def plan_before_a_publish(*given: Any) -> tuple[tuple[str, str], ...]:
        found = plan(*given)
        registry.sql(
            "INSERT INTO blob_references (kind, digest, owner) VALUES ('blobs', %s, 'version:99')", digest
        )
        return found

    with monkeypatch.context() as patch:
        patch.setattr(forced_deletion, "_refused", plan_before_a_publish)
        with pytest.raises(StillNeeded, match="another version begins to need"):
            force(registry)
    assert registry.sql("SELECT state FROM blobs WHERE digest = %s", digest) == [("stored",)]
    assert registry.sql("SELECT count(*) FROM versions") == [(1,)]
    registry.sql("DELETE FROM blob_references WHERE owner = 'version:99'")
    force(registry)
    assert registry.services.storage.size(StorageKey.blob(digest)) is None


def test_maintenance_removes_what_a_process_that_died_left_whatever_the_collector_does(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    leak(registry)
    key = StorageKey.blob(digest_bytes(LEAKED))
    with monkeypatch.context() as patch:
        patch.setattr(registry.services.forced_deletion, "_remove", _die)
        with pytest.raises(KeyboardInterrupt):
            force(registry)
    assert registry.services.storage.size(key)
    registry.sql("INSERT INTO server_settings (name, value) VALUES ('reindex_unfinished', '1')")
    with pytest.raises(CollectionRefused):
        registry.services.collector.collect()
    registry.services.maintenance.tidy()
    assert registry.services.storage.size(key) is None
    assert registry.sql("SELECT state FROM blobs WHERE digest = %s", key.digest) == [("deleted",)]


def test_an_upload_that_was_under_way_does_not_bring_the_bytes_back_for_presigned_addresses(
    registry: Registry,
) -> None:
    leak(registry)
    force(registry)
    key, storage = StorageKey.blob(digest_bytes(LEAKED)), registry.services.storage
    storage.write(key, [LEAKED])
    registry.services.maintenance.tidy()
    assert storage.size(key) is None


def _die(_: object) -> None:
    raise KeyboardInterrupt


class _Source:
    """Has the right bytes."""

    name = "elsewhere"

    def __init__(self, damaged: dict[Digest, bytes]) -> None:
        self._damaged = damaged

    def fetch(self, digest: Digest, folder: Path, models: Sequence[str]) -> Path | None:  # noqa: ARG002  # of the protocol
        path = folder / "bytes"
        path.write_bytes(self._damaged[digest])
        return path
