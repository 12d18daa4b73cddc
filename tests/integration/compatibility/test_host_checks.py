"""The server checks a version's artifacts against machines that clients describe, and adds targets to versions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.artifacts import NativeCode
from pt2hub.domain.tokens import SERVER, Actor
from pt2hub.errors import InvalidInput, NotFound, NotReady, UnknownTarget
from support.registry import GPU, V3, V4, a_spec

if TYPE_CHECKING:
    from pt2hub.domain.digests import Digest
    from support.registry import Registry

MODEL = "vision/resnet18"
V2 = "torch2.13-cpu-x86_64_v2"


def described(level: str = "x86_64_v3", **properties: Any) -> dict[str, Any]:
    """A machine as a client describes it."""
    from pt2hub.domain.targets import flags_of_level

    flags = sorted(flags_of_level(level))
    return {"os": "linux", "machine": "x86_64", "torch": "2.13", "cpu_flags": flags, **properties}


def published(registry: Registry, *targets: str, **native: NativeCode) -> dict[str, Digest]:
    """A version with an artifact for each target, by target; requirements by CPU level where given."""
    version = registry.submit(targets=list(targets))
    found = {}
    for number, build in enumerate(version.builds):
        registry.worker(f"w{number}", build.target)
        claim = registry.claim(build.id, f"w{number}")
        level = claim.target.arch if claim.target.device == "cpu" else "x86_64"
        needs = native.get(level, NativeCode(level, (), (), ("aoti_torch_one",), "2.31", "3.4.30"))
        publication = registry.publication(claim, code=build.target.encode(), native=needs)
        registry.services.builds.publish(claim, publication)
        found[build.target] = publication.manifest.digest
    return found


def test_each_artifact_is_checked_by_its_config_and_the_best_is_selected(registry: Registry) -> None:
    digests = published(registry, V4, V3, V2, GPU)
    check = registry.services.host_checks.check(f"{MODEL}@1", described())
    assert (check.model, check.number, check.reference) == (MODEL, 1, f"{MODEL}@1")
    states = {item.target: item.state for item in check.artifacts}
    assert states == {V4: "incompatible", V3: "compatible", V2: "compatible", GPU: "incompatible"}
    assert (check.selected, check.passed_over) == (digests[V3], ())
    reasons = {item.target: item.reasons for item in check.artifacts}
    assert reasons[V3] == ()
    assert reasons[V4][0].startswith("cpu: needs x86_64_v4, has no avx512bw")
    assert [text.partition(":")[0] for text in reasons[GPU]] == ["torch", "device", "cuda"]


def test_requirements_of_the_code_decide_not_the_target_alone(registry: Registry) -> None:
    newer = NativeCode("x86_64_v3", (), (), (), "2.31", "3.4.33")
    digests = published(registry, V3, V2, x86_64_v3=newer)
    check = registry.services.host_checks.check(MODEL, described(glibcxx="3.4.30"))
    assert (check.selected, check.passed_over) == (digests[V2], (V3,))
    assert check.artifacts[0].reasons == ("libstdc++: needs GLIBCXX 3.4.33 or newer, has GLIBCXX 3.4.30",)


def test_where_none_fits_the_command_builds_for_that_machine(registry: Registry) -> None:
    published(registry, V4)
    check = registry.services.host_checks.check(MODEL, described("x86_64_v2"))
    assert (check.selected, check.build_target) == (None, V2)
    assert check.build_command == f"pt2hub build {MODEL}@1 --target {V2} --wait"
    newer = NativeCode("x86_64_v4", (), (), (), "", "3.4.99")
    claim = registry.claim(registry.submit(checks={"tolerance": 0.5}).builds[0].id)
    registry.services.builds.publish(claim, registry.publication(claim, native=newer))
    own = registry.services.host_checks.check(f"{MODEL}@2", described("x86_64_v4", glibcxx="3.4.30"))
    assert (own.selected, own.build_target, own.build_command) == (None, None, None)
    arm = described() | {"machine": "aarch64", "cpu_flags": ["asimd"]}
    assert registry.services.host_checks.check(MODEL, arm).build_command is None


def test_the_target_to_build_has_the_device_of_the_versions_artifacts(registry: Registry) -> None:
    published(registry, GPU)
    gpu = described(sm="sm80", cuda="130", driver_cuda="13.0")
    check = registry.services.host_checks.check(MODEL, gpu)
    assert check.build_target == "torch2.13-cu130-sm80"
    assert registry.services.host_checks.check(MODEL, described()).build_target == V3


def test_an_alias_and_a_digest_are_checked_too(registry: Registry) -> None:
    digests = published(registry, V3, V2)
    registry.services.aliases.move(MODEL, "prod", 1, expected=None, reason="first", by=Actor("test"))
    check = registry.services.host_checks.check
    assert (check(f"{MODEL}@prod", described()).alias, check(f"{MODEL}@prod", described()).selected) == (
        "prod",
        digests[V3],
    )
    pinned = check(f"{MODEL}@{digests[V2]}", described())
    assert [item.digest for item in pinned.artifacts] == [digests[V2]]


def test_what_is_wrong_is_said(registry: Registry) -> None:
    check = registry.services.host_checks.check
    with pytest.raises(NotFound):
        check("no/such", described())
    registry.submit()
    with pytest.raises(NotReady):
        check(f"{MODEL}@1", described())
    with pytest.raises(InvalidInput) as caught:
        check(f"{MODEL}@1", described(glibcxx="new", driver=5))
    assert [item.path for item in caught.value.details] == ["glibcxx", "driver"]


def test_requirements_are_read_once(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    published(registry, V4, V3)
    services = registry.services
    services.host_checks.check(MODEL, described())
    monkeypatch.setattr(services.storage, "read", lambda *_: pytest.fail("was read before"))
    assert len(services.host_checks.check(MODEL, described("x86_64_v4")).artifacts) == 2


# -- targets of existing versions ------------------------------------------------------------------------


def test_a_target_is_added_to_a_version(registry: Registry) -> None:
    published(registry, V4)
    added = registry.services.publish.add_target(MODEL, 1, V3, by=SERVER)
    assert (added.number, added.created, added.readiness) == (1, False, "ready")
    assert [(build.target, build.state) for build in added.builds] == [(V4, "succeeded"), (V3, "queued")]
    assert registry.jobs(added.builds[1].id) == [(V3, "todo")]
    again = registry.services.publish.add_target(MODEL, 1, V3, by=SERVER)
    assert [build.id for build in again.builds] == [build.id for build in added.builds]


def test_a_target_is_added_beside_one_with_overrides(registry: Registry) -> None:
    registry.worker("w1", V4)
    registry.submit(targets=[{"target": V4, "dtype": "bfloat16"}])
    added = registry.services.publish.add_target(MODEL, 1, V3, by=SERVER)
    assert [build.target for build in added.builds] == [V4, V3]
    same = registry.services.publish.add_target(MODEL, 1, V4, by=SERVER)
    assert [build.id for build in same.builds] == [build.id for build in added.builds]


def test_a_failed_build_is_not_queued_again(registry: Registry) -> None:
    version = registry.submit(targets=[V4])
    registry.services.builds.fail(registry.claim(version.builds[0].id), NotFound("no such weights"))
    again = registry.services.publish.add_target(MODEL, 1, V4, by=SERVER)
    assert [build.state for build in again.builds] == ["failed"]


def test_a_wrong_target_or_version_is_refused(registry: Registry) -> None:
    registry.submit()
    add = partial(registry.services.publish.add_target, by=SERVER)
    with pytest.raises(UnknownTarget):
        add(MODEL, 1, "cpu")
    with pytest.raises(NotFound):
        add(MODEL, 2, V3)
    with pytest.raises(InvalidInput, match="no-op toolchain"):
        add(MODEL, 1, "torch0.0-cpu-x86_64")
    assert len(registry.services.publish.version(MODEL, 1).builds) == 1


def test_versions_with_a_weights_blob_and_examples_keep_their_identity(registry: Registry) -> None:
    header = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    weights = registry.blob(len(header).to_bytes(8, "little") + header + bytes(4)).digest
    first = registry.services.publish.submit(a_spec(weights=weights), by=SERVER)
    added = registry.services.publish.add_target(MODEL, first.number, V3, by=SERVER)
    assert (added.identity, added.number) == (first.identity, first.number)
    assert added.weights == weights
