"""Calls as CUDA graphs: what they compute, over which shapes, threads, streams and failures, and how fast."""

from __future__ import annotations

import gc
import json
import pickle
import statistics
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pt2hub.cli.operations import demo
from pt2hub.client.artifacts.graphs import CudaGraphWarning
from pt2hub.client.artifacts.loader import load_artifact
from pt2hub.errors import BadCall, CudaGraphUnavailable
from support.gpu import UNMEASURED, check_confined, publish

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.client.artifacts.loader import LoadedModel
    from pt2hub.client.artifacts.local import LocalArtifact
    from pt2hub.client.client import Client

pytestmark = pytest.mark.gpu

FAILING_CAPTURE = """
import pickle, sys, torch, warnings
from pt2hub.client.artifacts import loader
artifact = pickle.load(open(sys.argv[1], "rb"))
x = torch.randn(2, 3, 224, 224, device="cuda")
wanted = loader.load_artifact(artifact)(x)
neighbour = loader.load_artifact(artifact, cuda_graph=True)
neighbour(x)
model = loader.load_artifact(artifact)  # a loader with locks, which nobody can capture
model._graphs = loader._graphs(artifact.config, model.device, 8)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    try:
        found = model(x)
        print("the same model's plain call is right:", torch.allclose(found, wanted, rtol=1e-4, atol=1e-4))
    except Exception as error:
        print("the same model's plain call fails, as may be where only its locks are at fault:", error)
print("warned:", [str(item.message)[:600] for item in caught])
assert not any("until the process ends" in str(item.message) for item in caught)
print("captured:", len(model.info.cuda_graphs.captured), flush=True)
close = lambda found: torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
close(loader.load_artifact(artifact)(x))
print("plain calls of another model work", flush=True)
close(neighbour(x))
assert [graph.replays for graph in neighbour.info.cuda_graphs.captured] == [2]
print("a graph from before is replayed", flush=True)
torch.cuda.manual_seed(3)
first, second = torch.rand(4, device="cuda"), torch.rand(4, device="cuda")
torch.cuda.manual_seed(3)
assert torch.equal(first, torch.rand(4, device="cuda")) and not torch.equal(first, second)
print("random numbers work", flush=True)
graphed = loader.load_artifact(artifact, cuda_graph=True)
close(graphed(x))
assert len(graphed.info.cuda_graphs.captured) == 1, graphed.info
print("another model is captured", flush=True)
side = torch.cuda.Stream()
block = torch.ones(64 << 20, device="cuda")
with torch.cuda.stream(side):
    block.mul_(2)
block.record_stream(side)
del block
torch.cuda.synchronize()
held = torch.cuda.memory_allocated()
torch.ones(1, device="cuda")
print("allocated after a block of another stream was freed:", held, torch.cuda.memory_allocated())
"""

STARVED_CAPTURE = """
import gc, pickle, sys, torch, warnings
from pt2hub.client.artifacts import loader
from pt2hub.client.artifacts.cuda_graphs import CudaGraphBackend
from pt2hub.client.artifacts.graphs import CudaGraphWarning, GraphCache
artifact = pickle.load(open(sys.argv[1], "rb"))

def step(*words):
    gc.collect()
    print(*words, flush=True)

class Starved(CudaGraphBackend):
    def __init__(self, device, point):
        super().__init__(device, draws_random=False)
        self.point = point

    def capture(self, call):
        def starved_call():
            if self.point == "call":
                torch.cuda.set_per_process_memory_fraction(0.0)
            return call()

        if self.point == "anchor":
            torch.cuda.set_per_process_memory_fraction(0.0)
        try:
            return super().capture(starved_call)
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)

x, y = torch.randn(8, 3, 224, 224, device="cuda"), torch.randn(2, 3, 224, 224, device="cuda")
wanted, other = (loader.load_artifact(artifact)(value) for value in (x, y))
close = lambda found, expected: torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)

def starve(point):
    model = loader.load_artifact(artifact, cuda_graph=True)
    enough, model._graphs = model._graphs, GraphCache(Starved(model.device, point), names=["x"], limit=8, where=point)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        close(model(x), wanted)
    texts = [str(item.message) for item in caught if issubclass(item.category, CudaGraphWarning)]
    step(point, "warned:", [text[:600] for text in texts])
    assert ["without a CUDA graph" in text for text in texts] == [True], texts
    assert "until the process ends" not in texts[0]
    close(model(x), wanted)
    assert not model.info.cuda_graphs.captured
    torch.cuda.manual_seed(3)
    first = torch.rand(4, device="cuda")
    torch.cuda.manual_seed(3)
    assert torch.equal(first, torch.rand(4, device="cuda"))
    step(point, "random numbers work")
    model._graphs = enough
    close(model(x), wanted)
    assert len(model.info.cuda_graphs.captured) == 1
    step(point, "the model is captured once there is memory")

starve("anchor")  # no graph lives: memory runs out as the first one is registered with the random generator
neighbour = loader.load_artifact(artifact, cuda_graph=True)
close(neighbour(y), other)
for point in ("anchor", "call"):
    starve(point)
    close(neighbour(y), other)
    step(point, "a graph of another model is replayed")
assert len(neighbour.info.cuda_graphs.captured) == 1
assert neighbour.info.cuda_graphs.captured[0].replays == 3
del neighbour
step("all graphs are gone")
"""


