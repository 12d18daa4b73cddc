from __future__ import annotations

import json
import operator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.artifacts import MEASUREMENT_RUN_TYPE
from pt2hub.domain.builds import LogLine
from pt2hub.domain.digests import canonical_json, digest_bytes
from pt2hub.domain.performance.measurements import Measurement, Pair
from pt2hub.errors import NotFound
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.services.blobs.documents import read_json, read_manifest
from support.packages import WEIGHTS
from support.registry import V3, V4
from support.remeasuring import remeasure

if TYPE_CHECKING:
    from pt2hub.wire.artifacts import ArtifactView
    from support.registry import Registry

TABLES = """models, versions, targets, workers, builds, build_steps, build_logs, artifacts, referrers,
    archive_members, autotune_choices, environments, measurements, procrastinate_jobs"""


def lose_everything_but_tokens(registry: Registry) -> None:
    registry.sql(f"TRUNCATE {TABLES} CASCADE")


def test_the_index_comes_back_from_the_storage_alone(registry: Registry) -> None:
    token = registry.services.access.create_token("kept")
    view = registry.submit(targets=[{"target": V4, "dtype": "bfloat16"}, V3])
    digests = [registry.published(view)]
    second = registry.claim(view.builds[1].id)
    publication = registry.publication(second, code=b"other")
    registry.services.builds.publish(second, publication)
    digests.append(publication.manifest.digest)
    before = [registry.services.resolve.artifact(digest) for digest in digests]
    requests = registry.sql("SELECT id, target, request, position, first_submitted FROM builds ORDER BY id")
    resolved = registry.services.resolve.resolve(view.model)

    lose_everything_but_tokens(registry)
    report = registry.services.reindex.reindex()

    assert report == {
        "manifests": 6,
        "artifacts": 2,
        "added": 2,
        "journal": 0,
        "unreadable": {},
        "damaged": {},
        "deleted": [],
    }
    assert [registry.services.resolve.artifact(digest) for digest in digests] == before
    assert (
        registry.sql("SELECT id, target, request, position, first_submitted FROM builds ORDER BY id")
        == requests
    )
    assert registry.services.resolve.resolve(view.model) == resolved
    version = registry.services.publish.version(view.model, 1)
    assert (version.readiness, version.identity, version.spec, version.pins) == (
        "ready",
        view.identity,
        view.spec,
        view.pins,
    )
    assert [(step.name, step.seconds) for step in version.builds[0].steps] == [
        ("fetch", 0.1),
        ("compile", 12.5),
    ]
    registry.services.access.verify(token)


def test_more_artifacts_come_back_than_postgresql_plans_one_by_one(registry: Registry) -> None:
    for seed in range(12):
        source = {"factory": "torchvision.models:resnet18", "seed": seed}
        registry.published(registry.submit(source=source), code=b"%d" % seed, key=str(seed))
    lose_everything_but_tokens(registry)
    assert registry.services.reindex.reindex()["added"] == 12


def test_reindexing_what_is_there_changes_nothing(registry: Registry) -> None:
    digest = registry.published()
    before = registry.services.resolve.artifact(digest)
    version = registry.services.publish.version("vision/resnet18", 1)
    assert registry.services.reindex.reindex()["added"] == 0
    assert registry.services.resolve.artifact(digest) == before
    after = registry.services.publish.version("vision/resnet18", 1)
    assert after.builds[0].steps == version.builds[0].steps


def test_after_a_reindex_the_registry_goes_on_where_it_was(registry: Registry) -> None:
    registry.published(key="graph")
    lose_everything_but_tokens(registry)
    registry.services.reindex.reindex()
    assert not registry.submit().created
    assert registry.submit(checks={"tolerance": 0.01}).number == 2
    assert registry.services.builds.find_code(digest_bytes(b"graph"), model="vision/resnet18") is not None


