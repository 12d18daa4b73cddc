"""Two databases on one storage, as when a copy of a server starts beside it: neither takes what the other needs."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from pt2hub.domain.people import Role
from pt2hub.errors import CollectionRefused, ReindexDue, StorageUnavailable
from pt2hub.server.blobs.memory import MemoryStorage
from pt2hub.server.container import Container
from pt2hub.server.db import engine as engines
from pt2hub.server.db.queue import BuildQueue
from pt2hub.server.db.stores.operations import journal_position
from pt2hub.server.db.stores.operations.reindex_state import ReindexState
from pt2hub.server.db.stores.operations.settings import SettingStore
from pt2hub.server.services.operations.document_scrub import DocumentScrub
from pt2hub.server.services.operations.journal_files import JournalFiles
from support.postgres import CONSOLE, create_database, drop_database
from support.promoted import ADMIN, MODEL, move, published
from support.registry import SILENCE, Registry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.server.db.embedded import EmbeddedPostgres

OTHER = "Another database wrote to this storage"


@pytest.fixture
def pair(postgres: EmbeddedPostgres, migrated_template: str) -> Iterator[tuple[Registry, Registry]]:
    """A registry with a version in production, and one over a copy of its database; their storage is the same."""
    storage = MemoryStorage()
    url = create_database(postgres, template=migrated_template)
    engine = engines.create(url)
    original = serve(url, engines.Sessions(engine), storage)
    published(original)
    move(original, 1, None)
    original.services.roles.assign("vision-team", Role.PUBLISHER, "vision/*", by=ADMIN)
    original.services.journal.write()
    engine.dispose()  # a database with connections is not copied
    CONSOLE.close()
    copied = create_database(postgres, template=url.partition("?")[0].rpartition("/")[2])
    copied_engine = engines.create(copied)
    yield original, serve(copied, engines.Sessions(copied_engine), storage)
    for each, at in ((engine, url), (copied_engine, copied)):
        each.dispose()
        drop_database(postgres, at)


def serve(url: str, sessions: engines.Sessions, storage: MemoryStorage) -> Registry:
    return Registry(Container(sessions, BuildQueue(url), storage, heartbeat_timeout=SILENCE), url)


def promote_another(registry: Registry) -> str:
    """Puts another version into production; returns the digest of its artifact."""
    digest = published(registry)
    move(registry, 2, 1)
    registry.services.journal.write()
    return digest


def test_a_copy_that_starts_beside_a_server_publishes_nothing_and_takes_nothing(
    pair: tuple[Registry, Registry],
) -> None:
    original, copy = pair
    promote_another(original)
    copy.services.aliases.remove(MODEL, "prod", expected=1, reason="a trial on the copy", by=ADMIN)
    copy.services.storage_acquaintance.check()
    copy.services.deletion.model(MODEL, by=ADMIN, reason="a trial on the copy")
    assert copy.services.journal.write() == 0, "the original's journal is not the copy's to write"
    copy.services.tombstones.write()
    assert list(original.services.storage.keys("tombstones")) == []
    with pytest.raises(CollectionRefused, match=OTHER):
        copy.services.collector.collect(grace=timedelta())
    with pytest.raises(ReindexDue, match=OTHER):
        published(copy)
    original.services.collector.collect(grace=timedelta())
    assert original.services.storage_check.check().counts == {}
    published(original)


def test_the_original_notices_what_a_copy_wrote_first_and_goes_on_after_a_reindex(
    pair: tuple[Registry, Registry],
) -> None:
    original, copy = pair
    promote_another(copy)
    (role,) = original.services.roles.assignments(ADMIN)
    original.services.roles.remove(role.id, by=ADMIN)
    original.services.storage_acquaintance.check()
    due = original.services.storage_acquaintance.explain_reindex_due()
    assert due
    assert due[0].startswith(OTHER)
    with pytest.raises(ReindexDue, match=OTHER):
        published(original)
    original.services.reindex.reindex(by=ADMIN)
    assert original.services.storage_acquaintance.explain_reindex_due() is None
    assert original.services.aliases.alias(MODEL, "prod").number == 2
    assert original.services.roles.assignments(ADMIN) == (), "what was removed meanwhile stays removed"
    published(original)
    original.services.journal.write()
    assert [item.number for item in original.services.catalog.versions(MODEL).versions] == [3, 2, 1]
    original.services.storage_acquaintance.check()
    assert original.services.storage_acquaintance.explain_reindex_due() is None
    copy.services.storage_acquaintance.check()
    assert copy.services.storage_acquaintance.explain_reindex_due(), (
        "now the copy lacks what the original has"
    )


def test_a_batch_of_a_process_that_died_before_its_commit_is_the_databases_own(
    pair: tuple[Registry, Registry], monkeypatch: pytest.MonkeyPatch
) -> None:
    original, _ = pair
    files = JournalFiles(original.services.storage)
    last = files.last()
    published(original)
    with monkeypatch.context() as patched:
        patched.setattr(
            "pt2hub.server.services.operations.journal.JournalPositionStore.advance", lambda *_: 1 / 0
        )
        with pytest.raises(ZeroDivisionError):
            original.services.journal.write()
    assert files.last() == last + 1
    original.services.storage_acquaintance.check()
    position = original.services.journal._position()
    assert position
    assert files.merge(max_files=1, nonce=position.nonce)
    assert original.services.journal.write()
    original.services.storage_acquaintance.check()
    assert original.services.storage_acquaintance.explain_reindex_due() is None
    assert files.last() == last + 2


def test_a_server_that_does_not_show_its_identifier_still_writes_its_journal(
    pair: tuple[Registry, Registry], monkeypatch: pytest.MonkeyPatch
) -> None:
    original, copy = pair
    monkeypatch.setattr(journal_position, "_DATABASE", text("SELECT hidden"))
    for _ in range(2):
        published(original)
        assert original.services.journal.write()
    assert original.services.storage_acquaintance.explain_reindex_due() is None
    copy.services.storage_acquaintance.check()
    assert copy.services.storage_acquaintance.explain_reindex_due()


def test_files_of_a_release_that_does_not_say_whose_they_are_are_no_other_databases(
    pair: tuple[Registry, Registry],
) -> None:
    original, _ = pair
    JournalFiles(original.services.storage).add(())  # as the release before writes it during an upgrade
    published(original)
    assert original.services.journal.write()
    assert original.services.storage_acquaintance.explain_reindex_due() is None


def test_a_storage_that_lists_late_gives_no_number_twice(
    pair: tuple[Registry, Registry], monkeypatch: pytest.MonkeyPatch
) -> None:
    original, _ = pair
    services = original.services
    published(original)
    services.journal.write()
    last = JournalFiles(services.storage).last()
    stale = list(services.storage.list_objects("journal/"))[:-1]
    published(original)
    with monkeypatch.context() as patched:
        patched.setattr(services.storage, "list_objects", lambda _: iter(stale))
        assert services.journal.write()
    assert JournalFiles(services.storage).last() == last + 1
    assert JournalFiles(services.storage).read({})
    services.storage_acquaintance.check()
    assert services.storage_acquaintance.explain_reindex_due() is None


def test_a_database_that_was_restored_for_a_trial_beside_its_server_writes_nothing_before_a_reindex(
    pair: tuple[Registry, Registry],
) -> None:
    original, trial = pair
    with trial.services._sessions.begin() as session:
        ReindexState(session).require()
    files = JournalFiles(original.services.storage)
    last = files.last()
    (role,) = trial.services.roles.assignments(ADMIN)
    trial.services.roles.remove(role.id, by=ADMIN)
    assert trial.services.journal.write() == 0
    assert files.last() == last
    promote_another(original)
    trial.services.reindex.reindex(by=ADMIN)
    assert trial.services.roles.assignments(ADMIN) == ()
    assert trial.services.aliases.alias(MODEL, "prod").number == 2


def test_a_database_that_was_restored_for_a_trial_leaves_no_tombstones_before_a_reindex(
    pair: tuple[Registry, Registry],
) -> None:
    original, trial = pair
    with trial.services._sessions.begin() as session:
        ReindexState(session).require()
    trial.services.aliases.remove(MODEL, "prod", expected=1, reason="a trial", by=ADMIN)
    trial.services.deletion.model(MODEL, by=ADMIN, reason="a trial")
    trial.services.tombstones.write()
    assert original.services.reindex.reindex(by=ADMIN)["deleted"] == []
    trial.services.reindex.reindex(by=ADMIN)
    trial.services.tombstones.write()
    assert list(trial.services.storage.keys("tombstones"))


def test_a_collection_stops_where_another_database_is_noticed_meanwhile(
    pair: tuple[Registry, Registry],
) -> None:
    original, copy = pair
    copy.services.aliases.remove(MODEL, "prod", expected=1, reason="a trial on the copy", by=ADMIN)
    copy.services.deletion.model(MODEL, by=ADMIN, reason="a trial on the copy")

    def notice(_: object) -> None:
        with copy.services._sessions.begin() as session:
            ReindexState(session).require(other_writer=True)

    report = copy.services.collector.collect(grace=timedelta(), on_progress=notice)
    assert (report.removed, report.orphans) == (0, 0)
    assert original.services.storage_check.check().counts == {}


def test_a_process_that_starts_late_takes_back_no_batch_of_another_one(
    pair: tuple[Registry, Registry], monkeypatch: pytest.MonkeyPatch
) -> None:
    original, _ = pair
    with original.services._sessions.begin() as session:
        SettingStore(session).remove("journal_position")  # as after an upgrade
    published(original)
    journal, draw = original.services.journal, journal_position.secrets.token_hex

    def draw_late(size: int) -> str:
        monkeypatch.setattr(journal_position.secrets, "token_hex", draw)
        assert journal.write(), "another process starts, and writes"
        return draw(size)

    monkeypatch.setattr(journal_position.secrets, "token_hex", draw_late)
    journal.check_writer()
    assert journal.check_writer()
    assert original.services.storage_acquaintance.explain_reindex_due() is None


def test_a_statement_that_is_cancelled_changes_no_nonce(
    pair: tuple[Registry, Registry], monkeypatch: pytest.MonkeyPatch
) -> None:
    original, _ = pair
    monkeypatch.setattr(
        journal_position,
        "_DATABASE",
        text("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'query_canceled'; END $$"),
    )
    with original.services._sessions.begin() as session, pytest.raises(OperationalError):
        journal_position.JournalPositionStore(session).get()


def test_the_scrub_of_a_database_that_may_not_write_puts_no_tombstone_away(
    pair: tuple[Registry, Registry], monkeypatch: pytest.MonkeyPatch
) -> None:
    original, _ = pair
    services = original.services
    services.aliases.remove(MODEL, "prod", expected=1, reason="unused", by=ADMIN)
    services.deletion.model(MODEL, by=ADMIN, reason="unused")
    services.tombstones.write()
    before = list(services.storage.keys("tombstones"))
    assert before
    with services._sessions.begin() as session:
        ReindexState(session).require(other_writer=True)
    with monkeypatch.context() as patched:
        patched.setattr(services.storage, "read", lambda *_: iter([b"torn"]))
        assert DocumentScrub(services._sessions, services.storage).check()
    assert list(services.storage.keys("tombstones")) == before


def test_nothing_is_written_below_a_mount_point_and_what_was_changed_waits(
    pair: tuple[Registry, Registry], monkeypatch: pytest.MonkeyPatch
) -> None:
    original, _ = pair
    services = original.services
    empty = MemoryStorage()
    published(original)
    with monkeypatch.context() as unmounted:
        for name in ("create_object", "read_object", "list_objects", "delete_object"):
            unmounted.setattr(services.storage, name, getattr(empty, name))
        with pytest.raises(StorageUnavailable, match="The storage has no journal"):
            services.journal.write()
    assert list(empty.list_objects("journal/")) == []
    assert services.journal.write()
    assert services.storage_acquaintance.explain_reindex_due() is None
