"""What the sandbox costs: builds of resnet18 at the levels `process` and `sandbox`, taking turns in one run.

Both workers read the same prepared headers and start every build with a child that is warm and caches that are empty.
Every build compiles: its largest batch is another one each time, so that no code can be reused. A build's seconds are
those of all its steps. A first round, in which files are read from the disk, does not count.
"""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from common import report, rounds, say, served, summary
from pt2hub.cli.operations import demo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pt2hub.client.client import Client

LEVELS = ("process", "sandbox")
GOAL = 1.10
"""The sandbox's seconds over those without, at most."""
WARM_SECONDS = 15.0
"""Between two builds: the worker starts the children of its next one meanwhile, as between real ones."""
LARGEST = 32


def main() -> None:
    """Run and prints."""
    count = rounds(__doc__, 5)
    steps: dict[str, list[dict[str, float]]] = {level: [] for level in LEVELS}
    with ExitStack() as stack:
        clients = {level: stack.enter_context(served(PT2HUB_ISOLATION=level))[1] for level in LEVELS}
        for number in range(count + 1):
            for level in LEVELS if number % 2 else reversed(LEVELS):
                time.sleep(WARM_SECONDS)
                found = _build(clients[level], level, number)
                say(f"round {number} {level:8} {sum(found.values()):6.2f} s")
                if number:
                    steps[level].append(found)
    seconds = {level: [sum(found.values()) for found in steps[level]] for level in LEVELS}
    ratios = [confined / free for free, confined in zip(*(seconds[level] for level in LEVELS), strict=True)]
    ratio = statistics.median(ratios)
    say(
        f"sandbox / process: {ratio:.3f} in the median of {len(ratios)} rounds; at most {GOAL:.2f} is the goal"
    )
    report(
        "sandbox_overhead",
        ratio=summary(ratios, 3),
        goal=GOAL,
        reached=ratio <= GOAL,
        seconds={level: summary(values) for level, values in seconds.items()},
        steps={level: _medians(found) for level, found in steps.items()},
    )


def _build(client: Client, level: str, number: int) -> dict[str, float]:
    """Publish a model that differs from the last one in its largest batch; seconds of each step of its build."""
    dims = {"batch": {**demo.SPEC["dims"]["batch"], "max": LARGEST + number}}
    build, _ = demo.publish(client, {**demo.SPEC, "dims": dims}, lambda _: None)
    made_at = client.artifacts.get(build.artifact).provenance["isolation"] if build.artifact else None
    if made_at != level:
        raise SystemExit(f"an artifact of the worker at level {level} says {made_at}")
    return demo.step_seconds(build)


def _medians(builds: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(found[name] for found in builds), 2) for name in builds[0]}


if __name__ == "__main__":
    main()