class Remembering(torch.nn.Module):
    """Many small layers, whose launches take longer than their work, and memory of the calls before."""

    total: torch.Tensor
    steps: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(16))
        self.register_buffer("total", torch.zeros(64))
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        for layer in self.layers:
            x = torch.relu(layer(x)) + x
        self.steps.add_(1)
        self.total.add_(x.mean(0))
        return {"y": x + self.total, "steps": self.steps.clone()}


class Noisy(torch.nn.Module):
    """A linear layer with noise far below the tolerance."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        noisy: torch.Tensor = y + 1e-5 * torch.rand_like(y)
        return noisy


def published(client: Client, model: torch.nn.Module, name: str, **options: Any) -> LocalArtifact:
    """Publish a live model of one input, 64 wide, and pull its artifact."""
    began = time.monotonic()
    batch = torch.export.Dim("batch", min=1, max=64)
    version = client.publish(
        model.eval(),
        (torch.randn(4, 64),),
        name=name,
        dynamic_shapes={"x": {0: batch}},
        measure=UNMEASURED,
        wait=True,
        **options,
    )
    (build,) = version.builds
    print(f"{name}: {build.state} in {time.monotonic() - began:.0f} s")
    assert build.state == "succeeded", build.error
    check_confined(client, build)
    return client.pull(f"{name}@{version.number}")


@pytest.fixture(scope="module")
def resnet(client: Client) -> LocalArtifact:
    reference = publish(client, {**demo.SPEC, "model": "vision/resnet18-graphed", "measure": UNMEASURED})
    return client.pull(reference)


@pytest.fixture(scope="module")
def remembering(client: Client) -> LocalArtifact:
    torch.manual_seed(5)
    return published(client, Remembering(), "team/remembering")


def images(batch: int) -> torch.Tensor:
    return torch.randn(batch, 3, 224, 224, device="cuda")


def a_stream() -> torch.cuda.Stream:
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch's


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(
        found, expected, rtol=1e-4, atol=1e-4
    )  # the same kernels, at times in another order


def captured(model: LoadedModel) -> list[tuple[int, int]]:
    """Batch and replays of each graph, the least recently used first."""
    info = model.info.cuda_graphs
    assert info is not None
    return [(graph.shapes["x"][0], graph.replays) for graph in info.captured]


def p50_ms(model: LoadedModel, x: torch.Tensor, calls: int = 100) -> float:
    """Median time of calls that are waited for, in milliseconds."""
    times = []
    for number in range(calls + 20):
        torch.cuda.synchronize()
        began = time.perf_counter()
        model(x)
        torch.cuda.synchronize()
        if number >= 20:
            times.append(1000 * (time.perf_counter() - began))
    return round(statistics.median(times), 4)


def queued_ms(model: LoadedModel, x: torch.Tensor, calls: int = 64) -> float:
    """Time of each of many calls that are waited for together, in milliseconds."""
    times = []
    for _ in range(7):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(calls):
            model(x)
        torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - began) / calls)
    return round(statistics.median(times), 4)


@pytest.mark.parametrize("script", [STARVED_CAPTURE, FAILING_CAPTURE], ids=["out_of_memory", "invalid"])
def test_after_a_failed_capture_calls_random_numbers_and_other_graphs_work(
    resnet: LocalArtifact, tmp_path: Path, script: str
) -> None:
    # In processes of their own, and first: torch may abort a process after a capture that failed.
    (tmp_path / "artifact").write_bytes(pickle.dumps(resnet))
    command = [sys.executable, "-X", "faulthandler", "-c", script, str(tmp_path / "artifact")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    print(done.stdout[-4000:], done.stderr[-4000:])
    assert done.returncode == 0


def test_graphs_are_faster_where_launches_take_longer_than_their_work(
    resnet: LocalArtifact, remembering: LocalArtifact
) -> None:
    ratios = {}
    for name, artifact, x in [
        ("remembering, batch 4", remembering, torch.randn(4, 64, device="cuda")),
        ("resnet18, batch 1", resnet, images(1)),
        ("resnet18, batch 32", resnet, images(32)),
    ]:
        models = {
            "locks": load_artifact(artifact),
            "single_threaded": load_artifact(artifact, run_single_threaded=True),
            "graph": load_artifact(artifact, cuda_graph=True),
        }
        p50 = {kind: p50_ms(model, x) for kind, model in models.items()}
        queued = {kind: queued_ms(model, x) for kind, model in models.items()}
        info = models["graph"].info.cuda_graphs
        assert info is not None
        ratios[name] = p50["graph"] / p50["locks"]
        capture_ms = round(1000 * info.captured[0].capture_s, 1)
        print(json.dumps({name: {"p50_ms": p50, "queued_ms": queued, "capture_ms": capture_ms}}))
    print(json.dumps({name: round(ratio, 3) for name, ratio in ratios.items()}))
    assert ratios["remembering, batch 4"] < 0.8
    assert ratios["resnet18, batch 1"] < 1.0


def test_graphs_compute_what_calls_without_them_compute_and_outputs_stay(resnet: LocalArtifact) -> None:
    plain, graphed = load_artifact(resnet), load_artifact(resnet, cuda_graph=True)
    inputs = [images(batch) for batch in (2, 1, 32, 2, 7, 1)]
    expected = [plain(x) for x in inputs]

    found = [graphed(x) for x in inputs]

    print(graphed.info)
    print(json.dumps({"error": [float((a - b).abs().max()) for a, b in zip(found, expected, strict=True)]}))
    for one, other in zip(found, expected, strict=True):
        close(one, other)
    assert captured(graphed) == [(32, 1), (2, 2), (7, 1), (1, 2)]
    with torch.inference_mode():
        close(graphed(inputs[0]), expected[0])
    x = images(5)
    with torch.inference_mode():
        close(graphed(x), plain(x))
    close(graphed(x), plain(x))


def test_what_the_contract_refuses_is_refused_with_graphs_too(resnet: LocalArtifact) -> None:
    model = load_artifact(resnet, cuda_graph=True)
    model(images(2))
    for bad, words in [
        (images(33), "above the largest size 32"),
        (images(2).half(), "dtype float16"),
        (images(2).cpu(), "The tensor is on cpu"),
        (images(2).to(memory_format=torch.channels_last), "memory layout"),
    ]:
        with pytest.raises(BadCall, match=words):
            model(bad)
    assert captured(model) == [(2, 1)]
    for options in ({"num_runners": 2}, {"run_single_threaded": False}):
        with pytest.raises(CudaGraphUnavailable):
            load_artifact(resnet, cuda_graph=True, **options)


def test_the_least_recently_used_graph_goes_and_memory_stays_bounded(resnet: LocalArtifact) -> None:
    plain = load_artifact(resnet)
    for limit in (2, 1):
        model = load_artifact(resnet, cuda_graph=True, max_cuda_graphs=limit)
        reserved = []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", CudaGraphWarning)
            for batch in (16, 8, 16, 4, 8, 16, 2, 16):
                x = images(batch)
                close(model(x), plain(x))
                torch.cuda.synchronize()
                torch.cuda.empty_cache()
                reserved.append(torch.cuda.memory_reserved() >> 20)
        print(json.dumps({"limit": limit, "reserved_mib": reserved}), model.info)
        assert ["raise max_cuda_graphs" in str(item.message) for item in caught] == [True]
        assert len(captured(model)) == limit
        assert max(reserved[4:]) <= max(reserved[:4]) + 64
        del model
    gc.collect()
    torch.cuda.empty_cache()
    print("reserved after all graphs are gone, MiB:", torch.cuda.memory_reserved() >> 20)


def test_streams_share_a_model_without_waiting_on_the_host(resnet: LocalArtifact) -> None:
    plain, graphed = load_artifact(resnet), load_artifact(resnet, cuda_graph=True)
    inputs = [images(1 + number % 4) for number in range(40)]
    expected = [plain(x) for x in inputs]
    streams = [a_stream() for _ in range(3)]
    torch.cuda.synchronize()
    found = []
    for number, x in enumerate(inputs):
        with torch.cuda.stream(streams[number % 3]):
            found.append(graphed(x))
    torch.cuda.synchronize()
    for one, other in zip(found, expected, strict=True):
        close(one, other)


@pytest.mark.parametrize("instances", [1, 2])
def test_threads_share_a_model_and_two_models_run_beside_each_other(
    resnet: LocalArtifact, instances: int
) -> None:
    plain = load_artifact(resnet)
    models = [load_artifact(resnet, cuda_graph=True) for _ in range(instances)]
    inputs = [[images(1 + (thread + number) % 3) for number in range(30)] for thread in range(4)]
    expected = [[plain(x) for x in own] for own in inputs]
    torch.cuda.synchronize()

    def work(thread: int) -> list[torch.Tensor]:
        with torch.cuda.stream(a_stream()):
            found = [models[thread % instances](x) for x in inputs[thread]]
            torch.cuda.current_stream().synchronize()
            return found

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(work, range(4)))

    for own, wanted in zip(found, expected, strict=True):
        for one, other in zip(own, wanted, strict=True):
            close(one, other)
    print([captured(model) for model in models])
    assert sum(replays for model in models for _, replays in captured(model)) == 120


def test_a_buffer_that_the_model_writes_to_counts_calls_and_not_warm_ups(remembering: LocalArtifact) -> None:
    plain, graphed = load_artifact(remembering), load_artifact(remembering, cuda_graph=True)
    assert set(graphed.mutated) == {"total", "steps"}
    inputs = [torch.randn(batch, 64, device="cuda") for batch in (4, 1, 4, 64, 1)]
    for round_ in range(2):
        for step, x in enumerate(inputs, 1):
            found, expected = graphed(x), plain(x)
            assert found["steps"].item() == expected["steps"].item() == step
            close(found["y"], expected["y"])
        plain.reset()
        graphed.reset()
        print(round_, captured(graphed))
    assert captured(graphed) == [(4, 4), (64, 2), (1, 4)]  # the reset kept the graphs
    swapped = {name: torch.randn_like(value) / 8 for name, value in plain.constants().items()}
    plain.swap_constants({name: value.clone() for name, value in swapped.items()})
    graphed.swap_constants(swapped)
    assert captured(graphed) == []
    close(graphed(inputs[0])["y"], plain(inputs[0])["y"])


def test_each_replay_draws_the_numbers_that_a_call_without_graphs_draws(client: Client) -> None:
    torch.manual_seed(6)
    artifact = published(client, Noisy(), "team/noisy", checks={"accept": ["random:aten.rand_like"]})
    plain, graphed = load_artifact(artifact), load_artifact(artifact, cuda_graph=True)
    x = torch.randn(4, 64, device="cuda")
    drawn = []
    for model in (plain, graphed):
        torch.cuda.manual_seed(7)
        drawn.append([model(x) for _ in range(3)])
    torch.cuda.manual_seed(7)
    drawn.append([graphed(x) for _ in range(3)])
    print(json.dumps([[float((y - drawn[0][0]).abs().max()) for y in row] for row in drawn]))
    assert not torch.equal(drawn[1][0], drawn[1][1])
    for row in drawn[1:]:
        for one, other in zip(row, drawn[0], strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-7)


def test_the_callers_own_graph_takes_the_model_in(resnet: LocalArtifact) -> None:
    plain, model = load_artifact(resnet), load_artifact(resnet, cuda_graph=True)
    own, other = images(2), images(2)
    expected = [plain(own) * 2, plain(other) * 2]
    model(own)  # loads kernels
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        doubled = model(own) * 2
    graph.replay()
    close(doubled, expected[0])
    own.copy_(other)
    graph.replay()
    close(doubled, expected[1])
    assert captured(model) == [(2, 1)]
