from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
import safetensors.torch
import torch

from pt2hub.domain.digests import digest_bytes
from pt2hub.domain.publishing.spec import DEFAULT_FACTORIES, Spec
from pt2hub.domain.tokens import SERVER, Actor
from pt2hub.errors import (
    Conflict,
    InvalidInput,
    NoLiveWorker,
    NotFound,
    Pt2hubError,
    UnknownFactory,
    UnknownTarget,
)
from pt2hub.rendering.waits import format_note
from pt2hub.wire.responses import WaitReason
from support.packages import WEIGHTS
from support.registry import GPU, PACKAGES, V3, V4, a_spec

if TYPE_CHECKING:
    from pt2hub.wire.responses import VersionView
    from support.registry import Registry


def test_a_submission_makes_a_version_with_a_queued_build_and_a_job(registry: Registry) -> None:
    registry.worker("w1")
    view = registry.submit()
    assert (view.model, view.number, view.readiness, view.created) == ("vision/resnet18", 1, "pending", True)
    assert view.identity == Spec.model_validate(a_spec()).identity()
    (build,) = view.builds
    assert (build.target, build.state, build.attempt, build.wait) == (V4, "queued", 0, None)
    assert registry.jobs(build.id) == [(V4, "todo")]
    assert registry.services.publish.version("vision/resnet18", 1).builds == view.builds


def test_the_same_content_again_is_the_same_version_and_starts_nothing(registry: Registry) -> None:
    first = registry.submit()
    spelt_out = registry.submit(measure={"torch_compile": True}, limits={"seconds": 3600})
    assert not spelt_out.created
    assert (spelt_out.number, spelt_out.builds) == (1, first.builds)
    assert registry.sql("SELECT count(*) FROM procrastinate_jobs") == [(1,)]


def test_limits_and_what_is_measured_are_settings_that_the_latest_submission_replaces(
    registry: Registry,
) -> None:
    first = registry.submit(limits={"seconds": 60}, measure={"processes": 3, "batches": [4]})
    again = registry.submit(limits={"seconds": 600}, measure={})
    assert (again.number, again.created, again.identity) == (1, False, first.identity)
    assert first.settings == {"limits": {"seconds": 60}, "measure": {"processes": 3, "batches": [4]}}
    assert again.settings == {"limits": {"seconds": 600}}
    assert again.spec == first.spec == Spec.model_validate(a_spec()).canonical()
    assert registry.services.publish.version("vision/resnet18", 1).settings == again.settings


def test_an_attempt_has_the_settings_of_the_latest_submission_and_a_retry_too(registry: Registry) -> None:
    build = registry.submit(limits={"seconds": 60}).builds[0].id
    claim = registry.claim(build)
    assert Spec.from_canonical(claim.spec).limits.seconds == 60
    registry.services.builds.fail(claim, NotFound("its time was too short"))
    registry.submit(limits={"seconds": 600}, measure={"profile": False})
    registry.services.builds.retry(build, by=Actor("ada"))
    retried = registry.claim(build)
    spec = Spec.from_canonical(retried.spec)
    assert (spec.limits.seconds, spec.measure.profile) == (600, False)
    assert retried.version_spec == Spec.model_validate(a_spec()).canonical()


def test_a_version_of_before_keeps_the_settings_that_its_spec_has(registry: Registry) -> None:
    view = registry.submit()
    registry.sql("""UPDATE versions SET spec = spec || '{"limits": {"seconds": 77}}'""")
    claim = registry.claim(view.builds[0].id)
    assert claim.spec["limits"] == claim.version_spec["limits"] == {"seconds": 77}


def test_the_preview_says_which_settings_the_version_would_take_over(registry: Registry) -> None:
    registry.submit(limits={"seconds": 60})
    check = registry.services.publish.check
    assert check(a_spec(limits={"seconds": 60})).settings == ()
    assert check(a_spec(measure={"processes": 3})).settings == ("limits", "measure")
    assert check(a_spec(checks={"tolerance": 0.01}, measure={"processes": 3})).settings == ()
    assert registry.services.publish.document("vision/resnet18", 1)["limits"] == {"seconds": 60}


