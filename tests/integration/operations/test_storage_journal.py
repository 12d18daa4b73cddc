"""The journal in storage: a lost database comes back from it and the manifests, field by field."""

from __future__ import annotations

import contextlib
import json
import shutil
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from pt2hub.domain.people import Role
from pt2hub.domain.tokens import Actor
from pt2hub.errors import AliasMoved, StorageUnavailable
from pt2hub.server.api.app import create_app
from pt2hub.server.blobs.local import LocalStorage
from pt2hub.server.config import ServerConfig
from pt2hub.server.container import Container
from pt2hub.server.db import engine as engines
from pt2hub.server.db.performance_schema import Base
from pt2hub.server.db.queue import BuildQueue
from pt2hub.server.services.operations.journal_files import JournalFiles
from pt2hub.server.services.publishing.version_files import NewFile
from support.answers import answers, differences
from support.promoted import MODEL, move, protect, published, report_accuracy
from support.registry import SILENCE, V3, V4, Registry
from support.trusted import trust

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.postgres import DatabasePool

ADA = Actor("ada", admin=True)
MAY_DIFFER = {
    "attempts",  # those that published nothing; worker and beginning of the others
    "steps",  # end to end before the artifact's creation
    "worker",
    "wait",  # depends on live workers, which register again
}
"""Fields that a lost database takes along, as docs/architecture/storage.md lists them."""


LOST = {
    *("api_tokens", "web_sessions"),  # secrets
    *(
        "workers",
        "server_settings",
        "uploads",
        "rate_counters",
        "blob_leases",
        "journal_outbox",
    ),  # of running processes
    *("build_attempts", "build_steps", "build_logs", "build_sums"),  # but what made an artifact
    "performance_events",  # computed again
    *("people", "device_requests"),  # who sign in again
    *("version_pulls", "collections", "blob_damage", "scrub_position"),  # noticed again
    *("webhooks", "webhook_secrets", "webhook_events", "webhook_deliveries"),  # secrets, and what they sign
}
FROM_MANIFESTS = {
    *("targets", "artifacts", "referrers", "archive_members", "regions", "autotune_choices"),
    *("tombstones", "refused_digests", "version_documentation"),  # documents of their own
    *("blobs", "blob_references", "series", "series_points", "measurement_pairs"),
}


def test_each_table_is_in_the_journal_or_in_manifests_or_known_to_be_lost(migrated_url: str) -> None:
    """A new table that must outlive the database needs triggers, a document and a restoration."""
    with psycopg.connect(migrated_url) as connection:
        rows = connection.execute(
            "SELECT tgrelid::regclass::text FROM pg_trigger WHERE tgname = 'journal_insert'"
        )
        marked = {row[0] for row in rows}
    assert not marked & (LOST | FROM_MANIFESTS)
    assert set(Base.metadata.tables) == marked | LOST | FROM_MANIFESTS


def populate(registry: Registry) -> None:
    """Publishes, fails, cancels, promotes, yanks, describes, reports and trusts, each by the service that does it."""
    services = registry.services
    for _ in range(3):
        published(registry)
    failing = registry.submit(checks={"tolerance": 0.5}, targets=[V4, V3])  # without an artifact
    services.builds.cancel(failing.builds[0].id, by=ADA)
    registry.submit(model="audio/asr", priority=7)
    services.catalog.describe(MODEL, "A net.\nOf two lines.", by=ADA)
    for number, labels in (
        (1, {"stage": "old"}),
        (1, {"stage": "new", "owner": "ada"}),
        (None, {"stage": "all"}),
    ):
        services.labels.change(MODEL, number, put=labels, remove=(), expected={}, by=ADA)
    services.labels.change(MODEL, 1, put={}, remove=["owner"], expected={}, by=ADA)
    protect(registry)
    report_accuracy(registry, 1, 0.75)
    report_accuracy(registry, 1, 0.5, by="other")
    move(registry, 1, None)
    move(registry, 2, 1)
    move(registry, 3, None, "canary")
    services.aliases.remove(MODEL, "canary", expected=3, reason="done", by=ADA)
    services.yanks.yank(MODEL, 3, reason="wrong labels", by=ADA)
    services.yanks.unyank(MODEL, 3, reason="right after all", by=ADA)
    services.yanks.yank(MODEL, 1, reason="leaks", by=ADA)
    trust(registry)
    services.roles.assign("vision-team", Role.PUBLISHER, "vision/*", by=ADA)
    services.retention.put(MODEL, last=50, by=ADA)
    services.lineage.change(
        MODEL, 2, add=[f"fine-tuned:{MODEL}@1", "other:hf:team/net@v1"], remove=(), by=ADA
    )
    evaluation = {
        "version": f"{MODEL}@2",
        "metric": "accuracy",
        "value": 0.75,
        "unit": "1",
        "count": 100,
        "data_set": f"imagenet@sha256:{'ab' * 32}",
        "key": "first",
    }
    services.evaluations.report({"evaluations": [evaluation]}, by=ADA)


