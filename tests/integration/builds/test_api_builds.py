"""Cancel, retry, priorities, workers over real HTTP: what is done, and what is refused with what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pt2hub.client.http.transport import Transport
from pt2hub.domain.builds import StepReport
from pt2hub.errors import (
    BuildActive,
    BuildOver,
    InvalidInput,
    NotFound,
    StaleAttempt,
    StorageUnavailable,
    Unauthorized,
)
from pt2hub.wire.responses import WaitReason
from support.registry import GPU, V3, V4, a_spec

if TYPE_CHECKING:
    from pt2hub.client.client import Client
    from support.registry import Registry

NOBODYS = "torch2.13-cpu-x86_64_v2"


def queued(served: Registry, *targets: str, seed: int = 0, priority: int = 0) -> str:
    """The first build of a further version."""
    source = {"factory": "torchvision.models:resnet18", "seed": seed}
    return served.submit(source=source, targets=list(targets or (V4,)), priority=priority).builds[0].id


def test_a_queued_build_is_cancelled_and_queued_again(client: Client, served: Registry) -> None:
    build = queued(served)
    cancelled = client.builds.cancel(build)
    assert (cancelled.state, cancelled.cancellation) == ("cancelled", "cancelled by client")
    assert client.builds.cancel(build) == cancelled, "once more changes nothing"
    again = client.builds.retry(build, priority=7)
    assert (again.state, again.priority, again.position) == ("queued", 7, 1)
    assert client.builds.get(build) == again


def test_a_running_build_is_cancelled_at_once_and_its_worker_can_publish_no_more(
    client: Client, served: Registry
) -> None:
    claim = served.claim(queued(served))
    cancelled = client.builds.cancel(claim.build)
    assert [(item.number, item.worker, item.outcome) for item in cancelled.attempts] == [
        (1, "w1", "cancelled")
    ]
    with pytest.raises(StaleAttempt):
        served.services.builds.publish(claim, served.publication(claim))
    assert client.builds.get(claim.build).state == "cancelled"


def test_a_finished_build_cannot_be_cancelled(client: Client, served: Registry) -> None:
    version = served.submit()
    served.published(version)
    done = version.builds[0].id
    with pytest.raises(BuildOver, match="succeeded"):
        client.builds.cancel(done)
    with pytest.raises(BuildOver, match="succeeded"):
        client.builds.retry(done)

    claim = served.claim(queued(served, seed=1))
    served.services.builds.fail(claim, NotFound("no such weights"))
    with pytest.raises(BuildOver) as caught:
        client.builds.cancel(claim.build)
    assert f"pt2hub retry {claim.build}" in (caught.value.hint or "")


def test_a_running_or_queued_build_cannot_be_retried(client: Client, served: Registry) -> None:
    build = queued(served)
    with pytest.raises(BuildActive, match="already queued"):
        client.builds.retry(build)
    served.claim(build)
    with pytest.raises(BuildActive, match="is already running") as caught:
        client.builds.retry(build)
    assert f"pt2hub cancel {build}" in (caught.value.hint or "")


@pytest.mark.parametrize("deed", ["cancel", "retry"])
def test_a_build_that_there_is_not_is_said_so(client: Client, deed: str) -> None:
    with pytest.raises(NotFound) as caught:
        getattr(client.builds, deed)("nothing")
    assert "pt2hub builds" in (caught.value.hint or "")


@pytest.mark.parametrize("deed", ["cancel", "retry"])
def test_steering_needs_a_token(url: str, served: Registry, deed: str) -> None:
    build = queued(served)
    with pytest.raises(Unauthorized):
        Transport(url).send("POST", f"/api/v1/builds/{build}/{deed}")
    assert served.services.builds.view(build).state == "queued"


@pytest.mark.parametrize("priority", [101, -101, 10**9])
def test_a_priority_out_of_range_names_the_range(client: Client, served: Registry, priority: int) -> None:
    build = queued(served)
    for deed in (
        lambda: client.publish(a_spec(), priority=priority),
        lambda: client.builds.retry(build, priority=priority),
    ):
        with pytest.raises(InvalidInput) as caught:
            deed()
        assert "from -100 to 100" in str(caught.value)
        assert caught.value.details[0].path == "priority"


def test_a_higher_priority_comes_first_and_submitting_again_raises_it(
    client: Client, served: Registry
) -> None:
    first, second = queued(served), queued(served, seed=1)
    urgent = queued(served, seed=2, priority=10)
    places = {build: client.builds.get(build).position for build in (urgent, first, second)}
    assert places == {urgent: 1, first: 2, second: 3}
    spec = a_spec(source={"factory": "torchvision.models:resnet18", "seed": 1})
    raised = client.publish(spec, priority=20).builds[0]
    assert (raised.id, raised.priority, raised.position) == (second, 20, 1)


def test_a_target_that_nobody_has_is_queued_and_names_the_near_ones(client: Client, served: Registry) -> None:
    served.worker("w1", V3)
    build = client.publish(a_spec(targets=[NOBODYS])).builds[0]
    assert build.state == "queued"
    assert build.wait == WaitReason("never_offered", suggestions=(V3,))


def test_a_build_shows_what_became_of_each_attempt(client: Client, served: Registry) -> None:
    build = queued(served)
    served.services.builds.retry_later(served.claim(build), StorageUnavailable("no answer"))
    waiting = client.builds.get(build)
    assert (waiting.state, waiting.failures, waiting.position) == ("queued", 1, 1)
    assert waiting.not_before is not None
    attempt = waiting.attempts[0]
    assert (attempt.outcome, attempt.code) == ("retried", "storage_unavailable")
    assert client.versions.get(waiting.model, waiting.number).builds[0] == waiting
    assert client.builds.list()[0].attempts == (), "lists are short"


def test_workers_and_what_they_do(client: Client, served: Registry) -> None:
    claim = served.claim(queued(served))
    step = StepReport("compile", "running", 0.0, detail="kernel 3 of 9")
    served.services.builds.report(claim, [step], [])
    served.worker("idle", GPU, concurrency=2)
    served.worker("gone")
    served.services.workers.leave("gone")
    busy = {worker.id: worker for worker in client.workers.list()}
    assert set(busy) == {"w1", "idle"}
    assert (busy["w1"].state, busy["idle"].state, busy["idle"].concurrency) == ("busy", "idle", 2)
    doing = busy["w1"].builds[0]
    assert (doing.id, doing.step, doing.detail) == (claim.build, "compile", "kernel 3 of 9")
    assert {worker.id: worker.state for worker in client.workers.list(gone=True)}["gone"] == "left"
