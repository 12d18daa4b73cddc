"""First calls of torch.compile in fresh processes: with cold caches, and with those that the first process left.

`python -m pt2hub_workers.inside.performance.first_calls JOB` builds the model, calls the compiled one once, and writes
the milliseconds beside the job. Each process imports torch and builds the model before the clock starts; what torch.compile imports,
traces and compiles is timed. Cold caches are empty. PyTorch's precompiled headers are there, and the answers of
Inductor's probes of the CPU, which the worker prepares for every job: they belong to a machine's first compile, not to a
model's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pt2hub.domain.publishing.spec import Spec
from pt2hub_workers.inside.builds.compile.precompiled_headers import use_prepared
from pt2hub_workers.inside.builds.export.call import order_arguments
from pt2hub_workers.inside.performance.baseline_models import build_baseline_model
from pt2hub_workers.inside.performance.timer import make_clock

if TYPE_CHECKING:
    from pt2hub_workers.inside.operations.channel import Channel

MAX_SECONDS = 1800.0
"""Time limit of one process; the measuring job has one of its own."""
_MODULE = "pt2hub_workers.inside.performance.first_calls"
_FOUND = "found.txt"
"""Milliseconds, or the reason for none."""
_MAX_REASON = 300


def measure_first_calls(job: dict[str, Any], channel: Channel) -> dict[str, float]:
    """Run the two processes; failures are logged, and what is missing stays unmeasured.

    Args:
        job: As for `baselines.run_baselines`.

    Returns:
        `first_ms` and `first_warm_ms`, as far as measured.
    """
    found: dict[str, float] = {}
    for name, caches in (("first_ms", "cold"), ("first_warm_ms", "warm")):
        channel.send("progress", text=f"call torch.compile for the first time, with {caches} caches")
        try:
            found[name] = _run(job, name)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            channel.log(
                f"the first call of torch.compile is not measured with {caches} caches: {error}", "warning"
            )
            break
    return found


def _run(job: dict[str, Any], name: str) -> float:
    """Return the milliseconds of the first call in a process of its own."""
    folder = Path(job["directory"]) / "tmp" / name
    folder.mkdir()
    path, found = folder / "job.json", folder / _FOUND
    path.write_text(json.dumps(job))
    command = [sys.executable, "-m", _MODULE, str(path)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, timeout=MAX_SECONDS, check=False)
    if done.returncode:
        said = found.read_text() if found.exists() else f"its process ended with code {done.returncode}"
        raise ValueError(said[:_MAX_REASON])
    return float(found.read_text())


class _Output:
    """Where a process writes lines that has no channel."""

    def log(self, text: str, level: str = "info") -> None:
        """Print a line."""
        print(f"{level}: {text}", file=sys.stderr)


def main(path: Path) -> int:
    """Measure one first call and write it beside the job; return the exit code."""
    folder, job = path.parent, json.loads(path.read_bytes())
    use_prepared(os.environ, folder / "precompiled_headers")
    spec, device = Spec.from_canonical(job["spec"]), job["config"]["signature"]["device"]
    module, example = build_baseline_model(job, spec, _Output(), scratch=folder)
    args, kwargs = order_arguments(module, example)
    clock, found = make_clock(device), folder / _FOUND
    with torch.inference_mode():
        clock.wait()
        began = time.perf_counter()
        try:
            torch.compile(module)(*args, **kwargs)
            clock.wait()
        except Exception as error:  # noqa: BLE001  # Dynamo, Inductor and the C++ compiler each raise their own
            found.write_text(f"{type(error).__name__}: {' '.join(str(error).split())}")
            return 1
    found.write_text(f"{(time.perf_counter() - began) * 1000:.3f}")
    return 0


if __name__ == "__main__":
    code = main(Path(sys.argv[1]))
    sys.stdout.flush()
    os._exit(code)  # without waiting for the compiler's processes