def test_labels_have_the_values_that_they_were_given_last_also_after_a_restored_backup(
    registry: Registry,
) -> None:
    services = registry.services
    published(registry)

    def label(**put: str) -> None:
        services.labels.change(MODEL, 1, put=put, remove=(), expected={}, by=ADA)

    label(stage="candidate", owner="ada")
    backup = registry.sql("SELECT key, value, by, at FROM labels")
    label(stage="approved")
    services.journal.write()
    registry.sql("ALTER TABLE labels DISABLE TRIGGER USER")  # as a restore does
    for key, value, by, at in backup:
        registry.sql(
            "UPDATE labels SET value = %s, by = %s, at = %s WHERE key = %s", value, Jsonb(by), at, key
        )
    registry.sql("ALTER TABLE labels ENABLE TRIGGER USER")
    assert services.reindex.reindex()["journal"] == 1
    assert registry.sql("SELECT key, value FROM labels ORDER BY key") == [
        ("owner", "ada"),
        ("stage", "approved"),
    ]
    label(stage="retired")  # the journal does not have this yet
    assert services.reindex.reindex()["journal"] == 0
    assert registry.sql("SELECT value FROM labels WHERE key = 'stage'") == [("retired",)]


def test_a_version_is_written_again_when_it_changes_and_not_when_its_labels_do(registry: Registry) -> None:
    services = registry.services
    published(registry)
    services.journal.write()

    def kinds() -> set[str]:
        found = {kind for (kind,) in registry.sql("SELECT kind FROM journal_outbox")}
        services.journal.write()
        return found

    for put, remove in (({"stage": "new"}, ()), ({"stage": "old"}, ()), ({}, ["stage"])):
        services.labels.change(MODEL, 1, put=put, remove=remove, expected={}, by=ADA)
        assert kinds() == {"label", "audit_entry"}
    services.yanks.yank(MODEL, 1, reason="leaks", by=ADA)
    assert kinds() == {"version", "audit_entry"}
    registry.sql("UPDATE versions SET settings = '{\"a\": 1}'")
    assert kinds() == {"version"}
    registry.sql("UPDATE versions SET settings = settings")
    assert kinds() == set()


def ask(registry: Registry, tmp_path: Path) -> dict[str, Any]:
    """What the API answers now."""
    token = registry.services.access.create_token("root", admin=True)
    config = ServerConfig(home=tmp_path, storage=str(tmp_path), database_url=registry.database_url)
    web = create_app(registry.services, config).test_client()
    return answers(web, {"Authorization": f"Bearer {token}"})


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "blobs")


@pytest.fixture
def serve(storage: LocalStorage, database_pool: DatabasePool) -> Iterator[Callable[[], Registry]]:
    """Makes registries over an empty database each, and the same storage."""
    with contextlib.ExitStack() as stack:

        def make() -> Registry:
            url, uses = database_pool.take()
            stack.callback(database_pool.give_back, url, uses + 1)
            engine = engines.create(url)
            stack.callback(engine.dispose)
            sessions, queue = engines.Sessions(engine), BuildQueue(url)
            return Registry(Container(sessions, queue, storage, heartbeat_timeout=SILENCE), url)

        yield make


@pytest.fixture
def first(serve: Callable[[], Registry]) -> Registry:
    """A registry with an artifact, versions without one, an alias and a trust rule, whose journal is written."""
    registry = serve()
    published(registry)
    registry.submit(checks={"tolerance": 0.5})
    registry.submit(model="audio/asr", priority=7)
    move(registry, 1, None)
    trust(registry)
    registry.services.journal.write()
    return registry


