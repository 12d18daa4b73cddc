"""Retention policies: what they keep and delete, and what they keep although it is old."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.tokens import Actor
from pt2hub.errors import DatabaseReadOnly, Forbidden, InvalidInput
from pt2hub.server.db.stores.retention.policies import RetentionStore
from pt2hub.server.services.retention import policies
from support.promoted import ADMIN, MODEL, move, published, record_pulls

if TYPE_CHECKING:
    from flask.testing import FlaskClient

    from pt2hub.wire.retention import DeletionView
    from support.registry import Registry


def numbers(registry: Registry) -> list[int]:
    return [number for (number,) in registry.sql("SELECT number FROM versions ORDER BY number")]


def test_without_a_policy_everything_is_kept(registry: Registry) -> None:
    for _ in range(3):
        published(registry)
    assert registry.services.retention.show(MODEL, by=ADMIN).set_on is None
    assert registry.services.retention.run() == 0
    assert numbers(registry) == [1, 2, 3]


def test_the_last_versions_are_kept_and_what_an_alias_pins_although_it_is_old(registry: Registry) -> None:
    for _ in range(5):
        published(registry)
    move(registry, 1, None)
    service = registry.services.retention
    service.put(MODEL, last=2, by=ADMIN)
    preview = service.preview(MODEL, by=ADMIN)
    assert preview.goes == (f"{MODEL}@2", f"{MODEL}@3")
    assert [(item.name, item.reasons) for item in preview.kept] == [
        (f"{MODEL}@1", (f"prod of {MODEL} pins it",))
    ]
    assert preview.freed_bytes > 0
    assert service.run() == 2
    assert numbers(registry) == [1, 4, 5]
    assert service.run() == 0
    reasons = registry.sql("SELECT DISTINCT reason, by ->> 'kind' FROM tombstones")
    assert reasons == [(f"retention policy of {MODEL}: not among the last 2", "server")]


def test_versions_without_an_artifact_do_not_count_and_newer_ones_stay(registry: Registry) -> None:
    published(registry)
    published(registry)
    build = registry.submit(source={"factory": "torchvision.models:resnet18", "seed": 77}).builds[0].id
    registry.services.builds.cancel(build, ADMIN)
    registry.services.retention.put(MODEL, last=1, by=ADMIN)
    registry.services.retention.run()
    assert numbers(registry) == [2, 3]


def test_what_was_pulled_or_published_lately_is_kept(served: Registry, web: FlaskClient) -> None:
    digests = [published(served) for _ in range(4)]
    record_pulls(served)
    service = served.services.retention
    service.put(MODEL, last=1, pulled_within_days=30, by=ADMIN)
    assert service.run() == 0
    served.sql("UPDATE versions SET created_at = now() - interval '60 days'")
    assert web.get(f"/api/v1/resolve?reference={MODEL}@1").status_code == 200
    assert web.get(f"/api/v1/models/{MODEL}/manifests/{digests[1]}").status_code == 200
    assert served.sql("SELECT count(*) FROM version_pulls") == [(2,)]
    served.sql(
        "UPDATE version_pulls SET pulled_on = pulled_on - 31 FROM versions WHERE versions.id = version_id AND number = 2"
    )
    assert service.preview(MODEL, by=ADMIN).goes == (f"{MODEL}@2", f"{MODEL}@3")
    assert service.run() == 2
    assert numbers(served) == [1, 4]


def test_a_version_is_dated_once_a_day(served: Registry, web: FlaskClient, statements: list[str]) -> None:
    published(served)
    for _ in range(3):
        web.get(f"/api/v1/resolve?reference={MODEL}@1")
    assert sum("version_pulls" in statement for statement in statements) == 1
    place = "SELECT ctid::text FROM version_pulls"
    before = served.sql(place)
    served.services.pulls._known.clear()  # as another process
    web.get(f"/api/v1/resolve?reference={MODEL}@1")
    assert served.sql(place) == before


def test_a_models_policy_goes_before_its_teams(registry: Registry) -> None:
    for _ in range(3):
        published(registry)
    service = registry.services.retention
    service.put("vision", last=1, by=ADMIN)
    assert service.show(MODEL, by=ADMIN).set_on == "vision"
    assert service.preview("vision", by=ADMIN).goes == (f"{MODEL}@1", f"{MODEL}@2")
    service.put(MODEL, by=ADMIN)  # everything
    assert service.preview("vision", by=ADMIN).goes == ()
    assert service.show(MODEL, by=ADMIN).set_on == MODEL
    count = "SELECT count(*) FROM audit_log WHERE action = 'retention.change'"
    assert registry.sql(count) == [(2,)]
    service.put(MODEL, by=ADMIN)
    assert registry.sql(count) == [(2,)]


def test_only_an_admin_of_all_the_models_sets_a_policy(registry: Registry) -> None:
    service = registry.services.retention
    for patterns, allowed in ((("vision/*",), True), ((MODEL,), False), (("text/*",), False)):
        by = Actor("x", admin=True, patterns=patterns)
        if allowed:
            service.put("vision", last=5, by=by)
            continue
        with pytest.raises(Forbidden):
            service.put("vision", last=1, by=by)
        with pytest.raises(Forbidden):
            service.preview("vision", by=by)
    with pytest.raises(InvalidInput):
        service.put("Not a team", last=1, by=ADMIN)


@pytest.mark.parametrize("change", ["removed", "relaxed", "pulled"])
def test_what_changes_during_a_run_counts(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    for _ in range(4):
        published(registry)
    record_pulls(registry)
    services = registry.services
    services.retention.put(MODEL, last=1, pulled_within_days=30, by=ADMIN)
    registry.sql("UPDATE versions SET created_at = now() - interval '60 days'")
    delete = services.deletion.version

    def delete_after_a_change(model: str, number: int, **options: Any) -> DeletionView:
        if number == 2:
            if change == "removed":
                services.retention.remove(MODEL, by=ADMIN)
            elif change == "relaxed":
                services.retention.put(MODEL, last=4, by=ADMIN)
            else:
                registry.sql(
                    "INSERT INTO version_pulls (version_id, pulled_on) SELECT id, current_date FROM versions WHERE number = 2"
                )
        return delete(model, number, **options)

    monkeypatch.setattr(services.deletion, "version", delete_after_a_change)
    assert services.retention.run() == (2 if change == "pulled" else 1)
    left = {version.number for version in services.catalog.versions(MODEL).versions}
    assert left == ({2, 4} if change == "pulled" else {2, 3, 4})


def test_pinned_versions_do_not_keep_a_run_from_the_next_ones(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "_PER_RUN", 2)
    monkeypatch.setattr(policies, "_PREVIEWED", 2)
    for _ in range(7):
        published(registry)
    for number, alias in ((1, "a"), (2, "b")):
        move(registry, number, None, alias=alias)
    move(registry, 3, None, alias="c")
    move(registry, 4, 3, alias="c")  # would roll back to 3
    service = registry.services.retention
    service.put(MODEL, last=1, by=ADMIN)
    preview = service.preview(MODEL, by=ADMIN)
    assert preview.goes == (f"{MODEL}@5",)
    assert [item.name for item in preview.kept] == [f"{MODEL}@{number}" for number in (1, 2, 3)]
    assert service.run() == 2
    assert numbers(registry) == [1, 2, 3, 4, 7]


def old_versions(registry: Registry) -> None:
    """Four versions, old enough to go, whose pulls nobody recorded, and the policy that would delete three of them."""
    for _ in range(4):
        published(registry)
    registry.services.retention.put(MODEL, last=1, pulled_within_days=30, by=ADMIN)
    registry.sql("UPDATE versions SET created_at = now() - interval '60 days'")


def test_a_rebuilt_database_does_not_take_unknown_pulls_for_old_ones(registry: Registry) -> None:
    old_versions(registry)
    service = registry.services.retention
    assert service.run() == 0
    preview = service.preview(MODEL, by=ADMIN)
    assert preview.goes == ()
    assert f"{MODEL}: nothing is deleted by age before" in preview.notes[0]
    record_pulls(registry, 31)
    assert service.preview(MODEL, by=ADMIN).notes == ()
    assert service.run() == 3


@pytest.mark.parametrize("days", [2, 4])
def test_pulls_that_a_gap_or_a_jump_of_the_clock_hides_are_waited_for(registry: Registry, days: int) -> None:
    old_versions(registry)
    record_pulls(registry)
    registry.sql(
        "UPDATE server_settings SET set_at = now() - make_interval(days => %s) WHERE name = 'pulls_recorded_since'",
        days,
    )
    assert registry.services.retention.run() == (3 if days == 2 else 0)


def test_a_clock_that_was_set_back_begins_the_history_of_pulls_anew(registry: Registry) -> None:
    old_versions(registry)
    record_pulls(registry, -300)
    assert registry.services.retention.run() == 0
    age = "SELECT now() - CAST(value AS timestamptz) < interval '1 minute' FROM server_settings WHERE name = 'pulls_recorded_since'"
    assert registry.sql(age) == [(True,)]


def test_a_database_of_an_earlier_release_has_recorded_pulls_since_its_oldest_one(registry: Registry) -> None:
    old_versions(registry)
    registry.sql("INSERT INTO version_pulls SELECT id, current_date - 40 FROM versions WHERE number = 1")
    assert registry.services.retention.run() == 3


@pytest.mark.parametrize("state", ["running", "2"])
def test_nothing_is_deleted_while_aliases_may_be_missing(registry: Registry, state: str) -> None:
    for _ in range(3):
        published(registry)
    service = registry.services.retention
    service.put(MODEL, last=1, by=ADMIN)
    registry.sql("INSERT INTO server_settings (name, value) VALUES ('reindex_unfinished', %s)", state)
    assert service.run() == 0
    preview = service.preview(MODEL, by=ADMIN)
    assert (preview.goes, len(preview.notes)) == ((), 1)
    registry.sql("DELETE FROM server_settings WHERE name = 'reindex_unfinished'")
    assert service.run() == 2


def test_a_reindex_that_begins_during_a_run_stops_it(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(4):
        published(registry)
    services = registry.services
    services.retention.put(MODEL, last=1, by=ADMIN)
    delete = services.deletion.version

    def delete_beside_a_reindex(model: str, number: int, **options: Any) -> DeletionView:
        if number == 2:
            registry.sql("INSERT INTO server_settings (name, value) VALUES ('reindex_unfinished', 'running')")
        return delete(model, number, **options)

    monkeypatch.setattr(services.deletion, "version", delete_beside_a_reindex)
    assert services.retention.run() == 1
    assert numbers(registry) == [2, 3, 4]


def test_a_pull_that_was_not_recorded_is_recorded_by_the_next_one(
    served: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    published(served)
    with monkeypatch.context() as patch:
        patch.setattr(RetentionStore, "record_pull", _refuse)
        served.services.pulls.record(MODEL, 1)
    served.services.pulls.record(MODEL, 1)
    assert served.sql("SELECT count(*) FROM version_pulls") == [(1,)]


def _refuse(*_: object) -> None:
    raise DatabaseReadOnly


def test_a_policy_that_fails_does_not_keep_others_from_their_turn(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        published(registry)
    registry.submit(model="vision/another")
    for model in (MODEL, "vision/another"):
        registry.services.retention.put(model, last=1, by=ADMIN)
    expired = RetentionStore.expired

    def fail_for_another(store: RetentionStore, model: str, *given: Any, **options: Any) -> list[int]:
        if model == "vision/another":
            raise DatabaseReadOnly
        return expired(store, model, *given, **options)

    monkeypatch.setattr(RetentionStore, "expired", fail_for_another)
    assert registry.services.retention.run() == 2
