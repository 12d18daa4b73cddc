"""What the story's artifacts hold and what was measured of them, where the no-op toolchain has nothing to say."""

from __future__ import annotations

import json
import struct
from statistics import median
from typing import TYPE_CHECKING, Any

from pt2hub.archive.zip.encoder import ZipEncoder
from pt2hub.domain.codec import encode
from pt2hub.domain.digests import canonical_json
from pt2hub.domain.fusion import FUSION_SCHEMA, FusedKernel, Fusion, GraphNode
from pt2hub.domain.performance.measurements import Measurement, Pair
from pt2hub.domain.performance.metrics import METRICS
from pt2hub_workers.inside.operations.files import CALL_NAME
from pt2hub_workers.performance.trace_events import Event
from pt2hub_workers.performance.traces import Trace
from support.story.plot import chance, is_gpu

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from pt2hub.domain.digests import Digest
    from support.story.plot import Model

PROCESSES = 5
_WIDTH = 64
_LAYERS = ("stem", "layer1.0", "layer1.1", "layer2.0", "layer2.1", "head")
_OPS = ("addmm", "native_layer_norm", "gelu", "relu", "_softmax", "cat", "mean")
_TAILS = {"latency_p50": 1.0, "latency_p95": 1.055, "latency_p99": 1.13}
_CODE = """// {name}: generated code of {model} for {target}, as the no-op toolchain writes it.
#include <torch/csrc/inductor/aoti_runtime/model.h>

extern "C" void {name}(const float* in_ptr0, float* out_ptr0, int64_t size) {{
    for (int64_t x0 = 0; x0 < size; x0 += 1) out_ptr0[x0] = std::max(in_ptr0[x0], 0.0f);
}}
"""


def weights(model: Model, number: int) -> bytes:
    """Return a safetensors file with the weights of a version."""
    size = 4 * _WIDTH * _WIDTH
    header = {
        f"{layer}.weight": {
            "dtype": "F32",
            "shape": [_WIDTH, _WIDTH],
            "data_offsets": [place * size, (place + 1) * size],
        }
        for place, layer in enumerate(_LAYERS)
    }
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + chance(model.name, number).randbytes(size * len(_LAYERS))


def kernels(model: Model, program: int, arch: str) -> list[str]:
    """Return the names of the kernels that a program's code has of its own."""
    luck = chance(model.name, program, "kernels")
    kind = "triton_poi" if is_gpu(arch) else "cpp"
    return [f"{kind}_fused_{'_'.join(sorted(luck.sample(_OPS, 2)))}_{place}" for place in range(5)]


def sources(model: Model, program: int, target: str, arch: str) -> bytes:
    """Return the generated sources of a program as a zip."""
    encoder = ZipEncoder()
    names = ("model.wrapper", *kernels(model, program, arch))
    texts = {f"{name}.cpp": _CODE.format(name=name, model=model.name, target=target) for name in names}
    parts = [part for name, text in sorted(texts.items()) for part in encoder.whole(name, text.encode())]
    return b"".join((*parts, *encoder.end()))


def fusion(names: list[str]) -> bytes:
    """Return the record of a program's kernels, each with two operations of a line of the model."""
    nodes, fused = [], []
    for place, name in enumerate(names):
        operations = [f"relu_{place}", f"add_{place}"]
        line = f"demo/net.py:{20 + 3 * place}"
        nodes += [GraphNode("call_function", item, "aten.relu.default", source=line) for item in operations]
        fused.append(FusedKernel(name, 1, tuple(operations)))
    return canonical_json(encode(Fusion(FUSION_SCHEMA, tuple(nodes), tuple(fused))))


