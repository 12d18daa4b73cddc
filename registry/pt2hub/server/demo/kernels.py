"""The inside of the story's artifacts: files of `model.pt2`, constants, generated sources, autotune tables."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

from pt2hub.archive.writing import ZipEncoder
from pt2hub.domain.artifacts import Constant, Constants, Dim, Member, NativeCode, Signature, TensorInput
from pt2hub.domain.codec import encode
from pt2hub.server.demo.machines import FLAGS
from pt2hub.server.demo.models import chance
from pt2hub.server.demo.plan import made_up
from pt2hub.server.demo.templates import KERNEL, TRITON, WRAPPER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from pt2hub.server.demo.models import Model
    from pt2hub.server.demo.plan import Build, Version

_BLOB = "model/data/aotinductor/model/model.wrapper_weights.blob"
_AOTI = "model/data/aotinductor/model"
_ALIGNED = 64
_LEAF = '[1, {"type": null, "context": null, "children_spec": []}]'
_OPS = ("convolution", "addmm", "native_layer_norm", "gelu", "relu", "_softmax", "cat", "mean", "embedding")
_OPERATIONS, _CANDIDATES = 4, 6
"""Operations of an artifact that are tuned, and kernels that are timed for each."""
_CHANGED = 0.35
"""Share of operations for which another program takes another kernel."""
_SIDE = 28
"""Of the images or sequences that convolutions read."""
_SIZES = {"float32": 4, "float16": 2, "bfloat16": 2}


@functools.cache
def constants(name: str, tensors: tuple[tuple[str, tuple[int, ...]], ...], dtype: str) -> Constants:
    """The table of a model's constants, as the compiler's blob holds them.

    Args:
        name: The model's name, which says what `tensors` are.
        tensors: Its weights.
        dtype: What they are converted to.
    """
    del name
    table, at = [], 0
    for fqn, shape in tensors:
        size = math.prod(shape) * _SIZES[dtype]
        stride = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
        table.append(Constant(fqn, shape, stride, dtype, at, size))
        at += -(-size // _ALIGNED) * _ALIGNED
    return Constants(_BLOB, at, tuple(table))


@functools.lru_cache(maxsize=64)
def constants_document(table: Constants) -> dict[str, Any]:
    """A table of constants as JSON, made once; not to be changed."""
    document: dict[str, Any] = encode(table)
    return document


def signature(version: Version, build: Build) -> Signature:
    """How an artifact is called."""
    model, dtype = version.model, build.request.get("dtype")
    inputs = tuple(
        TensorInput(
            item["name"],
            tuple(item["shape"]),
            dtype or "float32" if item.get("dtype", "float32") == "float32" else item["dtype"],
        )
        for item in model.inputs
    )
    dims = {
        name: Dim(size.get("min", size.get("multiple_of", 1)), size["max"], size.get("multiple_of", 1))
        for name, size in model.dims.items()
    }
    fixed = dict(model.extra.get("fixed", {}))
    names = (*(item.name for item in inputs), *fixed)
    device = "cuda" if build.arch.startswith("sm") else "cpu"
    return Signature(names, inputs, dims, device, _LEAF, _LEAF, fixed)


def native(build: Build) -> NativeCode:
    """What an artifact's libraries need."""
    level = "x86_64_v3" if build.arch.startswith("sm") else build.arch
    older = build.machine.toolchain.libc.endswith("2.36")
    cuda = ("libcudart.so.13", "libtorch_cuda.so") if build.arch.startswith("sm") else ("libgomp.so.1",)
    symbols = ("aoti_torch_empty_strided", "aoti_torch_get_data_ptr", "aoti_torch_cpu_addmm_out")
    needed = ("libtorch.so", "libtorch_cpu.so", *cuda, "libstdc++.so.6", "libc.so.6")
    return NativeCode(level, FLAGS[level], needed, symbols, "2.34" if older else "2.38", "3.4.30")


