"""The story of `make seed-demo`, as its pages and tests need it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.builds import BuildFilter, BuildState
from pt2hub.domain.tokens import Actor
from pt2hub.errors import InvalidInput, PromotionCheckFailed
from pt2hub.server.config import ServerConfig
from pt2hub.server.container import open_container
from support.registry import Registry
from support.story.plot import EMBEDDER, RESNET
from support.story.replay import seed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.seeded_story import SeededStory


@pytest.fixture(scope="module")
def told(
    seeded_story: SeededStory, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Registry, int]]:
    """A registry with the story."""
    folder = tmp_path_factory.mktemp("story")
    url = seeded_story.copy(folder)
    factories = ("torchvision.models", "timm")
    config = ServerConfig(home=folder, storage=str(folder / "blobs"), database_url=url, factories=factories)
    with open_container(config, database_url=url) as services:
        yield Registry(services, url), seeded_story.artifacts


def test_a_year_has_passed_and_builds_took_their_time(told: tuple[Registry, int]) -> None:
    registry, _ = told
    ((first, last),) = registry.sql("SELECT min(created_at), max(created_at) FROM builds")
    assert 300 < (last - first).days < 366
    assert last < datetime.now(UTC)
    took = "SELECT count(*), min(finished_at - started_at) > interval '10 s' FROM builds WHERE finished_at > started_at"
    assert registry.sql(took)[0][1]
    assert registry.sql("SELECT count(*) FROM performance_events WHERE at > now() - interval '1 h'") == [(0,)]


def test_builds_stand_in_every_state_and_failed_ones_say_why(told: tuple[Registry, int]) -> None:
    registry, _ = told
    builds = registry.services.catalog.builds
    for state in BuildState:
        assert builds(BuildFilter(state=state), limit=1).builds, state
    (failed,) = builds(BuildFilter(model="demo-vision/detr-layout", number=1)).builds
    error = registry.services.builds.view(failed.id).error
    assert error is not None
    assert (error["code"], error["context"]["file"]) == ("data_dependent", "layout/postprocess.py")
    _, lines = registry.services.logs.lines(failed.id)
    assert any("<script>" in line.text for line in lines)


def test_retrained_versions_reuse_code_and_changed_programs_are_compared(
    told: tuple[Registry, int],
) -> None:
    registry, _ = told
    events = registry.services.comparisons.events(model=RESNET, limit=1000).events
    slower = {event.target for event in events if event.number == 10 and event.outcome == "worse"}
    assert len(slower) == 3
    compare, target = registry.services.comparisons.compare, "torch2.13-cu130-sm90"
    reused = compare(f"{RESNET}@17", f"{RESNET}@18", target=target).code
    changed = compare(f"{RESNET}@19", f"{RESNET}@20", target=target)
    assert reused is not None
    assert changed.code is not None
    assert (reused.same, changed.code.same, bool(changed.autotune)) == (True, False, True)


def test_prod_stays_where_its_policy_refuses_and_an_admin_forced_it_once(
    told: tuple[Registry, int],
) -> None:
    registry, _ = told
    aliases = registry.services.aliases
    prod = aliases.alias(RESNET, "prod")
    assert any("19 % slower" in move.reason for move in prod.history)
    with pytest.raises(PromotionCheckFailed, match="latency_p50"):
        aliases.move(RESNET, "prod", 20, expected=prod.number, reason="release", by=Actor("ada"))
    assert any(move.forced for move in aliases.alias(EMBEDDER, "prod").history)


def test_a_reindex_finds_every_artifact_and_logs_are_put_away(told: tuple[Registry, int]) -> None:
    registry, artifacts = told
    found = registry.services.reindex.reindex()
    assert (found["artifacts"], found["added"], found["unreadable"]) == (artifacts, 0, {})


def test_a_server_with_models_is_refused(told: tuple[Registry, int]) -> None:
    registry, _ = told
    with pytest.raises(InvalidInput, match="has models already"):
        seed(registry.services)
