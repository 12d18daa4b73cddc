"""Logs: read while they grow, put away when their attempt is over, and read the same then."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.artifacts import LINES, LOG_TYPE
from pt2hub.domain.builds import LogLine
from pt2hub.domain.digests import Digest, digest_bytes
from pt2hub.domain.tokens import Actor
from pt2hub.errors import BadResponse, CompileFailed, DatabaseUnavailable, NotFound
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.blobs.memory import MemoryStorage
from pt2hub.server.services.blobs.documents import read_bytes, read_manifest
from pt2hub.server.services.builds.log_blobs import LogBlobs, as_json_lines
from pt2hub.server.services.builds.old_logs import OldLogService
from support.registry import V3, V4

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flask.testing import FlaskClient

    from pt2hub.domain.builds import Claim
    from pt2hub.wire.responses import BuildView
    from support.registry import Registry
    from support.shell import Shell


def some_lines(count: int, *, after: int = 0, text: str = "line") -> list[LogLine]:
    """Lines of which every third is the compiler's."""
    return [
        LogLine(
            seq, 1.5 * seq, "compile", "info" if seq % 3 else "compiler", f'{text} {seq} "level":"compiler"'
        )
        for seq in range(after + 1, after + count + 1)
    ]


def running(registry: Registry) -> Claim:
    return registry.claim(registry.submit().builds[0].id)


def rows(registry: Registry, build: str) -> int:
    return int(registry.sql("SELECT count(*) FROM build_logs WHERE build_id = %s", build)[0][0])


def test_a_log_reads_the_same_before_while_and_after_it_is_put_away(registry: Registry) -> None:
    logs, claim = registry.services.logs, running(registry)
    lines = some_lines(25)
    registry.services.builds.report(claim, [], lines)
    asked = [{"after": 0}, {"after": 7, "limit": 5}, {"after": 24}, {"after": 25}, {"after": 10**12}]
    asked += [{**query, "summary": True} for query in asked]

    def answers() -> list[tuple[int, list[LogLine]]]:
        return [logs.lines(claim.build, **query) for query in asked]  # type: ignore[arg-type]  # keyword arguments

    before = answers()
    assert logs.archive(claim.build, 1) is None  # it runs
    registry.services.builds.fail(claim, CompileFailed("no"))
    assert answers() == before
    digest = logs.archive(claim.build, 1)
    assert digest
    assert rows(registry, claim.build) == 0
    assert answers() == before == [(1, page) for _, page in before]
    assert before[0][1] == lines
    assert [line.seq for line in before[5][1]] == [line.seq for line in lines if line.seq % 3]
    assert logs.archive(claim.build, 1) == digest  # again
    view = registry.services.builds.view(claim.build)
    assert [attempt.log for attempt in view.attempts] == [digest]
    stored = read_bytes(registry.services.storage, StorageKey.blob(digest)).splitlines()
    assert [json.loads(line)["seq"] for line in stored] == list(range(1, 26))


def test_each_attempt_keeps_its_own_log(registry: Registry) -> None:
    builds, logs = registry.services.builds, registry.services.logs
    first = running(registry)
    builds.report(first, [], some_lines(3, text="first"))
    builds.retry_later(first, DatabaseUnavailable("away"))
    logs.archive(first.build, 1)
    registry.sql("UPDATE builds SET not_before = NULL")
    second = registry.claim(first.build)
    builds.report(second, [], some_lines(2, text="second"))
    assert [line.text.partition(" ")[0] for line in logs.lines(first.build)[1]] == ["second"] * 2
    assert [line.text.partition(" ")[0] for line in logs.lines(first.build, attempt=1)[1]] == ["first"] * 3
    assert b"".join(logs.text(first.build, 1)).splitlines()[0] == (
        b'1970-01-01T00:00:01.500Z compile  first 1 "level":"compiler"'
    )
    assert len(b"".join(logs.text(first.build)).splitlines()) == 2


@pytest.mark.parametrize("attempt", [0, 2])
def test_an_attempt_that_never_was_is_not_found(registry: Registry, attempt: int) -> None:
    claim = running(registry)
    for ask in (registry.services.logs.lines, registry.services.logs.text):
        with pytest.raises(NotFound, match=f"Attempt {attempt} not found: it has 1 so far"):
            ask(claim.build, attempt=attempt)
        with pytest.raises(NotFound, match="not found"):
            ask("unknown")


