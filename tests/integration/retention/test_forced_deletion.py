"""Forced deletion: bytes are not served from one moment on and cannot be stored again."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.digests import Digest, digest_bytes
from pt2hub.domain.reading import EVERYTHING, Readable
from pt2hub.domain.tokens import Actor
from pt2hub.errors import Deleted, DigestRefused, Forbidden, NotFound, StillNeeded
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.reading import limit_reading
from support.promoted import ADMIN, MODEL, move, published

if TYPE_CHECKING:
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
            registry.services.blobs.check_readable(StorageKey.blob(digest))
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
    registry.services.blobs.check_readable(StorageKey.blob(digest))
    with pytest.raises(NotFound, match="is not refused"):
        registry.services.deletion.accept(digest, reason="again", by=ADMIN)


def test_what_other_versions_share_must_be_named(registry: Registry) -> None:
    leak(registry, 0)
    leak(registry, 1)
    with pytest.raises(StillNeeded, match="other versions need 2 of its blobs") as caught:
        force(registry)
    assert f"--also {MODEL}@2" in str(caught.value.hint)
    assert any(detail.message.startswith("weights sha256:") for detail in caught.value.details)
    assert registry.services.resolve.resolve(f"{MODEL}@1").number == 1
    digest = digest_bytes(LEAKED)
    view = force(registry, also=[f"{MODEL}@2"])
    assert view.deleted  # type: ignore[attr-defined]
    for number in (1, 2):
        with pytest.raises(Deleted, match="leaked weights"):
            registry.services.resolve.resolve(f"{MODEL}@{number}")
    with pytest.raises(Deleted):
        registry.services.blobs.check_readable(StorageKey.blob(digest))


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
        registry.services.blobs.check_readable(StorageKey.blob(digest))
    registry.services.collector.collect(grace=timedelta(days=1))
    assert registry.services.storage.size(StorageKey.blob(digest)) is None
    with pytest.raises(DigestRefused):
        registry.blob(LEAKED)
