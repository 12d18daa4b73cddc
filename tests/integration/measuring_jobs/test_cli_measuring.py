"""`pt2hub measure` over a real server, and how commands tell measuring jobs from builds."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
import urllib3

from pt2hub.errors import InvalidInput, NotFound, Unauthorized
from support.registry import V3, V4
from support.remeasuring import a_later_run, measured
from support.working import until

if TYPE_CHECKING:
    from pt2hub.client.client import Client
    from support.registry import Registry
    from support.shell import Shell

MODEL = "vision/resnet18"


def test_a_job_is_queued_joined_and_told_apart_from_builds_in_lists(shell: Shell, served: Registry) -> None:
    artifact = served.published()
    told = shell("measure", f"{MODEL}@1", "--repeat", "3")
    assert (told.code, told.err) == (0, "")
    (view,) = shell.json("builds", MODEL, "--kind", "measure")[1]["builds"]
    job = view["id"]
    assert told.out == (
        f"Measuring job {job} of {MODEL}@1 for {V4} is queued 1st. To follow it: pt2hub logs -f {job}\n"
    )
    code, document = shell.json("measure", f"{MODEL}@{artifact}", "--priority", "7", "--target", V4)
    assert (code, [(item["id"], item["priority"]) for item in document["builds"]]) == (0, [(job, 7)])
    assert (view["kind"], view["measures"], view["artifact"]) == ("measure", artifact, None)

    kinds = {
        line[0]: next(word for word in line if word in ("build", "measure"))
        for line in shell("builds").lines[1:]
    }
    assert kinds[job] == "measure"
    assert sorted(kinds.values()) == ["build", "measure"]
    assert len(shell.json("builds", "--kind", "build")[1]["builds"]) == 1
    assert f"measures {artifact}" in shell("builds", job).out
    assert len(shell.json("show", f"{MODEL}@1")[1]["builds"]) == 1
    served.claim(job, "w1")
    assert f"{MODEL}@1 (measuring job) starting" in shell("workers").out
    assert "is cancelled" in shell("cancel", job).out
    assert f"Measuring job {job} of {MODEL}@1 for {V4} is queued 1st" in shell("retry", job).out


def test_waiting_ends_with_the_job_and_says_how_it_went(shell: Shell, served: Registry) -> None:
    served.published()

    def work() -> None:
        """Does the job as soon as it is there: once well, once not."""
        done: set[str] = set()
        for ends_well in (True, False):
            query = "SELECT id FROM builds WHERE kind = 'measure' AND state = 'queued'"
            until(lambda query=query: served.sql(query))
            claim = served.claim(served.sql(query)[0][0])
            done.add(claim.build)
            if ends_well:
                served.step(claim, "measure", "running")
                served.services.measuring_jobs.record(claim, measured(served, claim, a_later_run(claim)))
            else:
                served.services.builds.fail(claim, InvalidInput("no figures", hint="Measure again."))

    worker = threading.Thread(target=work)
    worker.start()
    told = shell("measure", MODEL, "--wait")
    assert told.code == 0
    assert "succeeded" in told.out
    assert "measure" in told.err, "the steps as they go"
    code, document = shell.json("measure", MODEL, "--wait")
    worker.join()
    assert (code, document["error"]["code"]) == (1, "invalid_input")
    assert [item["state"] for item in document["builds"]] == ["failed"]


def test_what_cannot_be_measured_is_said_with_what_can(
    shell: Shell, served: Registry, client: Client
) -> None:
    served.published()
    told = shell("measure", f"{MODEL}@1", "--target", V3)
    assert (told.code, "[not_found]" in told.err, f"It has artifacts for {V4}." in told.err) == (
        1,
        True,
        True,
    )
    assert shell("measure", MODEL, "--repeat", "21").code == 2
    with pytest.raises(InvalidInput) as caught:
        client.performance.measure(MODEL, repeat=0)
    assert caught.value.details[0].path == "repeat"
    with pytest.raises(NotFound):
        client.performance.measure("vision/nothing")
    answer = urllib3.request(
        "POST",
        f"{client.config.url}/api/v1/measure",
        json={"reference": MODEL, "priority": 101, "more": 1},
        headers={"Authorization": f"Bearer {client.config.token}"},
    )
    assert (answer.status, {item["path"] for item in answer.json()["details"]}) == (422, {"priority", "more"})
    with client.__class__(client.config, token="pt2hub_wrong") as stranger, pytest.raises(Unauthorized):
        stranger.performance.measure(MODEL)
    assert served.sql("SELECT count(*) FROM builds WHERE kind = 'measure'") == [(0,)]


def test_a_job_says_what_it_measures_beside(shell: Shell, served: Registry, client: Client) -> None:
    digests = [
        served.published(served.submit(checks={"tolerance": 0.001 * seed}), code=str(seed).encode())
        for seed in (1, 2, 3)
    ]
    code, document = shell.json("measure", f"{MODEL}@3", "--baseline", f"{MODEL}@1")
    (job,) = document["builds"]
    assert (code, job["measures"], job["baseline"]) == (0, digests[2], digests[0])
    line = f"measures {digests[2]}, baseline {digests[0]}"
    assert line in shell("builds", job["id"]).out
    (same,) = client.performance.measure(f"{MODEL}@3", baseline=f"{MODEL}@1")
    assert same.id == job["id"]
    assert line in str(same)
    told = shell("measure", MODEL, "--baseline", f"{MODEL}@3")
    assert (told.code, "are the same artifact" in told.err, "pt2hub versions" in told.err) == (1, True, True)
    with pytest.raises(InvalidInput, match="different teams") as caught:
        client.performance.measure(MODEL, baseline="audio/net@1")
    assert caught.value.where == "baseline"


def test_programs_order_jobs_and_wait_for_them(client: Client, served: Registry) -> None:
    served.published()
    (job,) = client.performance.measure(MODEL, V4, repeat=2, priority=3)
    assert (job.kind, job.state, job.priority) == ("measure", "queued", 3)
    assert str(job).splitlines()[0].endswith("queued 1st")
    assert f"measures {job.measures}" in str(job)
    client.builds.cancel(job.id)
    seen: list[str] = []
    (over,) = client.builds.follow([job], lambda event: seen.append(event.build.state))
    assert (over.state, seen) == ("cancelled", ["cancelled"])
    assert [item.id for item in client.builds.list(kind="measure")] == [job.id]
