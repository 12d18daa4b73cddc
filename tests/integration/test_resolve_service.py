from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.artifacts import AUTOTUNE_TYPE, MEASUREMENTS_TYPE
from pt2hub.domain.digests import digest_bytes
from pt2hub.errors import InvalidInput, NotFound
from support.registry import AUTOTUNE, MEASUREMENTS, TOOLCHAIN, V3, V4

if TYPE_CHECKING:
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


def test_what_is_not_there_is_answered_with_what_is(registry: Registry) -> None:
    resolve = registry.services.resolve.resolve

    def hint(reference: str) -> str:
        with pytest.raises(NotFound) as caught:
            resolve(reference)
        return caught.value.hint or ""

    assert "pt2hub publish" in hint(MODEL)
    claim = registry.claim(registry.submit(targets=[V4, V3]).builds[0].id)
    assert f"pending ({V4} running, {V3} queued)" in hint(f"{MODEL}@1")
    assert "pending" in hint(MODEL)
    registry.services.builds.publish(claim, registry.publication(claim))
    assert "partial" in hint(MODEL)
    assert f"{MODEL}@1" in hint(f"{MODEL}@7")
    assert f"{MODEL}@1" in hint(f"{MODEL}@prod")
    assert f"Did you mean {MODEL}?" in hint("vision/resnet8")
    assert f"Did you mean {MODEL}?" in hint(f"vision/resnet8@{digest_bytes(b'')}")
    assert hint(f"{MODEL}@{digest_bytes(b'')}") == ""
    with pytest.raises(InvalidInput):
        resolve("Resnet")


def test_a_manifest_is_served_byte_for_byte_to_its_own_model_only(registry: Registry) -> None:
    digest = registry.published()
    resolve = registry.services.resolve
    assert digest_bytes(resolve.manifest(MODEL, digest)) == digest
    for referrer in resolve.artifact(digest)["referrers"]:
        body = resolve.manifest(MODEL, referrer["digest"])
        assert json.loads(body)["subject"]["digest"] == digest
    registry.published(registry.submit(model="other/net"), code=b"other")
    with pytest.raises(NotFound):
        resolve.manifest("other/net", digest)


def test_an_artifact_answers_everything_known_of_it(registry: Registry) -> None:
    digest = registry.published()
    found = registry.services.resolve.artifact(digest)
    assert (found["model"], found["number"], found["target"], found["device"]) == (MODEL, 1, V4, "cpu")
    assert found["torch"] == TOOLCHAIN.torch
    assert found["compiler"] == TOOLCHAIN.compiler
    assert found["environment"]["cpu_model"] == "EPYC"
    assert [item["name"] for item in found["members"]] == ["model/version", "model/a.so"]
    assert found["autotune"] == AUTOTUNE
    assert [item["subject"] for item in found["measurements"]] == ["artifact", "eager", "torch_compile"]
    assert found["measurements"][0]["samples"] == MEASUREMENTS[0]["samples"]
    assert found["steps"] == [{"name": "fetch", "seconds": 0.1}, {"name": "compile", "seconds": 12.5}]
    assert found["verification"] == {"passed": True, "relative_error": 1e-6}
    assert {item["artifact_type"] for item in found["referrers"]} == {AUTOTUNE_TYPE, MEASUREMENTS_TYPE}
    assert found["config"]["version"]["model"] == MODEL
    assert found["manifest"]["config"]["digest"] == found["config_digest"]
    assert json.loads(json.dumps(found)) == found
    with pytest.raises(NotFound):
        registry.services.resolve.artifact(digest_bytes(b""))


def test_the_metadata_users_ask_for_can_be_queried(registry: Registry) -> None:
    digest = registry.published()
    (row,) = registry.sql(
        """
        SELECT t.device, t.arch, a.torch, a.compiler, a.verification ->> 'passed', m.value, c.candidate, s.size
        FROM artifacts a
        JOIN builds b ON b.id = a.build_id
        JOIN targets t ON t.name = b.target
        JOIN measurements m ON m.artifact = a.digest AND m.metric = 'latency_p50' AND m.subject = 'artifact'
        JOIN autotune_choices c ON c.artifact = a.digest AND c.chosen
        JOIN archive_members s ON s.artifact = a.digest AND s.name = 'model/a.so'
        WHERE a.digest = %s
        """,
        digest,
    )
    assert row == ("cpu", "x86_64_v4", "2.13.0+cpu", TOOLCHAIN.compiler, "true", 10.5, "cpp_gemm", 4)