def test_a_submission_and_its_preview_say_which_options_change_nothing(registry: Registry) -> None:
    cpu, gpu = "torch2.13-cpu-x86_64_v4", "torch2.11-cu130-sm90"
    spec = a_spec(compile={"mode": "max-autotune"}, targets=[cpu, gpu])
    preview = registry.services.publish.check(spec)
    view = registry.services.publish.submit(spec, by=SERVER)
    assert [note.partition(": ")[0] for note in view.notes] == [cpu, cpu]
    assert preview.notes == view.notes
    assert "autotuning has nothing to choose" in view.notes[0]
    assert registry.services.publish.version(view.model, view.number).notes == ()


def test_other_content_is_the_next_version(registry: Registry) -> None:
    registry.submit()
    other = registry.submit(checks={"tolerance": 0.01})
    assert (other.number, other.created) == (2, True)
    assert registry.submit(model="vision/other").number == 1


def test_missing_targets_are_added_and_never_take_readiness_back(registry: Registry) -> None:
    registry.published(registry.submit(targets=[V4]))
    view = registry.submit(targets=[V4, V3])
    assert [build.target for build in view.builds] == [V4, V3]
    assert [build.state for build in view.builds] == ["succeeded", "queued"]
    assert view.readiness == "ready"


def test_a_failed_build_is_not_retried_by_submitting_again(registry: Registry) -> None:
    claim = registry.claim(registry.submit().builds[0].id)
    registry.services.builds.fail(claim, NotFound("weights are gone"))
    view = registry.submit()
    assert (view.builds[0].state, view.readiness) == ("failed", "failed")
    assert len(registry.jobs(view.builds[0].id)) == 1


def test_readiness_follows_the_first_submitted_targets(registry: Registry) -> None:
    view = registry.submit(targets=[V4, V3])
    registry.published(view)
    assert registry.services.publish.version(view.model, 1).readiness == "partial"
    claim = registry.claim(view.builds[1].id)
    registry.services.builds.publish(claim, registry.publication(claim, code=b"other"))
    assert registry.services.publish.version(view.model, 1).readiness == "ready"


def test_auto_stands_for_the_targets_of_live_workers_and_is_stored_resolved(registry: Registry) -> None:
    registry.worker("w1", V4)
    registry.worker("w2", V3)
    registry.silence(registry.worker("w3", GPU))
    view = registry.submit(targets=["auto"])
    assert [build.target for build in view.builds] == [V3, V4]
    assert view.pins["targets"] == [V3, V4]


def test_auto_never_stands_for_the_target_of_the_no_op_toolchain(registry: Registry) -> None:
    registry.worker("w1")
    registry.worker("w2", "torch0.0-cpu-x86_64")
    assert [build.target for build in registry.submit(targets=["auto"]).builds] == [V4]


def test_the_no_op_toolchain_never_builds_what_a_real_one_builds(registry: Registry) -> None:
    registry.submit(targets=[V4])
    for targets in (["torch0.0-cpu-x86_64"], [V3, "torch0.0-cpu-x86_64"]):
        with pytest.raises(InvalidInput, match="no-op toolchain"):
            registry.submit(targets=targets)


def test_auto_leaves_a_target_to_the_entry_that_names_it(registry: Registry) -> None:
    registry.worker("w1", V4)
    registry.worker("w2", V3)
    registry.submit(targets=[{"target": V4, "dtype": "bfloat16"}, "auto"])
    rows = registry.sql("SELECT target, request FROM builds ORDER BY position")
    assert rows == [(V4, {"target": V4, "dtype": "bfloat16"}), (V3, {"target": V3})]


def test_overrides_beside_auto_hold_for_every_target_it_stands_for(registry: Registry) -> None:
    registry.worker("w1", V4)
    registry.submit(targets=[{"target": "auto", "memory_format": "channels_last"}])
    assert registry.sql("SELECT request FROM builds") == [({"target": V4, "memory_format": "channels_last"},)]


def test_auto_without_a_live_worker_is_refused_and_nothing_is_written(registry: Registry) -> None:
    registry.silence(registry.worker("w1"))
    with pytest.raises(NoLiveWorker) as caught:
        registry.submit(targets=["auto"])
    assert (caught.value.code, caught.value.where) == ("no_live_worker", "targets")
    assert "pt2hub up" in (caught.value.hint or "")
    assert f"seen before: {V4}" in (caught.value.hint or "")
    registry.worker("noop", target="torch0.0-cpu-x86_64")
    with pytest.raises(NoLiveWorker, match="Only workers with the no-op toolchain") as caught:
        registry.submit(targets=["auto"])
    assert "targets: [torch0.0-cpu-x86_64]" in str(caught.value.hint)
    assert registry.sql("SELECT count(*) FROM models") == [(0,)]


