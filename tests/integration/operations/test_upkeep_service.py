from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import psycopg
import pytest

from pt2hub.domain.builds import MAX_FAILURES, LogLine
from pt2hub.domain.digests import digest_bytes
from pt2hub.domain.tokens import Actor
from pt2hub.errors import CompileFailed, DigestMismatch, StorageUnavailable
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.notifications import BUILDS, PROGRESS
from pt2hub.server.services.operations.maintenance import HourlyTask
from support.registry import V4

if TYPE_CHECKING:
    from pathlib import Path

    from support.registry import Registry


def test_a_lost_attempt_is_closed_and_counted_and_named(registry: Registry) -> None:
    claim = registry.claim(registry.submit().builds[0].id)
    registry.step(claim, "compile", "running", detail="autotuning 3 of 9")
    registry.silence("w1")
    assert registry.services.maintenance.requeue_lost() == [claim.build]
    view = registry.services.builds.view(claim.build)
    assert (view.state, view.failures, view.not_before) == ("queued", 1, None)
    (attempt,) = view.attempts
    assert (attempt.outcome, attempt.code) == ("lost", "worker_lost")
    assert attempt.message == "Attempt 1 lost its worker w1"
    assert [step.state for step in view.steps] == ["lost"]


def test_a_build_that_takes_down_every_worker_ends(registry: Registry) -> None:
    (build,) = registry.submit().builds
    for number in range(1, MAX_FAILURES + 1):
        registry.claim(build.id, f"w{number}")
        registry.silence(f"w{number}")
        assert registry.services.maintenance.requeue_lost() == [build.id]
    view = registry.services.builds.view(build.id)
    assert view.state == "failed"
    error = view.error or {}
    assert error["code"] == "worker_lost"
    assert all(
        f"attempt {number} (w{number}: lost)" in error["message"] for number in range(1, MAX_FAILURES + 1)
    )
    assert f"pt2hub logs {build.id}" in error["hint"]
    assert f"pt2hub retry {build.id}" in error["hint"]
    assert registry.services.maintenance.requeue_lost() == []
    assert registry.services.builds.retry(build.id, Actor("alice")).failures == 0
    again = registry.claim(build.id, "w9")
    registry.silence("w9")
    registry.services.maintenance.requeue_lost()
    assert registry.services.builds.view(build.id).state == "queued"
    assert again.attempt == MAX_FAILURES + 1


def test_a_clock_that_is_set_back_keeps_no_build_with_a_dead_worker(registry: Registry) -> None:
    claim = registry.claim(registry.submit().builds[0].id)
    registry.sql(
        "UPDATE workers SET last_seen = now() + interval '1 hour'"
    )  # as it was before the database's clock
    assert registry.services.maintenance.requeue_lost() == [claim.build]


def test_contact_tells_the_databases_clock(registry: Registry) -> None:
    assert abs(registry.services.maintenance.contact() - time.time()) < 60  # one machine here


def test_a_build_that_waits_for_its_pause_is_not_astray(registry: Registry) -> None:
    claim = registry.claim(registry.submit().builds[0].id)
    registry.services.builds.retry_later(claim, CompileFailed())
    registry.sql("DELETE FROM procrastinate_jobs")
    registry.sql(
        "UPDATE builds SET queued_at = now() - interval '1 hour', not_before = now() + interval '1 hour'"
    )
    assert registry.services.maintenance.requeue_lost() == []
    registry.sql("UPDATE builds SET not_before = now() - interval '1 hour'")
    assert registry.services.maintenance.requeue_lost() == [claim.build]
    assert registry.jobs(claim.build) == [(V4, "todo")]


def test_a_build_delivered_again_keeps_its_place(registry: Registry) -> None:
    (build,) = registry.submit(priority=4).builds
    registry.sql("DELETE FROM procrastinate_jobs")
    registry.sql("UPDATE builds SET queued_at = now() - interval '1 hour'")
    before = registry.sql("SELECT queued_at FROM builds")
    assert registry.services.maintenance.requeue_lost() == [build.id]
    assert registry.sql("SELECT queued_at FROM builds") == before
    assert registry.sql("SELECT priority FROM procrastinate_jobs") == [(4,)]