def debug_logs(names: list[str]) -> dict[str, bytes]:
    """Return what torch would have logged while it compiled a program."""
    nodes = [f"        {name}: torch.ops.aten.relu.default({name}_in)" for name in names]
    decisions = [f"fusing op{place} with op{place + 1}: {name}" for place, name in enumerate(names)]
    refused = "cannot fuse op1 with op4: memory deps did not match"
    return {
        "fusion": "\n".join(["found 6 possible fusions", *decisions, refused, ""]).encode(),
        "graph": "\n".join(["===== AFTER POST GRAD =====", "class <lambda>:", *nodes, ""]).encode(),
    }


def autotune(program: int, arch: str) -> Iterator[dict[str, Any]]:
    """Yield the candidates that the compiler timed for a program, best first within each operation."""
    template, library = ("triton_mm", "mm") if is_gpu(arch) else ("cpp_gemm", "mkl_linear")
    for operation, into in enumerate((_WIDTH, 4 * _WIDTH), 1):
        for rank in range(1, 6):
            place = (2 * rank + program + operation) % 5  # each program takes other kernels
            failed = is_gpu(arch) and rank == 5
            yield {
                "op": "mm",
                "shapes": [["8", str(into)], [str(into), str(_WIDTH)]],
                "dtypes": ["float32", "float32"],
                "strides": [[str(into), "1"], ["1", str(into)]],
                "candidate": f"{template}_{place}" if place else library,
                "template": template if place else f"extern: {library}",
                "parameters": {"BLOCK_M": 16 << place, "num_warps": 2 << place % 3} if place else {},
                "milliseconds": None if failed else round(0.08 * 1.1**rank, 5),
                "reason": "out of resource: Required: 262144 Hardware limit: 232448" if failed else "",
                "rank": rank,
                "chosen": rank == 1,
                "operation": operation,
                "precompile_seconds": 1.9,
                "benchmark_seconds": 0.8,
            }


def verification(build: str) -> dict[str, Any]:
    """Return the verification report of a build."""
    error = _rounded(2e-6 * chance(build).lognormvariate(0.0, 0.09))
    row = {"threads": 8, "group": None, "output": 0, "signal": 4.2, "eager_error": 1.7e-6, "allowed": 0.0042}
    points = [("example", None), ("smallest", None), ("largest", None), ("example", "head")]
    rows = [{**row, "point": point, "group": group, "error": 4.2 * error} for point, group in points]
    told = {"result": "passed", "no_power": [], "tolerance": 0.001}
    return {**told, "comparisons": rows, "relative_error": error}