def test_a_lost_database_comes_back_field_by_field(serve: Callable[[], Registry], tmp_path: Path) -> None:
    first = serve()
    populate(first)
    before = ask(first, tmp_path)
    first.services.journal.write()
    trusted = first.services.trust.rules()
    assert {f"/models/{MODEL}/aliases/prod", f"/models/{MODEL}/versions/4", "/models/audio/asr"} <= set(
        before
    )

    second = serve()
    report = second.services.reindex.reindex(by=ADA)

    assert (report["added"], report["unreadable"]) == (3, {})
    after = ask(second, tmp_path)
    audit = after.pop("/audit?limit=1000")["entries"]
    assert differences(before, after, ignoring=MAY_DIFFER) == {"/audit?limit=1000"}
    known = before["/audit?limit=1000"]["entries"]
    added = {"artifact.restore", "journal.apply", "token.create"}
    old = [entry for entry in audit if entry["action"] not in added]
    for entry in (*old, *known):
        entry.pop("id", None)
    assert old == [entry for entry in known if entry["action"] not in added]
    assert [rule.name for rule in second.services.trust.rules()] == [rule.name for rule in trusted]
    assert second.services.trust.rules()[0].claims == trusted[0].claims
    roles = [[item.group for item in each.services.roles.assignments(ADA)] for each in (first, second)]
    assert roles == [["vision-team"]] * 2
    lineages = [each.services.lineage.lineage(MODEL, 2) for each in (first, second)]
    assert lineages[0] == lineages[1]
    assert len(first.services.publish.version(MODEL, 2).derived_from) == 2
    assert (
        second.services.publish.version(MODEL, 2).evaluations
        == first.services.publish.version(MODEL, 2).evaluations
    )
    assert len(first.services.publish.version(MODEL, 2).evaluations) == 1
    assert second.services.retention.show(MODEL, by=ADA) == first.services.retention.show(MODEL, by=ADA)


def test_an_unfinished_build_gets_a_job_again(first: Registry, serve: Callable[[], Registry]) -> None:
    (build,) = first.services.publish.version("audio/asr", 1).builds
    second = serve()
    second.services.reindex.reindex()
    assert second.jobs(build.id) == []
    second.sql(
        "UPDATE builds SET queued_at = queued_at - interval '1 hour'"
    )  # longer than a heartbeat may take
    second.services.maintenance.requeue_lost()
    assert second.jobs(build.id) == [(V4, "todo")]
    assert second.services.builds.view(build.id).priority == 7


@pytest.mark.usefixtures("first")
def test_a_build_whose_artifact_is_lost_is_queued_again(
    serve: Callable[[], Registry], tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path / "blobs" / "manifests")
    second = serve()
    assert second.services.reindex.reindex()["added"] == 0
    assert {build.state for build in second.services.publish.version(MODEL, 1).builds} == {"queued"}


def test_reindexing_twice_adds_nothing(first: Registry, serve: Callable[[], Registry]) -> None:
    second = serve()
    assert second.services.reindex.reindex()["journal"] > 0
    assert second.services.reindex.reindex()["journal"] == 0
    assert first.services.reindex.reindex()["journal"] == 0


def test_what_is_not_committed_is_not_in_the_journal_and_what_is_waits_for_the_storage(
    storage: LocalStorage, first: Registry, serve: Callable[[], Registry], monkeypatch: pytest.MonkeyPatch
) -> None:
    create = storage.create_object

    def die_afterwards(path: str, data: bytes) -> bool:
        create(path, data)
        raise StorageUnavailable("The storage does not answer.")

    published(first)
    move(first, 1, None, "kept")
    with monkeypatch.context() as dying:
        dying.setattr(storage, "create_object", die_afterwards)
        with pytest.raises(StorageUnavailable):
            first.services.journal.write()
    move(first, 3, 1, "kept")
    with pytest.raises(AliasMoved):
        move(first, 3, 2, "kept")
    first.services.journal.write()
    assert first.sql("SELECT count(*) FROM journal_outbox") == [(0,)]

    second = serve()
    second.services.reindex.reindex()
    assert second.services.aliases.alias(MODEL, "kept") == first.services.aliases.alias(MODEL, "kept")


