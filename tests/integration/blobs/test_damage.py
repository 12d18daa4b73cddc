"""Damage of stored blobs: it is found, never served, and mended by whoever uploads the right bytes."""

from __future__ import annotations

import base64
import hashlib
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import urllib3
from flask.testing import FlaskClient

from pt2hub import errors
from pt2hub.domain.damage import DamageProblem
from pt2hub.domain.digests import digest_bytes
from pt2hub.domain.tokens import SERVER
from pt2hub.server.api.app import create_app
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.blobs.local import LocalStorage
from pt2hub.server.container import Container, open_container
from pt2hub.server.db import engine as engines
from pt2hub.server.db.stores.blobs.damage import MAX_REQUESTED
from pt2hub.server.services.access.rate_limits import MAX_BLOB_CHECKS, MAX_CLIENT_CHECKS
from pt2hub.server.services.blobs import damage_reports, scrub
from pt2hub.server.services.blobs.blob_writes import BlobChunk
from pt2hub.server.services.blobs.damage import DamageService
from pt2hub.server.services.blobs.scrub import ScrubService
from support.collecting import Collector
from support.planted import KINDS, Disk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pt2hub.server.config import ServerConfig
    from support.s3 import S3Server

MIB = 1 << 20


@dataclass
class Bench:
    """A server over a storage, and the disk below it."""

    container: Container
    api: FlaskClient
    bearer: dict[str, str]
    disk: Disk
    url: str

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    def store(self, data: bytes) -> StorageKey:
        key = StorageKey.blob(digest_bytes(data))
        self.container.blobs.store([BlobChunk(key, len(data), data)], holder="build:a:1")
        return key

    def put(self, data: bytes) -> int:
        path = f"/api/v1/blobs/{digest_bytes(data)}"
        return self.api.put(path, data=data, headers=self.bearer).status_code

    def get(self, key: StorageKey) -> bytes | str:
        """The bytes of a blob, or the code of the error."""
        answer = self.api.get(f"/api/v1/blobs/{key.digest}")
        if answer.status_code == 307:
            signed = urllib3.request("GET", answer.headers["Location"], retries=False)
            return signed.data if signed.status == 200 else "storage"
        if answer.status_code != 200:
            return str(answer.get_json(force=True)["code"])
        return answer.data

    def state(self, key: StorageKey) -> tuple[str, int]:
        ((state, generation),) = self.sql("SELECT state, generation FROM blobs WHERE digest = %s", key.digest)
        return state, generation

    def find_all(self) -> list[DamageProblem]:
        report = self.container.scrub.run(everything=True)
        return [item.problem for item in report.damaged]


@pytest.fixture(params=["local", "s3"])
def bench(request: pytest.FixtureRequest, config: ServerConfig, tmp_path: Path) -> Iterator[Bench]:
    disk = Disk(root=tmp_path / "blobs")
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        url: str = request.getfixturevalue("s3_url")
        config = replace(config, storage=url, max_blob_bytes=1 << 30)
        disk = Disk(client=server.client(), bucket=(server.bucket, url.rpartition("/")[2]))
    url = str(config.database_url)
    with open_container(config, database_url=url) as container:
        container.storage.check()
        api = create_app(container, config).test_client()
        bearer = {"Authorization": f"Bearer {container.access.create_token('test')}"}
        yield Bench(container, api, bearer, disk, url)


only_local = pytest.mark.parametrize("bench", ["local"], indirect=True)
only_s3 = pytest.mark.parametrize("bench", ["s3"], indirect=True)


def test_a_scrub_finds_every_planted_damage_nothing_of_it_is_served_and_uploads_mend_it(bench: Bench) -> None:
    count = 120 if bench.disk.root else 24
    blobs = {bench.store(b"%d bytes of a blob " % number * 3): number for number in range(count)}
    whole = {key: bench.disk.read(key.path) or b"" for key in blobs}
    damaged = {key: KINDS[number % 3] for key, number in blobs.items() if number % 4}
    for key, kind in damaged.items():
        bench.disk.plant(key, kind, at=blobs[key] * 7)

    found = bench.find_all()

    assert len(found) == len(damaged)
    assert {problem.value for problem in found} == {"digest", "size", "missing"}
    assert {item.digest for item in bench.container.damage.list_damaged()} == {key.digest for key in damaged}
    for key in blobs:
        assert bench.get(key) == ("blob_damaged" if key in damaged else whole[key])
    for key in damaged:
        assert bench.put(whole[key]) == 201
        assert bench.get(key) == whole[key]
        assert bench.state(key) == ("stored", 2)
    assert bench.find_all() == []
    assert bench.container.damage.list_damaged() == []
    kept = [key for key, kind in damaged.items() if kind != "lose"]
    assert all(bench.disk.read(key.quarantine_path) not in (None, whole[key]) for key in kept)
    assert all(bench.disk.read(key.path) is None for key in kept), "no reader finds them"


