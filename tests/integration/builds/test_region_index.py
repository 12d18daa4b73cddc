"""Regions of published artifacts: who finds their code by program key, and what a reindex restores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.artifacts import ProgramKey
from pt2hub.domain.digests import digest_bytes
from pt2hub.server.blobs.keys import StorageKey
from support.artifacts import a_region

if TYPE_CHECKING:
    from pt2hub.domain.digests import Digest
    from support.registry import Registry

LAYER, HEAD, STEM = (digest_bytes(name) for name in (b"layer", b"head", b"stem"))
OWN = "vision/resnet18"


def publish(registry: Registry, code: bytes, *regions: str | ProgramKey, tolerance: float = 0.001) -> Digest:
    version = registry.submit(checks={"tolerance": tolerance})
    parts = tuple(
        a_region(key, f"layers.{at}", f"more.{at}") if at == 0 else a_region(key)
        for at, key in enumerate(regions)
    )
    return registry.published(version, key=code.decode(), code=code, regions=parts)


def found(registry: Registry, *keys: Digest, model: str = OWN) -> dict[Digest, Digest]:
    """Code layers by the keys of parts."""
    regions = registry.services.builds.find_regions(keys, model=model)
    assert all(item.region.key.digest == key for key, item in regions.items())
    return {key: item.code.digest for key, item in regions.items()}


def lose(registry: Registry, key: StorageKey) -> None:
    del registry.services.storage._stored[key.exact]  # type: ignore[attr-defined]  # a MemoryStorage


def test_parts_of_an_artifact_are_found_by_their_keys_also_for_another_model(registry: Registry) -> None:
    publish(registry, b"whole", "layer", "head")
    regions = registry.services.builds.find_regions((LAYER, HEAD, STEM), model="vision/another")
    assert set(regions) == {LAYER, HEAD}
    assert regions[LAYER].code.digest == digest_bytes(b"whole")
    assert regions[LAYER].region == a_region("layer", "layers.0", "more.0")
    assert found(registry, STEM) == {}
    assert found(registry) == {}
    assert registry.services.builds.find_code(LAYER, model=OWN) is None


def test_parts_of_another_team_are_not_found(registry: Registry) -> None:
    publish(registry, b"whole", "layer")
    assert found(registry, LAYER, model="visions/resnet18") == {}
    assert found(registry, LAYER, model="visio_/resnet18") == {}


def test_the_artifact_with_most_of_the_parts_supplies_them(registry: Registry) -> None:
    publish(registry, b"both", "layer", "head")
    publish(registry, b"newer", "layer", tolerance=0.002)
    assert found(registry, LAYER, HEAD) == dict.fromkeys((LAYER, HEAD), digest_bytes(b"both"))


@pytest.mark.parametrize("lost", ["manifest", "config", "code"])
def test_parts_whose_artifact_lost_bytes_come_from_another_one(registry: Registry, lost: str) -> None:
    publish(registry, b"left", "layer")
    digest = publish(registry, b"lost", "layer", "head", tolerance=0.002)
    view = registry.services.resolve.artifact(digest)
    keys = {
        "manifest": StorageKey.manifest(digest),
        "config": StorageKey.blob(view.config_digest),
        "code": StorageKey.blob(view.code),
    }
    lose(registry, keys[lost])
    assert found(registry, LAYER, HEAD) == {LAYER: digest_bytes(b"left")}


def test_each_artifact_is_read_once_for_all_its_parts(registry: Registry, statements: list[str]) -> None:
    keys = [f"part {number}" for number in range(40)]
    publish(registry, b"whole", *keys)
    statements.clear()
    digests = [digest_bytes(key.encode()) for key in keys]
    assert set(found(registry, *digests).values()) == {digest_bytes(b"whole")}
    assert len(statements) == 1


def test_a_part_that_is_never_reused_is_not_recorded(registry: Registry) -> None:
    never = ProgramKey(LAYER, {"reuse": {"never": ["an object"], "unique": "1"}})
    publish(registry, b"whole", never, "head")
    assert registry.sql("SELECT program_key FROM regions") == [(HEAD,)]
    assert found(registry, LAYER, HEAD) == {HEAD: digest_bytes(b"whole")}


def test_a_row_that_the_config_does_not_confirm_finds_nothing(registry: Registry) -> None:
    digest = publish(registry, b"whole", "layer")
    registry.sql("INSERT INTO regions (program_key, artifact) VALUES (%s, %s)", STEM, digest)
    assert found(registry, STEM) == {}


def test_two_parts_with_one_key_have_one_row(registry: Registry) -> None:
    publish(registry, b"whole", "layer", "layer")
    assert registry.sql("SELECT program_key FROM regions") == [(LAYER,)]


def test_an_artifact_compiled_as_a_whole_has_no_rows(registry: Registry) -> None:
    registry.published()
    assert registry.sql("SELECT * FROM regions") == []


@pytest.mark.parametrize("lost", ["artifacts", "regions"])
def test_a_reindex_restores_the_rows_from_the_storage(registry: Registry, lost: str) -> None:
    digest = publish(registry, b"whole", "layer", "head")
    registry.sql(f"TRUNCATE {lost}{' CASCADE' if lost == 'artifacts' else ''}")
    assert found(registry, LAYER) == {}
    assert registry.services.reindex.reindex()["unreadable"] == {}
    rows = registry.sql("SELECT program_key, artifact FROM regions")
    assert sorted(rows) == sorted([(LAYER, digest), (HEAD, digest)])
    assert found(registry, LAYER) == {LAYER: digest_bytes(b"whole")}