def members(model: Model, build: Build, program: int, blob_bytes: int) -> tuple[Member, ...]:
    """The files of the single `model.pt2`."""
    luck = chance(model.name, program, build.target, "members")
    cubins = {
        f"{_AOTI}/{made_up(name)[7:39]}.{name}.cubin": luck.randrange(6_000, 24_000)
        for name in (kernel_names(model, program) if build.arch.startswith("sm") else ())
    }
    # Of a program's code the size hardly changes, however it is divided.
    library = round(model.code_bytes * luck.uniform(0.998, 1.002)) - sum(cubins.values())
    found = {
        "model/archive_format": 3,
        "model/byteorder": 6,
        f"{_AOTI}/model.wrapper.so": library,
        f"{_AOTI}/model.wrapper_metadata.json": 212,
        _BLOB: blob_bytes,
        **cubins,
        "model/version": 2,
        "model/.data/serialization_id": 40,
    }
    return tuple(
        Member(name, size, made_up(f"{name} of {model.name}, {program}, {build.target}"))
        for name, size in found.items()
    )


def kernel_names(model: Model, program: int) -> list[str]:
    """The Triton kernels of a program."""
    luck = chance(model.name, program, "kernels")
    kinds = ("poi", "red", "per")
    return [
        f"triton_{luck.choice(kinds)}_fused_{'_'.join(sorted(luck.sample(_OPS, 2)))}_{place}"
        for place in range(5 + luck.randrange(4))
    ]


@functools.cache
def sources(name: str, title: str, target: str, arch: str, kernels: tuple[str, ...]) -> bytes:
    """The generated sources of a program as a zip.

    Args:
        name: The model's name.
        title: Of the program, for the comments.
        target: What it is for.
        arch: Its architecture.
        kernels: Names of its Triton kernels; those of a processor are C++.
    """
    gpu = arch.startswith("sm")
    calls = "\n".join(
        f"    call_{kernel}(buf{n}, buf{n + 1}, s0, stream);" for n, kernel in enumerate(kernels)
    )
    files = {"model.wrapper.cpp": WRAPPER.format(model=name, title=title, arch=target, calls=calls)}
    if gpu:
        files |= {f"{kernel}.py": TRITON.format(kernel=kernel, arch=arch) for kernel in kernels}
    else:
        body = "\n".join(KERNEL.format(kernel=f"cpp_{name[7:]}", number=n) for n, name in enumerate(kernels))
        files["model.kernel.cpp"] = f"#include <ATen/cpu/vec/vec.h>\n#include <omp.h>\n{body}"
    return b"".join(_zipped(files))


def _zipped(files: dict[str, str]) -> Iterator[bytes]:
    encoder = ZipEncoder()
    for name, text in sorted(files.items()):
        yield from encoder.whole(name, text.encode())
    yield from encoder.end()


def autotune(version: Version, build: Build) -> list[dict[str, Any]]:
    """What the compiler timed; nothing where it only reused code.

    Another program, or another release of torch, takes another kernel for some of the operations.
    """
    if build.reuses:
        return []
    rows: list[dict[str, Any]] = []
    for place, weight in enumerate(_weights(version.model)):
        candidates = _timed(build, _operation(version.model, weight), _luck(version, build, place), len(rows))
        rows += [{**row, "operation": place + 1} for row in candidates]
    return rows


def tuning(model: Model, build: Build) -> tuple[int, float]:
    """How many choices the compiler made for a build's code by timing, and in how many seconds."""
    return len(_weights(model)), round(chance(build.key, "tuning").uniform(18, 80), 3)


