"""What every benchmark shares: a server with resnet18 published, quantiles, one JSON line at the end."""

from __future__ import annotations

import argparse
import compileall
import json
import os
import statistics
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.cli.operations import demo
from pt2hub.cli.operations.temporary_server import TemporaryServer, temporary_home

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pt2hub.client.client import Client


ROOT = Path(__file__).resolve().parents[1]
TIMINGS = (str(ROOT / "benchmarks" / "timings.py"),)
"""The program of fresh processes that time something."""
UNMEASURED = {**demo.SPEC, "measure": {"processes": 0}}
"""The demo's model, for benchmarks: nothing is to be measured on the worker while they run."""


def say(line: str) -> None:
    """Progress goes to standard error, so that standard output is the result alone."""
    print(line, file=sys.stderr, flush=True)


def rounds(description: str | None, default: int) -> int:
    """Read `--rounds`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=default, help=f"interleaved rounds (default {default})")
    return int(parser.parse_args().rounds)


def compile_bytecode() -> None:
    """Compile pt2hub's modules as pip does for an installed package; in a checkout Python may be told to write none."""
    for folder in ("registry", "workers"):
        compileall.compile_dir(str(ROOT / folder), quiet=1)


@contextmanager
def served(**environ: str) -> Iterator[tuple[TemporaryServer, Client, Path]]:
    """Yield a server in a temporary home, its client, and a folder for whatever else is needed."""
    with temporary_home("pt2hub-benchmark-") as folder:
        trial = TemporaryServer(folder, **environ)
        with trial.server() as client:
            yield trial, client, folder


def publish_resnet18(client: Client) -> None:
    """Publish the demo's model as version 1, unmeasured, so that the worker is idle afterwards."""
    demo.publish(client, UNMEASURED, say)


def noop_spec(model: str, *, seed: int) -> dict[str, Any]:
    """Return a spec that the no-op toolchain builds; the factory it names is never called.

    Args:
        model: The model's name.
        seed: Specs of one seed share their code.
    """
    return {
        "model": model,
        "source": {"factory": "torchvision.models:none", "seed": seed},
        "inputs": [{"name": "x", "shape": ["batch", 8], "generate": {"normal": {}}}],
        "dims": {"batch": {"max": 16, "example": 2}},
        "measure": {"processes": 0},
        "targets": ["torch0.0-cpu-x86_64"],
    }


def summary(values: Sequence[float], digits: int = 2) -> dict[str, float]:
    """Median and the range around it."""
    ordered = sorted(values)
    return {
        "median": round(statistics.median(ordered), digits),
        "low": round(ordered[0], digits),
        "high": round(ordered[-1], digits),
        "n": len(ordered),
    }


def report(name: str, **figures: Any) -> None:
    """Print the result as one JSON line, with the machine's core count."""
    print(json.dumps({"benchmark": name, "cores": len(os.sched_getaffinity(0)), **figures}))
