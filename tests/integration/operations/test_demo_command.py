"""What `pt2hub demo` says of the measurements, over versions that nobody compiled."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from pt2hub.cli.operations import demo
from pt2hub.errors import InvalidInput, NotMeasured
from support.gated import latency, replicated
from support.remeasuring import a_later_run, measured, published_unmeasured, the_job

if TYPE_CHECKING:
    from pt2hub.client.client import Client
    from support.registry import Registry


def two_versions(served: Registry) -> list[str]:
    """Both versions of the demo, ready and not measured; their measuring jobs."""
    views = [served.submit(), served.submit(checks={"tolerance": 0.01})]
    found = [
        published_unmeasured(served, view, code=f"{number}".encode(), key=f"{number}")
        for number, view in enumerate(views)
    ]
    return [the_job(served, artifact) for artifact in found]


def test_it_waits_for_both_and_shows_a_table_of_each(client: Client, served: Registry) -> None:
    jobs, lines = two_versions(served), []

    def work() -> None:
        for job in jobs:
            claim = served.claim(job)
            served.step(claim, "measure", "done", seconds=3.0)
            found = [latency(12.5), replicated("load_time", 6.0, "ms")]
            run = a_later_run(claim, measurements=found)
            served.services.measuring_jobs.record(claim, measured(served, claim, run))

    thread = threading.Timer(0.5, work)
    thread.start()
    figures = demo.measurements(client, (demo.FIRST, demo.SECOND), lines.append)
    thread.join()
    assert figures["aot_p50_ms"] == 12.5
    assert figures["measurements_s"] > 0
    text = "\n".join(lines)
    assert text.count("latency_p50") == text.count("load_time") == 2
    assert [line for line in lines if line.strip() in (demo.FIRST, demo.SECOND)] == [
        f"  {demo.FIRST}",
        f"  {demo.SECOND}",
    ]


def test_measuring_that_fails_ends_it_with_the_reason(client: Client, served: Registry) -> None:
    job, _ = two_versions(served)
    served.services.builds.fail(served.claim(job), InvalidInput("the device is gone"))
    with pytest.raises(NotMeasured, match="vision/resnet18@1 was not measured: the device is gone"):
        demo.measurements(client, (demo.FIRST, demo.SECOND), lambda _: None)
