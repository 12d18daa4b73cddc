"""Which calls become CUDA graphs, what is kept of them, and what happens where there can be none."""

from __future__ import annotations

import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pt2hub.client.artifacts.graph_options import check_graph_options, draws_random, wants_graphs
from pt2hub.client.artifacts.graphs import WARM_UP_CALLS, CudaGraphWarning, GraphCache
from pt2hub.client.artifacts.loader import LoadedModel
from pt2hub.domain.artifacts import Constants
from pt2hub.domain.publishing.compile_modes import MODES
from pt2hub.errors import BadCall, CudaGraphUnavailable, InternalError, InvalidInput
from support.artifacts import a_config, a_signature
from support.graphs import RepeatingBackend

if TYPE_CHECKING:
    from pt2hub.domain.artifacts import ArtifactConfig


class Doubling:
    """Compiled code that doubles its input and counts its runs in a buffer, which it adds to the result."""

    def __init__(self) -> None:
        self.steps = torch.zeros(())
        self.runs = 0
        self.fails: RuntimeError | None = None

    def boxed_run(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        if self.fails:
            raise self.fails
        self.runs += 1
        (x,) = tensors
        tensors.clear()  # as the real one does: it takes them away
        self.steps.add_(1)
        return [x * 2, self.steps.clone()]


@pytest.fixture
def code() -> Doubling:
    return Doubling()


@pytest.fixture
def backend() -> RepeatingBackend:
    return RepeatingBackend()


@pytest.fixture
def graphs(backend: RepeatingBackend) -> GraphCache:
    return GraphCache(backend, names=["x"], limit=2, where="team/net@1")


def call(graphs: GraphCache, code: Doubling, x: torch.Tensor) -> tuple[list[float], int]:
    """Call the code, and return the doubled values and the number of the step."""
    doubled, steps = graphs.call(code.boxed_run, [x], [code.steps])
    return doubled.tolist(), int(steps)


def held(graphs: GraphCache) -> list[tuple[int, int]]:
    return [(graph.shapes["x"][0], graph.replays) for graph in graphs.info().captured]


def test_each_shape_is_captured_once_and_steps_count_calls_alone(
    graphs: GraphCache, code: Doubling, backend: RepeatingBackend
) -> None:
    assert call(graphs, code, torch.ones(2)) == ([2.0, 2.0], 1)
    assert code.runs == WARM_UP_CALLS + 2
    assert call(graphs, code, torch.full((2,), 3.0)) == ([6.0, 6.0], 2)
    assert call(graphs, code, torch.ones(1)) == ([2.0], 3)
    assert call(graphs, code, torch.zeros(2)) == ([0.0, 0.0], 4)
    assert backend.events.count("capture") == 2
    assert backend.events.count("join") == 4
    assert held(graphs) == [(1, 1), (2, 3)]


def test_outputs_belong_to_the_caller_and_inputs_stay_the_callers(graphs: GraphCache, code: Doubling) -> None:
    x = torch.ones(2)
    first, _ = graphs.call(code.boxed_run, [x], [])
    x.fill_(5)
    second, _ = graphs.call(code.boxed_run, [x], [])
    second.zero_()
    assert first.tolist() == [2.0, 2.0]
    assert call(graphs, code, x)[0] == [10.0, 10.0]
    assert x.tolist() == [5.0, 5.0]


def test_the_least_recently_used_graph_makes_room_and_one_warning_says_that_it_does_not_pay(
    graphs: GraphCache, code: Doubling, backend: RepeatingBackend
) -> None:
    for size in (1, 2, 1, 3):
        call(graphs, code, torch.ones(size))
    assert held(graphs) == [(1, 2), (3, 1)]
    assert graphs.info().evictions == 1
    assert backend.events[-3:] == ["join", "settle", "capture"]  # nothing that still runs loses its memory
    with pytest.warns(CudaGraphWarning, match="raise max_cuda_graphs"):
        call(graphs, code, torch.ones(2))
    call(graphs, code, torch.ones(4))  # warnings are errors here: it is said once
    assert held(graphs) == [(2, 1), (4, 1)]


def test_what_cannot_be_captured_runs_without_a_graph_and_is_not_tried_again(
    graphs: GraphCache, code: Doubling, backend: RepeatingBackend
) -> None:
    call(graphs, code, torch.ones(3))
    backend.fails = torch.OutOfMemoryError("CUDA out of memory. Tried 4 GiB")
    expected = r"(?s)team/net@1: Calls with x \(2,\) run without.*Tried 4 GiB.*\[cuda_graph_unavailable\]"
    with pytest.warns(CudaGraphWarning, match=expected):
        assert call(graphs, code, torch.ones(2)) == ([2.0, 2.0], 2)
    assert held(graphs) == []  # the other one's memory is needed for calls without a graph
    backend.fails = None
    assert call(graphs, code, torch.ones(2)) == ([2.0, 2.0], 3)
    assert backend.events.count("capture") == 2
    (failure,) = graphs.info().failures
    assert failure.code == "cuda_graph_unavailable"
    assert failure.__cause__ is None  # and no traceback that holds tensors of the attempt
    assert call(graphs, code, torch.ones(1)) == ([2.0], 4)
    assert held(graphs) == [(1, 1)]
    graphs.clear()
    assert call(graphs, code, torch.ones(2)) == ([2.0, 2.0], 5)
    assert held(graphs) == [(2, 1)]


def test_inputs_that_the_code_refuses_say_nothing_about_their_shapes(
    graphs: GraphCache, code: Doubling
) -> None:
    code.fails = RuntimeError("index out of bounds")
    with pytest.raises(RuntimeError, match="out of bounds"):
        call(graphs, code, torch.ones(2))
    code.fails = None
    assert call(graphs, code, torch.ones(2)) == ([2.0, 2.0], 1)
    assert held(graphs) == [(2, 1)]


def test_an_output_beside_the_device_is_never_replayed(graphs: GraphCache) -> None:
    def run(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        return [tensors[0], torch.ones(1, device="meta")]

    with pytest.warns(CudaGraphWarning, match="output 1 is computed on meta"):
        graphs.call(run, [torch.ones(2)], [])
    assert held(graphs) == []


def test_warm_up_calls_use_up_no_random_numbers(graphs: GraphCache, backend: RepeatingBackend) -> None:
    def run(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        backend.random += 1
        return [tensors[0] + backend.random]

    (drawn,) = graphs.call(run, [torch.zeros(1)], [])
    assert drawn.tolist() == [1.0]
    (drawn,) = graphs.call(run, [torch.zeros(1)], [])
    assert drawn.tolist() == [2.0]


def test_inside_the_callers_own_capture_the_code_is_called_plainly(
    graphs: GraphCache, code: Doubling, backend: RepeatingBackend
) -> None:
    call(graphs, code, torch.ones(2))
    backend.capturing = True
    runs = code.runs
    assert call(graphs, code, torch.ones(2)) == ([2.0, 2.0], 2)
    assert call(graphs, code, torch.ones(1)) == ([2.0], 3)
    assert code.runs == runs + 2
    assert held(graphs) == [(2, 1)]


def test_threads_take_turns_and_each_gets_its_own_result(code: Doubling, backend: RepeatingBackend) -> None:
    graphs = GraphCache(backend, names=["x"], limit=8, where="team/net@1")

    def work(thread: int) -> set[int]:
        steps = set()
        for number in range(50):
            doubled, step = call(graphs, code, torch.full((1 + number % 5,), float(thread * 100 + number)))
            assert doubled == [2.0 * (thread * 100 + number)] * (1 + number % 5)
            steps.add(step)
        return steps

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(work, range(8)))
    assert set().union(*found) == set(range(1, 401))  # each step once: no two calls ran at a time
    assert backend.events.count("capture") == 5


def test_a_graph_of_inference_mode_serves_calls_outside_of_it(graphs: GraphCache, code: Doubling) -> None:
    with torch.inference_mode():
        assert call(graphs, code, torch.ones(2)) == ([2.0, 2.0], 1)
    assert call(graphs, code, torch.full((2,), 2.0)) == ([4.0, 4.0], 2)
    with torch.inference_mode():
        assert call(graphs, code, torch.full((2,), 3.0)) == ([6.0, 6.0], 3)


class NoConstants:
    """A store of code without constants."""

    mutated = ()

    def pristine(self) -> dict[str, torch.Tensor]:
        return {}


class Halving(Doubling):
    """Code for a signature with one output."""

    def load_constants(self, *args: object) -> None:
        assert args

    def boxed_run(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        return super().boxed_run(tensors)[:1]


def test_the_contract_is_checked_before_anything_is_captured_and_info_says_what_was(
    backend: RepeatingBackend, graphs: GraphCache
) -> None:
    code: Any = Halving()
    store: Any = NoConstants()
    model = LoadedModel(a_config(), code, store, torch.device("cpu"), None, graphs)
    with pytest.raises(BadCall, match="above the largest size 32"):
        model(torch.ones(33, 3, 4, 5))
    with pytest.raises(BadCall, match="dtype float16"):
        model(torch.ones(2, 3, 4, 5, dtype=torch.float16))
    assert backend.events == ["settle"]  # of the constants at load
    torch.testing.assert_close(model(torch.ones(2, 3, 4, 5)), torch.full((2, 3, 4, 5), 2.0))

    info = model.info
    assert (info.model, info.number, info.device) == ("team/net", 1, "cpu")
    assert info.cuda_graphs is not None
    (captured,) = info.cuda_graphs.captured
    assert captured.shapes == {"x": (2, 3, 4, 5)}
    assert captured.capture_s > 0
    title, row, note = str(info).splitlines()
    assert title.startswith("team/net@1 torch")
    assert row.startswith("  x (2, 3, 4, 5)  1 replays  captured in ")
    assert note == "  1 of at most 2 CUDA graphs, 0 evicted."
    assert str(model).splitlines()[-1] == "  It replays CUDA graphs, 2 at most."

    code.fails = RuntimeError("illegal address")
    with pytest.raises(InternalError, match="illegal address"):
        model(torch.ones(3, 3, 4, 5))


def test_a_model_without_graphs_says_so() -> None:
    code: Any = Halving()
    store: Any = NoConstants()
    info = LoadedModel(a_config(), code, store, torch.device("cpu")).info
    assert info.cuda_graphs is None
    assert str(info).splitlines()[1] == "  No CUDA graphs."


def on_a_gpu(**changes: Any) -> ArtifactConfig:
    return replace(a_config(signature=a_signature(device="cuda")), **changes)


def check(
    config: ArtifactConfig, *, limit: int = 8, runners: int = 1, single_threaded: bool | None = None
) -> None:
    check_graph_options(config, limit=limit, runners=runners, single_threaded=single_threaded)


def test_what_excludes_graphs_is_refused_at_load() -> None:
    baked = Constants("", 0, (), baked=True, mutated=("cache",))
    check(on_a_gpu())
    check(on_a_gpu(), single_threaded=True)
    with pytest.raises(CudaGraphUnavailable, match="need a GPU, and this artifact runs on cpu"):
        check(a_config())
    with pytest.raises(CudaGraphUnavailable, match="num_runners=4 excludes"):
        check(on_a_gpu(), runners=4)
    with pytest.raises(
        CudaGraphUnavailable, match=r"(?s)run_single_threaded=False excl.*Leave run_single_threaded out"
    ):
        check(on_a_gpu(), single_threaded=False)
    with pytest.raises(CudaGraphUnavailable, match=r"(?s)cache, which is baked.*weights: split"):
        check(on_a_gpu(constants=baked))
    with pytest.raises(InvalidInput, match="at least 1, got 0"):
        check(on_a_gpu(), limit=0)


def wants(config: ArtifactConfig, asked: bool | None = None, *, runners: int = 1, limit: int = 8) -> bool:
    return wants_graphs(config, asked, limit=limit, runners=runners, single_threaded=None)


def in_mode(mode: str, **changes: Any) -> ArtifactConfig:
    config = on_a_gpu(**changes)
    return replace(config, version=replace(config.version, spec={"compile": {"mode": mode}}))


def test_the_mode_makes_graphs_the_default_of_an_artifact() -> None:
    assert [mode for mode in MODES if wants(in_mode(mode))] == ["reduce-overhead", "max-autotune"]
    assert not wants(in_mode("max-autotune"), asked=False)
    assert wants(in_mode("default"), asked=True)
    overridden = {"request": {"target": "torch2.11-cu130-sm90", "mode": "default"}}
    assert not wants(in_mode("max-autotune", provenance=overridden))
    with pytest.raises(InvalidInput, match="at least 1, got 0"):
        wants(in_mode("reduce-overhead"), limit=0)


def test_what_excludes_graphs_ends_the_default_and_is_no_error() -> None:
    assert not wants(in_mode("reduce-overhead", signature=a_signature()))
    assert not wants(in_mode("reduce-overhead"), runners=2)
    baked = Constants("", 0, (), baked=True, mutated=("cache",))
    assert not wants(in_mode("reduce-overhead", constants=baked))
    with pytest.raises(CudaGraphUnavailable, match="num_runners=2"):
        wants(in_mode("reduce-overhead"), asked=True, runners=2)


def test_a_spec_that_accepts_random_operators_draws_random_numbers() -> None:
    version = a_config().version
    random = replace(version, spec={"checks": {"accept": ["no_power", "random:aten.rand_like"]}})
    assert draws_random(a_config(version=random))
    assert not draws_random(a_config(version=replace(version, spec={"checks": {"accept": ["no_power"]}})))
    assert not draws_random(a_config())


def test_many_failures_are_remembered_within_a_bound(code: Doubling, backend: RepeatingBackend) -> None:
    graphs = GraphCache(backend, names=["x"], limit=2, where="team/net@1")
    backend.fails = RuntimeError("operation not permitted")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CudaGraphWarning)
        for size in range(1, 301):
            call(graphs, code, torch.ones(size))
    failures = graphs.info().failures
    assert len(failures) == 256
    assert "x (300,)" in failures[-1].message


def test_a_graph_that_torch_cannot_free_outlives_the_interpreter() -> None:
    script = (
        "import gc, os\nfrom pt2hub.client.artifacts.cuda_graphs import keep_forever\n"
        "class Aborting:\n    def __del__(self): os.abort()\n"
        "graph = Aborting()\nkeep_forever(graph)\ndel graph\ngc.collect()\nprint('alive')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
