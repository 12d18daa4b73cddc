from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.artifacts import AUTOTUNE_TYPE, MEASUREMENT_RUN_TYPE
from pt2hub.domain.codec import decode, encode
from pt2hub.domain.digests import Digest, digest_bytes
from pt2hub.domain.tokens import Actor
from pt2hub.errors import Ambiguous, InvalidInput, NotFound, NotReady
from pt2hub.server.db import engine as engines
from pt2hub.server.db.engine import Sessions
from pt2hub.server.services.artifacts.resolution import ResolutionService
from pt2hub.wire.artifacts import ArtifactView
from support.registry import AUTOTUNE, MEASUREMENTS, TOOLCHAIN, V3, V4

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy.orm import Session

    from support.registry import Registry

MODEL = "vision/resnet18"


def test_a_model_alone_means_its_newest_ready_version(registry: Registry) -> None:
    first = registry.published()
    registry.published(registry.submit(checks={"tolerance": 0.01}, targets=[V4, V3]))  # only partial
    registry.submit(checks={"tolerance": 0.02})
    resolved = registry.services.resolve.resolve(MODEL)
    assert (resolved.reference, resolved.model, resolved.number) == (MODEL, MODEL, 1)
    assert [(item.target, item.digest) for item in resolved.artifacts] == [(V4, first)]
    assert resolved.artifacts[0].created_at == "2026-11-21T10:00:00Z"


def test_a_number_means_that_version_with_what_it_has(registry: Registry) -> None:
    registry.published()
    second = registry.published(registry.submit(checks={"tolerance": 0.01}, targets=[V3, V4]))
    resolved = registry.services.resolve.resolve(f"{MODEL}@2")
    assert [(item.target, item.digest) for item in resolved.artifacts] == [(V3, second)]


def test_a_digest_means_that_artifact(registry: Registry) -> None:
    digest = registry.published()
    resolved = registry.services.resolve.resolve(f"{MODEL}@{digest}")
    assert (resolved.number, [item.digest for item in resolved.artifacts]) == (1, [digest])


def test_the_beginning_of_a_digest_means_that_artifact_while_no_other_begins_so(registry: Registry) -> None:
    first = registry.published(registry.submit(targets=[V4, V3]))
    resolve = registry.services.resolve.resolve
    resolved = resolve(f"{MODEL}@{first[:13]}")  # sha256: and six digits
    assert (resolved.number, [item.digest for item in resolved.artifacts]) == (1, [first])
    # No two of a test begin alike for six digits, so one is renamed to what would.
    second = registry.published(registry.submit(checks={"tolerance": 0.1}))
    twin = Digest(f"{first[:-2]}{(int(first[-2:], 16) ^ 1):02x}")
    for table in ("archive_members", "autotune_choices", "measurements", "series_points", "referrers"):
        registry.sql(f"DELETE FROM {table} WHERE artifact = %s", second)
    registry.sql("UPDATE artifacts SET digest = %s WHERE digest = %s", twin, second)
    with pytest.raises(Ambiguous, match="matches several artifacts") as caught:
        resolve(f"{MODEL}@{first[:20]}")
    assert [(item.path, item.message) for item in caught.value.details] == [
        (first, f"{MODEL}@1 for {V4}"),
        (twin, f"{MODEL}@2 for {V4}"),
    ]
    assert caught.value.context["candidates"][1] == {"number": 2, "target": V4, "digest": twin}
    for whole in (first, twin):
        assert [item.digest for item in resolve(f"{MODEL}@{whole}").artifacts] == [whole]


def test_artifacts_of_other_models_make_no_beginning_ambiguous(registry: Registry) -> None:
    digest = registry.published()
    registry.submit(model="other/net")
    resolve = registry.services.resolve.resolve
    for asked in (digest, digest[:20]):
        with pytest.raises(NotFound, match="not found in other/net"):
            resolve(f"other/net@{asked}")
    with pytest.raises(NotFound) as caught:
        resolve(f"other/net@{digest}")
    assert caught.value.hint == f"It belongs to {MODEL}: use {MODEL}@{digest}."


def test_what_is_not_there_is_answered_with_what_is(registry: Registry) -> None:
    for number in range(1, 5):
        registry.published(registry.submit(checks={"tolerance": 0.1 * number}))
    registry.services.aliases.move(MODEL, "production", 2, expected=None, reason="x", by=Actor("ci"))
    registry.sql("INSERT INTO models (name) VALUES ('audio/resnet18')")

    def hint(reference: str) -> str:
        with pytest.raises(NotFound) as caught:
            registry.services.resolve.resolve(reference)
        assert caught.value.where == "reference"
        return caught.value.hint or ""

    assert hint(f"{MODEL}@7") == f"Its versions are 1 to 4. pt2hub versions {MODEL} lists them."
    assert f"Did you mean {MODEL}@production? " in hint(f"{MODEL}@prod")
    assert f"pt2hub alias ls {MODEL} lists its aliases. The newest version is {MODEL}@4." in hint(
        f"{MODEL}@canary"
    )
    assert hint(f"{MODEL}@{digest_bytes(b'')}") == f"pt2hub versions {MODEL} lists its versions."
    assert hint(f"{MODEL}@sha256:000000") == f"pt2hub versions {MODEL} lists its versions."
    assert f"Did you mean {MODEL}? " in hint("vision/resnet8")
    assert f"Did you mean {MODEL}? " in hint(f"vision/resnet8@{digest_bytes(b'')}")
    assert f"Did you mean {MODEL} or audio/resnet18? " in hint("vison/resnet18@3")
    assert f"Did you mean {MODEL}? " in hint("vision/resnet-18@prod")
    assert hint("vision/alexnet") == "pt2hub models lists the models, pt2hub publish creates one."
    with pytest.raises(InvalidInput):
        registry.services.resolve.resolve("Resnet")


