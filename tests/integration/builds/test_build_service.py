from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.builds import LogLine
from pt2hub.domain.digests import digest_bytes
from pt2hub.errors import BadResponse, BlobGone, CompileFailed, NotFound, StaleAttempt
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.services.blobs.documents import named_by
from pt2hub.wire.problems import from_dict
from support.packages import WEIGHTS
from support.registry import V3, V4

if TYPE_CHECKING:
    from collections.abc import Callable

    from pt2hub.domain.builds import Claim
    from support.registry import Registry


def test_a_claim_holds_all_that_an_attempt_needs(registry: Registry) -> None:
    registry.worker("w1")
    view = registry.submit(targets=[{"target": V4, "dtype": "bfloat16"}])
    claim = registry.claim(view.builds[0].id)
    assert (claim.attempt, claim.worker, claim.model, claim.number) == (1, "w1", "vision/resnet18", 1)
    assert claim.request == {"target": V4, "dtype": "bfloat16"}
    assert claim.target.name == V4
    assert (claim.version_spec, claim.settings) == (view.spec, view.settings)
    assert claim.spec == {**view.spec, **view.settings}
    assert claim.pins == view.pins
    assert (claim.weights, claim.golden) == (None, None)
    running = registry.services.builds.view(claim.build)
    assert (running.state, running.attempt) == ("running", 1)
    assert running.started_at


def test_a_build_is_claimed_once(registry: Registry) -> None:
    claim = registry.claim(registry.submit().builds[0].id)
    assert registry.services.builds.claim(claim.build, "w1") is None
    assert registry.services.builds.claim("unknown", "w1") is None


def test_steps_are_kept_in_order_with_time_and_detail(registry: Registry) -> None:
    builds = registry.services.builds
    claim = registry.claim(registry.submit().builds[0].id)
    registry.step(claim, "fetch", "running")
    registry.step(claim, "fetch", "done", seconds=0.25)
    registry.step(claim, "export", "running", detail="tracing")
    first, second = builds.view(claim.build).steps
    assert (first.name, first.state, first.seconds, first.detail) == ("fetch", "done", 0.25, None)
    assert (second.name, second.state, second.seconds, second.detail) == (
        "export",
        "running",
        None,
        "tracing",
    )
    registry.step(claim, "export", "done", seconds=1.5)
    again = builds.view(claim.build).steps[1]
    assert (again.started_at, again.detail) == (second.started_at, "tracing")


def test_log_lines_are_read_on_from_the_last_one_seen(registry: Registry) -> None:
    builds = registry.services.builds
    claim = registry.claim(registry.submit().builds[0].id)
    lines = [LogLine(seq, 1.5 * seq, "compile", "info", f"line {seq}") for seq in range(1, 6)]
    builds.report(claim, [], lines[:3])
    builds.report(claim, [], lines[2:])  # a batch sent twice in part
    builds.report(claim, [], [])
    assert registry.services.logs.lines(claim.build)[1] == lines
    assert registry.services.logs.lines(claim.build, after=3)[1] == lines[3:]
    assert registry.services.logs.lines(claim.build, after=1, limit=2)[1] == lines[1:3]
    assert registry.services.logs.lines(claim.build, after=5)[1] == []


def test_what_postgresql_cannot_hold_is_replaced_and_not_lost(registry: Registry) -> None:
    builds = registry.services.builds
    claim = registry.claim(registry.submit().builds[0].id)
    builds.report(claim, [], [LogLine(1, 0.0, "compile", "compiler", "a\x00b \udcff")])
    assert registry.services.logs.lines(claim.build)[1][0].text == "a\ufffdb ?"
    registry.step(claim, "compile", "failed", detail="\x00")
    builds.fail(claim, CompileFailed("g++ said \x00", context={"error": float("nan")}))
    assert builds.view(claim.build).error == {
        **CompileFailed("g++ said \ufffd", context={"error": "nan"}).as_dict()
    }