def test_tidying_puts_finished_logs_away_and_leaves_running_ones(registry: Registry) -> None:
    done = registry.claim(registry.submit().builds[0].id)
    registry.services.builds.report(done, [], [LogLine(1, 0.0, "fetch", "info", "hello")])
    registry.services.builds.publish(done, registry.publication(done))
    silent = registry.claim(registry.submit(model="vision/silent").builds[0].id)
    registry.services.builds.fail(silent, CompileFailed())
    running = registry.claim(registry.submit(model="vision/running").builds[0].id)
    registry.services.builds.report(running, [], [LogLine(1, 0.0, "fetch", "info", "still")])
    registry.services.maintenance.tidy()
    assert (
        registry.services.builds.view(done.build).attempts[0].log is None
    )  # its last lines may be under way
    registry.sql("UPDATE build_attempts SET ended_at = ended_at - interval '1 minute'")
    registry.services.maintenance.tidy()
    (attempt,) = registry.services.builds.view(done.build).attempts
    assert attempt.log
    assert registry.services.storage.size(StorageKey.blob(attempt.log))
    assert registry.sql("SELECT log_lines, log FROM build_attempts WHERE build_id = %s", silent.build) == [
        (0, None)
    ]
    assert registry.sql("SELECT build_id FROM build_logs") == [(running.build,)]


