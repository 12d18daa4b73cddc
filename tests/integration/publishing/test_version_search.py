"""Searches for versions find what a filter over all versions finds, page by page."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from pt2hub.domain.builds import BuildState, Readiness, readiness
from pt2hub.domain.reading import EVERYTHING, Readable
from pt2hub.domain.tokens import SERVER
from pt2hub.server.db.reading import limit_reading
from pt2hub.server.db.stores.publishing import version_search
from support.registry import V3, V4

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.registry import Registry

MODELS = ("ads/net", "vision/net", "vision/net2", "visionary/net")
LABELS = {
    "owner": ("ads", "search"),
    "stage": ("new", "search", 'o"d\\d'),
    "git.branch": ("main",),
    "run": ("x",),
}
PEOPLE = ("ada", "grace")
VERSIONS = 60
NEWEST = datetime(2026, 11, 26, tzinfo=UTC)


@dataclass
class Published:
    """A version as it is written to the database."""

    model: str
    number: int
    publisher: str
    created_at: datetime
    builds: list[tuple[str, BuildState, bool]]
    labels: dict[str, str] = field(default_factory=dict)
    aliases: set[str] = field(default_factory=set)

    def matches(self, condition: str) -> bool:
        name, _, value = condition.partition("=")
        wanted = {
            "model": self.model.startswith(value) if value.endswith("/") else self.model == value,
            "alias": value in self.aliases,
            "target": any(target == value for target, _, _ in self.builds),
            "state": readiness([state for _, state, first in self.builds if first]) == value,
            "publisher": self.publisher == value,
        }
        if name in ("since", "until"):
            at = datetime.fromisoformat(value)
            return self.created_at >= at if name == "since" else self.created_at <= at
        return wanted[name] if name in wanted else name in self.labels and value in ("", self.labels[name])


def a_condition() -> st.SearchStrategy[str]:
    labels = [f"{key}={value}" for key, values in LABELS.items() for value in (*values, "other")]
    fields = {
        "model": (*MODELS, "vision/"),
        "alias": ("prod", "old"),
        "target": (V3, V4),
        "state": tuple(Readiness),
        "publisher": (*PEOPLE, "nobody"),
    }
    others = [f"{name}={value}" for name, values in fields.items() for value in values]
    times = [
        f"{name}={(NEWEST - timedelta(days=days)).isoformat()}"
        for name in ("since", "until")
        for days in (0, 5, 20)
    ]
    return st.one_of(st.sampled_from([*labels, *LABELS]), st.sampled_from([*others, *times]))


def some_conditions() -> st.SearchStrategy[list[str]]:
    """Up to four conditions, each field once; a label may be wanted with two values, which none has."""
    return st.lists(
        a_condition(),
        max_size=4,
        unique_by=lambda text: text if text.partition("=")[0] in LABELS else text.partition("=")[0],
    )


@pytest.fixture
def published(registry: Registry) -> list[Published]:
    """Versions of all kinds, oldest first; their dates do not follow their order."""
    chance = random.Random(22)
    for name in MODELS:
        registry.sql("INSERT INTO models (name) VALUES (%s)", name)
    for name in (V3, V4):
        registry.sql(
            "INSERT INTO targets (name, torch, device, arch, os, machine) "
            "VALUES (%s, '2.13', 'cpu', 'any', 'linux', 'x86_64') ON CONFLICT DO NOTHING",
            name,
        )
    versions: list[Published] = []
    for _ in range(VERSIONS):
        model = chance.choice(MODELS)
        targets = chance.choice([[V3], [V4], [V3, V4]])
        one = Published(
            model,
            number=1 + sum(other.model == model for other in versions),
            publisher=chance.choice(PEOPLE),
            created_at=NEWEST - timedelta(days=chance.randrange(30)),
            builds=[
                (name, chance.choice(list(BuildState)), name == targets[0] or chance.random() < 0.5)
                for name in targets
            ],
            labels={key: chance.choice(values) for key, values in LABELS.items() if chance.random() < 0.7},
        )
        _insert(registry, one, len(versions))
        versions.append(one)
    for number, one in enumerate(versions):
        if one.number in (1, 3):
            name = "prod" if one.number == 1 else "old"
            registry.sql(
                "INSERT INTO aliases (model_id, name, version_id) SELECT model_id, %s, versions.id "
                "FROM versions JOIN models ON models.id = model_id WHERE models.name = %s AND number = %s",
                *(name, one.model, one.number),
            )
            one.aliases.add(name)
        if number % 7 == 0:
            put, remove = {"owner": "search"}, ["stage"]
            registry.services.labels.change(
                one.model, one.number, put=put, remove=remove, expected={}, by=SERVER
            )
            one.labels = {key: value for key, value in one.labels.items() if key != "stage"} | put
    return versions


def _insert(registry: Registry, one: Published, number: int) -> None:
    person = Jsonb({"kind": "token", "name": one.publisher})
    ((version_id, model_id),) = registry.sql(
        "INSERT INTO versions (model_id, number, identity, spec, pins, published_by, created_at) "
        "SELECT id, %s, %s, '{}', '{}', %s, %s FROM models WHERE name = %s RETURNING id, model_id",
        *(one.number, f"sha256:{number:064}", person, one.created_at, one.model),
    )
    for position, (target, state, first) in enumerate(one.builds):
        registry.sql(
            "INSERT INTO builds (id, version_id, target, position, request, first_submitted, state) "
            "VALUES (%s, %s, %s, %s, '{}', %s, %s)",
            *(f"build{version_id}-{position}", version_id, target, position, first, state.value),
        )
    for key, value in one.labels.items():
        registry.sql(
            "INSERT INTO labels (model_id, version_id, key, value, by) VALUES (%s, %s, %s, %s, %s)",
            *(model_id, version_id, key, value, person),
        )


@pytest.fixture
def reading() -> Iterator[None]:
    """Lets this thread read everything again."""
    yield
    limit_reading(EVERYTHING)


@pytest.mark.usefixtures("reading")
def test_a_search_finds_what_a_filter_over_all_versions_finds(
    registry: Registry, published: list[Published], monkeypatch: pytest.MonkeyPatch
) -> None:
    @settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        conditions=some_conditions(),
        limit=st.integers(1, 20),
        checked_first=st.integers(1, 4),
        oldest_first=st.booleans(),
        readable=st.sampled_from([EVERYTHING, Readable(("vision/*",)), Readable(())]),
    )
    def check(
        conditions: list[str], limit: int, checked_first: int, oldest_first: bool, readable: Readable
    ) -> None:
        monkeypatch.setattr(version_search, "_CHECKED_PER_FOUND", checked_first)
        limit_reading(readable)
        found, after = list[Any](), None
        while True:
            page = registry.services.catalog.search(
                conditions, after=after, limit=limit, oldest_first=oldest_first
            )
            found += page.versions
            after = page.next
            if after is None:
                break
            assert len(page.versions) == limit
        expected = [
            one
            for one in (published if oldest_first else reversed(published))
            if readable.covers(one.model) and all(one.matches(condition) for condition in conditions)
        ]
        assert [(one.model, one.number) for one in found] == [(one.model, one.number) for one in expected]
        assert [list(one.labels.items()) for one in found] == [sorted(one.labels.items()) for one in expected]

    check()


def test_the_labels_of_a_version_are_those_in_its_row_after_any_change(
    registry: Registry, published: list[Published]
) -> None:
    registry.sql("UPDATE labels SET value = 'other' WHERE key = 'run'")
    registry.sql("DELETE FROM labels WHERE key = 'owner' AND value = 'ads'")
    registry.services.labels.change(
        published[0].model, None, put={"x": "model"}, remove=[], expected={}, by=SERVER
    )
    wrong = registry.sql("""
        SELECT id FROM versions WHERE label_values IS DISTINCT FROM coalesce(
            (SELECT jsonb_object_agg(key, value) FROM labels WHERE labels.version_id = versions.id), '{}'
        )
    """)
    assert wrong == []
    assert registry.sql("SELECT count(*) FROM versions WHERE label_values <> '{}'")[0][0] > VERSIONS / 2