def test_a_publication_ends_the_build_with_its_artifact(registry: Registry) -> None:
    builds = registry.services.builds
    claim = registry.claim(registry.submit().builds[0].id)
    publication = registry.publication(claim)
    builds.publish(claim, publication)
    view = builds.view(claim.build)
    assert (view.state, view.artifact, view.error) == ("succeeded", publication.manifest.digest, None)
    assert view.finished_at
    builds.report(claim, [], [LogLine(1, 0.0, "publish", "info", "done")])
    registry.step(claim, "publish", "done", seconds=0.1)  # the last words come after the deed
    assert len(registry.services.logs.lines(claim.build)[1]) == 1


def test_a_failure_ends_the_build_with_its_error(registry: Registry) -> None:
    claim = registry.claim(registry.submit().builds[0].id)
    error = CompileFailed("no compiler", where="compile", hint="Install g++.")
    registry.services.builds.fail(claim, error)
    view = registry.services.builds.view(claim.build)
    assert view.state == "failed"
    assert view.error
    assert str(from_dict(view.error)) == str(error)


def test_a_build_handed_back_waits_in_the_queue_again(registry: Registry) -> None:
    claim = registry.claim(registry.submit().builds[0].id)
    registry.services.builds.hand_back(claim)
    view = registry.services.builds.view(claim.build)
    assert (view.state, view.attempt) == ("queued", 1)
    assert registry.jobs(claim.build) == [(V4, "todo")]
    assert registry.claim(claim.build, "w2").attempt == 2


@pytest.fixture
def overtaken(registry: Registry) -> tuple[Claim, Claim]:
    """Two attempts at one build: the first was taken for lost, the second runs."""
    first = registry.claim(registry.submit().builds[0].id, "w1")
    registry.services.builds.report(first, [], [LogLine(1, 0.0, "export", "info", "of the first")])
    registry.step(first, "fetch", "done", seconds=1.0)
    registry.silence("w1")
    assert registry.services.maintenance.requeue_lost() == [first.build]
    return first, registry.claim(first.build, "w2")


LATE: dict[str, Callable[[Registry, Claim], object]] = {
    "publish": lambda registry, claim: registry.services.builds.publish(claim, registry.publication(claim)),
    "fail": lambda registry, claim: registry.services.builds.fail(claim, CompileFailed()),
    "hand_back": lambda registry, claim: registry.services.builds.hand_back(claim),
    "step": lambda registry, claim: registry.step(claim, "export", "done"),
    "record_weights": lambda registry, claim: registry.services.builds.record_weights(
        claim, digest_bytes(b"late")
    ),
    "record_golden": lambda registry, claim: registry.services.builds.record_golden(
        claim, digest_bytes(b"late")
    ),
}


@pytest.mark.parametrize("name", LATE)
def test_an_overtaken_attempt_is_refused(
    registry: Registry, overtaken: tuple[Claim, Claim], name: str
) -> None:
    first, second = overtaken
    with pytest.raises(StaleAttempt):
        LATE[name](registry, first)
    view = registry.services.builds.view(first.build)
    assert (view.state, view.attempt, view.steps, view.artifact) == ("running", 2, (), None)
    registry.services.builds.publish(second, registry.publication(second))
    assert registry.services.builds.view(first.build).state == "succeeded"
    with pytest.raises(StaleAttempt):
        LATE[name](registry, first)
    assert registry.sql("SELECT count(*), min(attempt) FROM artifacts") == [(1, 2)]


@pytest.mark.parametrize("name", LATE)
def test_an_attempt_that_waits_for_its_successor_is_refused_too(registry: Registry, name: str) -> None:
    claim = registry.claim(registry.submit().builds[0].id)
    registry.services.builds.hand_back(claim)
    with pytest.raises(StaleAttempt):
        LATE[name](registry, claim)
    assert registry.services.builds.view(claim.build).state == "queued"


def test_the_log_of_an_overtaken_attempt_is_not_mixed_into_the_running_ones(
    registry: Registry, overtaken: tuple[Claim, Claim]
) -> None:
    first, second = overtaken
    builds = registry.services.builds
    with pytest.raises(StaleAttempt):
        builds.report(first, [], [LogLine(2, 0.0, "export", "info", "late")])
    builds.report(second, [], [LogLine(1, 0.0, "fetch", "info", "of the second")])
    assert [line.text for line in registry.services.logs.lines(first.build)[1]] == ["of the second"]
    rows = registry.sql("SELECT attempt, text FROM build_logs ORDER BY attempt, seq")
    assert rows == [(1, "of the first"), (2, "of the second")]


