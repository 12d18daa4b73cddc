"""Layouts of convolutions on a GPU: p50 of code that computes them as today, in channels_last, and with weights in it.

    PYTHONPATH=registry:workers:benchmarks python3 benchmarks/gpu_layouts.py [MODEL...]

Every variant is compiled with a dynamic batch by a process of its own, all beside each other. One process then calls all of
them, eager mode and the modes of `torch.compile` in turns; packages are called through PyTorch's own loader, without and
with a CUDA graph. It takes less than 4 minutes on a machine with 16 cores, and prints one JSON object at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from common import say
from gpu_timings import WaitedClock, time_limit, wait
from pt2hub.domain.publishing.inductor_options import CHANNELS_LAST
from pt2hub.domain.targets import parse_target
from pt2hub.torchvision_operators import declare_torchvision
from pt2hub_workers.inside.builds.compile import channels_last
from pt2hub_workers.inside.builds.compile.inductor_hooks import wrap
from pt2hub_workers.inside.builds.compile.options import compile_options
from pt2hub_workers.inside.builds.differences import max_difference, rms_difference
from pt2hub_workers.inside.performance.timer import time_alternating

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SECONDS = 0.4
"""Of each implementation's calls."""
FIRST_CALL_SECONDS = 45.0
"""Limit of a first call under `torch.compile`."""
COMPILE_SECONDS = 170.0
THREADS = "2"
"""Processes of Inductor's pool in each process that compiles: all compile beside each other."""
LARGEST = 32
_CONVOLUTION = re.compile(r"aoti_torch_\w+_convolution\([^,]*, (\w+)")


@dataclass(frozen=True, slots=True)
class Model:
    """A model to compile: a network, its dtype, and the batches at which it is timed, with modes of `torch.compile`."""

    name: str
    dtype: torch.dtype
    modes: dict[int, tuple[str, ...]]


_QUICK = ("default", "reduce-overhead")
MODELS = {
    model.name: model
    for model in (
        Model("resnet18", torch.float32, {1: (*_QUICK, "max-autotune"), 8: _QUICK}),
        Model("convnext_tiny", torch.bfloat16, {1: (*_QUICK, "max-autotune"), 8: _QUICK}),
    )
}
VARIANTS = {
    "today": ({}, False),
    "weights": ({}, True),
    "forced": ({CHANNELS_LAST: True}, False),
    "forced weights": ({CHANNELS_LAST: True}, True),
}
"""Options, and whether the weights are stored in channels_last; the last one is what the option does in a spec."""


def main() -> None:
    """Compile all variants, time them, and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *MODELS], help="models (default: all)")
    parser.add_argument("--compile", nargs=3, help="for the processes of the script: model, variant, file")
    parser.add_argument("--warm", nargs=3, help="for the processes of the script: model, batch, mode")
    given = parser.parse_args()
    if given.compile:
        _compile(MODELS[given.compile[0]], given.compile[1], Path(given.compile[2]))
    elif given.warm:
        name, batch, mode = given.warm
        _warm(MODELS[name], int(batch), mode)
    else:
        with tempfile.TemporaryDirectory(prefix="pt2hub-layouts-") as folder:
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(_caches(Path(folder)))
            _run([MODELS[name] for name in given.names or MODELS], Path(folder))


def _run(models: list[Model], folder: Path) -> None:
    began = time.monotonic()
    failed = _compile_all(models, folder)
    say(f"[{time.monotonic() - began:4.0f} s] compiled; failed: {failed or 'none'}")
    found: dict[str, Any] = {"failed": failed}
    for model in models:
        for batch in model.modes:
            found[f"{model.name}, batch {batch}"] = timed = _time(model, batch, folder)
            say(f"[{time.monotonic() - began:4.0f} s] {model.name}, batch {batch}")
            for name, ms in sorted(timed["p50_ms"].items(), key=lambda item: item[1]):
                say(f"  {name:28} {ms:9.4f} ms   error {timed['relative_error'][name]:.2g}")
    print(json.dumps({"device": _device(), "torch": torch.__version__, **found}))


def _device() -> str:
    return torch.cuda.get_device_name() if DEVICE == "cuda" else "cpu"


def _compile_all(models: list[Model], folder: Path) -> dict[str, str]:
    """Compile the variants, and the quick modes of `torch.compile` for its caches; return what failed."""
    with ExitStack() as stack:
        running: dict[str, subprocess.Popen[str]] = {}
        for model in models:
            for variant in VARIANTS:
                package = _package(folder, model, variant)
                # Files of two builds of one program have the same names: each has a cache of its own.
                child = _start("--compile", model.name, variant, str(package), caches=package.with_suffix(""))
                running[f"{model.name} {variant}"] = stack.enter_context(child)
            for batch in model.modes:
                child = _start("--warm", model.name, str(batch), "default", caches=_caches(folder))
                running[f"{model.name} {batch}"] = stack.enter_context(child)
        return dict(_wait_for(running))


def _start(*arguments: str, caches: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, __file__, *arguments],
        env={
            **os.environ,
            "TORCHINDUCTOR_COMPILE_THREADS": THREADS,
            "TORCHINDUCTOR_CACHE_DIR": str(caches),
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def _caches(folder: Path) -> Path:
    return folder / "caches"


def _wait_for(running: dict[str, subprocess.Popen[str]]) -> Iterator[tuple[str, str]]:
    """Yield the names of processes that failed, with the end of what they printed."""
    until = time.monotonic() + COMPILE_SECONDS
    for name, process in running.items():
        try:
            _, said = process.communicate(timeout=max(until - time.monotonic(), 1.0))
        except subprocess.TimeoutExpired:
            process.kill()
            yield name, f"not done within {COMPILE_SECONDS:g} s"
            continue
        if process.returncode:
            yield name, said.strip()[-600:]


def _package(folder: Path, model: Model, variant: str) -> Path:
    return folder / f"{model.name}-{variant.replace(' ', '-')}.pt2"


def _build(model: Model) -> torch.nn.Module:
    declare_torchvision()
    torch.manual_seed(0)
    if model.name == "resnet18":
        import torchvision

        made: torch.nn.Module = torchvision.models.resnet18()
    else:
        import timm

        made = timm.create_model(model.name, ls_init_value=1.0)
    return made.eval().requires_grad_(False).to(DEVICE, model.dtype)


def _images(model: Model, batch: int, seed: int = 1) -> torch.Tensor:
    torch.manual_seed(seed)
    return torch.randn(batch, 3, 224, 224).to(DEVICE, model.dtype)


def _compile(model: Model, variant: str, package: Path) -> None:
    """Compile a variant with the product's options, weights included."""
    import torch._inductor.package

    dims = {0: torch.export.Dim("batch", min=1, max=LARGEST)}
    program = torch.export.export(_build(model), (_images(model, 2),), dynamic_shapes=(dims,))
    release = ".".join(torch.__version__.split(".")[:2])
    name = f"torch{release}-cpu-x86_64_v3"
    if DEVICE == "cuda":
        major, minor = torch.cuda.get_device_capability()
        name = f"torch{release}-cu{str(torch.version.cuda).replace('.', '')}-sm{major}{minor}"
    requested, stored = VARIANTS[variant]
    options = compile_options(parse_target(name), requested)
    with _stored(stored=stored):
        torch._inductor.aoti_compile_and_package(  # noqa: SLF001  # documented
            program, package_path=str(package), inductor_configs=options
        )