def test_what_cannot_be_read_is_named_and_the_rest_is_added(registry: Registry) -> None:
    whole = registry.published()
    broken = registry.published(registry.submit(checks={"tolerance": 0.01}), code=b"b")
    config = registry.services.resolve.artifact(broken).config_digest
    foreign = registry.blob(b"no JSON")
    registry.services.storage.write(StorageKey.manifest(foreign.digest), [b"no JSON"])
    lose_everything_but_tokens(registry)
    del registry.services.storage._stored[StorageKey.blob(config).exact]  # type: ignore[attr-defined]  # a MemoryStorage
    report = registry.services.reindex.reindex()
    assert report["added"] == 1
    assert set(report["unreadable"]) == {foreign.digest, broken}
    assert registry.services.resolve.artifact(whole).number == 1


def test_a_restored_build_has_the_attempt_that_made_its_artifact(registry: Registry) -> None:
    (build,) = registry.submit().builds
    registry.services.builds.hand_back(registry.claim(build.id))
    claim = registry.claim(build.id)
    registry.services.builds.report(claim, [], [LogLine(1, 0.0, "fetch", "info", "hello")])
    registry.services.builds.publish(claim, registry.publication(claim))
    registry.sql("UPDATE build_attempts SET ended_at = ended_at - interval '1 minute'")
    registry.services.maintenance.tidy()
    before = registry.services.builds.view(build.id).attempts[-1]
    lose_everything_but_tokens(registry)
    registry.services.reindex.reindex()
    view = registry.services.builds.view(build.id)
    (attempt,) = view.attempts
    assert (view.attempt, attempt.number, attempt.outcome) == (2, 2, "succeeded")
    assert attempt.ended_at == view.finished_at
    assert attempt.log == before.log
    assert [(step.name, step.state) for step in view.steps] == [("fetch", "done"), ("compile", "done")]
    assert view.steps[0].started_at < view.steps[1].started_at < (attempt.ended_at or "")
    assert registry.services.logs.lines(build.id)[1][0].text == "hello"


def test_a_build_that_a_restored_backup_believes_unfinished_is_completed(registry: Registry) -> None:
    digest = registry.published()
    registry.sql("DELETE FROM artifacts")
    registry.sql("UPDATE builds SET state = 'queued', finished_at = NULL")
    registry.services.reindex.reindex()
    (build,) = registry.services.publish.version("vision/resnet18", 1).builds
    assert (build.state, build.artifact) == ("succeeded", digest)


@pytest.mark.parametrize("lost", [True, False])
def test_what_an_overtaken_attempt_uploaded_is_not_taken_for_the_artifact(
    registry: Registry, *, lost: bool
) -> None:
    (build,) = registry.submit().builds
    first = registry.claim(build.id)
    overtaken = registry.publication(first, code=b"first")
    registry.services.builds.hand_back(first)
    second = registry.claim(build.id)
    publication = registry.publication(second, code=b"second")
    registry.services.builds.publish(second, publication)
    if lost:
        lose_everything_but_tokens(registry)

    report = registry.services.reindex.reindex()

    assert (report["artifacts"], report["added"], report["unreadable"]) == (2, int(lost), {})
    (after,) = registry.services.publish.version("vision/resnet18", 1).builds
    assert (after.artifact, after.attempt) == (publication.manifest.digest, 2)
    with pytest.raises(NotFound):
        registry.services.resolve.artifact(overtaken.manifest.digest)


def test_a_number_that_was_given_away_meanwhile_is_named_and_the_rest_is_added(registry: Registry) -> None:
    old = registry.published()
    other = registry.published(registry.submit(model="vision/other"), code=b"other")
    lose_everything_but_tokens(registry)
    registry.submit(checks={"tolerance": 0.01})
    report = registry.services.reindex.reindex()
    assert report["added"] == 1
    assert set(report["unreadable"]) == {old}
    assert "reindex before" in report["unreadable"][old]
    assert registry.services.resolve.artifact(other).number == 1


BLOB_TABLES = "blobs, blob_leases, blob_references"
REFERENCES = "SELECT kind, digest, owner FROM blob_references ORDER BY owner, kind, digest"