def test_one_attempt_publishes_once(registry: Registry) -> None:
    claim = registry.claim(registry.submit().builds[0].id)
    publication = registry.publication(claim)
    registry.services.builds.publish(claim, publication)
    registry.services.builds.publish(claim, publication)  # the first answer may have been lost
    with pytest.raises(StaleAttempt):
        registry.services.builds.publish(claim, registry.publication(claim, code=b"other"))
    with pytest.raises(StaleAttempt):
        registry.services.builds.fail(claim, CompileFailed())
    assert registry.services.builds.view(claim.build).state == "succeeded"


def test_a_publication_that_cannot_be_written_leaves_the_build_running(registry: Registry) -> None:
    claim = registry.claim(registry.submit().builds[0].id)
    publication = registry.publication(claim)
    with pytest.raises(BadResponse):
        registry.services.builds.publish(claim, replace(publication, autotune=[{"op": "m"}]))
    assert registry.services.builds.view(claim.build).state == "running"
    assert registry.sql("SELECT count(*) FROM artifacts") == [(0,)]
    registry.services.builds.publish(claim, publication)


def test_the_first_build_to_record_weights_and_golden_wins(registry: Registry) -> None:
    view = registry.submit(targets=[V4, V3])
    builds = registry.services.builds
    one, other = (registry.claim(build.id) for build in view.builds)
    mine, theirs = registry.blob(b"mine").digest, registry.blob(b"theirs").digest
    for record in (builds.record_weights, builds.record_golden):
        assert record(one, mine) == mine
        assert record(other, theirs) == mine
        assert record(one, mine) == mine
    version = registry.services.publish.version(view.model, 1)
    assert (version.weights, version.golden) == (mine, mine)


def test_uploaded_weights_are_the_versions_from_the_start(registry: Registry) -> None:
    uploaded = registry.blob(WEIGHTS).digest
    claim = registry.claim(registry.submit(weights=uploaded).builds[0].id)
    assert claim.weights == uploaded
    assert registry.services.builds.record_weights(claim, digest_bytes(b"other")) == uploaded


def test_code_with_the_same_program_key_is_found_across_versions(registry: Registry) -> None:
    digest = registry.published(key="graph", code=b"compiled")
    found = registry.services.builds.find_code(digest_bytes(b"graph"), model="vision/resnet18")
    assert found is not None
    assert found.code.digest == digest_bytes(b"compiled")
    assert found.config.key.fields == {"graph": "graph"}
    assert found.config.version.number == 1
    assert registry.services.resolve.artifact(digest).code == found.code.digest
    assert registry.services.builds.find_code(digest_bytes(b"another"), model="vision/resnet18") is None


def test_code_of_another_team_is_not_reused(registry: Registry) -> None:
    registry.published(key="graph", code=b"compiled")
    find = registry.services.builds.find_code
    assert find(digest_bytes(b"graph"), model="vision/another") is not None
    assert find(digest_bytes(b"graph"), model="visions/resnet18") is None
    assert find(digest_bytes(b"graph"), model="visio_/resnet18") is None


def test_code_whose_bytes_are_lost_is_not_reused(registry: Registry) -> None:
    registry.published(key="graph", code=b"compiled")
    storage = registry.services.storage
    del storage._stored[StorageKey.blob(digest_bytes(b"compiled")).exact]  # type: ignore[attr-defined]  # a MemoryStorage
    assert registry.services.builds.find_code(digest_bytes(b"graph"), model="vision/resnet18") is None


def test_a_manifest_that_is_lost_only_costs_the_reuse(registry: Registry) -> None:
    digest = registry.published(key="graph")
    storage = registry.services.storage
    del storage._stored[StorageKey.manifest(digest).exact]  # type: ignore[attr-defined]  # a MemoryStorage
    assert registry.services.builds.find_code(digest_bytes(b"graph"), model="vision/resnet18") is None


