"""Memory of three processes that load and call one model with 200 MB of weights: the weights are in memory once.

The weights file is mapped copy-on-write, so that all processes read the same pages; the sum of the proportional set sizes of their
mappings shows how often the weights are in memory (Linux's smaps). What each process has for itself is compared before and after
the load and the call, so that a copy elsewhere would be seen too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import report, say, served

if TYPE_CHECKING:
    from pt2hub.client.client import Client

PROCESSES = 3
LAYERS, WIDTH = 4, 3536
"""Linear layers of 50 MB each."""
GOAL = 1.05
"""Times that the weights are in memory, at most."""
MODEL = "team/wide"


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        _load_and_wait(options.child)
        return
    with served() as (trial, client, _), ExitStack() as stack:
        reference = _publish(client)
        command = [sys.executable, __file__, "--child", reference]
        children = [
            stack.enter_context(
                subprocess.Popen(
                    command, env=trial.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            )
            for _ in range(PROCESSES)
        ]
        own = [json.loads(child.stdout.readline()) for child in children if child.stdout]
        weights = Path(own[0]["weights"])
        mappings = [_mapping(child.pid, weights) for child in children]
        size = weights.stat().st_size
        for child in children:
            child.communicate()
    _report(size, mappings, own)


def _publish(client: Client) -> str:
    import torch

    torch.manual_seed(0)
    layers = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()) for _ in range(LAYERS)]
    example = torch.randn(2, WIDTH)
    say("publishing a model with 200 MB of weights")
    published = client.publish(
        torch.nn.Sequential(*layers).eval(),
        (example,),
        name=MODEL,
        measure={"processes": 0},
        wait="ready",
        progress=False,
    )
    return f"{MODEL}@{published.number}"


def _load_and_wait(reference: str) -> None:
    """Load and call the model, print what this process has for itself, and stay until standard input ends."""
    import torch

    from pt2hub.client.client import Client

    with Client() as client:
        artifact = client.pull(reference, progress=False)
        before = _anonymous_bytes()
        model = client.load(reference, progress=False)
        model(torch.randn(2, WIDTH))
        grown = _anonymous_bytes() - before
        print(json.dumps({"weights": str(artifact.weights), "anonymous_growth": grown}), flush=True)
        sys.stdin.read()


def _anonymous_bytes() -> int:
    """Bytes of this process that belong to no file."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Anonymous:"))


def _mapping(pid: int, path: Path) -> dict[str, int]:
    """Return the sums over a process's mappings of a file, in bytes."""
    found: dict[str, int] = {"Rss": 0, "Pss": 0, "Private_Dirty": 0}
    inside = False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        name, _, rest = line.partition(":")
        if "-" in name.split(" ", 1)[0]:  # a mapping begins
            inside = line.endswith(str(path))
        elif inside and name in found:
            found[name] += int(rest.split()[0]) << 10
    return found


def _report(size: int, mappings: list[dict[str, int]], own: list[dict[str, Any]]) -> None:
    times = sum(mapping["Pss"] for mapping in mappings) / size
    say(f"{PROCESSES} processes have the weights in memory {times:.2f} times; at most {GOAL:g} is the goal")
    mb = 1_000_000
    report(
        "shared_weights",
        processes=PROCESSES,
        weights_mb=round(size / mb, 1),
        times_in_memory=round(times, 3),
        goal=GOAL,
        reached=times <= GOAL,
        resident_mb=[round(mapping["Rss"] / mb, 1) for mapping in mappings],
        proportional_mb=[round(mapping["Pss"] / mb, 1) for mapping in mappings],
        changed_mb=[round(mapping["Private_Dirty"] / mb, 1) for mapping in mappings],
        anonymous_growth_mb=[round(item["anonymous_growth"] / mb, 1) for item in own],
    )


if __name__ == "__main__":
    main()
