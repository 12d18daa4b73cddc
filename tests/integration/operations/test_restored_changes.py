"""What was removed or changed after a backup, or before the database was lost, is so again once the journal is read."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.people import Role
from pt2hub.domain.tokens import Actor
from pt2hub.errors import CollectionRefused, Unauthorized
from pt2hub.server.backups import restore_backup, write_backup
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.container import open_container
from pt2hub.server.db import migrations
from pt2hub.server.services.operations.journal_files import JournalFiles
from support.promoted import MODEL, published, record_pulls
from support.registry import Registry
from support.trusted import trust

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pt2hub.server.config import ServerConfig
    from pt2hub.server.container import Container

ADA = Actor("ada", admin=True)
OTHER = "audio/asr"
RETRAINED = """
    INSERT INTO derivations (version_id, relation, parent, automatic, by)
    SELECT id, 'retrained', 'vision/resnet18@1', true, '{}' FROM versions WHERE number = 2
"""


@pytest.fixture
def empty(config: ServerConfig, database_url: str) -> ServerConfig:
    """The settings of a server with the same storage and an empty database."""
    return replace(config, database_url=database_url)


@pytest.fixture
def live(container: Container, config: ServerConfig) -> Registry:
    """A registry with everything that can be removed without a tombstone, or changed in its place."""
    registry = Registry(container, str(config.database_url))
    for _ in range(2):
        published(registry)
    label(container, 1, stage="old", owner="ada")
    label(container, None, team="vision")
    container.catalog.describe(MODEL, "Before.", by=ADA)
    container.roles.assign("contractors", Role.PUBLISHER, "vision/*", by=ADA)
    container.retention.put(MODEL, last=1, by=ADA)
    container.retention.put("vision", last=1, by=ADA)
    container.lineage.change(MODEL, 2, add=["other:hf:net@v1", "other:hf:net@v2"], remove=(), by=ADA)
    trust(registry)
    container.journal.write()
    return registry


@pytest.fixture
def other(empty: ServerConfig) -> Iterator[Registry]:
    """A registry with the same storage, whose database was lost: it is empty."""
    migrations.upgrade(str(empty.database_url))
    with open_container(empty, database_url=str(empty.database_url)) as container:
        yield Registry(container, str(empty.database_url))


def label(container: Container, number: int | None, *, remove: tuple[str, ...] = (), **put: str) -> None:
    container.labels.change(MODEL, number, put=put, remove=remove, expected={}, by=ADA)


def change(container: Container) -> None:
    """Removes or changes everything once."""
    label(container, 1, remove=("owner",), stage="new")
    label(container, None, remove=("team",))
    container.catalog.describe(MODEL, "After.", by=ADA)
    (role,) = container.roles.assignments(ADA)
    container.roles.remove(role.id, by=ADA)
    (rule,) = container.trust.rules()
    container.trust.remove(rule.id, by=ADA)
    container.retention.put(MODEL, last=100, by=ADA)
    container.retention.remove("vision", by=ADA)
    container.lineage.change(MODEL, 2, add=["distilled:hf:net@v2"], remove=["hf:net@v1"], by=ADA)


def facts(container: Container) -> dict[str, Any]:
    version = container.publish.version(MODEL, 2)
    return {
        "labels": {item.key: item.value for item in container.publish.version(MODEL, 1).labels},
        "model's labels": dict(container.catalog.model(MODEL).labels),
        "description": container.catalog.model(MODEL).description,
        "roles": [item.group for item in container.roles.assignments(ADA)],
        "trust rules": [rule.name for rule in container.trust.rules()],
        "retention": container.retention.show(MODEL, by=ADA).last,
        "team's retention": container.retention.show("vision", by=ADA).last,
        "lineage": [(str(item.relation), item.parent) for item in version.derived_from],
    }


@pytest.mark.parametrize("is_merged", [False, True], ids=["files", "merged"])
def test_what_was_removed_or_changed_after_a_backup_is_so_again(
    live: Registry, config: ServerConfig, empty: ServerConfig, tmp_path: Path, *, is_merged: bool
) -> None:
    write_backup(config, str(tmp_path / "backup"))
    change(live.services)
    live.services.journal.write()
    if is_merged:
        assert JournalFiles(live.services.storage).merge(max_files=1)
    before = facts(live.services)
    restore_backup(empty, str(tmp_path / "backup"))
    with open_container(empty, database_url=str(empty.database_url)) as other:
        assert facts(other) != before
        other.reindex.reindex(by=ADA)
        assert facts(other) == before
        assert other.reindex.reindex(by=ADA)["journal"] == 0


def test_what_was_set_again_later_stays(live: Registry) -> None:
    services = live.services
    change(services)
    services.journal.write()
    label(services, 1, owner="bo")
    services.roles.assign("contractors", Role.PUBLISHER, "vision/*", by=ADA)
    services.retention.put("vision", last=7, by=ADA)
    services.lineage.change(MODEL, 2, add=["other:hf:net@v1"], remove=(), by=ADA)
    services.catalog.describe(MODEL, "Later.", by=ADA)
    before = facts(services)
    services.reindex.reindex(by=ADA)  # the journal does not have this yet
    assert facts(services) == before


def test_a_merge_forgets_removals_from_what_is_deleted(live: Registry) -> None:
    services = live.services
    label(services, 2, remove=("none",), stage="x")
    services.journal.write()
    label(services, 2, remove=("stage",))
    services.journal.write()
    files = JournalFiles(services.storage)
    files.merge(max_files=1)
    gone = {(entry.kind, *entry.key) for entry in files.read({}) if entry.document is None}
    assert gone == {("label", MODEL, 2, "stage")}
    services.deletion.model(MODEL, by=ADA, reason="old")
    services.journal.write()
    files.merge(max_files=1)
    assert [entry.key for entry in files.read({}) if entry.document is None] == []


def test_a_derivation_that_pt2hub_recorded_and_somebody_removed_does_not_come_back(
    live: Registry, other: Registry
) -> None:
    services = live.services
    live.sql(RETRAINED)
    services.lineage.change(MODEL, 2, add=(), remove=["vision/resnet18@1"], by=ADA)
    services.journal.write()
    other.services.reindex.reindex(by=ADA)
    other.sql(RETRAINED)  # as a reindex does it where code was reused
    other.services.reindex.reindex(by=ADA)
    assert facts(other.services) == facts(services)


@pytest.mark.parametrize("is_written", [False, True], ids=["lost at once", "in the journal"])
def test_a_deleted_model_does_not_come_back(live: Registry, other: Registry, *, is_written: bool) -> None:
    services = live.services
    live.submit(model=OTHER)
    services.labels.change(OTHER, None, put={"team": "audio"}, remove=(), expected={}, by=ADA)
    services.retention.put(OTHER, last=1, by=ADA)
    services.builds.cancel(services.publish.version(OTHER, 1).builds[0].id, by=ADA)
    services.journal.write()
    services.deletion.model(OTHER, by=ADA, reason="never used")
    if is_written:
        services.journal.write()
    other.services.reindex.reindex(by=ADA)
    assert [model.name for model in other.services.catalog.models().models] == [MODEL]
    assert other.services.retention.show(OTHER, by=ADA).last is None


def test_a_model_that_was_published_again_under_a_deleted_name_comes_back(
    live: Registry, other: Registry
) -> None:
    services = live.services
    live.submit(model=OTHER)
    services.builds.cancel(services.publish.version(OTHER, 1).builds[0].id, by=ADA)
    services.deletion.model(OTHER, by=ADA, reason="never used")
    live.submit(model=OTHER)
    services.catalog.describe(OTHER, "The second one.", by=ADA)
    services.journal.write()
    other.services.reindex.reindex(by=ADA)
    assert other.services.catalog.model(OTHER).description == "The second one."


def test_nothing_is_deleted_or_collected_between_a_restore_and_the_reindex(
    live: Registry, config: ServerConfig, empty: ServerConfig, tmp_path: Path
) -> None:
    uploaded = live.blob(b"weights of a version that is published after the backup").digest
    write_backup(config, str(tmp_path / "backup"))
    change(live.services)  # the policy keeps a hundred versions from now on
    live.services.journal.write()
    restore_backup(empty, str(tmp_path / "backup"))
    with open_container(empty, database_url=str(empty.database_url)) as other:
        Registry(other, str(empty.database_url)).sql("DELETE FROM blob_leases")  # they end after six hours
        assert other.retention.run() == 0
        with pytest.raises(CollectionRefused, match="lacks versions that the storage has"):
            other.collector.collect(grace=timedelta())
        assert other.storage.size(StorageKey.blob(uploaded)) is not None
        other.reindex.reindex(by=ADA)
        assert other.retention.run() == 0
        other.collector.collect(grace=timedelta())


@pytest.mark.parametrize("is_restored", [False, True], ids=["lost", "restored"])
def test_versions_whose_last_pull_was_lost_count_as_pulled(
    live: Registry, config: ServerConfig, empty: ServerConfig, tmp_path: Path, *, is_restored: bool
) -> None:
    services = live.services
    services.retention.put(MODEL, last=1, pulled_within_days=30, by=ADA)
    live.sql("UPDATE versions SET created_at = created_at - interval '90 days'")
    write_backup(config, str(tmp_path / "backup"))
    live.sql("INSERT INTO version_pulls SELECT id, current_date - 1 FROM versions WHERE number = 1")
    services.journal.write()
    if is_restored:
        restore_backup(empty, str(tmp_path / "backup"))
    else:
        migrations.upgrade(str(empty.database_url))
    with open_container(empty, database_url=str(empty.database_url)) as other:
        other.reindex.reindex(by=ADA)
        again = Registry(other, str(empty.database_url))
        record_pulls(again)
        assert other.retention.run() == 0
        again.sql("UPDATE version_pulls SET pulled_on = pulled_on - 31")
        other.reindex.reindex(by=ADA)  # adds nothing: as a reindex of a database that lost nothing
        assert other.retention.run() == 1


def test_tokens_and_people_whose_access_ended_after_a_backup_have_none(
    live: Registry, config: ServerConfig, empty: ServerConfig, tmp_path: Path
) -> None:
    access = live.services.access
    secrets = {name: access.create_token(name) for name in ("kept", "leaked", "old")}
    person = """
        INSERT INTO people (issuer, subject, name, full_name, email, groups)
        VALUES ('https://idp.example', '1', 'bob', 'Bob', '', '{contractors}') RETURNING id
    """
    ((bob,),) = live.sql(person)
    own = access.create_token("of bob")
    live.sql("UPDATE api_tokens SET person_id = %s WHERE name = 'of bob'", bob)
    live.sql(
        "INSERT INTO web_sessions (sha256, person_id, expires_at) VALUES ('x', %s, now() + interval '1 day')",
        bob,
    )
    write_backup(config, str(tmp_path / "backup"))
    access.revoke("leaked", by=ADA)
    (old,) = [token for token in access.tokens() if token.name == "old"]
    live.services.token_management.rotate(old.id, overlap=timedelta(), by=ADA)
    live.services.people.end("bob", by=ADA)
    live.services.journal.write()
    restore_backup(empty, str(tmp_path / "backup"))
    with open_container(empty, database_url=str(empty.database_url)) as other:
        again = Registry(other, str(empty.database_url))
        other.reindex.reindex(by=ADA)
        assert other.access.verify(secrets["kept"])
        for secret in (secrets["leaked"], secrets["old"], own):
            with pytest.raises(Unauthorized):
                other.access.verify(secret)
        assert again.sql("SELECT groups FROM people") == [([],)]
        assert again.sql("SELECT count(*) FROM web_sessions") == [(0,)]
        (leaked,) = [token for token in other.access.tokens() if token.name == "leaked"]
        assert leaked.revoked_by == ADA.principal
        other.access.create_token("leaked")
        again.sql(
            "UPDATE people SET groups = '{contractors}', signed_in_at = now()"
        )  # the provider lets him in again
        other.reindex.reindex(by=ADA)
        assert again.sql("SELECT groups FROM people") == [(["contractors"],)]
        assert [token.revoked_at for token in other.access.tokens() if token.name == "leaked"][-1] is None


def test_a_token_that_got_the_number_of_a_revoked_one_stays(live: Registry, other: Registry) -> None:
    live.services.access.create_token("ci")
    live.services.access.revoke("ci", by=ADA)
    live.services.journal.write()
    secret = other.services.access.create_token("ci")
    ids = [[token.id for token in each.services.access.tokens()] for each in (live, other)]
    assert ids[0] == ids[1]
    other.services.reindex.reindex(by=ADA)
    assert other.services.access.verify(secret)


def test_builds_that_ended_after_a_backup_are_not_built_again(
    live: Registry, config: ServerConfig, empty: ServerConfig, tmp_path: Path
) -> None:
    cancelled, retried = (live.submit(model=f"{OTHER}{name}").builds[0].id for name in ("-a", "-b"))
    write_backup(config, str(tmp_path / "backup"))
    for build in (cancelled, retried):
        live.services.builds.cancel(build, by=ADA)
    live.services.journal.write()
    live.services.builds.retry(retried, by=ADA)
    live.services.journal.write()
    before = live.services.builds.view(cancelled)
    restore_backup(empty, str(tmp_path / "backup"))
    with open_container(empty, database_url=str(empty.database_url)) as other:
        again = Registry(other, str(empty.database_url))
        other.reindex.reindex(by=ADA)
        assert other.builds.view(cancelled).cancelled_by == before.cancelled_by
        assert other.builds.view(cancelled).state == "cancelled"
        assert other.builds.view(retried).state == "queued"
        again.worker("w1")
        assert other.builds.claim(cancelled, "w1") is None, "what its job does"
        assert other.builds.claim(retried, "w1")
        other.builds.retry(cancelled, by=ADA)  # the journal does not have this yet
        other.reindex.reindex(by=ADA)
        assert other.builds.view(cancelled).state == "queued"