@pytest.mark.parametrize("damaged", [b"no JSON", b"{}", None])
def test_a_manifest_that_is_damaged_only_costs_the_reuse(registry: Registry, damaged: bytes | None) -> None:
    key = StorageKey.manifest(registry.published(key="graph")).exact
    stored = registry.services.storage._stored  # type: ignore[attr-defined]  # a MemoryStorage
    stored[key] = damaged or stored[key].replace(b"code.v1+zip", b"code.v2+zip")
    assert registry.services.builds.find_code(digest_bytes(b"graph"), model="vision/resnet18") is None


def test_an_unknown_build_is_not_found(registry: Registry) -> None:
    with pytest.raises(NotFound):
        registry.services.builds.view("b0")


def references(registry: Registry, owner: str) -> set[tuple[str, str]]:
    return {
        (row[0], row[1])
        for row in registry.sql(f"SELECT kind, digest FROM blob_references WHERE owner = '{owner}'")
    }


def test_a_publication_keeps_all_that_it_names_and_lets_its_leases_go(registry: Registry) -> None:
    claim = registry.claim(registry.submit().builds[0].id)
    publication = registry.publication(claim)
    held = registry.sql("SELECT count(*) FROM blob_leases WHERE holder = %s", claim.holder)
    registry.services.builds.publish(claim, publication)
    needed = named_by(publication.manifest, *publication.referrers)
    assert held == [(len(needed) + 1,)]  # and golden values, which only the version names
    assert len(needed) == 9  # three manifests, config, code, weights, two tables, the empty config of both
    assert references(registry, f"artifact:{publication.manifest.digest}") == {
        (key.kind, key.digest) for key in needed
    }
    assert registry.sql("SELECT count(*) FROM blob_leases") == [(0,)]


@pytest.mark.parametrize("state", ["pending", "deleting", "deleted", None])
def test_nothing_is_published_that_a_collector_took(registry: Registry, state: str | None) -> None:
    claim = registry.claim(registry.submit().builds[0].id)
    publication = registry.publication(claim)
    code = publication.manifest.layers[0].digest
    if state:
        registry.sql("UPDATE blobs SET state = %s WHERE digest = %s", state, code)
    else:
        registry.sql("DELETE FROM blobs WHERE digest = %s", code)
    with pytest.raises(BlobGone) as caught:
        registry.services.builds.publish(claim, publication)
    assert caught.value.context["digests"] == [code]
    assert registry.services.builds.view(claim.build).state == "running"
    for table in ("artifacts", "blob_references"):
        assert registry.sql(f"SELECT count(*) FROM {table}") == [(0,)]
    registry.services.builds.retry_later(claim, caught.value)
    registry.sql("UPDATE builds SET not_before = NULL")
    again = registry.claim(claim.build)
    registry.services.builds.publish(again, registry.publication(again))
    assert registry.services.builds.view(claim.build).state == "succeeded"


def test_weights_and_golden_values_are_kept_for_their_version(registry: Registry) -> None:
    view = registry.submit(targets=[V4, V3])
    one, other = (registry.claim(build.id) for build in view.builds)
    weights, golden, inputs, outputs, late = (
        registry.blob(data).digest for data in (b"weights", b"golden", b"inputs", b"outputs", b"late")
    )
    builds = registry.services.builds
    builds.record_weights(one, weights)
    builds.record_golden(one, golden, (inputs, outputs))
    builds.record_weights(other, late)  # too late: nobody needs it
    kept = {("blobs", digest) for digest in (weights, golden, inputs, outputs)}
    assert references(registry, f"version:{one.version_id}") == kept


def test_weights_that_are_not_stored_are_not_recorded(registry: Registry) -> None:
    claim = registry.claim(registry.submit().builds[0].id)
    golden = registry.blob(b"golden").digest
    with pytest.raises(BlobGone):
        registry.services.builds.record_weights(claim, digest_bytes(b"nowhere"))
    with pytest.raises(BlobGone):
        registry.services.builds.record_golden(claim, golden, (digest_bytes(b"nowhere"),))
    version = registry.services.publish.version("vision/resnet18", 1)
    assert (version.weights, version.golden) == (None, None)
