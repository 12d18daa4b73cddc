"""The made-up year of `pt2hub admin seed-demo`."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pt2hub.client import pulling
from pt2hub.domain.artifacts import SOURCES_TYPE
from pt2hub.domain.builds import BuildFilter, BuildState
from pt2hub.errors import GateRefused, InvalidInput, NotFound
from pt2hub.server import demo
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.config import ServerConfig
from pt2hub.server.container import Container, open_container
from pt2hub.server.db import engine as engines
from pt2hub.server.demo import plan
from pt2hub.server.services.documents import read_bytes, read_config, read_manifest
from support.postgres import create_database
from support.registry import a_spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.server.db.embedded import EmbeddedPostgres

RESNET = "demo-vision/resnet50-classifier"
EVENTS = """
    SELECT s.id, e.kind, e.number, e.before, e.verdict, round(e.ratio::numeric, 9)
    FROM performance_events e JOIN series s ON s.id = e.series_id ORDER BY 1, 2, 3
"""


@dataclass(frozen=True)
class Seeded:
    services: Container
    url: str
    counts: demo.Demo

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []


@pytest.fixture(scope="module")
def seeded(
    postgres: EmbeddedPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Seeded]:
    """A server that has the demo beside a model of a person."""
    url = create_database(postgres, template=migrated_template)
    folder = tmp_path_factory.mktemp("demo")
    config = ServerConfig(home=folder, storage=str(folder / "blobs"), database_url=url)
    with open_container(config, database_url=url) as services:
        services.publish.submit(a_spec())
        with pytest.raises(InvalidInput, match="models that are not made up") as caught:
            demo.seed(services, database_url=url)
        assert (caught.value.where, "--beside" in (caught.value.hint or "")) == ("vision/resnet18", True)
        with pytest.MonkeyPatch.context() as patched:  # a machine on which it takes a hundred times as long
            patched.setattr(engines, "_SETTINGS", engines._SETTINGS.replace("'60s'", "'500ms'"))
            counts = demo.seed(services, database_url=url, beside=True)
        yield Seeded(services, url, counts)


def test_a_year_of_twenty_models_and_four_hundred_versions_is_there_and_says_that_it_is_made_up(
    seeded: Seeded,
) -> None:
    models = seeded.services.catalog.models("demo-").models
    assert (seeded.counts.models, seeded.counts.versions, len(models)) == (20, 400, 20)
    assert {model.name.partition("/")[0] for model in models} == {
        "demo-vision",
        "demo-text",
        "demo-audio",
        "demo-ranking",
    }
    assert all(demo.MARK in model.description for model in models)
    ((first, last),) = seeded.sql("SELECT min(finished_at), max(finished_at) FROM builds")
    assert 350 < (last - first).days < 372  # weekends move it by a few
    assert last < datetime.now(UTC)


def test_builds_stand_in_every_state_and_failed_ones_say_why_with_the_users_line(seeded: Seeded) -> None:
    builds = seeded.services.catalog.builds
    for state in BuildState:
        assert builds(BuildFilter(state=state), limit=1).builds, state
    failed = builds(BuildFilter(model="demo-vision/detr-layout", number=1, state=BuildState.FAILED)).builds
    error = seeded.services.builds.view(failed[0].id).error
    assert error is not None
    assert (error["code"], error["context"]["file"]) == ("data_dependent", "layout/postprocess.py")
    _, lines = seeded.services.logs.lines(failed[0].id)
    assert any("<script>" in line.text for line in lines)
    assert any("\x1b[32m" in line.text for line in lines)
    codes = {
        code for (code,) in seeded.sql("SELECT DISTINCT error ->> 'code' FROM builds WHERE state = 'failed'")
    }
    assert {"limit_exceeded", "tolerance_missed", "artifact_wrong", "worker_lost", "nan_output"} <= codes


def test_one_log_has_a_hundred_thousand_lines(seeded: Seeded) -> None:
    ((build, count),) = seeded.sql(
        "SELECT build_id, log_lines FROM build_attempts ORDER BY 2 DESC NULLS LAST LIMIT 1"
    )
    assert count > 100_000
    _, lines = seeded.services.logs.lines(build, after=count - 3)
    assert (lines[-1].seq, lines[-1].level) == (count, "error")


def test_kernels_of_every_artifact_were_timed_and_another_program_takes_others(seeded: Seeded) -> None:
    ((untuned,),) = seeded.sql("""
        SELECT count(*) FROM artifacts AS own WHERE NOT EXISTS (
            SELECT 1 FROM artifacts AS same JOIN autotune_choices ON autotune_choices.artifact = same.digest
            WHERE same.code = own.code
        )
    """)
    assert untuned == 0
    compare, target = seeded.services.comparing.compare, "torch2.13-cu130-sm90"
    anew = compare(f"{RESNET}@35", f"{RESNET}@36", target=target)
    assert anew.autotune
    assert all(
        (item.before, item.before_parameters) != (item.after, item.after_parameters) for item in anew.autotune
    )
    assert anew.code is not None
    assert (anew.code.same, anew.code.said.partition(":")[0]) == (False, "The code was compiled anew")
    reused = compare(f"{RESNET}@33", f"{RESNET}@34", target=target)
    assert reused.code is not None
    assert (reused.autotune, reused.code.same, reused.code.tuning) == ((), True, "")
    assert reused.code.said.startswith("Both reuse the same code that was compiled for version 31")


def test_every_document_that_pages_read_is_stored(seeded: Seeded) -> None:
    storage = seeded.services.storage
    resolved = seeded.services.resolve.resolve(f"{RESNET}@9")
    for artifact in resolved.artifacts:
        config = read_config(storage, read_manifest(storage, artifact.digest))
        assert (config.version.model, config.made_up, len(config.constants.table)) == (RESNET, True, 267)
    found = seeded.sql(f"SELECT digest FROM referrers WHERE artifact_type = '{SOURCES_TYPE}' LIMIT 20")
    for (digest,) in found:
        (layer,) = read_manifest(storage, digest).layers
        archive = zipfile.ZipFile(BytesIO(read_bytes(storage, StorageKey.blob(layer.digest))))
        assert "model.wrapper.cpp" in archive.namelist()


def test_what_is_pulled_or_assembled_is_refused_in_plain_words(seeded: Seeded) -> None:
    digest = seeded.services.resolve.resolve(RESNET).artifacts[0].digest
    with pytest.raises(NotFound, match="the artifact is made up, by pt2hub admin seed-demo"):
        seeded.services.single_file.find(digest)
    config = read_config(seeded.services.storage, read_manifest(seeded.services.storage, digest))
    with pytest.raises(NotFound, match="There is nothing to pull: it is made up"):
        pulling._check(config, digest, model=RESNET, target=config.target.name)


def test_regressions_were_flagged_when_they_came_and_a_later_look_finds_the_same(seeded: Seeded) -> None:
    flagged = seeded.services.comparing.events(model=RESNET, limit=1000).events
    slower = [event for event in flagged if (event.number, event.metric) == (14, "latency_p50")]
    assert {event.verdict for event in slower} == {"worse"}
    assert len({event.target for event in slower}) == 3
    built = seeded.services.publish.version(RESNET, 14).created_at
    assert all(built < event.at for event in slower)
    before = seeded.sql(EVENTS)
    seeded.sql("UPDATE series SET examined_at = NULL")
    while seeded.services.comparing.examine():
        pass
    after = seeded.sql(EVENTS)
    assert set(before) - set(after) == set()
    # Of figures that no version ran beside another one, only a look over all of them tells.
    assert len(set(after) - set(before)) <= 0.02 * len(before)


def test_prod_is_not_moved_to_what_its_policy_refuses_and_the_history_knows_rollbacks_and_force(
    seeded: Seeded,
) -> None:
    aliases = seeded.services.aliases
    prod = aliases.alias(RESNET, "prod")
    assert any("19 % slower" in move.reason for move in prod.history)
    with pytest.raises(GateRefused, match="latency_p50"):
        aliases.move(RESNET, "prod", 36, expected=prod.number, reason="release", by="ada")
    forced = aliases.alias("demo-text/minilm-l6-embedder", "prod").history
    assert [move.forced["count"] for move in forced if move.forced] == [1]
    assert aliases.alias(RESNET, "canary").number is None


def test_workers_of_the_demo_are_lost_or_left_after_a_minute_and_running_builds_then_wait_again(
    seeded: Seeded,
) -> None:
    seeded.sql("UPDATE workers SET last_seen = last_seen - interval '2 minutes'")
    workers = seeded.services.workers.workers(gone=True).workers
    assert {worker.state for worker in workers} == {"lost", "left"}
    running = {row[0] for row in seeded.sql("SELECT id FROM builds WHERE state = 'running'")}
    assert running <= set(seeded.services.upkeep.requeue_lost())
    assert not seeded.sql("SELECT id FROM builds WHERE state = 'running'")


def test_a_reindex_finds_every_artifact_and_adds_nothing(seeded: Seeded) -> None:
    found = seeded.services.reindex.reindex()
    assert (found["artifacts"], found["added"], found["unreadable"]) == (seeded.counts.artifacts, 0, {})


def test_a_second_demo_is_refused(seeded: Seeded) -> None:
    with pytest.raises(InvalidInput, match="has the demo already"):
        demo.seed(seeded.services, database_url=seeded.url, beside=True)


def test_the_story_is_the_same_each_time() -> None:
    now = datetime(2026, 11, 22, tzinfo=UTC)
    one, other = ([version for versions in plan.stories(now) for version in versions] for _ in range(2))
    assert [
        (v.identity, v.at, [(b.id, b.state, b.finished) for b in v.builds if b.attempts]) for v in one
    ] == [(v.identity, v.at, [(b.id, b.state, b.finished) for b in v.builds if b.attempts]) for v in other]
