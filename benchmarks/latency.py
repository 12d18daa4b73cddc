"""p50 latency of resnet18, batch 2: pt2hub's split artifact, stock AOTInductor, torch.compile, eager.

All four live in one process and take turns; several fresh processes, since the samples of one are not
independent (facts of this project, section 16). Ratios are per process, then the median over processes.
"""

from __future__ import annotations

import statistics

from common import TIMINGS, publish_resnet18, report, rounds, say, served, summary
from pt2hub.cli.operations import demo


def main() -> None:
    """Run and prints."""
    count = rounds(__doc__, 5)
    found = []
    with served() as (trial, client, folder):
        publish_resnet18(client)
        for _ in range(count):
            answer = trial.child("latencies", demo.FIRST, str(folder / "stock.pt2"), program=TIMINGS)
            say(str({name: round(value, 2) for name, value in answer["p50_ms"].items()}))
            found.append(answer)
    kinds = list(found[0]["p50_ms"])
    ratios = {
        kind: round(statistics.median(item["p50_ms"]["aot"] / item["p50_ms"][kind] for item in found), 3)
        for kind in kinds
        if kind != "aot"
    }
    report(
        "latency",
        threads=found[0]["threads"],
        p50_ms={kind: summary([item["p50_ms"][kind] for item in found]) for kind in kinds},
        artifact_over=ratios,
        relative_error=max(item["relative_error"] for item in found),
    )


if __name__ == "__main__":
    main()