def test_many_files_become_one_and_what_was_deleted_leaves_the_storage(
    storage: LocalStorage, first: Registry, serve: Callable[[], Registry], tmp_path: Path
) -> None:
    journal = tmp_path / "blobs" / "journal"
    for number in range(1, 6):
        first.services.catalog.describe(MODEL, f"Text {number}.", by=ADA)
        first.services.journal.write()
    (rule,) = first.services.trust.rules()
    first.services.trust.remove(rule.id, by=ADA)
    first.services.journal.write()
    assert len(list(journal.iterdir())) == 7
    assert "gitlab.example" in read_all(journal)

    assert JournalFiles(storage).merge(max_files=5)

    (file,) = journal.iterdir()
    assert file.name == "000000000001-000000000007.jsonl"
    assert '"description":"Text 4."' not in read_all(journal)
    lines = [json.loads(line) for line in read_all(journal).splitlines()[1:]]
    rules = [line["document"] for line in lines if line["kind"] == "trust_rule"]
    assert rules == [None], "that it was removed is known, and nothing else"
    second = serve()
    second.services.reindex.reindex()
    assert second.services.catalog.model(MODEL).description == "Text 5."
    assert second.services.trust.rules() == ()


def read_all(journal: Path) -> str:
    return "".join(path.read_text("utf-8") for path in journal.iterdir())


def test_a_merge_that_was_cut_off_is_finished_by_the_next(
    storage: LocalStorage, first: Registry, tmp_path: Path
) -> None:
    journal = tmp_path / "blobs" / "journal"
    first.services.catalog.describe(MODEL, "Text.", by=ADA)
    first.services.journal.write()
    old = {path.name: path.read_bytes() for path in journal.iterdir()}
    files, unreadable = JournalFiles(storage), dict[str, str]()
    before = files.read(unreadable)
    assert files.merge(max_files=1)
    for name, data in old.items():
        (journal / name).write_bytes(data)
    assert sorted(files.read(unreadable), key=str) == sorted(before, key=str)
    files.merge()
    assert len(list(journal.iterdir())) == 1


def test_a_single_file_is_not_merged_into_itself(
    storage: LocalStorage, first: Registry, tmp_path: Path
) -> None:
    first.services.catalog.describe(MODEL, "Text.", by=ADA)
    first.services.journal.write()
    files, unreadable = JournalFiles(storage), dict[str, str]()
    files.merge(max_files=1)
    (only,) = (tmp_path / "blobs" / "journal").iterdir()
    before = only.read_bytes()
    assert not files.merge(max_files=0)
    assert only.read_bytes() == before
    assert files.read(unreadable)


def test_a_new_database_beside_the_journal_takes_nothing_from_it(
    storage: LocalStorage, first: Registry, serve: Callable[[], Registry]
) -> None:
    second = serve()
    second.submit(model="text/new")
    second.services.journal.write()
    JournalFiles(storage).merge(max_files=1)

    third = serve()
    assert third.services.reindex.reindex()["unreadable"] == {}

    assert third.services.aliases.alias(MODEL, "prod") == first.services.aliases.alias(MODEL, "prod")
    assert third.services.publish.version("text/new", 1).number == 1


def test_the_journal_brings_an_older_database_up_to_date(
    first: Registry, serve: Callable[[], Registry]
) -> None:
    older = serve()
    older.services.reindex.reindex()
    older.sql("TRUNCATE journal_outbox")  # as after a restore
    published(first)
    move(first, 3, 1)
    first.services.yanks.yank(MODEL, 1, reason="late", by=ADA)
    protect(first, "other")
    first.services.journal.write()

    older.services.reindex.reindex()

    assert older.services.aliases.alias(MODEL, "prod") == first.services.aliases.alias(MODEL, "prod")
    assert older.services.policies.policy(MODEL) == first.services.policies.policy(MODEL)
    version = first.services.publish.version(MODEL, 1)
    assert version.yanked
    restored = older.services.publish.version(MODEL, 1)
    assert (restored.yanks, restored.yanked) == (version.yanks, version.yanked)


def test_a_damaged_file_and_an_alias_that_moved_elsewhere_are_named(
    first: Registry, serve: Callable[[], Registry], tmp_path: Path
) -> None:
    first.services.catalog.describe("audio/asr", "Speech.", by=ADA)
    first.services.journal.write()
    path = max((tmp_path / "blobs" / "journal").iterdir())
    path.write_bytes(path.read_bytes().replace(b"Speech", b"Zpeech"))
    second = serve()
    published(second)
    move(second, 1, None)

    found = second.services.reindex.reindex()["unreadable"]

    assert set(found) >= {f"journal/{path.name}", f"{MODEL}@prod"}
    assert second.services.publish.version("audio/asr", 1).number == 1


