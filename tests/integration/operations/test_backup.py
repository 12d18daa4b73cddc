"""Backups of the database: whole and as of one moment, restored into an empty one, from older schemas too."""

from __future__ import annotations

import json
import threading
import zipfile
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pt2hub.domain.digests import digest_bytes
from pt2hub.domain.tokens import Actor
from pt2hub.errors import (
    BadConfiguration,
    CollectionRefused,
    Conflict,
    InvalidInput,
    NotFound,
    ReindexDue,
    SchemaNewer,
    SchemaOlder,
    StorageUnavailable,
)
from pt2hub.server.api.app import create_app
from pt2hub.server.backups import RestoredBackup, restore_backup, write_backup
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.container import open_container
from pt2hub.server.db import backup, migrations
from support.answers import answers, differences
from support.promoted import MODEL, move, published
from support.registry import V3, V4, Registry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pt2hub.server.config import ServerConfig
    from pt2hub.server.container import Container
    from support.s3 import S3Server

ADA = Actor("ada", admin=True)
WEIGHTS = b"weights of the model number %d, longer than what a forced deletion leaves alone, by some bytes"


@pytest.fixture
def empty(config: ServerConfig, database_url: str) -> ServerConfig:
    """The settings of a server with the same storage and an empty database."""
    return replace(config, database_url=database_url)


def ask(container: Container, config: ServerConfig, token: str) -> dict[str, Any]:
    """What the API answers."""
    web = create_app(container, config).test_client()
    return answers(web, {"Authorization": f"Bearer {token}"})


def test_a_restored_database_answers_as_the_one_that_was_backed_up(
    container: Container, config: ServerConfig, empty: ServerConfig, tmp_path: Path
) -> None:
    registry = Registry(container, str(config.database_url))
    published(registry)
    move(registry, 1, None)
    container.catalog.describe(MODEL, "A net, a \\ and\na line.", by=ADA)
    registry.submit(model="audio/asr")
    token = container.access.create_token("root", admin=True)
    before = ask(container, config, token)

    written = write_backup(config, str(tmp_path / "backup"))
    restored = restore_backup(empty, str(tmp_path / "backup"))

    assert restored == RestoredBackup(written)
    assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o600
    with open_container(empty, database_url=str(empty.database_url)) as other:
        after = ask(other, empty, token)  # tokens are restored
        assert differences(before, after) == set()
        again = Registry(other, str(empty.database_url))
        jobs = "SELECT count(*) FROM procrastinate_jobs"
        assert again.sql(jobs) == registry.sql(jobs)
        with pytest.raises(ReindexDue):
            published(again)
        other.reindex.reindex()
        published(again)  # sequences go on
        with pytest.raises(psycopg.errors.InsufficientPrivilege):  # triggers are back
            again.sql("DELETE FROM audit_log")


def test_a_backup_is_of_one_moment_while_others_write(
    container: Container, config: ServerConfig, empty: ServerConfig, tmp_path: Path
) -> None:
    registry = Registry(container, str(config.database_url))
    stop = threading.Event()

    def publish() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            registry.submit(model=f"team/net{number}")

    publishing = threading.Thread(target=publish)
    publishing.start()
    try:
        backups = [write_backup(config, str(tmp_path / str(number))) for number in range(5)]
    finally:
        stop.set()
        publishing.join()

    restore_backup(empty, str(tmp_path / "4"))
    rows = {table.name: table.rows for table in backups[4].tables}
    assert rows["models"] == rows["versions"] == rows["builds"] == rows["audit_log"]
    assert backups[0].rows < backups[4].rows
    with open_container(empty, database_url=str(empty.database_url)) as other:
        for number in range(1, rows["models"] + 1):
            assert other.publish.version(f"team/net{number}", 1).builds


def test_a_backup_of_an_older_schema_is_upgraded(
    database_url: str, config: ServerConfig, container: Container, tmp_path: Path, empty_url: str
) -> None:
    migrations.upgrade(database_url, migrations.previous_revision())
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("INSERT INTO models (name, description) VALUES ('team/old', 'Of the old schema.')")
    older = replace(config, database_url=database_url)
    written = write_backup(older, str(tmp_path / "backup"))
    assert written.revision == migrations.previous_revision()

    newest = replace(config, database_url=empty_url)
    restore_backup(newest, str(tmp_path / "backup"))

    migrations.require(empty_url)
    with open_container(newest, database_url=empty_url) as restored:
        assert restored.catalog.model("team/old").description == "Of the old schema."
        restored.reindex.reindex()
        restored.journal.write()
    container.reindex.reindex()
    assert container.catalog.model("team/old").description == "Of the old schema."


