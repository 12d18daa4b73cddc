"""Whether a scrub slows pulls down: cold pulls of an artifact, with and without a scrub at its default rate, taking turns.

Each turn starts the same server anew, with or without its scrub, over a storage in which every blob waits to be checked. Pulls
begin once the scrub has read its first blob, each into a cache of its own. The first round does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import struct
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from common import noop_spec, report, say, summary
from pt2hub.cli.operations.temporary_server import TemporaryServer, temporary_home
from pt2hub.client.client import Client
from pt2hub.client.config import ClientConfig
from pt2hub.server.config import DEFAULT_SCRUB_BYTES_PER_S
from pt2hub.server.db.embedded import EmbeddedPostgres

if TYPE_CHECKING:
    from collections.abc import Sequence

MB = 1_000_000
MODEL, TARGET = "team/large", "torch0.0-cpu-x86_64"
GOAL = 1.05
"""Median seconds of pulls beside a scrub over those without, at most."""
RATES = {"idle": 0, "scrub": DEFAULT_SCRUB_BYTES_PER_S}
BALLAST_BYTES = 8 * MB
"""Of each further blob, so that the scrub has enough to read for a whole turn."""
START_S = 60.0


def main() -> None:
    """Run and print."""
    options = _options()
    seconds: dict[str, list[float]] = {name: [] for name in RATES}
    with temporary_home("pt2hub-benchmark-scrub-") as folder:
        trial = TemporaryServer(folder, PT2HUB_TOOLCHAIN="noop", PT2HUB_SCRUB_BYTES_PER_S="0")
        with trial.server() as client:
            _publish(client, folder, options.megabytes, options.ballast)
        for turn in range(options.rounds + 1):
            for name in list(RATES)[:: 1 if turn % 2 else -1]:
                taken = _time_pulls(trial, RATES[name], folder, options.pulls)
                say(f"{turn}: {name}: {' '.join(f'{each:.2f}' for each in taken)} s")
                if turn:
                    seconds[name] += taken
    ratio = statistics.median(seconds["scrub"]) / statistics.median(seconds["idle"])
    report(
        "pulls_beside_scrub",
        megabytes=options.megabytes,
        scrub_bytes_per_s=DEFAULT_SCRUB_BYTES_PER_S,
        idle_s=summary(seconds["idle"], 3),
        scrub_s=summary(seconds["scrub"], 3),
        ratio=round(ratio, 3),
        goal=GOAL,
        met=ratio <= GOAL,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default 5)")
    parser.add_argument("--pulls", type=int, default=5, help="pulls of each turn (default 5)")
    parser.add_argument("--megabytes", type=int, default=100, help="size of the weights (default 100)")
    parser.add_argument("--ballast", type=int, default=40, help="further blobs of 8 MB (default 40)")
    return parser.parse_args()


def _publish(client: Client, folder: Path, megabytes: int, ballast: int) -> None:
    """Publish a version with large weights, and store blobs that nobody pulls."""
    path = folder / "weights.safetensors"
    size = megabytes * MB
    header = json.dumps({"weight": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + os.urandom(size))
    client.publish(noop_spec(MODEL, seed=0), weights=path, wait="ready", progress=False)
    for _ in range(ballast):
        path.write_bytes(os.urandom(BALLAST_BYTES))
        client.blobs.upload(path)
    path.unlink()


def _time_pulls(trial: TemporaryServer, bytes_per_s: int, folder: Path, pulls: int) -> Sequence[float]:
    """Return the seconds of each cold pull from a server that scrubs at a rate."""
    with trial.server({"PT2HUB_SCRUB_BYTES_PER_S": str(bytes_per_s)}) as client:
        url = client.config.url
        due = _make_due(trial)
        deadline = time.monotonic() + START_S
        while bytes_per_s and _count_due(trial) == due:
            if time.monotonic() > deadline:
                raise TimeoutError("the scrub does not begin")
            time.sleep(0.1)
        taken = [_pull(url, folder) for _ in range(pulls)]
        left = _count_due(trial)
    if not left or (left < due and not bytes_per_s):
        raise RuntimeError(f"{left} of {due} blobs wait to be checked: more --ballast, or fewer --pulls")
    return taken


def _pull(url: str, folder: Path) -> float:
    with (
        tempfile.TemporaryDirectory(dir=folder) as home,
        Client(ClientConfig(home=Path(home), url=url)) as client,
    ):
        began = time.perf_counter()
        client.pull(f"{MODEL}@1", target=TARGET, progress=False)
        return time.perf_counter() - began


def _make_due(trial: TemporaryServer) -> int:
    """Let every blob wait to be checked, whatever the server before did; return how many there are."""
    with closing(_connect(trial)) as connection:
        connection.execute("UPDATE scrub_position SET claimed_until = now()")
        return connection.execute("UPDATE blobs SET checked_at = '-infinity'").rowcount


def _count_due(trial: TemporaryServer) -> int:
    with closing(_connect(trial)) as connection:
        row = connection.execute("SELECT count(*) FROM blobs WHERE checked_at = '-infinity'").fetchone()
        return int(row[0]) if row else 0


def _connect(trial: TemporaryServer) -> psycopg.Connection:
    return psycopg.connect(EmbeddedPostgres(trial.home / "server" / "db").url, autocommit=True)


if __name__ == "__main__":
    main()