def test_a_storage_without_a_journal_gets_a_whole_one(
    first: Registry, serve: Callable[[], Registry], tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path / "blobs" / "journal")
    first.services.journal.mark_missing()
    first.services.journal.write()
    first.services.journal.mark_missing()  # there is one
    assert first.sql("SELECT count(*) FROM journal_outbox") == [(0,)]
    second = serve()
    second.services.reindex.reindex()
    assert second.services.aliases.alias(MODEL, "prod") == first.services.aliases.alias(MODEL, "prod")


def test_the_journal_has_no_token(first: Registry, tmp_path: Path) -> None:
    token = first.services.access.create_token("secret")
    first.services.journal.write()
    ((digest,),) = first.sql("SELECT sha256 FROM api_tokens WHERE name = 'secret'")
    text = read_all(tmp_path / "blobs" / "journal")
    assert token not in text
    assert digest not in text
    assert all(json.loads(line) for line in text.replace("}{", "}\n{").splitlines())


def attach(registry: Registry, name: str, data: bytes) -> None:
    digest = registry.blob(data).digest
    registry.services.version_files.put(MODEL, 1, NewFile(name, digest), by=ADA)


def be_refused(registry: Registry, data: bytes, meanwhile: Callable[[], None]) -> None:
    """Makes a change whose manifest is stored, and whose process dies where the database would refuse it."""
    blobs = registry.services.version_files._blobs
    store = blobs.store

    def die(*args: Any, **given: Any) -> None:
        store(*args, **given)
        blobs.store = store  # type: ignore[method-assign]
        meanwhile()
        raise StorageUnavailable("The process is gone.")

    blobs.store = die  # type: ignore[method-assign]
    with pytest.raises(StorageUnavailable):
        attach(registry, "README.md", data)


def documentation(registry: Registry) -> dict[str, str]:
    return {item.name: item.digest for item in registry.services.version_files.files(MODEL, 1).files}


@pytest.mark.parametrize(
    "number", range(4)
)  # so that each manifest is listed first once, which digests decide
def test_refused_documentation_is_not_applied(
    first: Registry, serve: Callable[[], Registry], number: int
) -> None:
    attach(first, "LICENSE", b"MIT")
    be_refused(first, b"# Too late, %d" % number, lambda: attach(first, "README.md", b"# In time"))
    be_refused(first, b"# Over the quota", lambda: None)  # the newest of all
    accepted = documentation(first)
    assert first.sql("SELECT revision FROM version_documentation") == [(2,)]
    manifests = [key.digest for key in first.services.storage.keys("manifests")]
    assert len(manifests) - 1 == 4, "of documentation: two accepted, two refused"
    first.services.journal.write()

    second = serve()
    for registry in (first, second, second):
        assert registry.services.reindex.reindex()["unreadable"] == {}
        assert documentation(registry) == accepted
        assert registry.sql("SELECT revision FROM version_documentation") == [(2,)]
    attach(second, "README.md", b"# Better")  # revision 3, which a refused one had
    assert documentation(second)["LICENSE"] == accepted["LICENSE"]


def test_documentation_of_an_older_release_is_applied_by_the_number_of_its_changes(
    first: Registry, serve: Callable[[], Registry]
) -> None:
    for text in (b"one", b"two"):
        attach(first, "README.md", text)
    be_refused(first, b"three", lambda: None)
    accepted = documentation(first)
    first.services.journal.write()
    second = serve()
    second.services.reindex.reindex()
    with psycopg.connect(second.database_url, autocommit=True) as connection:
        connection.execute("ALTER TABLE audit_log DISABLE TRIGGER USER")
        connection.execute("UPDATE audit_log SET change = change - 'manifest'")
        connection.execute("TRUNCATE version_documentation")
    second.services.reindex.reindex()
    assert documentation(second) == accepted


def test_without_the_journal_the_newest_documentation_counts(
    first: Registry, serve: Callable[[], Registry], tmp_path: Path
) -> None:
    attach(first, "README.md", b"one")
    accepted = documentation(first)
    shutil.rmtree(tmp_path / "blobs" / "journal")
    second = serve()
    second.services.reindex.reindex()
    assert documentation(second) == accepted