def test_what_cannot_be_backed_up_or_restored_is_named(
    config: ServerConfig, empty: ServerConfig, tmp_path: Path
) -> None:
    path = tmp_path / "backup"
    with pytest.raises(SchemaOlder, match="nothing to back up"):
        write_backup(empty, str(path))
    assert not path.exists()
    write_backup(config, str(path))
    with pytest.raises(InvalidInput, match="already exists"):
        write_backup(config, str(path))
    with pytest.raises(Conflict, match="not empty"):
        restore_backup(config, str(path))
    with pytest.raises(InvalidInput, match="Cannot read"):
        restore_backup(empty, str(tmp_path / "missing"))
    (tmp_path / "text").write_text("text")
    with pytest.raises(InvalidInput, match="Cannot read"):
        restore_backup(empty, str(tmp_path / "text"))
    assert sorted(each.name for each in tmp_path.iterdir() if each.name.startswith(".")) == []


@pytest.mark.parametrize(
    ("change", "raised"),
    [
        (lambda document: document.update(revision="9999"), SchemaNewer),
        (lambda document: document.update(format=2), InvalidInput),
        (lambda document: document.pop("tables"), InvalidInput),
        (lambda document: document["tables"][0].update(columns=["no_such_column"]), Exception),
    ],
    ids=["newer schema", "newer format", "no tables", "unknown column"],
)
def test_a_backup_that_does_not_fit_leaves_the_database_empty(
    config: ServerConfig,
    empty: ServerConfig,
    tmp_path: Path,
    change: Callable[[dict[str, Any]], object],
    raised: type[Exception],
) -> None:
    write_backup(config, str(tmp_path / "whole"))
    with (
        zipfile.ZipFile(tmp_path / "whole") as whole,
        zipfile.ZipFile(tmp_path / "changed", "w") as changed,
    ):
        for name in whole.namelist():
            data = whole.read(name)
            if name == "backup.json":
                document = json.loads(data)
                change(document)
                data = json.dumps(document).encode()
            changed.writestr(name, data)
    with pytest.raises(raised):
        restore_backup(empty, str(tmp_path / "changed"))
    restore_backup(empty, str(tmp_path / "whole"))


def test_a_damaged_backup_is_refused_before_anything_is_written(
    config: ServerConfig, empty: ServerConfig, tmp_path: Path
) -> None:
    path = tmp_path / "backup"
    write_backup(config, str(path))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(InvalidInput):
        restore_backup(empty, str(path))
    path.write_bytes(data[:-100])
    with pytest.raises(InvalidInput):
        restore_backup(empty, str(path))
    assert migrations.current(str(empty.database_url)) == ""


