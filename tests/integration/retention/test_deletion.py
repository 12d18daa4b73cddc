"""Deletion: what nothing needs goes, what is needed stays and says why, and numbers are not used again."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.digests import digest_bytes
from pt2hub.domain.reading import EVERYTHING, Readable
from pt2hub.domain.tokens import Actor, Scope
from pt2hub.errors import Conflict, Deleted, Forbidden, InvalidInput, NotFound, StillNeeded
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.reading import limit_reading
from pt2hub.server.services.operations.journal_files import JournalFiles
from support.promoted import ADMIN, MODEL, move, published
from support.registry import V3, V4

if TYPE_CHECKING:
    from collections.abc import Callable

    from flask.testing import FlaskClient

    from support.registry import Registry

NOW = timedelta()


def collect(registry: Registry) -> int:
    """Ends all leases, and collects."""
    registry.sql("DELETE FROM blob_leases")
    return registry.services.collector.collect(grace=NOW).removed


def delete(registry: Registry, number: int = 1, reason: str = "old") -> None:
    registry.services.deletion.version(MODEL, number, by=ADMIN, reason=reason)


def kept(registry: Registry, number: int = 1) -> list[str]:
    """Why a version is kept, by a dry run; the deletion refuses for the same reasons."""
    view = registry.services.deletion.version(MODEL, number, by=ADMIN, dry_run=True)
    reasons = [reason for item in view.kept for reason in item.reasons]
    if reasons:
        with pytest.raises(StillNeeded) as caught:
            delete(registry, number)
        assert [detail.message for detail in caught.value.details] == [
            f"kept because {each}" for each in reasons
        ]
    return reasons


def test_a_dry_run_says_what_goes_and_changes_nothing(registry: Registry) -> None:
    published(registry)
    before = registry.sql("SELECT count(*) FROM artifacts")
    view = registry.services.deletion.version(MODEL, 1, by=ADMIN, dry_run=True)
    assert view.goes[0] == f"{MODEL}@1: 1 artifact ({V4}), 1 build"
    assert (view.deleted, view.kept) == (False, ())
    size = registry.sql(
        "SELECT sum(size)::bigint FROM blobs JOIN (SELECT DISTINCT kind, digest FROM blob_references) AS held USING (kind, digest)"
    )[0][0]
    assert view.freed_bytes == size
    assert registry.sql("SELECT count(*) FROM artifacts") == before


def test_a_deleted_version_is_gone_with_its_rows_and_blobs_and_answers_who_and_why(
    registry: Registry,
) -> None:
    digest = published(registry)
    delete(registry, reason="trained on the wrong data")
    for reference in (f"{MODEL}@1", f"{MODEL}@{digest}"):
        with pytest.raises(Deleted, match=r"was deleted by root at .*: trained on the wrong data"):
            registry.services.resolve.resolve(reference)
    with pytest.raises(Deleted):
        delete(registry)
    for table in ("versions", "builds", "artifacts", "measurements", "series_points", "blob_references"):
        assert registry.sql(f"SELECT count(*) FROM {table}") == [(0,)], table
    assert collect(registry) > 5
    assert list(registry.services.storage.keys("blobs")) == []
    assert list(registry.services.storage.keys("manifests")) == []


def test_a_number_is_not_used_again_even_by_a_model_of_the_same_name(registry: Registry) -> None:
    published(registry)
    delete(registry)
    assert registry.submit().number == 2
    build = registry.sql("SELECT id FROM builds")[0][0]
    registry.services.builds.cancel(build, ADMIN)
    registry.services.deletion.model(MODEL, by=ADMIN, reason="unused")
    with pytest.raises(Deleted, match=f"Model {MODEL} was deleted by root"):
        registry.services.catalog.model(MODEL)
    assert registry.submit().number == 3
    assert registry.services.catalog.model(MODEL).versions == 1


def test_blobs_that_another_version_needs_stay(registry: Registry) -> None:
    published(registry)
    second = published(registry)  # the same weights and golden values
    registry.sql("DELETE FROM blob_leases")
    view = registry.services.deletion.version(MODEL, 1, by=ADMIN, dry_run=True)
    shared = {item.what: item for item in view.shared}
    assert view.freed_bytes > 0
    assert all(item.needed_by == (f"{MODEL}@2",) for item in shared.values())
    delete(registry)
    collect(registry)
    for key in (StorageKey.manifest(second), StorageKey.blob(digest_bytes(b"weights"))):
        assert registry.services.storage.size(key)
    assert registry.services.resolve.resolve(MODEL).number == 2


def test_what_aliases_pin_or_roll_back_to_is_kept(registry: Registry) -> None:
    for _ in range(3):
        published(registry)
    move(registry, 1, None)
    move(registry, 2, 1)
    assert kept(registry, 1) == [f"prod of {MODEL} would roll back to it"]
    assert kept(registry, 2) == [f"prod of {MODEL} pins it"]
    move(registry, 3, 2)
    delete(registry, 1)
    history = registry.services.aliases.alias(MODEL, "prod").history
    assert [(item.before, item.after) for item in history] == [(2, 3), (1, 2), (None, 1)]


def test_after_a_rollback_the_version_before_is_kept_and_the_one_that_was_left_is_not(
    registry: Registry,
) -> None:
    for number in (1, 2, 3):
        published(registry)
        move(registry, number, number - 1 or None)
    move(registry, 2, 3)
    for number in range(4):  # aliases that move often hide no other one's moves
        move(registry, 2 + number % 2, 3 - number % 2 if number else None, alias="canary")
    registry.sql("""
        INSERT INTO alias_moves (alias_id, sequence, before, after, at, reason, "by")
        SELECT id, number, 2, 3, now(), '', '{}' FROM aliases, generate_series(5, 1200) AS number WHERE name = 'canary'""")
    assert kept(registry, 1) == [f"prod of {MODEL} would roll back to it"]
    registry.sql("DELETE FROM alias_moves USING aliases WHERE alias_id = aliases.id AND name = 'canary'")
    registry.sql("DELETE FROM aliases WHERE name = 'canary'")
    delete(registry, 3)


def test_unfinished_builds_and_measuring_jobs_keep_a_version(registry: Registry) -> None:
    build = registry.submit().builds[0].id
    assert kept(registry) == [f"its build {build} for {V4} is queued: pt2hub cancel {build}"]
    registry.services.builds.cancel(build, ADMIN)
    delete(registry)


def test_a_build_is_deleted_and_its_version_stays(registry: Registry) -> None:
    view = registry.submit(targets=[V4, V3])
    registry.published(view)
    (artifact,) = registry.sql("SELECT digest FROM artifacts")[0]
    first, second = (build.id for build in view.builds)
    deletion = registry.services.deletion
    with pytest.raises(StillNeeded, match="is queued"):
        deletion.build(second, by=ADMIN, reason="x")
    registry.services.builds.cancel(second, ADMIN)
    deletion.build(second, by=ADMIN, reason="no such machines any more")
    with pytest.raises(Deleted, match="no such machines any more"):
        registry.services.builds.view(second)
    with pytest.raises(Conflict, match="only build") as caught:
        deletion.build(first, by=ADMIN, reason="x")
    assert f"pt2hub delete {MODEL}@1" in str(caught.value.hint)
    assert registry.services.resolve.resolve(f"{MODEL}@1").artifacts[0].digest == artifact
    move(registry, 1, None)
    registry.services.publish.add_target(MODEL, 1, V3, by=ADMIN)
    with pytest.raises(StillNeeded, match=r"prod of .* pins it"):
        deletion.build(first, by=ADMIN, reason="x")


def test_a_blob_is_deleted_unless_something_needs_or_holds_it(registry: Registry) -> None:
    published(registry)
    weights = digest_bytes(b"weights")
    deletion = registry.services.deletion
    registry.sql("DELETE FROM blob_leases")
    with pytest.raises(StillNeeded, match=f"{MODEL}@1 needs it"):
        deletion.blob(weights, by=ADMIN)
    own = registry.blob(b"uploaded").digest
    with pytest.raises(StillNeeded, match="about to refer to it"):
        deletion.blob(own, by=ADMIN)
    registry.sql("DELETE FROM blob_leases")
    assert deletion.blob(own, by=ADMIN, dry_run=True).freed_bytes == 8
    assert deletion.blob(own, by=ADMIN).deleted
    with pytest.raises(NotFound):
        deletion.blob(own, by=ADMIN)
    with pytest.raises(NotFound):
        registry.services.damage.find_readable(StorageKey.blob(own))
    assert registry.services.collector.collect(grace=timedelta(days=1)).removed == 1


def test_a_blob_of_models_that_may_not_be_read_does_not_exist(registry: Registry) -> None:
    published(registry)
    deletion, weights = registry.services.deletion, digest_bytes(b"weights")
    own = registry.blob(b"uploaded").digest
    registry.sql("DELETE FROM blob_leases")
    limit_reading(Readable(("nlp/*",)))
    try:
        for dry_run in (True, False):
            with pytest.raises(NotFound, match=f"Blob {weights} not found"):
                deletion.blob(weights, by=ADMIN, dry_run=dry_run)
        assert deletion.blob(own, by=ADMIN, dry_run=True).freed_bytes == 8, "it belongs to nobody"
        limit_reading(Readable(("vision/*",)))
        assert deletion.blob(weights, by=ADMIN, dry_run=True).kept
    finally:
        limit_reading(EVERYTHING)


def test_only_admins_of_the_model_delete_and_give_a_reason(registry: Registry) -> None:
    published(registry)
    other = Actor("eve", scopes=frozenset(set(Scope) - {Scope.ADMIN}))
    elsewhere = Actor("mallory", admin=True, patterns=("text/*",))
    for by in (other, elsewhere):
        with pytest.raises(Forbidden):
            registry.services.deletion.version(MODEL, 1, by=by, reason="x")
        with pytest.raises(Forbidden):
            registry.services.deletion.model(MODEL, by=by, reason="x")
    with pytest.raises(InvalidInput, match="reason is missing"):
        delete(registry, reason=" ")


def race(registry: Registry, number: int) -> list[str]:
    """Moves an alias to a version and deletes it at once; returns what succeeded."""
    outcome: list[str] = []
    barrier = threading.Barrier(2)

    def attempt(name: str, call: Callable[[], object]) -> None:
        barrier.wait()
        with suppress(Conflict, NotFound):
            call()
            outcome.append(name)

    calls = {
        "move": lambda: move(registry, number, None, f"a{number}"),
        "delete": lambda: delete(registry, number),
    }
    threads = [threading.Thread(target=attempt, args=each) for each in calls.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcome


def test_an_alias_move_and_a_deletion_at_once_leave_no_alias_on_nothing(registry: Registry) -> None:
    for number in range(1, 7):
        published(registry)
        assert len(race(registry, number)) == 1
    dangling = """SELECT count(*) FROM aliases LEFT JOIN versions ON versions.id = version_id
        WHERE versions.id IS NULL AND version_id IS NOT NULL"""
    assert registry.sql(dangling) == [(0,)]


@pytest.mark.parametrize("collected", [False, True])
def test_what_was_deleted_does_not_come_back_by_a_rebuild(registry: Registry, collected: bool) -> None:
    published(registry)
    published(registry)
    delete(registry, 1, "personal data")
    if collected:
        collect(registry)
    assert registry.services.reindex.reindex()["added"] == 0
    registry.sql(
        "TRUNCATE models, targets, environments, workers, blobs, blob_leases, blob_references, tombstones CASCADE"
    )
    assert registry.services.reindex.reindex()["added"] == 1
    with pytest.raises(Deleted, match="personal data"):
        registry.services.resolve.resolve(f"{MODEL}@1")
    assert registry.services.resolve.resolve(MODEL).number == 2
    assert registry.submit(source={"factory": "torchvision.models:resnet18", "seed": 9}).number == 3


def test_what_the_journal_keeps_goes_with_its_version_and_its_model(registry: Registry) -> None:
    published(registry)
    services = registry.services
    services.labels.change(MODEL, None, put={"owner": "PRIVATE"}, remove=(), expected={}, by=ADMIN)
    services.labels.change(MODEL, 1, put={"patient": "PRIVATE"}, remove=(), expected={}, by=ADMIN)
    services.lineage.change(MODEL, 1, add=["other:hf:team/PRIVATE@v1"], remove=(), by=ADMIN)
    services.retention.put(MODEL, last=5, by=ADMIN)
    services.journal.write()
    assert "PRIVATE" in journal(registry)
    delete(registry)
    services.journal.write()
    assert journal(registry).count("PRIVATE") == 1  # the model's label
    services.deletion.model(MODEL, by=ADMIN, reason="old")
    services.journal.write()
    assert "PRIVATE" not in journal(registry)
    assert registry.sql("SELECT scope FROM retention_policies") == []
    registry.sql("TRUNCATE models, targets, environments, workers, tombstones CASCADE")
    services.reindex.reindex()
    assert registry.sql("SELECT name FROM models") == registry.sql("SELECT key FROM labels") == []


def journal(registry: Registry) -> str:
    """What the journal says now, without the audit log."""
    storage = registry.services.storage
    JournalFiles(storage).merge(max_files=1)
    files = [storage.read_object(path).decode() for path, _ in storage.list_objects("journal/")]
    return "\n".join(line for file in files for line in file.splitlines() if '"audit_entry"' not in line)


def test_the_api_answers_410_for_a_number_that_was_used(registry: Registry, web: FlaskClient) -> None:
    published(registry)
    token = registry.services.access.create_token("ada", admin=True)
    address, headers = f"/api/v1/models/{MODEL}/versions/1", {"Authorization": f"Bearer {token}"}
    preview = web.delete(f"{address}?dry_run=true", headers=headers)
    assert (preview.status_code, preview.get_json()["deleted"]) == (200, False)
    assert web.delete(address, headers=headers).status_code == 422
    assert web.delete(f"{address}?reason=old", headers=headers).get_json()["deleted"] is True
    for gone in (address, f"/api/v1/resolve?reference={MODEL}@1"):
        answer = web.get(gone)
        assert (answer.status_code, answer.get_json()["code"]) == (410, "deleted")
        assert answer.get_json()["context"]["by"] == "ada"


@pytest.mark.parametrize("lost", [False, True])
def test_a_build_of_a_deleted_version_says_who_deleted_that_and_why(
    registry: Registry, web: FlaskClient, *, lost: bool
) -> None:
    build = registry.submit().builds[0].id
    registry.services.builds.cancel(build, ADMIN)
    delete(registry, 1, reason="trained on the wrong data")
    if lost:
        lose_the_database(registry)
        registry.services.reindex.reindex()
    said = f"{build} of {MODEL}@1 was deleted by root at "
    for page in ("", "/lines", "/steps"):
        answer = web.get(f"/builds/{build}{page}")
        assert (answer.status_code, said in answer.get_data(as_text=True)) == (410, True), page
    assert f'href="/models/{MODEL}"' in web.get(f"/builds/{build}").get_data(as_text=True)
    for path in ("", "/log", "/logs", "/events"):
        answer = web.get(f"/api/v1/builds/{build}{path}")
        assert (answer.status_code, answer.get_json()["code"]) == (410, "deleted"), path
        assert "trained on the wrong data" in answer.get_json()["detail"]
    assert web.get("/search", query_string={"q": build}).headers["Location"] == f"/builds/{build}"
    assert web.get("/builds/ffffffffffffffff").status_code == 404


def test_the_log_of_a_deleted_build_says_so(registry: Registry) -> None:
    build = registry.submit().builds[0].id
    registry.services.builds.cancel(build, ADMIN)
    delete(registry)
    services = registry.services
    for read in (services.logs.lines, lambda each: services.log_windows.first_error(each, 0)):
        with pytest.raises(Deleted, match=f"Build {build} of {MODEL}@1 was deleted by root"):
            read(build)


def lose_the_database(registry: Registry) -> None:
    registry.sql(
        "TRUNCATE models, targets, environments, workers, blobs, blob_leases, blob_references, tombstones CASCADE"
    )


@pytest.mark.parametrize("lost", [False, True])
def test_what_an_overtaken_attempt_uploaded_does_not_bring_its_version_back(
    registry: Registry, *, lost: bool
) -> None:
    claim = registry.claim(registry.submit().builds[0].id)
    registry.publication(claim, code=b"overtaken")  # uploaded and never published: no tombstone names it
    registry.services.builds.publish(claim, registry.publication(claim, code=b"published"))
    delete(registry, 1)
    if lost:
        lose_the_database(registry)
    assert registry.services.reindex.reindex()["added"] == 0
    with pytest.raises(Deleted):
        registry.services.resolve.resolve(f"{MODEL}@1")


def test_a_deleted_build_does_not_come_back_from_the_journal(registry: Registry) -> None:
    view = registry.submit(targets=[V4, V3])
    registry.published(view)
    registry.worker("w3", V3)
    claim = registry.services.builds.claim(view.builds[1].id, "w3")
    assert claim
    registry.services.builds.publish(claim, registry.publication(claim, code=b"other"))
    registry.services.journal.write()
    # The database is lost before the journal knows.
    registry.services.deletion.build(view.builds[1].id, by=ADMIN, reason="bad")
    lose_the_database(registry)
    registry.services.reindex.reindex()
    assert registry.sql("SELECT id FROM builds") == [(view.builds[0].id,)]


def test_documentation_of_a_deleted_version_is_not_that_of_its_content_published_again(
    registry: Registry,
) -> None:
    registry.published()
    registry.attach("README.md", b"# Secret")
    delete(registry, 1)
    registry.published(code=b"again")
    registry.services.reindex.reindex()
    assert registry.services.version_files.files(MODEL, 2).files == ()


def test_what_was_uploaded_lately_counts_as_freed(served: Registry, web: FlaskClient) -> None:
    data = b"weights that a client uploaded a moment ago" * 100
    bearer = {"Authorization": f"Bearer {served.services.access.create_token('ci')}"}
    assert web.put(f"/api/v1/blobs/{digest_bytes(data)}", data=data, headers=bearer).status_code == 201
    view = served.submit(source={"factory": "torchvision.models:resnet18", "seed": 1})
    served.published(view, code=b"code", weights_data=data)
    dry = served.services.deletion.version(MODEL, 1, by=ADMIN, dry_run=True)
    assert dry.freed_bytes > len(data)
    served.sql("DELETE FROM blob_leases")
    assert served.services.deletion.version(MODEL, 1, by=ADMIN, dry_run=True) == dry
