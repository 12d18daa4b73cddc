"""Aliases that wait: a policy that lacks figures of a measuring job says so, and a move may wait for them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.performance.measurements import Pair
from pt2hub.domain.tokens import Actor
from pt2hub.errors import AliasMoved, BuildActive, InvalidInput, PromotionCheckFailed
from support.gated import NOISY, QUIET, latency, measure, version
from support.registry import V4
from support.remeasuring import a_later_run, measured, published_unmeasured, the_job

if TYPE_CHECKING:
    from collections.abc import Callable

    from pt2hub.client.client import Client
    from pt2hub.domain.digests import Digest
    from support.registry import Registry
    from support.shell import Shell

MODEL = "vision/resnet18"
CHECK: dict[str, Any] = {"alias": "prod", "metric": "latency_p50", "max_worse": 0.05}
MOVE = ("alias", "set", f"{MODEL}@2", "prod", "--reason", "faster")


def two_versions(registry: Registry) -> tuple[Digest, Digest, str]:
    """`prod` on a version that is measured, and a newer one whose measuring job waits."""
    first = version(registry, latency(10.0))
    view = registry.submit(checks={"tolerance": 0.01})
    second = published_unmeasured(registry, view, code=b"second", key="second")
    policies = registry.services.policies
    policies.put(MODEL, {"checks": [CHECK]}, revision=0, by=Actor("ada", admin=True))
    registry.services.aliases.move(MODEL, "prod", 1, expected=None, reason="first", by=Actor("ci"))
    return first, second, the_job(registry, second)


def measure_beside(registry: Registry, job: str, first: Digest, value: float) -> None:
    """Does the job of the second version, beside the first one."""
    claim = registry.claim(job)
    pairs = [Pair("latency_p50", "ms", [value / 10.0 * part for part in QUIET], 2)]
    run = a_later_run(claim, value=value, measurements=[latency(value)], baseline=first, pairs=pairs)
    registry.services.measuring_jobs.record(claim, measured(registry, claim, run))


def a_moment_later(registry: Registry, act: Callable[[Registry], object]) -> threading.Thread:
    """Does something while somebody waits."""
    thread = threading.Timer(0.7, act, [registry])
    thread.start()
    return thread


def test_a_check_that_lacks_figures_says_which_job_brings_them(shell: Shell, served: Registry) -> None:
    *_, job = two_versions(served)
    told = shell(*MOVE)
    assert told.code == 1
    assert f"version 2 is not measured yet: its measuring job {job} is queued" in told.err
    assert f'`pt2hub alias set {MODEL}@2 prod --reason "..." --wait` moves it as soon as' in told.err
    error = shell.json(*MOVE)[1]["error"]
    assert error["context"]["waits_for"] == [job]
    assert error["context"]["refused"][0]["jobs"] == [job]
    served.claim(job)
    assert f"its measuring job {job} is running" in shell(*MOVE).err


def test_a_move_waits_and_is_made_as_soon_as_the_check_passes(shell: Shell, served: Registry) -> None:
    first, _, job = two_versions(served)
    thread = a_moment_later(served, lambda it: measure_beside(it, job, first, 9.0))
    told = shell(*MOVE, "--wait")
    thread.join()
    assert told.code == 0, told.err
    assert f"{MODEL}@prod: 1 -> 2" in told.out
    assert "succeeded" in told.err, "the measuring job's progress"
    assert served.services.aliases.alias(MODEL, "prod").number == 2


def test_a_version_that_turns_out_slower_is_refused_after_the_wait(served: Registry, client: Client) -> None:
    first, _, job = two_versions(served)
    thread = a_moment_later(served, lambda it: measure_beside(it, job, first, 13.0))
    with pytest.raises(PromotionCheckFailed, match="30 % worse in 2 than in 1") as caught:
        client.aliases.move(MODEL, "prod", 2, reason="faster", wait=True)
    thread.join()
    assert "waits_for" not in caught.value.context
    assert client.aliases.get(MODEL, "prod").number == 1


def test_a_move_that_waits_is_lost_to_one_that_was_made_meanwhile(served: Registry, client: Client) -> None:
    first, _, job = two_versions(served)

    def act(registry: Registry) -> None:
        aliases = registry.services.aliases
        admin = Actor("ada", admin=True)
        aliases.force(MODEL, "prod", 2, expected=1, reason="it mends a wrong result", by=admin)
        aliases.force(MODEL, "prod", 1, expected=2, reason="it does not", by=admin)
        aliases.remove(MODEL, "prod", expected=1, reason="nothing is in use", by=Actor("ada"))
        measure_beside(registry, job, first, 9.0)

    thread = a_moment_later(served, act)
    with pytest.raises(AliasMoved, match="was removed, not on 1"):
        client.aliases.move(MODEL, "prod", 2, reason="faster", wait=True)
    thread.join()
    assert client.aliases.get(MODEL, "prod").number is None


def test_waiting_for_a_move_ends_with_its_time(shell: Shell, served: Registry, client: Client) -> None:
    *_, job = two_versions(served)
    with pytest.raises(BuildActive, match=f"{MODEL}@prod was not moved. .*{job} .* for {V4} is queued"):
        client.aliases.move(MODEL, "prod", 2, reason="faster", wait=True, timeout=0.2)
    told = shell(*MOVE, "--wait", "--timeout", "0.2")
    assert (told.code, "[build_active]" in told.err) == (1, True)
    assert client.aliases.get(MODEL, "prod").number == 1
    assert shell(*MOVE, "--timeout", "3").code == 2
    assert shell("alias", "log", MODEL, "prod", "--wait").code == 2


def test_a_measuring_job_that_fails_or_is_cancelled_ends_the_wait(shell: Shell, served: Registry) -> None:
    *_, job = two_versions(served)

    def fail(registry: Registry) -> None:
        registry.services.builds.fail(registry.claim(job), InvalidInput("the device is gone"))

    thread = a_moment_later(served, fail)
    told = shell(*MOVE, "--wait")
    thread.join()
    assert (told.code, "[promotion_check_failed]" in told.err) == (1, True)
    assert f"measuring version 2 failed in job {job}: the device is gone" in told.err
    assert f"`pt2hub measure {MODEL}@2 --target {V4} --baseline {MODEL}@1`" in told.err
    assert "--wait` moves it" not in told.err
    served.services.builds.retry(job, by=Actor("ada"))
    served.services.builds.cancel(job, by=Actor("ada"))
    assert "version 2 is not measured yet: " in shell(*MOVE, "--wait").err


def test_nobody_waits_where_another_check_refuses_all_the_same(served: Registry, client: Client) -> None:
    two_versions(served)
    served.services.policies.put(
        MODEL,
        {"checks": [CHECK, {"alias": "prod", "metric": "package_bytes", "max_worse": 0.05}]},
        revision=1,
        by=Actor("ada", admin=True),
    )
    with pytest.raises(PromotionCheckFailed) as caught:
        client.aliases.move(MODEL, "prod", 2, reason="faster", wait=True, timeout=30)
    assert caught.value.context["count"] == 2
    assert "waits_for" not in caught.value.context


def test_a_job_that_measures_again_is_waited_for_too(served: Registry, client: Client) -> None:
    first, second, job = two_versions(served)
    served.services.builds.cancel(job, by=Actor("ada"))
    measure(served, second, latency(9.0, noise=NOISY))
    again = the_job(served, second)
    with pytest.raises(
        PromotionCheckFailed, match=f"version 2 is measured again by job {again}, which is queued"
    ) as caught:
        client.aliases.move(MODEL, "prod", 2, reason="faster")
    assert caught.value.context["waits_for"] == [again]
    thread = a_moment_later(served, lambda it: measure_beside(it, again, first, 9.0))
    assert client.aliases.move(MODEL, "prod", 2, reason="faster", wait=True).number == 2
    thread.join()