def bookkept(registry: Registry) -> list[tuple[object, ...]]:
    """A version with uploaded weights, golden values, an artifact and a log, and another one without any build."""
    view = registry.submit(weights=registry.blob(WEIGHTS).digest)
    claim = registry.claim(view.builds[0].id)
    inputs, outputs = registry.blob(b"inputs").digest, registry.blob(b"outputs").digest
    document = canonical_json({"inputs": inputs, "outputs": outputs})
    golden = registry.services.builds.record_golden(claim, registry.blob(document).digest, (inputs, outputs))
    registry.services.builds.report(claim, [], [LogLine(1, 0.0, "fetch", "info", "hello")])
    publication = registry.publication(replace(claim, golden=golden), weights_data=WEIGHTS)
    registry.services.builds.publish(claim, publication)
    registry.services.logs.archive(claim.build, 1)
    return registry.sql(REFERENCES)


def test_rows_and_references_of_blobs_come_back_from_the_storage_alone(registry: Registry) -> None:
    references = bookkept(registry)
    rows = "SELECT kind, digest, generation, state, size FROM blobs ORDER BY kind, digest"
    before = registry.sql(rows)
    registry.sql(f"TRUNCATE {TABLES}, {BLOB_TABLES} RESTART IDENTITY CASCADE")
    registry.services.reindex.reindex()
    assert registry.sql(rows) == before
    after = registry.sql(REFERENCES)
    # A log's manifest is its artifact's referrer, which is what the storage knows of it.
    by_log = [row for row in references if str(row[2]).startswith("log:")]
    assert len(by_log) == 3
    assert {row for row in references if row not in by_log} <= set(after)
    assert {row[:2] for row in after} == {row[:2] for row in references}
    registry.services.reindex.reindex()
    assert registry.sql(REFERENCES) == after


def test_what_is_older_than_the_bookkeeping_is_kept_after_a_reindex(registry: Registry) -> None:
    references = bookkept(registry)
    unbuilt = registry.submit(model="vision/unbuilt", weights=digest_bytes(WEIGHTS))
    registry.sql(f"TRUNCATE {BLOB_TABLES}")
    assert registry.services.reindex.reindex()["added"] == 0
    after = registry.sql(REFERENCES)
    assert {row[:2] for row in after} == {row[:2] for row in references}
    assert len([row for row in after if row[1] == unbuilt.weights]) == 3  # two versions and an artifact


def test_of_several_generations_the_highest_counts(registry: Registry) -> None:
    storage, (key, other) = (
        registry.services.storage,
        (StorageKey.blob(digest_bytes(data)) for data in (b"a", b"b")),
    )
    for generation in (1, 2, 10):
        storage.write(key.at(generation), [b"a"])
    storage.write(other.at(3), [b"b"])
    registry.services.reindex.reindex()
    rows = dict(registry.sql("SELECT digest, generation FROM blobs"))
    assert rows == {key.digest: 10, other.digest: 3}
    # What the rows know better stays: a collector and a writer are at work.
    registry.sql("UPDATE blobs SET state = 'deleting' WHERE digest = %s", key.digest)
    registry.sql("UPDATE blobs SET generation = 4, state = 'pending' WHERE digest = %s", other.digest)
    registry.services.reindex.reindex()
    assert dict(registry.sql("SELECT generation, state FROM blobs")) == {10: "deleting", 4: "pending"}
    storage.write(other.at(4), [b"b"])
    registry.services.reindex.reindex()
    assert dict(registry.sql("SELECT generation, state FROM blobs")) == {10: "deleting", 4: "stored"}


def test_what_the_storage_lost_is_damaged_and_keeps_nothing_from_coming_back(registry: Registry) -> None:
    bookkept(registry)
    code = digest_bytes(b"code")
    registry.sql(f"TRUNCATE {TABLES}, {BLOB_TABLES} CASCADE")
    del registry.services.storage._stored[StorageKey.blob(code).exact]  # type: ignore[attr-defined]  # a MemoryStorage
    assert registry.services.reindex.reindex()["added"] == 1
    assert registry.sql("SELECT state, size FROM blobs WHERE digest = %s", code) == [("damaged", 4)]
    assert registry.sql("SELECT count(*) FROM blob_references WHERE digest = %s", code) == [(1,)]
    registry.blob(b"code")  # stored again, say from a backup
    assert registry.services.reindex.reindex()["damaged"] == {}
    assert registry.sql("SELECT count(*) FROM blob_references WHERE digest = %s", code) == [(1,)]


