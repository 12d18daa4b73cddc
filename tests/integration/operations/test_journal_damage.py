"""Damage to the journal itself: missing files, damaged ones, writers that were frozen."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.tokens import Actor
from pt2hub.errors import BadResponse, DatabaseUnavailable
from pt2hub.server.db.stores.operations.journal import JournalEntry
from pt2hub.server.services.operations.journal_files import JournalFiles
from support.promoted import published
from support.registry import Registry

if TYPE_CHECKING:
    from pt2hub.server.config import ServerConfig
    from pt2hub.server.container import Container

ADA = Actor("ada", admin=True)
MODEL = "vision/resnet18"


@pytest.fixture
def registry(container: Container, config: ServerConfig) -> Registry:
    """A registry whose journal has three files, one for each description."""
    registry = Registry(container, str(config.database_url))
    registry.submit()
    for text in ("one", "two", "three"):
        container.catalog.describe(MODEL, text, by=ADA)
        container.journal.write()
    return registry


def path_of(number: int) -> str:
    return f"journal/{number:012}-{number:012}.jsonl"


def test_a_missing_file_is_named_until_it_is_back(registry: Registry) -> None:
    storage, files = registry.services.storage, JournalFiles(registry.services.storage)
    data = storage.read_object(path_of(2))
    storage.delete_object(path_of(2))
    assert list(registry.services.reindex.reindex()["unreadable"]) == [path_of(2)]
    with pytest.raises(BadResponse, match="missing"):
        files.merge(max_files=1)  # would hide the gap
    storage.create_object(path_of(2), data)
    assert registry.services.reindex.reindex()["unreadable"] == {}
    assert files.merge(max_files=1)


def test_a_loss_that_is_accepted_is_written_anew_and_named_no_more(registry: Registry) -> None:
    services = registry.services
    services.storage.delete_object(path_of(1))
    services.storage.delete_object(path_of(2))
    services.storage.create_object(path_of(2), b"torn")
    check = services.storage_check.check()
    assert {item.what for item in check.findings if item.kind == "unreadable_journal"} == {
        path_of(1),
        path_of(2),
    }
    found = services.reindex.reindex(by=ADA, accept_losses=True)["unreadable"]
    assert set(found) == {path_of(1), path_of(2)}
    services.journal.write()
    assert services.reindex.reindex()["unreadable"] == {}
    assert services.storage_check.check().counts == {}
    entries = JournalFiles(services.storage).read({})
    assert {entry.kind for entry in entries} >= {"model", "version", "build", "audit_entry"}


def test_a_file_of_a_newer_release_is_not_given_up(registry: Registry) -> None:
    services = registry.services
    newer = json.dumps({"journal": 2, "pt2hub": "9.9.9"}).encode() + b"\n{}"
    services.storage.create_object(path_of(4), newer)
    assert "newer format" in services.reindex.reindex(accept_losses=True)["unreadable"][path_of(4)]
    assert services.storage.read_object(path_of(4)) == newer


def test_a_list_that_was_read_during_a_merge_is_read_again(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = JournalFiles(registry.services.storage)
    whole, listed = files.read({}), files._files
    lists = iter([listed()[2:]])  # the first two files are gone, and the merged one is not there yet
    monkeypatch.setattr(files, "_files", lambda: next(lists, None) or listed())
    unreadable: dict[str, str] = {}
    assert files.read(unreadable) == whole
    assert unreadable == {}


def test_a_writer_that_lost_its_lock_while_it_was_frozen_writes_nothing(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = registry.services
    storage = services.storage
    create = storage.create_object
    frozen: list[str] = []

    def freeze(path: str, data: bytes) -> bool:
        if not frozen:  # the database ends its idle transaction, and another process writes what is newer
            frozen.append(path)
            registry.sql(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = 84000005"
            )
            services.catalog.describe(MODEL, "newest", by=ADA)
            services.journal.write()
        return create(path, data)

    services.catalog.describe(MODEL, "older", by=ADA)
    with monkeypatch.context() as patched:
        patched.setattr(storage, "create_object", freeze)
        with suppress(DatabaseUnavailable):
            services.journal.write()
    (model,) = [entry for entry in JournalFiles(storage).read({}) if entry.kind == "model"]
    assert model.document is not None
    assert model.document["description"] == "newest"


def test_entries_keep_the_time_of_their_removal(registry: Registry) -> None:
    files = JournalFiles(registry.services.storage)
    gone = JournalEntry("role", ("team", "reader", "*"), None, "2026-11-28T03:00:00Z")
    files.add([gone])
    assert gone in files.read({})


def test_a_merge_keeps_the_removals_of_kinds_that_it_does_not_know(registry: Registry) -> None:
    files = JournalFiles(registry.services.storage)
    newer = JournalEntry("kind of a newer release", ("a",), None, "2026-11-28T03:00:00Z")
    buried = JournalEntry("build", ("0123456789abcdef",), None, "2026-11-28T03:00:00Z")
    files.add([newer, buried])
    assert files.merge(max_files=1)
    assert [entry for entry in files.read({}) if entry.document is None] == [newer]


def test_the_newest_file_or_all_of_them_being_lost_is_noticed(registry: Registry) -> None:
    services = registry.services
    registry.blob(b"weights")  # an empty storage is not mounted
    assert services.scrub.run().documents == ()
    data = services.storage.read_object(path_of(3))
    services.storage.delete_object(path_of(3))
    assert [path for path, _ in services.scrub.run().documents] == [path_of(3)]
    assert services.storage_check.check().counts == {"unreadable_journal": 1}
    services.storage.create_object(path_of(3), data)
    assert services.storage_check.check().counts == {}
    for number in (1, 2, 3):
        services.storage.delete_object(path_of(number))
    assert [path for path, _ in services.scrub.run().documents] == ["journal/000000000001-000000000003.jsonl"]
    services.reindex.reindex(by=ADA, accept_losses=True)
    services.journal.write()
    assert services.scrub.run().documents == ()
    assert {entry.kind for entry in JournalFiles(services.storage).read({})} >= {"model", "version", "build"}


def test_tombstones_that_are_damaged_or_lost_are_written_again(registry: Registry) -> None:
    services, storage = registry.services, registry.services.storage
    registry.blob(b"weights of another model")
    for number in (2, 3):
        published(registry)
        services.deletion.version(MODEL, number, by=ADA, reason=f"trial {number}")
    services.tombstones.write()
    first, second = storage.keys("tombstones")
    before = [b"".join(storage.read(key)) for key in (first, second)]
    storage.remove([first, second])
    storage.create_object(second.path, b"torn")
    found = dict(services.scrub.run().documents)
    assert set(found) == {first.path, second.path}
    assert [b"".join(storage.read(key)) for key in storage.keys("tombstones")] == before
    assert services.scrub.run().documents == ()