def test_a_named_target_without_a_live_worker_waits_and_says_so(registry: Registry) -> None:
    registry.silence(registry.worker("w1", GPU))
    (build,) = registry.submit(targets=[GPU]).builds
    assert build.state == "queued"
    assert format_note(build).startswith("no live worker offers this target; last heartbeat at 20")
    registry.worker("w2", GPU)
    assert registry.services.builds.view(build.id).wait is None
    registry.services.workers.drain("w2")
    assert registry.services.builds.view(build.id).wait


def test_a_target_nobody_has_waits_and_names_the_ones_it_may_have_meant(registry: Registry) -> None:
    (alone,) = registry.submit(targets=[V4]).builds
    assert (alone.state, alone.wait) == ("queued", WaitReason("never_offered"))
    registry.worker("w1", V4)
    misspelt = V4.replace("2.13", "2.31")
    (build,) = registry.submit(targets=[misspelt], model="vision/other").builds
    assert format_note(build) == f"no worker ever offered this target; workers know {V4}"
    assert registry.services.builds.view(build.id).wait == build.wait
    waiting = registry.services.workers.targets()[-1]
    assert (waiting.name, waiting.live_workers, waiting.queued) == (misspelt, 0, 1)
    assert waiting.last_seen is None


def test_a_worker_that_drains_still_is_what_auto_stands_for(registry: Registry) -> None:
    registry.worker("w1", packages={"torch": "draining"})
    registry.worker("w2", GPU)
    registry.services.workers.drain("w1")
    view = registry.submit(targets=["auto"])
    assert [build.target for build in view.builds] == [GPU, V4]


def test_builds_wait_by_priority_and_first_come_first_served(registry: Registry) -> None:
    ids = [
        registry.submit(model=f"vision/m{number}", priority=priority).builds[0].id
        for number, priority in enumerate((0, 5, 0, -3))
    ]
    registry.submit(model="vision/elsewhere", targets=[GPU], priority=9)
    views = [registry.services.builds.view(build) for build in ids]
    assert [view.position for view in views] == [2, 1, 3, 4]
    assert [view.priority for view in views] == [0, 5, 0, -3]
    order = registry.sql(
        "SELECT args ->> 'build_id' FROM procrastinate_jobs WHERE queue_name = %s ORDER BY priority DESC, id",
        V4,
    )
    assert [row[0] for row in order] == [ids[1], ids[0], ids[2], ids[3]]


def test_submitting_again_with_a_higher_priority_puts_what_waits_further_ahead(registry: Registry) -> None:
    first = registry.submit(targets=[V4, V3])
    registry.submit(model="vision/other", priority=2)
    taken = registry.claim(first.builds[1].id)
    raised = registry.submit(targets=[V4, V3], priority=3)
    waiting, running = raised.builds
    assert (raised.created, waiting.id, waiting.priority, waiting.position) == (
        False,
        first.builds[0].id,
        3,
        1,
    )
    assert (running.id, running.state, running.priority) == (taken.build, "running", 0)
    assert registry.sql(
        "SELECT priority FROM procrastinate_jobs WHERE args ->> 'build_id' = %s", waiting.id
    ) == [(3,)]
    again = registry.submit(targets=[V4, V3], priority=-1)
    assert again.builds[0].priority == 3
    assert len(registry.jobs(waiting.id)) == 1


@pytest.mark.parametrize("priority", [-101, 101])
def test_a_priority_that_there_is_not_is_refused(registry: Registry, priority: int) -> None:
    with pytest.raises(InvalidInput, match=f"priority must be between .*, got {priority}"):
        registry.submit(priority=priority)


