"""A first publish of resnet18 against publishes of retrained weights on a worker that has no compiler.

Wall times are the client's, upload included. `beyond_gate_s` is the retrained publish less its verify step.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from common import report, rounds, say, summary
from pt2hub.cli import demo
from pt2hub.cli.trial import Trial

WARM_SECONDS = 6.0
"""Between two publishes: the worker starts the children of its next build meanwhile, as between real ones."""


def main() -> None:
    """Runs and prints."""
    count = rounds(__doc__, 3)
    with tempfile.TemporaryDirectory(prefix="pt2hub-benchmark-") as name:
        folder = Path(name)
        trial = Trial(folder)
        with trial.server() as client:
            first = demo.publish_first(client, say)
            for number in range(count):
                trial.child("retrain", demo.FIRST, str(folder / f"{number}.safetensors"), str(number + 1))
        retrained = []
        with trial.server(demo.NO_COMPILER) as client:
            for number in range(count):
                time.sleep(WARM_SECONDS)
                retrained.append(demo.publish_retrained(client, folder / f"{number}.safetensors", say))
    times = [item["retrained_publish_s"] for item in retrained]
    beyond = [item["retrained_publish_s"] - item["retrained_publish_steps"]["verify"] for item in retrained]
    report(
        "retrained",
        first_publish_s=first["first_publish_s"],
        first_steps=first["first_publish_steps"],
        retrained_s=summary(times),
        retrained_steps=retrained[-1]["retrained_publish_steps"],
        beyond_gate_s=summary(beyond),
        compiler_processes=max(item["compiler_processes_retrained"] for item in retrained),
        code_reused=all(item["code_reused"] for item in retrained),
        times_faster=round(first["first_publish_s"] / summary(times)["median"], 2),
    )


if __name__ == "__main__":
    main()
