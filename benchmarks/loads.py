"""Loads of resnet18 beside what is underneath, and what the checks of a call cost; fresh processes, taking turns.

`pt2hub` loads a pulled artifact with every check, the code hashed. `bare` is torch's own loader underneath
(`AOTIModelPackageLoader`) on the same files, with the weights mapped and given to it: nothing is checked.
`aoti_load_package` loads the single file with cold compiler caches, as on a new machine: it compiles a test program first.
A call's checks are timed in a process of their own, with one tensor, in batches of calls.

Timing begins after torch and pt2hub are imported. What a process loads is in the page cache.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import compile_bytecode, publish_resnet18, report, rounds, say, served, summary
from pt2hub.cli.operations import demo

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS = ("pt2hub", "bare", "aoti_load_package")
COLD_ROUNDS = 3
"""Rounds with cold compiler caches: each takes as long as a hundred others."""
CALLS, BATCHES = 2_000, 15
GOALS = {"more_than_bare_ms": 10.0, "times_faster_than_cold": 500.0, "checks_us": 20.0}
_CHILDREN = ("load", "checks")
"""What this file does as a child of itself."""


def _children(what: str, kind: str, reference: str, package: str) -> dict[str, Any]:
    """Run one timing in this process, which is fresh."""
    import pt2hub
    from pt2hub.client.artifacts.loader import load_artifact

    local = pt2hub.pull(reference)
    if what == "checks":
        return {"microseconds": _check_time(load_artifact(local))}
    loads: dict[str, Callable[[], Any]] = {
        "pt2hub": lambda: load_artifact(local),
        "bare": lambda: _load_bare(local.code, local.weights),
        "aoti_load_package": lambda: _load_package(package),
    }
    started = time.perf_counter()
    kept = loads[kind]()
    milliseconds = (time.perf_counter() - started) * 1000
    del kept
    return {"milliseconds": milliseconds}


def _load_bare(code: Path, weights: Path) -> Any:
    import safetensors.torch
    import torch

    runner = torch._C._aoti.AOTIModelPackageLoader(str(code), "model", False, 1, -1)  # noqa: SLF001  # the loader underneath
    tensors = safetensors.torch.load_file(weights)
    wanted = runner.get_constant_fqns()
    runner.load_constants({name: tensors[name] for name in wanted}, False, True, True)
    return runner, tensors


def _load_package(package: str) -> Any:
    import torch._inductor

    return torch._inductor.aoti_load_package(package)  # noqa: SLF001  # documented


def _check_time(model: Any) -> float:
    """Median microseconds that a call's checks take, one tensor."""
    import torch

    x = torch.randn(2, 3, 224, 224)
    model(x)
    bind = model._contract.bind  # noqa: SLF001  # what a call does before it enters the compiled code
    samples = []
    for _ in range(BATCHES):
        started = time.perf_counter()
        for _ in range(CALLS):
            bind((x,), {})
        samples.append((time.perf_counter() - started) / CALLS * 1e6)
    return statistics.median(samples)


def main() -> None:
    """Run and print."""
    count = rounds(__doc__, 10)
    compile_bytecode()
    with served() as (trial, client, folder):
        publish_resnet18(client)
        package = folder / "single.pt2"
        client.exports.single_file(client.pull(demo.FIRST, progress=False), str(package))

        def child(what: str, kind: str = "", **environ: str) -> dict[str, Any]:
            program = (str(Path(__file__).resolve()),)
            return trial.child(what, kind, demo.FIRST, str(package), program=program, environ=environ)

        found: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for number in range(-1, count):  # the first one fills the page cache and does not count
            for kind in KINDS:
                cold = kind == "aoti_load_package"
                if cold and not 0 <= number < COLD_ROUNDS:
                    continue
                caches = folder / f"caches-{number}"
                environ = {"TORCHINDUCTOR_CACHE_DIR": str(caches), "TMPDIR": str(folder)} if cold else {}
                value = child("load", kind, **environ)["milliseconds"]
                say(f"{number + 1}/{count} {kind:20} {value:9.2f} ms")
                if number >= 0:
                    found[kind].append(value)
        checks = child("checks")["microseconds"]
        medians = {kind: statistics.median(values) for kind, values in found.items()}
        report(
            "loads",
            load_ms={kind: summary(values) for kind, values in found.items()},
            more_than_bare_ms=round(medians["pt2hub"] - medians["bare"], 2),
            times_faster_than_cold=round(medians["aoti_load_package"] / medians["pt2hub"]),
            checks_us=round(checks, 2),
            goals=GOALS,
        )


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in _CHILDREN:
        json.dump(_children(*sys.argv[1:]), sys.stdout)
    else:
        main()