def test_package_versions_are_pinned_as_each_targets_newest_worker_has_them(registry: Registry) -> None:
    registry.worker("old", packages={**PACKAGES, "torchvision": "0.26.0"})
    registry.worker("new", packages=PACKAGES)
    view = registry.submit(targets=[V4, GPU])
    assert view.pins["packages"] == {V4: PACKAGES}
    registry.worker("newer", packages={**PACKAGES, "torchvision": "0.29.0"})
    assert registry.submit(targets=[V4]).pins == view.pins  # resolved once and for all


@pytest.mark.parametrize(
    ("targets", "expected", "path"),
    [
        (["torch2.13-cpu"], UnknownTarget, "targets[0]"),
        ([V4, "torch2.13-tpu-v5"], UnknownTarget, "targets[1]"),
        ([V4, V4], InvalidInput, "targets[1]"),
        ([V4, {"target": V4, "dtype": "float16"}], InvalidInput, "targets[1]"),
        (["auto", "auto"], InvalidInput, "targets[1]"),
    ],
)
def test_wrong_targets_are_answered_with_their_place(
    registry: Registry, targets: list[Any], expected: type[Pt2hubError], path: str
) -> None:
    with pytest.raises(expected) as caught:
        registry.submit(targets=targets)
    assert type(caught.value) is expected
    assert caught.value.where == path
    assert [item.path for item in caught.value.details] == [path]
    assert caught.value.hint


def test_other_overrides_for_a_target_that_has_its_build_are_refused(registry: Registry) -> None:
    registry.worker("w1")
    registry.submit(targets=[{"target": V4, "dtype": "bfloat16"}])
    with pytest.raises(Conflict) as caught:
        registry.submit(targets=[V4])
    assert caught.value.context["present"] == {"target": V4, "dtype": "bfloat16"}
    assert len(registry.submit(targets=["auto"]).builds) == 1  # auto asks for nothing in particular


def test_a_factory_outside_the_operators_list_is_refused(registry: Registry) -> None:
    with pytest.raises(UnknownFactory) as caught:
        registry.submit(source={"factory": "os:system"})
    assert caught.value.where == "source.factory"
    (detail,) = caught.value.details
    assert (detail.given, detail.allowed) == ("os:system", ", ".join(DEFAULT_FACTORIES))


def test_blobs_the_spec_names_must_be_there(registry: Registry) -> None:
    weights, example = digest_bytes(WEIGHTS), digest_bytes(b"example")
    tensors = [{"name": "x", "shape": [2, 3], "example": example}]
    with pytest.raises(NotFound) as caught:
        registry.submit(weights=weights, inputs=tensors, dims={})
    assert [item.path for item in caught.value.details] == ["weights", "inputs[0].example"]
    assert [item.given for item in caught.value.details] == [weights, example]
    assert (caught.value.where, "Upload it" in (caught.value.hint or "")) == ("weights", True)
    registry.blob(WEIGHTS)
    example = registry.blob(safetensors.torch.save({"x": torch.zeros(2, 3)}))
    tensors[0]["example"] = example.digest
    view = registry.submit(weights=weights, inputs=tensors, dims={})
    assert view.weights == weights
    assert view.pins["blobs"] == {
        "weights": {"digest": weights, "size": len(WEIGHTS)},
        "inputs[0].example": {"digest": example.digest, "size": example.size},
    }


@pytest.mark.parametrize(
    ("tensors", "given", "allowed"),
    [
        ({"x": torch.zeros(2, 3, dtype=torch.int64)}, "int64", "float32"),
        ({"only": torch.zeros(2, 3, dtype=torch.float16)}, "float16", "float32"),
        ({"x": torch.zeros(6)}, "[6]", "[2, 3]"),
        ({"x": torch.zeros(0, 3)}, "[0, 3]", "[2, 3]"),
        ({"a": torch.zeros(2, 3), "b": torch.zeros(2, 3)}, "a, b", "x"),
    ],
)
def test_an_uploaded_example_that_does_not_fit_is_refused(
    registry: Registry, tensors: dict[str, torch.Tensor], given: str, allowed: str
) -> None:
    example = registry.blob(safetensors.torch.save(tensors)).digest
    with pytest.raises(InvalidInput) as caught:
        registry.submit(inputs=[{"name": "x", "shape": [2, 3], "example": example}], dims={})
    (detail,) = caught.value.details
    assert (caught.value.where, detail.path) == ("inputs[0].example", "inputs[0].example")
    assert (detail.given, detail.allowed) == (given, allowed)
    assert "safetensors" in (caught.value.hint or "")
    assert registry.sql("SELECT count(*) FROM models") == [(0,)]