def test_a_log_that_cannot_be_put_away_keeps_no_other_from_it(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = [registry.claim(registry.submit(model=f"vision/m{number}").builds[0].id) for number in range(3)]
    for claim in claims:
        registry.services.builds.report(claim, [], [LogLine(1, 0.0, "fetch", "info", claim.build)])
        registry.services.builds.fail(claim, CompileFailed())
        registry.sql(
            "UPDATE build_attempts SET ended_at = ended_at - interval '1 minute'"
        )  # the first is the oldest
    storage = registry.services.storage
    write_file, errors = storage.write_file, [DigestMismatch(), StorageUnavailable()]

    def write(key: StorageKey, path: Path) -> int:
        if errors:
            raise errors.pop(0)
        return write_file(key, path)

    monkeypatch.setattr(storage, "write_file", write)
    rows = "SELECT build_id FROM build_logs"
    registry.services.maintenance.tidy()  # the first is bad; at the second the storage is away: no use in going on
    assert len(registry.sql(rows)) == 3
    errors.append(DigestMismatch())
    registry.services.maintenance.tidy()
    assert registry.sql(rows) == [(claims[0].build,)]


def test_last_words_that_come_while_an_empty_log_is_put_away_are_not_left_behind(registry: Registry) -> None:
    claim = registry.claim(registry.submit().builds[0].id)
    registry.services.builds.fail(claim, CompileFailed())
    with psycopg.connect(registry.database_url) as worker, ThreadPoolExecutor(1) as pool:
        # As `report` does, in a transaction that is not over when the log is looked for.
        worker.execute("SELECT 1 FROM build_attempts WHERE build_id = %s FOR KEY SHARE", [claim.build])
        worker.execute("INSERT INTO build_logs VALUES (%s, 1, 1, 0, 'fetch', 'info', 'late')", [claim.build])
        archived = pool.submit(registry.services.logs.archive, claim.build, 1)
        with pytest.raises(TimeoutError):
            archived.result(0.3)
        worker.commit()
        assert archived.result(10) is None
    assert registry.sql("SELECT log_lines FROM build_attempts") == [(None,)]  # the next pass finds it
    assert registry.services.logs.archive(claim.build, 1)


def test_tidying_closes_attempts_that_nobody_closed(registry: Registry) -> None:
    claim = registry.claim(registry.submit().builds[0].id)
    registry.services.maintenance.tidy()
    assert registry.services.builds.view(claim.build).attempts[0].ended_at is None
    registry.sql("UPDATE builds SET state = 'queued'")  # as a pt2hub without attempts would
    registry.services.maintenance.tidy()
    (attempt,) = registry.services.builds.view(claim.build).attempts
    assert (attempt.outcome, attempt.ended_at is None) == ("lost", False)


def test_tidying_drops_jobs_that_deliver_nothing(registry: Registry) -> None:
    ids = [registry.submit(model=f"vision/m{number}").builds[0].id for number in range(4)]
    registry.sql("INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now())")
    for build, status, worker in zip(
        ids, ("failed", "doing", "doing", "todo"), (None, None, 1, None), strict=True
    ):
        registry.sql(
            "UPDATE procrastinate_jobs SET status = %s::procrastinate_job_status, worker_id = %s "
            "WHERE args ->> 'build_id' = %s",
            status,
            worker,
            build,
        )
    registry.services.maintenance.tidy()
    assert [len(registry.jobs(build)) for build in ids] == [0, 0, 1, 1]
    registry.sql("UPDATE procrastinate_workers SET last_heartbeat = now() - interval '1 day'")
    registry.services.maintenance.tidy()
    assert [len(registry.jobs(build)) for build in ids] == [0, 0, 0, 1]


def test_tidying_forgets_workers_that_went_long_ago(registry: Registry) -> None:
    for name in ("old", "holder", "recent"):
        registry.worker(name)
    registry.claim(registry.submit().builds[0].id, "holder")
    registry.sql("UPDATE workers SET last_seen = now() - interval '8 days' WHERE id <> 'recent'")
    registry.services.maintenance.tidy()
    assert registry.sql("SELECT id FROM workers ORDER BY id") == [("holder",), ("recent",)]


def test_one_process_at_a_time_tidies(registry: Registry) -> None:
    registry.worker("old")
    registry.sql("UPDATE workers SET last_seen = now() - interval '8 days'")
    with psycopg.connect(registry.database_url) as other:
        other.execute("SELECT pg_advisory_xact_lock(84000002)")
        registry.services.maintenance.tidy()
        assert registry.sql("SELECT count(*) FROM workers") == [(1,)]
    registry.services.maintenance.tidy()
    assert registry.sql("SELECT count(*) FROM workers") == [(0,)]


def test_tidying_drops_leases_and_uploads_whose_time_is_over(registry: Registry) -> None:
    registry.blob(b"data")
    registry.services.uploads.begin(digest_bytes(b"other"), 5, by=Actor("alice"))
    registry.services.maintenance.tidy()
    counts = "SELECT (SELECT count(*) FROM blob_leases), (SELECT count(*) FROM uploads)"
    assert registry.sql(counts) == [(2, 1)]
    for table in ("blob_leases", "uploads"):
        registry.sql(f"UPDATE {table} SET pending_until = now() - interval '1 second'")
    registry.services.maintenance.tidy()
    assert registry.sql(counts) == [(0, 0)]


def test_a_chore_that_fails_keeps_no_other_from_being_done(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: float) -> int:
        raise StorageUnavailable

    registry.blob(b"data")
    registry.sql("UPDATE blob_leases SET pending_until = now() - interval '1 second'")
    claim = registry.claim(registry.submit().builds[0].id)
    registry.services.builds.report(claim, [], [LogLine(1, 0.0, "fetch", "info", "hello")])
    registry.services.builds.fail(claim, CompileFailed())
    registry.sql("UPDATE build_attempts SET ended_at = ended_at - interval '1 minute'")
    monkeypatch.setattr(registry.services.storage, "sweep", away)
    registry.services.maintenance.tidy()
    assert registry.sql("SELECT count(*) FROM blob_leases") == [(0,)]
    assert registry.sql("SELECT count(*) FROM build_logs") == [(0,)]


def test_a_chore_of_the_hour_is_done_once_in_it_whatever_came_of_it() -> None:
    now, done = [0.0], []

    def chore() -> None:
        done.append(now[0])
        if len(done) == 2:
            raise StorageUnavailable

    hourly = HourlyTask(chore, clock=lambda: now[0])
    for moment in (0.0, 10.0, 3599.0, 3600.0, 3610.0, 7200.0):
        now[0] = moment
        with suppress(StorageUnavailable):
            hourly()
    assert done == [0.0, 3600.0, 7200.0]


@pytest.mark.parametrize("what", ["claim", "report", "cancel", "retry", "lost"])
def test_every_change_is_told_to_those_who_listen(registry: Registry, what: str) -> None:
    (build,) = registry.submit().builds
    claim = None if what == "claim" else registry.claim(build.id)
    if what == "retry":
        registry.services.builds.cancel(build.id, Actor("alice"))
    registry.silence(registry.worker("w2") if what != "lost" else "w1")
    registry.worker("w3")
    builds = registry.services.builds
    with psycopg.connect(registry.database_url, autocommit=True) as listener:
        listener.execute(f"LISTEN {PROGRESS if what in ('claim', 'report') else BUILDS}")
        {
            "claim": lambda: builds.claim(build.id, "w3"),
            "report": lambda: builds.report(claim, [], [LogLine(1, 0.0, "fetch", "info", "x")]),  # type: ignore[arg-type]  # claimed there
            "cancel": lambda: builds.cancel(build.id, Actor("alice")),
            "retry": lambda: builds.retry(build.id, Actor("alice")),
            "lost": registry.services.maintenance.requeue_lost,
        }[what]()
        (told,) = listener.notifies(timeout=5, stop_after=1)
    assert told.payload == build.id