def test_a_backup_goes_into_a_bucket_and_comes_back(
    config: ServerConfig, empty: ServerConfig, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environ().items():
        monkeypatch.setenv(name, value)
    url = f"s3://{s3_server.bucket}/backups/{config.home.parent.name}"
    written = write_backup(config, url)
    with pytest.raises(Conflict, match="already exists"):
        write_backup(config, url)
    with pytest.raises(NotFound):
        restore_backup(empty, f"{url}-missing")
    with pytest.raises(InvalidInput, match="invalid address"):
        write_backup(config, "s3://bucket")
    assert restore_backup(empty, url) == RestoredBackup(written)


def test_a_home_without_a_database_has_nothing_to_back_up(tmp_path: Path, config: ServerConfig) -> None:
    nothing = replace(config, database_url=None, home=tmp_path / "nothing")
    with pytest.raises(BadConfiguration, match="no database"):
        write_backup(nothing, str(tmp_path / "backup"))
    assert not (tmp_path / "nothing").exists()
    assert backup.FORMAT == 1


@pytest.fixture
def deleted_since(container: Container, config: ServerConfig, tmp_path: Path) -> Registry:
    """A registry of four versions and a model, of which some were deleted after the backup in `tmp_path`."""
    registry = Registry(container, str(config.database_url))
    for seed in range(3):
        view = registry.submit(source={"factory": "torchvision.models:resnet18", "seed": seed})
        registry.published(view, code=b"code %d" % seed, key=f"key {seed}", weights_data=WEIGHTS % seed)
    registry.submit(model="audio/asr")
    other = {"factory": "torchvision.models:resnet18", "seed": 3}
    second = registry.submit(source=other, targets=[V4, V3])
    build = second.builds[1].id
    container.builds.cancel(build, by=ADA)
    move(registry, 1, None)
    write_backup(config, str(tmp_path / "backup"))
    move(registry, 2, 1)
    move(registry, 3, 2)
    container.builds.cancel(container.publish.version("audio/asr", 1).builds[0].id, by=ADA)
    container.deletion.version(MODEL, 1, by=ADA, reason="old")
    container.deletion.model("audio/asr", by=ADA, reason="never used")
    container.deletion.build(build, by=ADA, reason="wrong target")
    container.forced_deletion.delete(MODEL, 2, by=ADA, reason="leaked weights", keep_shared=True)
    container.journal.write()
    return registry


def deletion_answers(container: Container, config: ServerConfig) -> list[tuple[int, Any]]:
    """What the API answers to requests for what `deleted_since` deleted, and for the bytes of its versions."""
    web = create_app(container, config).test_client()
    login = {"Authorization": f"Bearer {container.access.create_token('reader', admin=True)}"}
    paths = [f"models/{MODEL}/versions/{number}" for number in (1, 2, 3, 4)]
    paths += [f"resolve?reference={MODEL}@{number}&target={V4}" for number in (1, 2)]
    paths += ["models/audio/asr", "models/audio/asr/versions/1", f"blobs/{digest_bytes(WEIGHTS % 1)}"]
    found = [web.get(f"/api/v1/{path}", headers=login) for path in paths]
    refused = digest_bytes(WEIGHTS % 1)
    put = web.put(f"/api/v1/blobs/{refused}", data=WEIGHTS % 1, headers=login)
    return [
        (answer.status_code, [answer.get_json().get(name) for name in ("code", "detail")])
        for answer in (*found, put)
    ]


def test_what_was_deleted_after_the_backup_stays_deleted(
    deleted_since: Registry, config: ServerConfig, empty: ServerConfig, tmp_path: Path
) -> None:
    before = deletion_answers(deleted_since.services, config)
    assert [status for status, _ in before] == [410, 410, 200, 200, 410, 410, 410, 410, 410, 409]
    builds = deleted_since.services.publish.version(MODEL, 4).builds

    restored = restore_backup(empty, str(tmp_path / "backup"))

    (build,) = {name for name in restored.deleted if "/" not in name}
    assert (set(restored.deleted), restored.unreadable) == (
        {f"{MODEL}@1", f"{MODEL}@2", "audio/asr@1", "audio/asr", build},
        {},
    )
    with open_container(empty, database_url=str(empty.database_url)) as other:
        again = Registry(other, str(empty.database_url))
        assert deletion_answers(other, empty) == before
        assert [item.id for item in other.publish.version(MODEL, 4).builds] == [item.id for item in builds]
        orphans = (
            "SELECT count(*) FROM procrastinate_jobs WHERE args ->> 'build_id' NOT IN (SELECT id FROM builds)"
        )
        assert again.sql(orphans) == [(0,)]
        assert other.aliases.alias(MODEL, "prod").number is None, "it was on a version that is deleted"
        actions = again.sql("SELECT resource FROM audit_log WHERE action = 'tombstone.apply' ORDER BY id")
        assert [name for (name,) in actions] == list(restored.deleted)
        other.journal.write()

        report = other.reindex.reindex()

        assert (report["deleted"], report["unreadable"]) == ([], {})
        assert deletion_answers(other, empty) == before
        known = deleted_since.services.aliases.alias(MODEL, "prod")
        assert other.aliases.alias(MODEL, "prod") == known, "its later moves came from the journal"
        other.collector.collect(grace=timedelta())
        assert other.storage_check.check().findings == ()


def test_nothing_is_collected_or_deleted_by_policy_between_a_restore_and_its_reindex(
    container: Container, config: ServerConfig, empty: ServerConfig, tmp_path: Path
) -> None:
    registry, data = Registry(container, str(config.database_url)), WEIGHTS % 9
    for _ in range(3):
        published(registry)
    move(registry, 3, None)
    container.retention.put(MODEL, last=1, by=ADA)
    registry.blob(data)  # uploaded before the backup, published after it
    write_backup(config, str(tmp_path / "backup"))
    move(registry, 1, 3)
    view = registry.submit(source={"factory": "torchvision.models:resnet18", "seed": 9})
    registry.published(view, code=b"code 9", key="key 9", weights_data=data)
    container.journal.write()

    restore_backup(empty, str(tmp_path / "backup"))
    with open_container(empty, database_url=str(empty.database_url)) as other:
        Registry(other, str(empty.database_url)).sql("DELETE FROM blob_leases")
        with pytest.raises(CollectionRefused, match="lacks versions that the storage has"):
            other.collector.collect(grace=timedelta())
        assert other.retention.run() == 0
        assert "pt2hub admin reindex" in other.retention.preview(MODEL, by=ADA).notes[0]
        other.reindex.reindex()
        other.retention.run()
        other.collector.collect(grace=timedelta())
        assert {version.number for version in other.catalog.versions(MODEL).versions} == {1, 3, 4}
        assert other.damage.open(StorageKey.blob(digest_bytes(data)))[1] == len(data)


def test_a_reindex_deletes_what_a_restore_could_not(
    deleted_since: Registry, config: ServerConfig, empty: ServerConfig, tmp_path: Path
) -> None:
    """The storage was copied back after the restore."""
    before = deletion_answers(deleted_since.services, config)
    backup.restore(str(empty.database_url), tmp_path / "backup")
    with open_container(empty, database_url=str(empty.database_url)) as other:
        assert other.publish.version(MODEL, 1).number == 1
        assert len(other.reindex.reindex()["deleted"]) == 5
        assert deletion_answers(other, empty) == before
        other.journal.write()
        assert other.reindex.reindex()["deleted"] == []


@pytest.mark.usefixtures("deleted_since")
def test_a_version_that_got_the_number_of_a_deleted_one_stays(empty: ServerConfig, tmp_path: Path) -> None:
    """As in a database that an older release restored without its tombstones."""
    backup.restore(str(empty.database_url), tmp_path / "backup")
    with open_container(empty, database_url=str(empty.database_url)) as other:
        again = Registry(other, str(empty.database_url))
        again.sql("DELETE FROM server_settings WHERE name = 'reindex_unfinished'")
        again.sql("UPDATE versions SET number = 9 WHERE number = 1")
        later = published(again)
        again.sql("UPDATE versions SET number = 1 WHERE number = 10")
        other.reindex.reindex()
        assert other.publish.version(MODEL, 1).builds[0].artifact == later


def test_a_storage_that_does_not_answer_is_noticed_before_a_restore(
    config: ServerConfig, empty: ServerConfig, tmp_path: Path
) -> None:
    write_backup(config, str(tmp_path / "backup"))
    away = replace(empty, storage="s3://bucket/prefix", s3_public_endpoint_url=None)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patched.setenv(name, "x")
        with pytest.raises(StorageUnavailable):
            restore_backup(away, str(tmp_path / "backup"))
    assert migrations.current(str(empty.database_url)) == ""


def test_a_backup_that_was_killed_is_in_no_other_ones_way_and_none_replaces_another(
    config: ServerConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "backup"
    (tmp_path / ".backup.incomplete").touch()  # as earlier releases left it
    write_backup(config, str(path))
    path.unlink()
    write = backup.write

    def write_beside_another(url: str, file: Any) -> backup.Backup:
        written = write(url, file)
        path.write_bytes(b"of another process")
        return written

    monkeypatch.setattr(backup, "write", write_beside_another)
    with pytest.raises(InvalidInput, match="already exists"):
        write_backup(config, str(path))
    assert path.read_bytes() == b"of another process"
    path.unlink()
    monkeypatch.setattr(backup, "write", write)

    def refuse(*_: Any) -> None:
        raise PermissionError("Operation not permitted")

    monkeypatch.setattr("os.link", refuse)  # a file system without hard links
    assert write_backup(config, str(path)).tables
    assert path.exists()
    assert [each.name for each in tmp_path.glob(".*incomplete")] == [".backup.incomplete"]


def test_a_restore_that_was_killed_is_not_started_with_and_is_done_again(
    config: ServerConfig,
    container: Container,
    empty: ServerConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Registry(container, str(config.database_url)).submit()
    path, url = tmp_path / "backup", str(empty.database_url)
    write_backup(config, str(path))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE FUNCTION of_the_operator() RETURNS int LANGUAGE sql AS 'SELECT 1'")

    class Killed(BaseException):
        """Its cleaning up does not run either."""

    def die(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(backup, "_copy_in", die)
        patched.setattr(backup, "_clear", lambda *_: None)
        with pytest.raises(Killed):
            restore_backup(empty, str(path))
    for start in (migrations.upgrade, migrations.require):
        with pytest.raises(Conflict, match="did not end"):
            start(url)
    with pytest.raises(Conflict, match="did not end"):
        write_backup(empty, str(tmp_path / "half"))
    with psycopg.connect(url) as other:
        other.execute("SELECT pg_advisory_lock(%s)", [backup.RESTORE_LOCK])
        with pytest.raises(Conflict, match="Another process"):
            restore_backup(empty, str(path))
    assert restore_backup(empty, str(path)).backup.rows
    migrations.require(url)
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT of_the_operator()").fetchone() == (1,)
        assert connection.execute("SELECT to_regclass('restore_unfinished')").fetchone() == (None,)