def test_a_number_between_others_is_answered_with_the_nearest(registry: Registry) -> None:
    registry.submit()
    registry.sql("UPDATE versions SET number = 3")
    registry.submit(checks={"tolerance": 0.1})
    registry.sql("UPDATE versions SET number = 1 WHERE number = 3")
    with pytest.raises(NotFound) as caught:
        registry.services.resolve.resolve(f"{MODEL}@2")
    assert "Its versions are 1 to 4; the nearest are 1 and 4." in (caught.value.hint or "")


def test_a_version_without_an_artifact_is_not_ready_and_says_where_it_stands(registry: Registry) -> None:
    def hint(reference: str) -> str:
        with pytest.raises(NotReady) as caught:
            registry.services.resolve.resolve(reference)
        assert f"pt2hub show {MODEL}@1 shows details" in (caught.value.hint or "")
        return caught.value.hint or ""

    claim = registry.claim(registry.submit(targets=[V4, V3]).builds[0].id)
    assert f"It is pending ({V4} running, {V3} queued)." in hint(f"{MODEL}@1")
    assert f"The newest, {MODEL}@1, is pending" in hint(MODEL)
    registry.services.builds.publish(claim, registry.publication(claim))
    assert "is partial" in hint(MODEL)
    assert registry.services.resolve.resolve(f"{MODEL}@1").number == 1


class NoTransactions(Sessions):
    """Sessions that only read."""

    @contextlib.contextmanager
    def begin(self) -> Iterator[Session]:
        raise AssertionError("a transaction costs two more round trips")
        yield


def test_resolving_what_is_there_opens_no_transaction(registry: Registry) -> None:
    digest = registry.published()
    registry.services.aliases.move(MODEL, "prod", 1, expected=None, reason="x", by=Actor("ci"))
    engine = engines.create(registry.database_url)
    service = ResolutionService(NoTransactions(engine), registry.services.storage)
    for selector in ("", "@1", "@prod", f"@{digest}", f"@{digest[:20]}"):
        assert service.resolve(f"{MODEL}{selector}").number == 1
    engine.dispose()


def test_a_manifest_is_served_byte_for_byte_to_its_own_model_only(registry: Registry) -> None:
    digest = registry.published()
    resolve = registry.services.resolve
    data, owner = resolve.manifest(MODEL, digest)
    assert (digest_bytes(data), owner.number, owner.yanked) == (digest, 1, None)
    for referrer in resolve.artifact(digest).referrers:
        body, _ = resolve.manifest(MODEL, referrer.digest)
        assert json.loads(body)["subject"]["digest"] == digest
    registry.published(registry.submit(model="other/net"), code=b"other")
    with pytest.raises(NotFound):
        resolve.manifest("other/net", digest)


def test_an_artifact_answers_everything_known_of_it(registry: Registry) -> None:
    digest = registry.published()
    found = registry.services.resolve.artifact(digest)
    assert (found.model, found.number, found.target, found.device) == (MODEL, 1, V4, "cpu")
    assert found.torch == TOOLCHAIN.torch
    assert found.compiler == TOOLCHAIN.compiler
    assert found.environment["cpu_model"] == "EPYC"
    assert [item.name for item in found.members] == ["model/version", "model/a.so"]
    assert encode(found.autotune) == AUTOTUNE
    assert [item.implementation for item in found.measurements] == ["artifact", "eager", "torch_compile"]
    assert found.measurements[0].samples == MEASUREMENTS[0].samples
    assert [(step.name, step.seconds) for step in found.steps] == [("fetch", 0.1), ("compile", 12.5)]
    assert found.verification == {"result": "passed", "relative_error": 1e-6}
    assert {item.artifact_type for item in found.referrers} == {AUTOTUNE_TYPE, MEASUREMENT_RUN_TYPE}
    assert found.config["version"]["model"] == MODEL
    assert found.manifest["config"]["digest"] == found.config_digest
    assert decode(ArtifactView, json.loads(json.dumps(encode(found)))) == found
    with pytest.raises(NotFound):
        registry.services.resolve.artifact(digest_bytes(b""))


def test_the_metadata_users_ask_for_can_be_queried(registry: Registry) -> None:
    digest = registry.published()
    (row,) = registry.sql(
        """
        SELECT t.device, t.arch, a.torch, a.compiler, a.verification ->> 'result', m.value, c.candidate, s.size
        FROM artifacts a
        JOIN builds b ON b.id = a.build_id
        JOIN targets t ON t.name = b.target
        JOIN measurements m ON m.artifact = a.digest
        JOIN series r ON r.id = m.series_id AND r.metric = 'latency_p50' AND r.implementation = 'artifact'
        JOIN autotune_choices c ON c.artifact = a.digest AND c.chosen
        JOIN archive_members s ON s.artifact = a.digest AND s.name = 'model/a.so'
        WHERE a.digest = %s
        """,
        digest,
    )
    assert row == ("cpu", "x86_64_v4", "2.13.0+cpu", TOOLCHAIN.compiler, "passed", 10.5, "cpp_gemm", 4)