def test_an_uploaded_example_that_is_no_safetensors_is_refused(registry: Registry) -> None:
    example = registry.blob(b"PK no tensors").digest
    with pytest.raises(InvalidInput, match="safetensors") as caught:
        registry.submit(inputs=[{"name": "x", "shape": [2, 3], "example": example}], dims={})
    assert caught.value.where == "inputs[0].example"


@pytest.mark.parametrize("data", [b"", b"PK\3\4 what torch.save writes", WEIGHTS[:-1], WEIGHTS + b"x"])
def test_weights_that_are_no_safetensors_take_no_number(registry: Registry, data: bytes) -> None:
    with pytest.raises(InvalidInput, match="safetensors") as caught:
        registry.submit(weights=registry.blob(data).digest)
    assert (caught.value.where, [item.path for item in caught.value.details]) == ("weights", ["weights"])
    assert "save_file" in (caught.value.hint or "")
    assert registry.sql("SELECT count(*) FROM models") == [(0,)]
    assert registry.submit(weights=registry.blob(WEIGHTS).digest).number == 1


def test_what_a_spec_names_is_kept_for_its_version(registry: Registry) -> None:
    weights = registry.blob(WEIGHTS).digest
    example = registry.blob(safetensors.torch.save({"x": torch.zeros(5, 3)})).digest
    named: dict[str, Any] = {"inputs": [{"name": "x", "shape": [2, 3], "example": example}], "dims": {}}
    registry.submit(weights=weights, **named)
    registry.submit(weights=weights, **named)
    kept = registry.sql("SELECT kind, digest FROM blob_references ORDER BY digest")
    assert kept == [("blobs", digest) for digest in sorted([weights, example])]
    assert registry.sql("SELECT DISTINCT owner FROM blob_references") == registry.sql(
        "SELECT 'version:' || id FROM versions"
    )


@pytest.mark.parametrize("state", ["pending", "deleting", "deleted"])
def test_what_nobody_confirmed_or_a_collector_took_was_not_uploaded(registry: Registry, state: str) -> None:
    weights = registry.blob(WEIGHTS).digest
    registry.sql("UPDATE blobs SET state = %s", state)
    with pytest.raises(NotFound, match="not uploaded") as caught:
        registry.submit(weights=weights)
    assert [(item.path, item.given) for item in caught.value.details] == [("weights", weights)]
    assert registry.sql("SELECT count(*) FROM versions") == [(0,)]
    registry.blob(WEIGHTS)
    assert registry.submit(weights=weights).created


def test_an_example_with_one_tensor_of_any_name_is_taken(registry: Registry) -> None:
    example = registry.blob(safetensors.torch.save({"any": torch.zeros(5, 3)})).digest
    assert registry.submit(inputs=[{"name": "x", "shape": [2, 3], "example": example}], dims={}).created


def test_equal_submissions_at_once_meet_in_one_version(registry: Registry) -> None:
    views: list[VersionView] = []
    barrier = threading.Barrier(4)

    def submit() -> None:
        barrier.wait()
        views.append(registry.submit(targets=[V4, V3]))

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(views) == 4
    assert {(view.number, *(build.id for build in view.builds)) for view in views} == {
        (1, *(build.id for build in views[0].builds))
    }
    assert sum(view.created for view in views) == 1
    assert registry.sql("SELECT count(*) FROM procrastinate_jobs") == [(2,)]


def test_a_submission_that_fails_late_leaves_no_job(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pt2hub.server.services.publishing.publish.readiness", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        registry.submit()
    for table in ("models", "versions", "builds", "procrastinate_jobs"):
        assert registry.sql(f"SELECT count(*) FROM {table}") == [(0,)]


def test_a_version_that_is_not_there_is_not_found(registry: Registry) -> None:
    with pytest.raises(NotFound):
        registry.services.publish.version("vision/resnet18", 1)


def test_the_specs_form_is_published(registry: Registry) -> None:
    schema = registry.services.publish.spec_schema()
    assert {"model", "source", "inputs", "dims", "targets"} <= schema["properties"].keys()
    assert schema["$schema"].startswith("https://json-schema.org/")
