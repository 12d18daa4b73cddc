"""p50 latency of resnet18, batch 2, with its weights split from the code and baked into it.

Both are published through `pt2hub up`, the baked one second. Then both are pulled, loaded into one process and take turns; several fresh processes, since the
samples of one are not independent (facts of this project, section 16). Ratios are per process, then their median.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from common import TIMINGS, publish_resnet18, report, rounds, say, served, summary
from pt2hub.cli.operations import demo

if TYPE_CHECKING:
    from pt2hub.client.client import Client

BAKED = "vision/resnet18@2"


def main() -> None:
    """Run and prints."""
    count = rounds(__doc__, 5)
    found = []
    with served() as (trial, client, _):
        publish_resnet18(client)
        demo.publish(client, {**demo.SPEC, "compile": {"weights": "baked"}}, say)
        layers = {name: _layers(client, ref) for name, ref in (("split", demo.FIRST), ("baked", BAKED))}
        for _ in range(count):
            answer = trial.child("forms", demo.FIRST, BAKED, program=TIMINGS)
            say(str({name: round(value, 2) for name, value in answer["p50_ms"].items()}))
            found.append(answer)
    ratios = [item["p50_ms"]["split"] / item["p50_ms"]["baked"] for item in found]
    report(
        "baked_weights",
        threads=found[0]["threads"],
        p50_ms={kind: summary([item["p50_ms"][kind] for item in found]) for kind in ("split", "baked")},
        split_over_baked=round(statistics.median(ratios), 3),
        relative_error=max(item["relative_error"] for item in found),
        layer_bytes=layers,
    )


def _layers(client: Client, reference: str) -> dict[str, Any]:
    view = client.artifacts.get(client.artifacts.resolve(reference).artifacts[0].digest)
    return {"code": view.code_bytes, "weights": view.weights_bytes}


if __name__ == "__main__":
    main()