def _stored(*, stored: bool) -> AbstractContextManager[None]:
    """Store weights in channels_last, also where Inductor itself does not choose that layout."""
    from torch._inductor.graph import GraphLowering

    def run(inner: Callable[..., Any], graph: Any, *args: Any) -> Any:
        for name, weight in channels_last.find_weights(graph.module).items():
            channels_last.set_tensor(graph.module, name, channels_last.lay_out(weight))
        return inner(graph, *args)

    return wrap(GraphLowering, "run", run) if stored else nullcontext()


def _warm(model: Model, batch: int, mode: str) -> None:
    with torch.inference_mode():
        torch.compile(_build(model), mode=mode, dynamic=False)(_images(model, batch))
    wait()


class Package:
    """A compiled package in PyTorch's own loader."""

    def __init__(self, path: Path) -> None:
        self._loader = torch._C._aoti.AOTIModelPackageLoader(str(path), "model", True, 1, -1)  # noqa: SLF001

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Call it as it is."""
        found: torch.Tensor = self._loader.run([x])[0]
        return found


class Graphed:
    """A package whose calls replay a CUDA graph: the input is copied in and the output out, as in the product."""

    def __init__(self, path: Path, x: torch.Tensor) -> None:
        call = Package(path)
        self._kept = call  # its weights are the graph's
        self._input = x.clone()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch's
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                call(self._input)
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._output = call(self._input)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Replay the graph."""
        self._input.copy_(x)
        self._graph.replay()
        return self._output.clone()


def _calls(
    model: Model, batch: int, folder: Path, x: torch.Tensor
) -> Iterator[tuple[str, Callable[[], Callable[[torch.Tensor], torch.Tensor]]]]:
    """Yield what is timed: names, and functions that prepare the calls."""
    for variant in VARIANTS:
        path = _package(folder, model, variant)
        if path.exists():
            yield variant, partial(Package, path)
            if DEVICE == "cuda":
                yield f"{variant}, graph", partial(Graphed, path, x)
    yield "eager", partial(_build, model)
    for mode in model.modes[batch]:
        yield f"compile {mode}", partial(torch.compile, _build(model), mode=mode, dynamic=False)


def _time(model: Model, batch: int, folder: Path) -> dict[str, Any]:
    torch.compiler.reset()
    x, other = _images(model, batch), _images(model, batch, seed=2)
    ready: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {}
    errors, failed = {}, {}
    with torch.inference_mode():
        eager = _build(model)
        expected, scale = eager(x), rms_difference(eager(x), eager(other))
        for name, prepare in _calls(model, batch, folder, x):
            try:
                with time_limit(FIRST_CALL_SECONDS):
                    call = prepare()
                    output = call(x)
                    wait()
            except Exception as error:  # noqa: BLE001  # Dynamo and Inductor raise their own
                failed[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
                continue
            ready[name], errors[name] = call, max_difference(output, expected) / scale
        calls = [partial(call, x) for call in ready.values()]
        timed = time_alternating(calls, WaitedClock(), seconds=SECONDS)
    return {
        "p50_ms": {name: round(item.quantile(0.5), 4) for name, item in zip(ready, timed, strict=True)},
        "relative_error": errors,
        "failed": failed,
        "weights converted in a call": {
            variant: _converted(path)
            for variant in VARIANTS
            if (path := _package(folder, model, variant)).exists()
        },
    }


def _converted(package: Path) -> str:
    """Say how many convolutions read weights that the code made in the call."""
    with zipfile.ZipFile(package) as archive:
        name = next(item for item in archive.namelist() if item.endswith("wrapper.cpp"))
        read = _CONVOLUTION.findall(archive.read(name).decode())
    return f"{sum(item.startswith('buf') for item in read)} of {len(read)}"


if __name__ == "__main__":
    main()