@only_local
def test_wrong_bytes_are_never_served_whole_even_before_a_scrub(bench: Bench) -> None:
    small, large = bench.store(b"weights"), bench.store(b"w" * (3 * MIB))
    bench.disk.plant(small)
    bench.disk.plant(large, at=MIB)
    assert bench.get(small) == "blob_damaged"
    received: list[int] = []
    answer = bench.api.get(f"/api/v1/blobs/{large.digest}", buffered=False)
    with pytest.raises(errors.BlobDamaged):
        received.extend(map(len, answer.iter_encoded()))
    assert sum(received) == 2 * MIB < (answer.content_length or 0), "the end is kept back"
    assert bench.get(large) == "blob_damaged"
    assert bench.state(small) == bench.state(large) == ("damaged", 1)


@pytest.mark.parametrize("kind", ["truncate", "lose"])
def test_the_length_is_checked_by_every_read(bench: Bench, kind: str) -> None:
    bench.store(b"another one, so that the storage is not empty")
    key = bench.store(b"weights")
    bench.disk.plant(key, kind)
    answer = bench.api.get(f"/api/v1/blobs/{key.digest}", headers={"Range": "bytes=0-1"})
    assert (answer.status_code, answer.get_json(force=True)["code"]) == (500, "blob_damaged")
    assert "pt2hub admin heal" in answer.get_json(force=True)["hint"]


def test_the_right_bytes_replace_damage_that_nobody_knew(bench: Bench) -> None:
    key = bench.store(b"weights")
    bench.disk.plant(key)
    assert bench.put(b"weights") == 201
    assert bench.get(key) == b"weights"
    assert bench.state(key) == ("stored", 2)


def test_a_worker_replaces_what_has_another_length_and_what_is_known_to_be_damaged(
    bench: Bench, tmp_path: Path
) -> None:
    cut, flipped = bench.store(b"weights"), bench.store(b"code of an artifact")
    bench.disk.plant(cut, "truncate")
    bench.disk.plant(flipped)
    bench.container.scrub.run()  # nothing is due yet
    bench.container.damage.check_key(flipped.at(1), by="admin")
    file = tmp_path / "weights"
    file.write_bytes(b"weights")
    pieces = [BlobChunk(cut, 7, file), BlobChunk(flipped, 19, b"code of an artifact")]
    bench.container.blobs.store(pieces, holder="build:b:1")
    assert (bench.get(cut), bench.get(flipped)) == (b"weights", b"code of an artifact")
    assert bench.state(cut) == bench.state(flipped) == ("stored", 2)