class Bench:
    """A machine on a day: it measures artifacts of a model in fresh processes."""

    def __init__(self, model: Model, arch: str, luck: Random) -> None:
        self._model = model
        self._arch = arch
        self._luck = luck
        self._mood = luck.lognormvariate(0.0, 0.01)
        self._noise = 0.005 if is_gpu(arch) else 0.01

    def measure(self, number: int, before: tuple[int, Digest] | None, *, brief: bool) -> dict[str, Any]:
        """Return what a run tells of a version, and unless briefly beside an earlier one, eager and torch.compile."""
        own = list(self._calls(number))
        seen = {"load_average": round(self._luck.uniform(0.05, 0.6), 2)}
        conditions = {"processes": PROCESSES, "threads": 8, "before": seen, "after": seen}
        if brief:
            return {"conditions": conditions, "measurements": [*own, *self._processes()]}
        measured = [*own, *self._processes(), *self._baselines(number)]
        told = {"conditions": conditions, "measurements": measured}
        if before is None:
            return told
        other = list(self._calls(before[0]))
        pairs = [_pair(mine, its) for mine, its in zip(own, other, strict=True)]
        return {**told, "baseline": before[1], "baseline_measurements": other, "pairs": pairs}

    def trace(self, number: int) -> Trace:
        """Return three calls of a version under a profiler."""
        return self._trace(number, kernels(self._model, self._model.program(number), self._arch), 1.0)

    def torch_compile_trace(self, number: int) -> Trace:
        """Return three calls of torch.compile, whose last two operations are not fused."""
        own = kernels(self._model, self._model.program(number), self._arch)
        kind = own[-1].split("_fused_")[0]
        return self._trace(number, [*own[:-1], f"{kind}_fused_add_4", f"{kind}_fused_clone_5"], 1.05)

    def _trace(self, number: int, own: list[str], ratio: float) -> Trace:
        """Return three calls that run a library's kernel before each generated one; on a GPU each has its launch."""
        gpu, batch = is_gpu(self._arch), self._model.batches[-1]
        library = "ampere_sgemm_128x64_tn" if gpu else "aoti_torch_cpu_addmm_out"
        names = [name for kernel in own for name in (library, kernel)]
        length = 1000 * self._call(number, batch) * ratio
        calls, events = [], []
        for begin in (0.0, length * 1.02, length * 2.04):
            calls.append(Event("user_annotation", CALL_NAME, 1, 1, begin, length))
            for nth, name in enumerate(names):
                at = round(begin + length * (0.02 + nth / (len(names) + 1.5)), 3)
                took = round(length * (0.16 if name == library else 0.028) / 2, 3)
                launched = (
                    begin + 1 + nth if name == library else at - took / 2
                )  # late for generated kernels alone
                events += (
                    _launched(name, at, took, launched) if gpu else [Event("cpu_op", name, 1, 1, at, took)]
                )
        found = sorted((*calls, *events), key=lambda item: (item.begin, -item.length))
        device = "cuda" if gpu else "cpu"
        return Trace(device, tuple(calls), tuple(found), batch=batch, plain_us=round(length * 0.96, 3))

    def _call(self, number: int, batch: int) -> float:
        call, sample = self._model.speeds[self._arch]
        return (call + sample * batch) * self._model.level(number, self._arch)

    def _calls(self, number: int) -> Iterator[Measurement]:
        for batch in self._model.batches:
            middle = self._around(self._call(number, batch))
            for metric, tail in _TAILS.items():
                yield _measurement(metric, [value * tail for value in middle], batch)
            yield _measurement("throughput", [985.0 * batch / value for value in middle], batch)

    def _processes(self) -> Iterator[Measurement]:
        gpu = is_gpu(self._arch)
        yield _measurement("first_inference", self._around(140.0 if gpu else 9.0), self._model.batches[0])
        yield _measurement("load_time", self._around(12.0))
        yield _measurement("host_memory_peak", self._around(154e6))
        if gpu:
            yield _measurement("device_memory_peak", [26_640_384.0] * PROCESSES)

    def _baselines(self, number: int) -> Iterator[Measurement]:
        batch = self._model.batches[-1]
        for implementation, ratio in (
            ("eager", 2.3 if is_gpu(self._arch) else 1.45),
            ("torch_compile", 1.05),
        ):
            value = _rounded(self._call(number, batch) * ratio * self._luck.uniform(0.97, 1.03))
            yield Measurement("latency_p50", value, "ms", implementation, batch, None, [value])
            yield Measurement("speedup", ratio, "1", implementation, batch, None, [ratio])

    def _around(self, value: float) -> list[float]:
        return [value * self._mood * self._luck.lognormvariate(0.0, self._noise) for _ in range(PROCESSES)]


def _launched(name: str, at: float, took: float, launched: float) -> list[Event]:
    """Return a kernel and the call that launches it."""
    link = {"correlation": int(at * 1000) + 1}
    launch = Event("cuda_driver", "cuLaunchKernel", 1, 1, launched, took / 4, link)
    return [launch, Event("kernel", name, 10, 7, at, took, link)]


def _measurement(metric: str, values: list[float], batch: int | None = None) -> Measurement:
    replicates = [_rounded(value) for value in values]
    return Measurement(metric, median(replicates), METRICS[metric].unit, "artifact", batch, None, replicates)


def _pair(own: Measurement, other: Measurement) -> Pair:
    both = zip(own.replicates or (), other.replicates or (), strict=True)
    return Pair(own.metric, own.unit, [mine / its for mine, its in both], own.batch)


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