def test_a_golden_document_that_is_damaged_costs_only_what_it_names(registry: Registry) -> None:
    bookkept(registry)
    golden = registry.services.publish.version("vision/resnet18", 1).golden
    assert golden
    for damaged in (b"[]", b"no JSON", b'{"inputs": 3, "outputs": "sha256:x"}'):
        registry.services.storage._stored[StorageKey.blob(golden).exact] = damaged  # type: ignore[attr-defined]  # a MemoryStorage
        registry.sql(f"TRUNCATE {BLOB_TABLES}")
        registry.services.reindex.reindex()
        kept = registry.sql("SELECT digest FROM blob_references WHERE owner LIKE 'version:%%'")
        assert sorted(kept) == sorted([(golden,), (digest_bytes(WEIGHTS),)])


def test_what_was_measured_later_comes_back_without_the_jobs_that_measured_it(registry: Registry) -> None:
    before = registry.published()
    own = registry.published(registry.submit(checks={"tolerance": 0.01}), code=b"other")
    beside = [Measurement("latency_p50", 9.0, "ms", "artifact", 2)]
    remeasure(
        registry,
        "vision/resnet18@2",
        baseline=before,
        baseline_measurements=beside,
        pairs=[Pair("latency_p50", "ms", [1.1], 2)],
    )
    remeasure(registry, "vision/resnet18@1")
    views = [registry.services.resolve.artifact(digest) for digest in (before, own)]
    pairs = registry.sql("SELECT artifact, baseline, run, ratios FROM measurement_pairs")
    assert len(pairs) == 1

    for lose in (
        lose_everything_but_tokens,  # the newer artifact may be read first: its run has the older one beside it
        lambda registry: registry.sql("TRUNCATE measurements, measurement_pairs, series, referrers CASCADE"),
    ):
        lose(registry)
        registry.services.reindex.reindex()
        assert [by_time(registry.services.resolve.artifact(digest)) for digest in (before, own)] == [
            by_time(view) for view in views
        ]
        assert registry.sql("SELECT artifact, baseline, run, ratios FROM measurement_pairs") == pairs
    assert registry.sql("SELECT count(*) FROM builds WHERE kind = 'measure'") == [(0,)]
    count = registry.sql("SELECT count(*), max(id) FROM measurements")
    changed = registry.sql("SELECT max(changed_at) FROM series")
    registry.services.reindex.reindex()
    assert registry.sql("SELECT count(*), max(id) FROM measurements") == count
    assert registry.sql("SELECT max(changed_at) FROM series") == changed, "nothing new to examine"


def test_a_run_that_cannot_be_read_keeps_neither_its_artifact_nor_another_run_away(
    registry: Registry,
) -> None:
    digest = registry.published()
    claims = [remeasure(registry, "vision/resnet18@1") for _ in range(2)]
    manifests = {
        manifest.digest: manifest.layers[0].digest
        for view in registry.services.resolve.artifact(digest).referrers
        if (manifest := read_manifest(registry.services.storage, view.digest)).layers[0].mediaType
        == MEASUREMENT_RUN_TYPE
    }
    damaged = next(
        referrer
        for referrer, blob in manifests.items()
        if claims[0].build in json.dumps(read_json(registry.services.storage, StorageKey.blob(blob)))
    )
    del registry.services.storage._stored[StorageKey.blob(manifests[damaged]).exact]  # type: ignore[attr-defined]  # a MemoryStorage
    lose_everything_but_tokens(registry)
    report = registry.services.reindex.reindex()
    assert (report["added"], set(report["unreadable"])) == (1, {damaged})
    runs = registry.sql("SELECT DISTINCT run FROM measurements WHERE source = 'again'")
    assert runs == [(f"{claims[1].build}:1:1",)]


def by_time(view: ArtifactView) -> ArtifactView:
    """The same artifact with its figures in an order that does not depend on when their rows were added, and no job."""
    key = operator.attrgetter("measured_at", "metric", "implementation", "value")
    assert view.measurement is not None
    state = replace(view.measurement, job=None, job_state=None)
    return replace(view, measurements=tuple(sorted(view.measurements, key=key)), measurement=state)
