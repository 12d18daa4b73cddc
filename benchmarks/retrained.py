"""A first publish of resnet18 against publishes of retrained weights on a worker that has no compiler.

Wall times are the client's, from the upload until the version is ready; nothing is measured afterwards, so that
publishes do not disturb each other. `beyond_verification_s` is a retrained publish less what proves it: the step
`verify`, and the parts of `export` that compare the model with itself and with its program.
"""

from __future__ import annotations

import re
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import UNMEASURED, compile_bytecode, report, rounds, say, summary
from pt2hub.cli.operations import demo
from pt2hub.cli.operations.temporary_server import TemporaryServer

if TYPE_CHECKING:
    from pt2hub.client.client import Client

WARM_SECONDS = 6.0
"""Between two publishes: the worker starts the children of its next build meanwhile, as between real ones."""
_PROVING = re.compile(r"(?:first calls|golden outputs|the program beside the model): ([0-9.]+) s")
"""Lines of a build's log that say how long these parts of `export` took."""


def measure(count: int, trial: TemporaryServer, folder: Path) -> dict[str, Any]:
    """Publish resnet18, and retrained weights of it.

    Args:
        count: Retrained publishes.
        trial: A home without a server, where all of it stays.
        folder: Where the weights go.
    """
    retrained, beyond = [], []
    with trial.server() as client:
        first = demo.publish_first(client, say, UNMEASURED)
        for number in range(count):
            trial.child("retrain", demo.FIRST, str(folder / f"{number}.safetensors"), str(number + 1))
    with trial.server(demo.NO_COMPILER) as client:
        for number in range(count):
            time.sleep(WARM_SECONDS)
            found = demo.publish_retrained(client, folder / f"{number}.safetensors", say, UNMEASURED)
            retrained.append(found)
            proven = found["retrained_publish_steps"]["verify"] + _proving_seconds(client)
            beyond.append(found["retrained_publish_s"] - proven)
    times = summary([item["retrained_publish_s"] for item in retrained])
    return {
        "first_publish_s": first["first_publish_s"],
        "first_steps": first["first_publish_steps"],
        "retrained_s": times,
        "retrained_steps": retrained[-1]["retrained_publish_steps"],
        "beyond_verification_s": summary(beyond),
        "compiler_processes": max(item["compiler_processes_retrained"] for item in retrained),
        "code_reused": all(item["code_reused"] for item in retrained),
        "over_first": round(times["median"] / first["first_publish_s"], 3),
        "first_over_compile": round(first["first_publish_s"] / first["first_publish_steps"]["compile"], 3),
    }


def _proving_seconds(client: Client) -> float:
    """Return what of the newest version's `export` was proof."""
    newest = client.versions.list(demo.SPEC["model"], limit=1)[0].number
    (build,) = client.versions.get(demo.SPEC["model"], newest).builds
    lines = (_PROVING.fullmatch(line.text) for line in client.builds.logs(build.id) if line.step == "export")
    return sum(float(found[1]) for found in lines if found)


def main() -> None:
    """Run and prints."""
    count = rounds(__doc__, 3)
    compile_bytecode()
    with tempfile.TemporaryDirectory(prefix="pt2hub-benchmark-") as name:
        report("retrained", **measure(count, TemporaryServer(Path(name)), Path(name)))


if __name__ == "__main__":
    main()