def _weights(model: Model) -> list[tuple[int, ...]]:
    """Shapes of weights whose operations are tuned: no biases, and a few of the others."""
    wide = [shape for _, shape in model.tensors if len(shape) > 1 and min(shape[:2]) > 1]
    return wide[:: max(1, len(wide) // _OPERATIONS)][:_OPERATIONS]


def _luck(version: Version, build: Build, place: int) -> Random:
    """What decides an operation's kernels: the same for programs and releases of torch that change nothing for it."""
    model, arch, release = version.model, build.arch, build.machine.target.torch
    programs = range(2, model.program(version.number) + 1)
    here = (model.name, arch, place)
    anew = sum(chance(*here, "program", program).random() < _CHANGED for program in programs)
    minds = chance(*here, "release").random() < _CHANGED
    return chance(*here, "autotune", anew, release if minds else "")


def _operation(model: Model, weight: tuple[int, ...]) -> tuple[str, list[list[int]]]:
    """An operation with a weight: its name, and the shapes of its inputs."""
    out, into, *window = weight
    batch = model.batches[-1]
    if not window:
        return "mm", [[batch, into], [into, out]]
    return "convolution", [[batch, into, *(_SIDE for _ in window)], list(weight)]


def _timed(
    build: Build, operation: tuple[str, list[list[int]]], luck: Random, counter: int
) -> list[dict[str, Any]]:
    """The candidates of one operation, best first."""
    op, shapes = operation
    dtype = build.request.get("dtype") or "float32"
    rows, milliseconds = [], luck.uniform(0.02, 0.3)
    for rank, (template, number) in enumerate(luck.sample(_candidates(build, op), k=_CANDIDATES), 1):
        rows.append(
            {
                "op": op,
                "shapes": [[str(size) for size in shape] for shape in shapes],
                "dtypes": [dtype, dtype],
                "strides": [_strides(shape) for shape in shapes],
                "candidate": template if number is None else f"{template}_{counter + number}",
                "template": f"extern: {template}" if number is None else template,
                "parameters": {} if number is None else _PARAMETERS[template.partition("_")[0]](number),
                "milliseconds": round(milliseconds, 5),
                "reason": "",
                "rank": rank,
                "chosen": rank == 1,
            }
        )
        milliseconds *= 1 + luck.expovariate(1 / 0.06)
    seconds = {
        "precompile_seconds": round(luck.uniform(0.5, 4), 3),
        "benchmark_seconds": round(luck.uniform(0.3, 2), 3),
    }
    if build.arch.startswith("sm"):
        rows[-1] |= {"milliseconds": None, "reason": _TOO_LARGE, "chosen": False}
    return [{**row, **seconds} for row in rows]


def _strides(shape: list[int]) -> list[str]:
    """Strides of a contiguous tensor."""
    return [str(math.prod(shape[place + 1 :])) for place in range(len(shape))]


_TOO_LARGE = (
    "NoTritonConfigsError: out of resource: triton_mm Required: 262144 Hardware limit: 232448 Reducing block sizes or "
    "`num_stages` may help."
)
_PARAMETERS: dict[str, Callable[[int], dict[str, Any]]] = {
    "triton": lambda number: {
        "BLOCK_K": 32 << number % 2,
        "BLOCK_M": 32 << number % 3,
        "BLOCK_N": 32 << number // 2 % 3,
        "num_stages": 2 + number % 4,
        "num_warps": 2 << number % 3,
    },
    "cpp": lambda number: {"block_k": 1, "block_m": 4 + 4 * (number % 2), "block_n": 16 << number % 3},
    "mkldnn": lambda number: {"blocking": 8 << number % 4},
}


def _candidates(build: Build, op: str) -> list[tuple[str, int | None]]:
    """Kernels that may be timed: of a template each with its place, and the library's."""
    gpu = build.arch.startswith("sm")
    templates = {"mm": "triton_mm" if gpu else "cpp_gemm", "convolution": "triton_convolution2d"}
    library = {"mm": "mm" if gpu else "mkl_linear", "convolution": "convolution"}
    template = templates[op] if gpu or op == "mm" else "mkldnn_convolution"
    return [(library[op], None), *((template, place) for place in range(_CANDIDATES - 1))]
