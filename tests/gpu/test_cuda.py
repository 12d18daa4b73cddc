"""The main job on a CUDA device, in the sandbox.

By hand: `make test-gpu` (needs the machine's own torch, no virtual environment, and bubblewrap with libseccomp; on a
machine without them `PT2HUB_ISOLATION=process make test-gpu`).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pt2hub.cli.operations import demo
from pt2hub.client.artifacts.single_file import write_model
from pt2hub.client.machine import fingerprint
from pt2hub.domain.artifacts import TRACE_TYPE
from pt2hub.domain.codec import encode
from pt2hub.errors import PromotionCheckFailed
from support.gpu import UNMEASURED, await_measured, publish

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.client.client import Client

pytestmark = pytest.mark.gpu
STOCK = """
import json, sys, torch, torch._inductor
model = torch._inductor.aoti_load_package(sys.argv[1])
x = torch.load(sys.argv[2])
torch.save(model(x), sys.argv[3])
"""


def _published(client: Client, **fields: Any) -> str:
    return publish(client, {**demo.SPEC, "measure": UNMEASURED, **fields})


def _eager(dtype: torch.dtype = torch.float32) -> torch.nn.Module:
    import torchvision

    torch.manual_seed(0)
    return torchvision.models.resnet18().eval().to("cuda", dtype)


def test_split_and_single_file_agree_with_eager(client: Client, tmp_path: Path) -> None:
    reference = _published(client)
    x = torch.randn(4, 3, 224, 224, device="cuda")
    with torch.inference_mode():
        expected = _eager()(x)

    found = client.load(reference)(x)
    local = client.pull(reference)
    print(json.dumps(local.config.verification, indent=1)[-1200:])
    single = write_model(local, tmp_path / "model.pt2")
    torch.save(x, tmp_path / "x.pt")
    command = [sys.executable, "-c", STOCK, *(str(tmp_path / n) for n in ("model.pt2", "x.pt", "y.pt"))]
    subprocess.run(command, check=True)
    stock = torch.load(tmp_path / "y.pt")

    error = float((found - expected).abs().max())
    print(json.dumps({"split_error": error, "single_bytes": single.size, "digest": single.digest}))
    torch.testing.assert_close(found, expected, rtol=5e-3, atol=5e-3)  # tf32 convolutions
    torch.testing.assert_close(stock, found, rtol=5e-3, atol=5e-3)


def test_half_precision_override_has_weights_of_its_own(client: Client) -> None:
    reference = _published(
        client, model="vision/resnet18-half", targets=[{"target": "auto", "dtype": "float16"}]
    )
    x = torch.randn(4, 3, 224, 224, device="cuda", dtype=torch.float16)
    with torch.inference_mode():
        expected = _eager(torch.float16)(x)

    found = client.load(reference)(x)

    assert found.dtype is torch.float16
    torch.testing.assert_close(found, expected, rtol=5e-2, atol=5e-2)


def test_a_second_version_is_timed_beside_the_first_by_events_of_the_device(client: Client) -> None:
    measure = {"processes": 3, "torch_compile": False, "profile": False}
    spec = {"model": "vision/resnet18-twice", "measure": measure}
    first = await_measured(client, _published(client, **spec))
    source = {**demo.SPEC["source"], "seed": 1}
    reference = _published(client, **spec, source=source)
    second = await_measured(client, reference)  # of unchanged code, so in one process alone
    (job,) = client.builds.follow(client.performance.measure(reference))
    assert job.state == "succeeded", job.error

    found = client.artifacts.get(second).measurements
    own = {(m.metric, m.implementation): m for m in sorted(found, key=lambda m: len(m.replicates or []))}
    latency, rate = own["latency_p50", "artifact"], own["throughput", "artifact"]
    memory = own["device_memory_peak", "artifact"]
    print(json.dumps({"p50_ms": latency.replicates, "throughput": rate.value, "device_bytes": memory.value}))
    assert len(latency.replicates or []) >= 3
    assert memory.value > 40 << 20  # the weights alone are 45 MiB
    # A device does one call after another: it cannot be given more of them than its own clock says.
    assert rate.value <= 1.1 * (latency.batch or 1) * 1000 / latency.value
    beside = [
        m
        for m in client.artifacts.get(first).measurements
        if m.metric == "latency_p50" and m.implementation == "artifact"
    ]
    assert len(latency.replicates or []) in [len(m.replicates or []) for m in beside]
    assert len(beside) > 1  # its own run, and the one beside the second
    environment = client.artifacts.get(second).environment
    print(json.dumps(environment, default=str))
    compared = {
        m.metric: m for m in client.performance.compare(f"{spec['model']}@1", f"{spec['model']}@2").metrics
    }
    print(json.dumps({name: [m.ratio, m.low, m.high, m.outcome, m.reason] for name, m in compared.items()}))
    assert compared["latency_p50"].method == "paired"
    assert compared["latency_p50"].outcome == "same"


def test_where_a_calls_time_goes_is_told_by_the_gpus_own_events(client: Client) -> None:
    measure = {"processes": 1, "torch_compile": False}
    digest = await_measured(client, _published(client, model="vision/resnet18-profile", measure=measure))
    view = client.artifacts.get(digest)
    profile = view.profile
    assert profile is not None, "no trace was made: the log of the measuring job says why"
    print(json.dumps([[row.name, row.calls, row.mean_us, row.share] for row in profile.rows[:8]]))
    print(json.dumps({name: value for name, value in encode(profile).items() if name.endswith("_us")}))
    assert profile.device == "cuda"
    assert [row.name for row in profile.rows if row.name.startswith("triton_")]
    assert not [row.name for row in profile.rows if row.name.startswith("model_")]
    assert sum(row.share for row in profile.rows) == pytest.approx(1.0, abs=0.01)
    assert profile.device_us is not None
    assert profile.gap_us is not None
    assert profile.plain_us is not None
    assert 0 < profile.device_us < profile.call_us
    parts = profile.device_us + profile.gap_us + profile.rest_us
    assert parts == pytest.approx(profile.call_us, rel=0.02)
    # A call without the profiler holds the same kernels, and fewer microseconds of waiting for launches.
    assert profile.device_us * 0.8 < profile.plain_us < profile.call_us * 1.1
    assert TRACE_TYPE in {item.artifact_type for item in view.referrers}


def test_a_slower_version_is_flagged_and_may_not_become_prod(client: Client) -> None:
    measure = {"processes": 3, "torch_compile": False, "profile": False}
    # A deeper network at random weights says little about its last bias; what is tried here is time.
    spec = {"model": "vision/resnet-slower", "measure": measure, "checks": {"accept": ["no_power"]}}
    await_measured(client, _published(client, **spec))
    client.policies.set(spec["model"], {"checks": [{"metric": "latency_p50", "max_worse": 0.1}]})
    client.aliases.move(spec["model"], "prod", 1, reason="the first one")
    slower = {**demo.SPEC["source"], "factory": "torchvision.models:resnet34"}
    await_measured(client, _published(client, **spec, source=slower))

    events, end = client.performance.changes(spec["model"]), time.monotonic() + 30
    while not events and time.monotonic() < end:  # the worker looks for changes once the build is over
        time.sleep(0.5)
        events = client.performance.changes(spec["model"])
    print(json.dumps([[e.metric, e.outcome, e.ratio, e.method] for e in events]))
    assert ("latency_p50", "worse") in {(event.metric, event.outcome) for event in events}
    with pytest.raises(PromotionCheckFailed) as refused:
        client.aliases.move(spec["model"], "prod", 2, reason="newer")
    print(refused.value)
    print(client.performance.history(spec["model"], "latency_p50"))
    print(json.dumps(encode(fingerprint.environment(device="cuda"))))
