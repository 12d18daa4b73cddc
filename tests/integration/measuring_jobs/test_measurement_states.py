"""Ready when proven, measured afterwards: what every surface says of an artifact that nobody has timed yet."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from pt2hub.cli.publishing.wait_option import with_values
from pt2hub.domain.builds import BuildFilter
from pt2hub.domain.tokens import SERVER, Actor
from pt2hub.errors import BuildActive, InvalidInput
from pt2hub.wire.documents import parse_document
from pt2hub.wire.responses import MeasurementStatus
from support.registry import V3, V4
from support.remeasuring import measure_now, published_unmeasured, the_job
from support.working import until

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.client.client import Client
    from support.registry import Registry
    from support.shell import Shell

MODEL = "vision/resnet18"
SPEC = """
model: vision/resnet18
source: {factory: 'torchvision.models:resnet18'}
inputs: [{name: x, shape: [batch, 3, 224, 224], dtype: float32, generate: {normal: {}}}]
dims: {batch: {min: 1, max: 32, example: 2}}
targets: [torch2.13-cpu-x86_64_v4]
"""


def status(registry: Registry) -> MeasurementStatus:
    """What version 1 says of its artifact; the same everywhere."""
    (build,) = registry.services.publish.version(MODEL, 1).builds
    assert build.artifact
    assert build.measurement
    assert registry.services.builds.view(build.id).measurement == build.measurement
    assert registry.services.resolve.artifact(build.artifact).measurement == build.measurement
    assert registry.services.inspection.artifact(build.artifact).artifact.measurement == build.measurement
    (summary,) = registry.services.catalog.versions(MODEL).versions
    assert summary.measurements == {V4: build.measurement.state}
    listed = registry.services.catalog.builds(BuildFilter(model=MODEL)).builds
    assert [item.measurement for item in listed if item.kind == "build"] == [build.measurement]
    assert all(item.measurement is None for item in listed if item.kind == "measure")
    return build.measurement


def test_an_artifact_goes_from_waiting_to_measured(registry: Registry) -> None:
    artifact = published_unmeasured(registry)
    assert registry.services.publish.version(MODEL, 1).readiness == "ready"
    job = the_job(registry, artifact)
    assert status(registry) == MeasurementStatus("waiting", job, "queued")
    registry.services.builds.cancel(job, by=Actor("ada"))
    cancelled = status(registry)
    assert (cancelled.state, cancelled.job_state) == ("not_measured", "cancelled")
    assert cancelled.reason
    assert "ada" in cancelled.reason
    registry.services.builds.retry(job, by=Actor("ada"))
    registry.services.builds.fail(registry.claim(job), InvalidInput("the device is gone"))
    assert status(registry) == MeasurementStatus("failed", job, "failed", "the device is gone")
    registry.services.builds.retry(job, by=Actor("ada"))
    claim = registry.claim(job)
    assert status(registry) == MeasurementStatus("measuring", job, "running")
    registry.services.builds.hand_back(claim)
    assert status(registry).state == "waiting"
    measure_now(registry, job)
    assert status(registry) == MeasurementStatus("measured", job, "succeeded")


def test_what_is_measured_stays_so_while_it_is_measured_again(registry: Registry) -> None:
    artifact = published_unmeasured(registry)
    measure_now(registry, the_job(registry, artifact))
    again = the_job(registry, artifact)
    assert status(registry) == MeasurementStatus("measured", again, "queued")
    registry.services.builds.fail(registry.claim(again), InvalidInput("the device is gone"))
    assert status(registry).state == "measured"


def test_a_report_from_production_is_no_measurement(registry: Registry) -> None:
    artifact = published_unmeasured(registry)
    job = the_job(registry, artifact)
    figure = {"artifact": artifact, "metric": "latency_p50", "value": 3.1, "unit": "ms", "key": "k"}
    machine = {"cpu_model": "Xeon", "cores": 8, "torch": "2.13.0+cpu"}
    registry.services.reports.report({"measurements": [{**figure, "environment": machine}]}, by=Actor("ci"))
    assert status(registry) == MeasurementStatus("waiting", job, "queued")


def test_states_of_many_versions_take_one_statement(registry: Registry, statements: list[str]) -> None:
    for seed in range(1, 4):
        version = registry.submit(checks={"tolerance": 0.001 * seed}, targets=[V4, V3])
        published_unmeasured(registry, version, code=str(seed).encode())
    statements.clear()
    found = registry.services.catalog.versions(MODEL).versions
    assert [set(item.measurements) for item in found] == [{V4}] * 3
    assert sum("series.metric" in statement for statement in statements) == 1


def test_commands_say_that_a_ready_version_is_not_measured_yet(shell: Shell, served: Registry) -> None:
    artifact = published_unmeasured(served)
    job = the_job(served, artifact)
    shown = shell("show", f"{MODEL}@1").out
    assert f"waiting to be measured: pt2hub logs -f {job}" in shown
    assert "speed" not in shown
    assert f"{V4} succeeded, waiting to be measured" in " ".join(shell("versions", MODEL).out.split())
    assert "waiting to be measured" in shell("builds", MODEL).out
    (build,) = shell.json("show", f"{MODEL}@1")[1]["builds"]
    assert build["measurement"] == {"state": "waiting", "job": job, "job_state": "queued", "reason": None}
    assert f"waiting to be measured: pt2hub logs -f {job}" in shell("builds", build["id"]).out
    measure_now(served, job)
    shown = shell("show", f"{MODEL}@1").out
    assert "measured" not in shown
    assert "10 ms at batch 2" in shown


def test_a_history_says_why_a_version_is_in_no_table(shell: Shell, served: Registry) -> None:
    first = published_unmeasured(served)
    measure_now(served, the_job(served, first))
    second = published_unmeasured(served, served.submit(checks={"tolerance": 0.01}), code=b"second")
    job = the_job(served, second)
    told = shell("history", f"{MODEL}@2").out
    assert f"Version 2 is not in these tables. {V4}: waiting to be measured: pt2hub logs -f {job}" in told
    assert "is in no table" not in shell("history", f"{MODEL}@1").out


def test_values_in_a_prompt_say_it_too(client: Client, served: Registry) -> None:
    artifact = published_unmeasured(served)
    job = the_job(served, artifact)
    version = client.versions.get(MODEL, 1)
    assert "waiting to be measured" in str(version)
    assert "To wait for its measurements: " in str(version)
    assert "waiting to be measured" in version._repr_html_()
    assert "waiting to be measured" in repr(client.versions.list(MODEL)[0])
    assert f"pt2hub logs -f {job}" in str(client.artifacts.get(artifact))
    measure_now(served, job)
    assert "measure" not in str(client.versions.get(MODEL, 1))


def worker(served: Registry, *, well: bool = True) -> threading.Thread:
    """Publishes what is queued without figures, then measures it."""

    def work() -> None:
        query = "SELECT id FROM builds WHERE kind = 'build' AND state = 'queued'"
        until(lambda: served.sql(query))
        artifact = published_unmeasured(served, served.services.publish.version(MODEL, 1))
        job = the_job(served, artifact)
        if well:
            measure_now(served, job)
        else:
            served.services.builds.fail(served.claim(job), InvalidInput("the device is gone"))

    thread = threading.Thread(target=work)
    thread.start()
    return thread


@pytest.mark.parametrize("option", [("--wait", "measured"), ("--wait=measured",), ("-w", "measured")])
def test_waiting_for_measured_ends_with_the_measurements(
    shell: Shell, served: Registry, tmp_path: Path, option: tuple[str, ...]
) -> None:
    path = tmp_path / "net.yaml"
    path.write_text(SPEC)
    artifact = published_unmeasured(
        served, served.services.publish.submit(parse_document(SPEC.encode()), by=SERVER)
    )
    job = the_job(served, artifact)
    thread = threading.Timer(0.5, measure_now, [served, job])
    thread.start()
    told = shell("publish", *option, str(path))
    thread.join()
    assert told.code == 0, told.err
    assert "succeeded" in told.err, "the measuring job's progress"
    assert "waiting to be measured" not in told.out


def test_waiting_for_ready_does_not_wait_for_measurements(
    shell: Shell, served: Registry, tmp_path: Path
) -> None:
    path = tmp_path / "net.yaml"
    path.write_text(SPEC)
    job = the_job(
        served,
        published_unmeasured(
            served, served.services.publish.submit(parse_document(SPEC.encode()), by=SERVER)
        ),
    )
    for options in (("--wait",), ("--wait", "ready"), ("--wait=ready",), ("-w",)):
        told = shell("publish", *options, str(path))
        assert told.code == 0, told.err
        assert f"waiting to be measured: pt2hub logs -f {job}" in told.out
    assert shell("publish", "--wait=soon", str(path)).code == 2


def test_a_version_whose_measuring_fails_stays_ready_and_the_command_says_so(
    shell: Shell, served: Registry, tmp_path: Path
) -> None:
    path = tmp_path / "net.yaml"
    path.write_text(SPEC)
    job = the_job(
        served,
        published_unmeasured(
            served, served.services.publish.submit(parse_document(SPEC.encode()), by=SERVER)
        ),
    )
    served.services.builds.fail(served.claim(job), InvalidInput("the device is gone"))
    told = shell("publish", str(path), "--wait", "measured")
    assert (told.code, "[not_measured]" in told.err) == (1, True)
    assert f"{MODEL}@1 is ready, and on {V4} measuring failed: the device is gone" in told.err
    assert f"pt2hub measure {MODEL}@1 --target {V4} --wait" in told.err
    code, document = shell.json("publish", str(path), "--wait", "measured")
    assert (code, document["readiness"], document["error"]["code"]) == (1, "ready", "not_measured")


def test_a_program_waits_for_measured(client: Client, served: Registry) -> None:
    spec = parse_document(SPEC.encode())
    version = client.publish(spec)
    thread = worker(served)
    ended = version.wait("measured", timeout=60)
    thread.join()
    assert [build.measurement and build.measurement.state for build in ended.builds] == ["measured"]
    assert client.publish(spec, wait="measured").readiness == "ready"
    for wrong in ("soon", 60):
        with pytest.raises(InvalidInput, match="'ready' or 'measured'"):
            client.publish(spec, wait=wrong)
        with pytest.raises(InvalidInput, match="'ready' or 'measured'"):
            version.wait(wrong)  # type: ignore[arg-type]


def test_waiting_for_measured_ends_with_its_time_and_with_a_failed_build(
    client: Client, served: Registry
) -> None:
    spec = parse_document(SPEC.encode())
    job = the_job(served, published_unmeasured(served, served.services.publish.submit(spec, by=SERVER)))
    with pytest.raises(BuildActive, match=f"job {job} of .* for {V4} is queued"):
        client.publish(spec).wait("measured", timeout=0.3)
    added = client.publish({**spec, "targets": [V4, V3]})
    served.services.builds.fail(served.claim(added.builds[1].id), InvalidInput("no such model"))
    ended = added.wait("measured", timeout=60)
    assert [build.state for build in ended.builds] == ["succeeded", "failed"], (
        "nobody waits for half a version's figures"
    )


def test_the_options_value_may_be_left_out() -> None:
    assert list(with_values(["--wait", "spec.yaml"])) == ["--wait=ready", "spec.yaml"]
    assert list(with_values(["spec.yaml", "-w"])) == ["spec.yaml", "--wait=ready"]
    assert list(with_values(["-w", "measured", "a", "--wait", "--json"])) == [
        "--wait=measured",
        "a",
        "--wait=ready",
        "--json",
    ]
    assert list(with_values(["--wait=measured", "--", "--wait"])) == ["--wait=measured", "--", "--wait"]