def test_a_build_that_waits_has_an_empty_log(registry: Registry) -> None:
    build = registry.submit().builds[0].id
    assert registry.services.logs.lines(build) == (0, [])
    assert list(registry.services.logs.text(build)) == []
    assert registry.services.logs.archive(build, 1) is None


def test_an_attempt_without_a_line_has_nothing_to_put_away(registry: Registry) -> None:
    claim = running(registry)
    registry.services.builds.cancel(claim.build, by=Actor("me"))
    assert registry.services.logs.archive(claim.build, 1) is None


def published(registry: Registry, target: str = V4) -> BuildView:
    """A succeeded build whose log was put away."""
    view = registry.submit(targets=[target])
    claim = registry.claim(view.builds[-1].id)
    registry.services.builds.report(claim, [], some_lines(12, text=target))
    registry.services.builds.publish(claim, registry.publication(claim, code=target.encode()))
    registry.services.logs.archive(claim.build, 1)
    return registry.services.builds.view(claim.build)


def test_the_log_of_a_succeeded_build_belongs_to_its_artifact(registry: Registry) -> None:
    build = published(registry)
    assert build.artifact
    (log,) = [
        item
        for item in registry.services.resolve.artifact(build.artifact).referrers
        if item.artifact_type == LOG_TYPE
    ]
    manifest = read_manifest(registry.services.storage, Digest(log.digest))
    assert manifest.subject
    assert (manifest.subject.digest, manifest.layers[0].digest) == (build.artifact, build.attempts[0].log)
    assert manifest.annotations[LINES] == "12"
    assert manifest.layers[0].mediaType == LOG_TYPE


def test_a_log_that_was_put_away_is_kept_with_its_manifest(registry: Registry) -> None:
    build = published(registry)
    failed = registry.claim(registry.submit(model="vision/failed").builds[0].id)
    registry.services.builds.report(failed, [], some_lines(1, text="other"))
    registry.services.builds.fail(failed, CompileFailed("no"))
    registry.services.logs.archive(failed.build, 1)
    kept = "SELECT kind, count(*) FROM blob_references WHERE owner = %s GROUP BY kind ORDER BY kind"
    assert registry.sql(kept, f"log:{build.id}:1") == [("blobs", 2), ("manifests", 1)]
    assert registry.sql(kept, f"log:{failed.build}:1") == [("blobs", 1)]
    assert registry.sql("SELECT count(*) FROM blob_leases") == [(0,)]


def test_logs_of_artifacts_come_back_with_a_reindex(registry: Registry) -> None:
    builds = [published(registry, target) for target in (V4, V3)]
    before = [registry.services.logs.lines(build.id) for build in builds]
    registry.sql("TRUNCATE models, builds, artifacts, workers, targets CASCADE")
    assert registry.services.reindex.reindex()["added"] == 2
    assert [registry.services.logs.lines(build.id) for build in builds] == before
    again = [registry.services.builds.view(build.id).attempts[0].log for build in builds]
    assert again == [build.attempts[0].log for build in builds]
    assert [registry.services.logs.archive(build.id, 1) for build in builds] == again


