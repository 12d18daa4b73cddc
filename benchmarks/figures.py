"""The figures that README and how-tos quote: the demo, and first inferences in turns; writes docs/figures.json.

`make figures` runs it and then writes the figures into the pages. It takes up to 10 minutes; nothing else may run on
the machine meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import figure_spans
import first_inference
import retrained
from common import compile_bytecode, say
from pt2hub.cli.operations import demo
from pt2hub.cli.operations.temporary_server import TemporaryServer
from pt2hub.client.machine.fingerprint import environment

RETRAINED = 2
"""Publishes of retrained weights."""
GOALS = {
    "retrained_ratio": ("at most", 0.2),
    "retrained_beyond_verification_s": ("at most", 2.0),
    "first_publish_over_compile_ratio": ("at most", 1.4),
    "demo_s": ("at most", 150.0),
    "cold_compile_times": ("at least", 90.0),
    "warm_compile_times": ("at least", 12.0),
}
"""What the figures should reach on a quiet machine of two cores."""


def main() -> None:
    """Run, writes the file and prints the goals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of first inferences (default 5)")
    parser.add_argument("--output", type=Path, default=figure_spans.FIGURES, help="the file to write")
    given = parser.parse_args()
    load, started = os.getloadavg()[0], time.monotonic()
    if load > figure_spans.QUIET_LOAD:
        say(f"The machine is not idle (load average {load:.2f}): do not publish these figures.")
    compile_bytecode()
    figures = demonstrated()
    with tempfile.TemporaryDirectory(prefix="pt2hub-benchmark-") as name:
        trial, folder = TemporaryServer(Path(name)), Path(name)
        say("publishes of retrained weights, after a first one")
        figures |= publishes(trial, folder)
        say("first inferences in fresh processes, the kinds in turns")
        with trial.server():
            figures |= first_inferences(given.rounds, trial, folder)
    document = {
        "command": "make figures",
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit(),
        "load_average_before": round(load, 2),
        "machine": machine(),
        "figures": figures,
    }
    before = json.loads(given.output.read_text())["figures"] if given.output.exists() else {}
    given.output.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    say(f"{given.output} written after {time.monotonic() - started:.0f} s")
    show(figures, before)


def demonstrated() -> dict[str, Any]:
    """Return the figures of `pt2hub demo` and what it prints."""
    lines: list[str] = []

    def keep(line: str) -> None:
        lines.append(line)
        say(line)

    started = time.monotonic()
    found = demo.run(keep)
    return {
        **{f"demo_{name}": value for name, value in found.items() if not name.endswith("digest")},
        "demo_s": round(time.monotonic() - started, 1),
        "demo_lines": lines,
    }


def publishes(trial: TemporaryServer, folder: Path) -> dict[str, Any]:
    """Return a first publish until it is ready, and retrained ones with nothing beside them."""
    found = retrained.measure(RETRAINED, trial, folder)
    return {
        "first_publish_s": found["first_publish_s"],
        "first_publish_steps": found["first_steps"],
        "first_publish_over_compile_ratio": found["first_over_compile"],
        "retrained_publish_s": found["retrained_s"]["median"],
        "retrained_publish_steps": found["retrained_steps"],
        "retrained_ratio": found["over_first"],
        "retrained_beyond_verification_s": found["beyond_verification_s"]["median"],
    }


def first_inferences(rounds: int, trial: TemporaryServer, folder: Path) -> dict[str, Any]:
    """Median of first inferences, and how many times faster the artifact's is than `torch.compile`."""
    found = first_inference.measure(rounds, trial, folder, cold_every=1)
    medians = {kind: values["median"] for kind, values in found["first_ms"].items()}
    return {
        "first_inference_rounds": rounds,
        **{f"first_inference_{kind}_ms": value for kind, value in medians.items()},
        "cold_compile_times": found["times_faster_than_cold"],
        "warm_compile_times": found["times_faster_than_warm"],
    }


def show(figures: dict[str, Any], before: dict[str, Any]) -> None:
    """Print each goal, the figure, and that of the file which was there before."""
    print(f"{'figure':34} {'goal':>14} {'now':>10} {'before':>10}")
    for name, (bound, value) in GOALS.items():
        now = figures[name]
        reached = now <= value if bound == "at most" else now >= value
        mark = "" if reached else "  missed"
        print(f"{name:34} {f'{bound} {value:g}':>14} {now:>10} {before.get(name, '-'):>10}{mark}")


def commit() -> str:
    """Return the commit that was measured, marked where files differ from it."""
    found = _output(
        "git", "-C", str(figure_spans.ROOT), "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"
    )
    return found or "unknown"


def machine() -> dict[str, Any]:
    """Return what it was measured on, by field and in a line."""
    here = environment(device="cpu")
    release = platform.freedesktop_os_release()
    system = " ".join(filter(None, (release.get("NAME", "").partition(" ")[0], release.get("VERSION_ID"))))
    version = re.search(r"\d+\.\d+(\.\d+)?", _output("g++", "--version"))
    compiler = f"g++ {version[0]}" if version else "unknown"
    gibibytes = (here.memory_bytes or 0) >> 30
    python = platform.python_version()
    text = (
        f"{here.cpu_model}, {here.cores} cores ({here.cpu_level}), {gibibytes} GiB, {system}, "
        f"Python {python}, {compiler}, torch {here.torch}"
    )
    return {
        "text": text,
        "cpu": here.cpu_model,
        "cpu_level": here.cpu_level,
        "cores": here.cores,
        "memory_bytes": here.memory_bytes,
        "system": system,
        "python": python,
        "compiler": compiler,
        "torch": here.torch,
    }


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()


if __name__ == "__main__":
    main()