@only_s3
@pytest.mark.parametrize("size", [1000, 6 * MIB])
def test_presigned_uploads_write_the_next_generation(
    bench: Bench, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = bytes([size % 251]) * size
    key = bench.store(data)
    bench.disk.plant(key, "truncate", at=500)
    monkeypatch.setattr(bench.container.storage, "single_bytes", 5 * MIB)
    uploads = bench.container.uploads

    view = uploads.begin(key.digest, size, by=SERVER)

    assert view.id, "a damaged blob counts as not stored"
    etags: list[str] = []
    if view.part_bytes:
        md5 = base64.b64encode(hashlib.md5(data).digest()).decode()
        (part,) = uploads.sign_parts(view.id, [(1, md5)]).parts
        sent = urllib3.request("PUT", part.request.url, body=data, headers=part.request.headers)
        etags = [sent.headers["ETag"]]
    else:
        assert view.request
        urllib3.request("PUT", view.request.url, body=data, headers=view.request.headers)
    assert uploads.complete(view.id, etags, by=SERVER).state == "stored"
    assert bench.get(key) == data
    assert bench.state(key) == ("stored", 2)


def test_an_announced_size_that_is_wrong_is_told_from_damage(bench: Bench) -> None:
    key = bench.store(b"weights")
    with pytest.raises(errors.DigestMismatch, match="7 bytes, not 8"):
        bench.container.uploads.begin(key.digest, 8, by=SERVER)
    assert bench.state(key) == ("stored", 1)


@only_local
def test_a_reading_that_goes_wrong_once_is_no_damage(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    key, read, wrong = bench.store(b"weights"), LocalStorage.read, [b"changed"]

    def changed(storage: LocalStorage, *arguments: Any) -> Iterator[bytes]:
        if wrong:
            yield wrong.pop()
        else:
            yield from read(storage, *arguments)

    monkeypatch.setattr(LocalStorage, "read", changed)
    assert bench.find_all() == []
    assert bench.state(key) == ("stored", 1)


def test_what_a_machine_with_bad_memory_put_away_is_healed_from_the_quarantine(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, lost = bench.store(b"weights"), bench.store(b"other weights")
    with monkeypatch.context() as patch:
        patch.setattr(type(bench.container.storage), "read", lambda *_: iter([b"changed"]))
        assert len(bench.find_all()) == 2
    assert bench.get(key) == "blob_damaged"
    bench.disk.write(lost.quarantine_path, b"wrong weights")
    outcomes = {item.digest: (item.state, item.source) for item in bench.container.heal.heal([], [])}
    assert outcomes == {key.digest: ("healed", "quarantine"), lost.digest: ("damaged", None)}
    assert (bench.get(key), bench.get(lost)) == (b"weights", "blob_damaged")
    assert bench.state(key) == ("stored", 2)


@only_local
def test_a_directory_that_is_not_mounted_is_no_damage(bench: Bench, tmp_path: Path) -> None:
    keys = [bench.store(b"weights"), bench.store(b"code")]
    (tmp_path / "blobs" / "blobs").rename(tmp_path / "elsewhere")
    with pytest.raises(errors.StorageUnavailable, match="The storage is empty"):
        bench.find_all()
    (tmp_path / "elsewhere").rename(tmp_path / "blobs" / "blobs")
    assert [bench.state(key) for key in keys] == [("stored", 1)] * 2


@only_local
def test_a_scrub_says_that_known_damage_is_not_mended_and_a_storage_that_is_gone_is_no_missing_blob(
    bench: Bench, tmp_path: Path
) -> None:
    key, other = bench.store(b"weights"), bench.store(b"code")
    bench.disk.plant(key)
    reports = [bench.container.scrub.run(everything=True) for _ in range(2)]
    assert [(len(report.damaged), report.known) for report in reports] == [(1, 0), (0, 1)]
    (tmp_path / "blobs" / "blobs").rename(tmp_path / "elsewhere")
    assert bench.get(other) == "storage_unavailable"
    (tmp_path / "elsewhere").rename(tmp_path / "blobs" / "blobs")
    assert bench.get(other) == b"code"


@only_local
def test_what_was_missing_and_comes_back_is_intact_again(bench: Bench) -> None:
    key, _ = bench.store(b"weights"), bench.store(b"code")
    bench.disk.write(key.path, None)
    assert bench.find_all() == [DamageProblem.MISSING]
    bench.disk.write(key.path, b"weights")
    assert bench.container.scrub.run().restored == 1
    assert (bench.get(key), bench.state(key)) == (b"weights", ("stored", 1))


@only_local
def test_a_lost_database_row_size_is_corrected_by_the_bytes(bench: Bench) -> None:
    key = bench.store(b"weights")
    bench.sql("UPDATE blobs SET size = 3")
    assert bench.get(key) == b"weights"
    assert bench.sql("SELECT size FROM blobs") == [(7,)]


@only_local
def test_nothing_that_is_written_or_deleted_meanwhile_is_called_damaged(bench: Bench, tmp_path: Path) -> None:
    data = [b"%d bytes" % number * 50 for number in range(20)]
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            for each in data:
                with suppress(errors.BlobGone):  # our collector drops leases that live
                    bench.store(each)

    def collect() -> None:
        with psycopg.connect(bench.url, autocommit=True) as connection:
            collector = Collector(connection, tmp_path / "blobs")
            while not done.is_set():
                connection.execute("DELETE FROM blob_leases")
                collector.collect()

    threads = [threading.Thread(target=work, daemon=True) for work in (write, write, collect)]
    bench.store(b"kept: the storage is never empty")
    bench.sql("INSERT INTO blob_references SELECT kind, digest, 'version:1' FROM blobs")
    for thread in threads:
        thread.start()
    checked, until = 0, time.monotonic() + 20
    written = "SELECT max(generation) > 2 FROM blobs"
    while time.monotonic() < until and (checked <= 60 or bench.sql(written) != [(True,)]):
        checked += bench.container.scrub.run(everything=True).blobs
    done.set()
    for thread in threads:
        thread.join(20)
    assert checked > 60
    assert bench.sql(written) == [(True,)], "they were deleted meanwhile"
    assert bench.sql("SELECT * FROM blob_damage") == []


@only_local
def test_the_scrub_goes_on_where_it_was_and_one_server_does_it(bench: Bench) -> None:
    keys = [bench.store(b"%d" % number) for number in range(3)]
    bench.sql("UPDATE blobs SET checked_at = now() - interval '3 days'")
    bench.sql("UPDATE blobs SET checked_at = now() - interval '9 days' WHERE digest = %s", keys[2].digest)
    engine = engines.create(bench.url)
    sessions = engines.Sessions(engine)
    first, second = (
        ScrubService(sessions, DamageService(sessions, bench.container.storage), bytes_per_s=1 << 20)
        for _ in range(2)
    )
    waits: list[float] = []

    def stop(seconds: float) -> bool:
        second.run_in_turn(lambda _: pytest.fail("the first one has the claim"))
        waits.append(seconds)
        return len(waits) == 2

    first.run_in_turn(stop)  # stopped after the first blob
    fresh = bench.sql("SELECT digest FROM blobs WHERE checked_at > now() - interval '1 minute'")
    assert fresh == [(keys[2].digest,)]
    second.run_in_turn(lambda _: False)
    assert bench.sql("SELECT count(*) FROM blobs WHERE checked_at > now() - interval '1 minute'") == [(3,)]
    bench.container.damage.request_check(keys[0])
    first.run_in_turn(lambda _: False)
    statistics = bench.container.statistics.snapshot().scrub
    assert (statistics.blobs, statistics.damaged) == (3, 0)
    engine.dispose()


@only_local
def test_the_scrub_reads_no_faster_than_it_is_told(bench: Bench) -> None:
    for number in range(4):
        bench.store(bytes([number]) * MIB)
    bench.sql("UPDATE blobs SET checked_at = now() - interval '3 days'")
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return False

    ScrubService(bench.container._sessions, bench.container.damage, bytes_per_s=MIB).run_in_turn(wait)
    assert 3 < max(waits) < 4.5, "the clock stood still, so the last wait has all of it"


@only_local
def test_damage_that_could_not_be_moved_away_is_moved_later(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = bench.store(b"weights")
    bench.disk.plant(key)
    refused = errors.StorageUnavailable("no rights")
    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "quarantine", lambda *_: (_ for _ in ()).throw(refused))
        assert bench.find_all() == [DamageProblem.DIGEST]
    assert bench.put(b"weights") == 201
    assert bench.get(key) == b"weights", "the API reads the generation that is right"
    bench.container.maintenance.tidy()
    assert bench.disk.read(key.path) is None
    assert b"".join(bench.container.storage.read(key)) == b"weights"


@only_local
def test_age(bench: Bench) -> None:
    bench.store(b"weights")
    assert bench.container.scrub.count_due(everything=False) == (0, 0)
    assert bench.container.scrub.count_due(everything=True) == (1, 7)
    bench.sql("UPDATE blobs SET checked_at = checked_at - %s", timedelta(days=8))
    assert bench.container.scrub.count_due(everything=False) == (1, 7)


def test_a_clock_that_was_set_back_keeps_no_blob_and_no_server_from_the_scrub(bench: Bench) -> None:
    keys = [bench.store(b"%d" % number) for number in range(3)]
    bench.sql("UPDATE blobs SET checked_at = now() + interval '300 days' WHERE digest <> %s", keys[0].digest)
    bench.sql("""
        INSERT INTO scrub_position (id, holder, claimed_until, blobs, bytes)
        VALUES (1, 'another', now() + interval '300 days', 0, 0)""")
    assert bench.container.scrub.count_due(everything=False) == (2, 2)
    bench.container.scrub.run_in_turn(lambda _: False)
    assert bench.sql("SELECT count(*) FROM blobs WHERE checked_at <= now()") == [(3,)]


def report(bench: Bench, key: StorageKey, address: str = "192.0.2.1") -> tuple[int, str]:
    """The status of a client's report, without a token, and what the server found, or the error's code."""
    path, sender = f"/api/v1/blobs/{key.digest}/check", {"REMOTE_ADDR": address}
    answer = bench.api.post(path, environ_overrides=sender)
    document = answer.get_json(force=True)
    return answer.status_code, document.get("state") or document["code"]


def test_a_report_has_the_blob_read_again_at_once(bench: Bench) -> None:
    intact, damaged = bench.store(b"intact"), bench.store(b"damaged")
    bench.disk.plant(damaged)
    assert report(bench, intact) == (200, "intact")
    assert report(bench, damaged) == (200, "damaged")
    assert (bench.state(intact), bench.state(damaged)) == (("stored", 1), ("damaged", 1))
    assert bench.sql("SELECT found_by FROM blob_damage") == [("report",)]
    assert report(bench, damaged) == (500, "blob_damaged")
    assert report(bench, StorageKey.blob(digest_bytes(b"unknown"))) == (404, "not_found")


@only_local
def test_reports_cause_only_a_few_readings_and_no_client_takes_all(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [bench.store(b"blob %d" % number) for number in range(MAX_BLOB_CHECKS + 5)]
    read: list[object] = []
    check = DamageService.check
    monkeypatch.setattr(
        DamageService, "check", lambda *args, **named: (read.append(args), check(*args, **named))[1]
    )
    answers = [report(bench, key) for key in keys]
    assert answers.count((200, "intact")) == len(read) == MAX_CLIENT_CHECKS
    assert answers[MAX_CLIENT_CHECKS:] == [(429, "rate_limited")] * (len(keys) - MAX_CLIENT_CHECKS)
    answers = [report(bench, key, f"192.0.2.{10 + number}") for number, key in enumerate(keys)]
    assert answers.count((200, "intact")) == MAX_BLOB_CHECKS - MAX_CLIENT_CHECKS
    assert len(read) == MAX_BLOB_CHECKS


@only_local
def test_large_blobs_that_were_reported_are_next_for_the_scrub_once_a_day_and_never_all_it_does(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(damage_reports, "MAX_IMMEDIATE_BYTES", 4)
    key = bench.store(b"large")
    requested = "SELECT checked_at = '-infinity' FROM blobs"
    assert report(bench, key) == (200, "queued")
    assert bench.sql(requested) == [(False,)]  # it was verified a moment ago
    bench.sql("UPDATE blobs SET checked_at = now() - interval '25 hours'")
    assert report(bench, key) == (200, "queued")
    assert bench.sql(requested) == [(True,)]
    others = [bench.store(b"large %d" % number) for number in range(MAX_REQUESTED + 5)]
    bench.sql("UPDATE blobs SET checked_at = now() - interval '25 hours' WHERE checked_at > '-infinity'")
    for number, other in enumerate(others):
        bench.sql("DELETE FROM rate_counters")
        assert report(bench, other, f"192.0.2.{number}") == (200, "queued")
    assert bench.sql("SELECT count(*) FROM blobs WHERE checked_at = '-infinity'") == [(MAX_REQUESTED,)]
    assert MAX_REQUESTED < scrub.TAKEN_AT_ONCE, "others have their turn"


def test_wrong_bytes_hide_no_damage_and_right_ones_still_mend_it(bench: Bench) -> None:
    key = bench.store(b"weights")
    bench.disk.plant(key)
    assert bench.find_all() == [DamageProblem.DIGEST]
    for _ in range(2):
        answer = bench.api.put(f"/api/v1/blobs/{key.digest}", data=b"junk", headers=bench.bearer)
        assert answer.get_json(force=True)["code"] == "digest_mismatch"
        assert [item.digest for item in bench.container.damage.list_damaged()] == [key.digest]
        assert bench.get(key) == "blob_damaged"
    assert bench.put(b"weights") == 201
    assert (bench.get(key), bench.state(key)) == (b"weights", ("stored", 2))