def test_lines_that_come_while_a_log_is_put_away_are_not_lost(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds, logs, claim = registry.services.builds, registry.services.logs, running(registry)
    builds.report(claim, [], some_lines(5))
    builds.fail(claim, CompileFailed("no"))
    storage: MemoryStorage = registry.services.storage  # type: ignore[assignment]  # the fixture's
    write = storage.write_file

    def write_slowly(*arguments: object) -> int:
        builds.report(claim, [], some_lines(1, after=5))
        monkeypatch.undo()
        return write(*arguments)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(storage, "write_file", write_slowly)
    assert logs.archive(claim.build, 1) is None
    assert [line.seq for line in logs.lines(claim.build)[1]] == [1, 2, 3, 4, 5, 6]
    assert logs.archive(claim.build, 1)
    assert [line.seq for line in logs.lines(claim.build)[1]] == [1, 2, 3, 4, 5, 6]


def test_who_reads_while_logs_are_put_away_misses_no_line(registry: Registry) -> None:
    logs, builds = registry.services.logs, registry.services.builds
    view = registry.submit(targets=[V4, V3])
    claims = [registry.claim(build.id) for build in view.builds]
    for claim in claims:
        builds.report(claim, [], some_lines(3000))
        builds.fail(claim, CompileFailed("no"))
    wrong: list[int] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            for claim in claims:
                _, page = logs.lines(claim.build, after=2000, limit=10)
                if [line.seq for line in page] != list(range(2001, 2011)):
                    wrong.append(len(page))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for claim in claims:
        assert logs.archive(claim.build, 1)
    stop.set()
    for reader in readers:
        reader.join()
    assert wrong == []


class Counted(MemoryStorage):
    """A storage that holds one thing and counts the bytes that are read."""

    def __init__(self, data: bytes, chunk: int) -> None:
        super().__init__()
        self.data, self.chunk, self.read_bytes = data, chunk, 0

    def read(self, key: StorageKey, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        del key
        for at in range(start, stop or len(self.data), self.chunk):
            piece = self.data[at : at + self.chunk]
            self.read_bytes += len(piece)
            yield piece


LOG = Digest("sha256:" + "0" * 64)


@pytest.mark.parametrize("chunk", [7, 1000, 1 << 20])
def test_pages_of_a_log_are_whole_wherever_its_bytes_are_cut(chunk: int) -> None:
    lines = some_lines(250)
    blobs = LogBlobs(Counted(b"".join(as_json_lines(lines)), chunk))
    for after in (0, 249, 100, 99, 250, 3, 1000):
        assert blobs.page(LOG, after=after, limit=7) == lines[after : after + 7]


def test_lines_before_a_page_are_counted_and_not_read() -> None:
    lines = some_lines(10)
    blobs = LogBlobs(
        Counted(
            b"no JSON\n" * 50_000 + b"".join(as_json_lines(lines)).replace(b'"seq":', b'"seq":5000'), 1 << 16
        )
    )
    assert [line.seq for line in blobs.page(LOG, after=50_000, limit=5)] == [
        50_001,
        50_002,
        50_003,
        50_004,
        50_005,
    ]


def test_a_long_log_is_read_to_its_end_without_beginning_again_each_time() -> None:
    storage = Counted(b"".join(as_json_lines(some_lines(50_000))), 1 << 16)
    blobs, after = LogBlobs(storage), 0
    while page := blobs.page(LOG, after=after, limit=1000):
        after = page[-1].seq
    assert after == 50_000
    assert storage.read_bytes < 4 * len(storage.data)


def test_a_line_that_never_came_is_named_and_moves_no_other() -> None:
    lines = [LogLine(1, 0.0, "a", "info", "one"), LogLine(4, 1.0, "b", "info", "four")]
    found = LogBlobs(Counted(b"".join(as_json_lines(lines)), 100)).page(LOG, after=1, limit=9)
    assert [(line.seq, line.level) for line in found] == [(2, "warning"), (3, "warning"), (4, "info")]


def test_a_damaged_log_is_told_as_such() -> None:
    with pytest.raises(BadResponse, match="damaged"):
        LogBlobs(Counted(b"{}\n", 10)).page(LOG, after=0, limit=1)
    with pytest.raises(BadResponse, match="damaged"):
        LogBlobs(Counted(b"no\n", 10)).page(LOG, after=0, limit=1)


def test_what_postgresql_cannot_hold_is_in_the_put_away_log_as_it_was_read(registry: Registry) -> None:
    claim = running(registry)
    registry.services.builds.report(
        claim, [], [LogLine(1, 0.0, "compile", "output", "a\x00b \udcff é\u2028\n")]
    )
    registry.services.builds.fail(claim, CompileFailed("no"))
    before = registry.services.logs.lines(claim.build)
    registry.services.logs.archive(claim.build, 1)
    assert registry.services.logs.lines(claim.build) == before
    assert before[1][0].text == "a\ufffdb ? é\u2028\n"


def test_old_logs_are_removed_and_the_attempt_says_after_how_long(registry: Registry) -> None:
    claims = [running(registry), registry.claim(registry.submit(model="vision/other").builds[0].id)]
    for claim in claims:
        registry.services.builds.report(claim, [], some_lines(3))
        registry.services.builds.fail(claim, CompileFailed("no"))
        assert registry.services.logs.archive(claim.build, 1)
    old, young = claims
    registry.sql(
        "UPDATE build_attempts SET ended_at = now() - interval '91 days' WHERE build_id = %s", old.build
    )
    assert OldLogService(registry.services._sessions, keep=timedelta()).remove() == 0
    service = OldLogService(registry.services._sessions, keep=timedelta(days=90))
    assert (service.remove(), service.remove()) == (1, 0)
    (attempt,) = registry.services.builds.view(old.build).attempts
    assert (attempt.log, attempt.log_removed_after_days) == (None, 91)
    assert registry.services.logs.lines(old.build) == (1, [])
    (attempt,) = registry.services.builds.view(young.build).attempts
    assert (attempt.log is not None, attempt.log_removed_after_days) == (True, None)
    assert len(registry.services.logs.lines(young.build)[1]) == 3
    owners = registry.sql("SELECT DISTINCT owner FROM blob_references WHERE owner LIKE 'log:%%'")
    assert owners == [(f"log:{young.build}:1",)]
    assert registry.services.logs.archive(old.build, 1) is None  # nothing comes back
    assert registry.services.builds.view(old.build).attempts[0].log_removed_after_days == 91


def test_the_log_of_an_artifact_goes_with_its_referrer_also_after_a_reindex(registry: Registry) -> None:
    claim = running(registry)
    registry.services.builds.report(claim, [], some_lines(3))
    publication = registry.publication(claim)
    registry.services.builds.publish(claim, publication)
    artifact = publication.manifest.digest
    log = registry.services.logs.archive(claim.build, 1)
    assert log
    keys = [
        (row[0], row[1])
        for row in registry.sql(
            "SELECT kind, digest FROM blob_references WHERE owner = %s AND digest <> %s",
            f"log:{claim.build}:1",
            digest_bytes(b"{}"),
        )
    ]
    for kind, digest in keys:  # as a reindex refers to them
        registry.sql(
            "INSERT INTO blob_references (kind, digest, owner) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
            kind,
            digest,
            f"artifact:{artifact}",
        )
    registry.sql("UPDATE build_attempts SET ended_at = now() - interval '31 days'")
    before = registry.services.resolve.artifact(artifact)
    assert OldLogService(registry.services._sessions, keep=timedelta(days=30)).remove() == 1
    assert registry.sql("SELECT count(*) FROM referrers WHERE artifact_type = %s", LOG_TYPE) == [(0,)]
    left = registry.sql("SELECT DISTINCT kind, digest FROM blob_references")
    logs = {("blobs", log)} | {
        (kind, digest) for kind, digest in keys if kind == "manifests" and digest != artifact
    }
    assert not logs & set(left)
    assert registry.services.resolve.artifact(artifact).digest == before.digest
    assert ("manifests", artifact) in left
    registry.sql("DELETE FROM blob_leases")
    registry.services.collector.collect(grace=timedelta())
    assert registry.services.storage.size(StorageKey.blob(log)) is None
    assert registry.services.storage.size(StorageKey.manifest(artifact)) is not None
    assert registry.services.reindex.reindex()["unreadable"] == {}


def test_the_page_and_the_command_say_that_a_log_was_removed(
    served: Registry, shell: Shell, web: FlaskClient
) -> None:
    claim = running(served)
    served.services.builds.report(claim, [], some_lines(3))
    served.services.builds.fail(claim, CompileFailed("no"))
    served.services.logs.archive(claim.build, 1)
    served.sql("UPDATE build_attempts SET ended_at = now() - interval '31 days'")
    OldLogService(served.services._sessions, keep=timedelta(days=30)).remove()
    assert "The log was removed after 31 days." in web.get(f"/builds/{claim.build}").text
    told = shell("logs", claim.build)
    assert (told.code, "The log of attempt 1 was removed after 31 days." in told.err) == (0, True)
