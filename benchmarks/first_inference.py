"""Load plus first inference of resnet18: pt2hub with all checks, eager, torch.compile with warm and cold caches.

Every figure is a fresh process, the kinds taking turns. `first` begins after `import torch` (and, for eager and
torch.compile, after the model was built, in their favour); `process` is the whole process, from its start to its
end, model building included.
"""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Any

from common import TIMINGS, compile_bytecode, publish_resnet18, report, rounds, say, served, summary
from pt2hub.cli.operations import demo

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.cli.operations.temporary_server import TemporaryServer

KINDS = ("artifact", "eager", "torch_compile_warm", "torch_compile_cold")
COLD_EVERY = 2
"""Rounds per cold compile: each takes as long as all others together."""


def run(trial: TemporaryServer, kind: str, caches: Path) -> tuple[float, float, int]:
    """Millisecond of the first inference, of the whole process, and the thread count."""
    environ = {}
    if kind.startswith("torch_compile"):
        folder = caches / kind
        if kind.endswith("cold"):
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        environ = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "TMPDIR": str(folder)}
    started = time.perf_counter()
    what = kind.removesuffix("_warm").removesuffix("_cold")
    if what == "artifact":
        answer = trial.child(what, demo.FIRST, demo.SHAPES, environ=environ)
    else:
        answer = trial.child(what, demo.FIRST, environ=environ, program=TIMINGS)
    return answer["milliseconds"], (time.perf_counter() - started) * 1000, answer["threads"]


def measure(
    count: int, trial: TemporaryServer, folder: Path, *, cold_every: int | None = COLD_EVERY
) -> dict[str, Any]:
    """Run all kinds in turns.

    Args:
        count: Rounds.
        trial: Its server runs, and has resnet18 as version 1.
        folder: Where compilers keep their caches.
        cold_every: Rounds per compile with cold caches; None for the one that fills the others' caches alone.
    """
    first: dict[str, list[float]] = {kind: [] for kind in KINDS}
    process: dict[str, list[float]] = {kind: [] for kind in KINDS}
    threads = 0

    def add(kind: str, found: tuple[float, float, int], text: str) -> int:
        first[kind].append(found[0])
        process[kind].append(found[1])
        say(f"{text} {kind:20} first {found[0]:9.1f} ms   process {found[1]:9.1f} ms")
        return found[2]

    filling = [run(trial, kind, folder) for kind in ("artifact", "torch_compile_warm")]
    if cold_every is None:
        add("torch_compile_cold", filling[1], "first")
    for number in range(count):
        for kind in KINDS:
            if kind.endswith("cold") and (cold_every is None or number % cold_every):
                continue
            threads = add(kind, run(trial, kind, folder), f"{number + 1}/{count}")
    medians = {kind: summary(values)["median"] for kind, values in first.items()}
    whole_medians = {kind: summary(values)["median"] for kind, values in process.items()}
    return {
        "threads": threads,
        "first_ms": {kind: summary(values) for kind, values in first.items()},
        "process_ms": {kind: summary(values) for kind, values in process.items()},
        "times_faster_than_cold": round(medians["torch_compile_cold"] / medians["artifact"], 1),
        "times_faster_than_warm": round(medians["torch_compile_warm"] / medians["artifact"], 1),
        "process_over_eager": round(whole_medians["artifact"] / whole_medians["eager"], 3),
    }


def main() -> None:
    """Run and prints."""
    count = rounds(__doc__, 6)
    compile_bytecode()
    with served() as (trial, client, folder):
        publish_resnet18(client)
        report("first_inference", **measure(count, trial, folder))


if __name__ == "__main__":
    main()
