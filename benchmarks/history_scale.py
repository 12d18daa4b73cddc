"""Histories and the front page over a million measurements of 100,000 versions, beside an almost empty database.

One embedded PostgreSQL with its usual settings holds both databases: the almost empty one has twenty models, just as
many as a front page shows, and models of the same length, so that both answer the same. They are asked in turns, the
service in this process and the API in processes of its own; each time for another model.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import psycopg

import bulk_history
from common import report, say
from pt2hub.cli.operations.temporary_server import TemporaryServer
from pt2hub.domain.performance.metrics import SeriesFilter
from pt2hub.server.config import ServerConfig
from pt2hub.server.container import Container, open_container
from pt2hub.server.db import migrations
from pt2hub.server.db.embedded import EmbeddedPostgres
from pt2hub.system.processes import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FEW = 20 * bulk_history.VERSIONS * bulk_history.PER_VERSION
BATCH = 2
START_SECONDS = 60.0
GOAL = 1.5
_SIZES = """
    SELECT relname, pg_total_relation_size(oid), pg_relation_size(oid) FROM pg_class
    WHERE relname IN ('measurements', 'series_points', 'series') AND relkind = 'r'
"""


@dataclass(frozen=True)
class Side:
    """A database, and who answers from it.

    Attributes:
        models: How many models it has.
        services: In this process.
        connection: To its API.
    """

    models: int
    services: Container
    connection: http.client.HTTPConnection

    def get(self, path: str) -> bytes:
        """Return what the API answers."""
        self.connection.request("GET", path)
        response = self.connection.getresponse()
        body = response.read()
        assert response.status == 200, body
        return body


def main() -> None:
    """Run and prints."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="pt2hub-benchmark-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        postgres = stack.enter_context(EmbeddedPostgres(folder / "pg"))
        full_url, few_url = postgres.url, _another(postgres.url)
        seeded, seconds = _seed(full_url, options.measurements)
        _seed(few_url, FEW)
        full = stack.enter_context(_side(folder / "full", full_url, seeded.models))
        few = stack.enter_context(
            _side(folder / "few", few_url, FEW // (bulk_history.VERSIONS * bulk_history.PER_VERSION))
        )
        figures = {
            name: _compare(name, question, full, few, options.rounds) for name, question in QUESTIONS.items()
        }
        report(
            "history_scale",
            measurements=seeded.measurements,
            versions=seeded.versions,
            series=seeded.series,
            seeding_seconds=round(seconds, 1),
            megabytes=_sizes(full_url),
            rounds=options.rounds,
            goal=GOAL,
            milliseconds=figures,
        )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--measurements", type=int, default=1_000_000, help="figures to seed (default 1,000,000)"
    )
    parser.add_argument(
        "--rounds", type=int, default=500, help="questions of each kind to each database (default 500)"
    )
    return parser.parse_args()


def _history(side: Side) -> list[int]:
    wanted = SeriesFilter("latency_p50", target=random.choice(bulk_history.TARGETS), batch=BATCH)
    view = side.services.performance.history(_model(side), wanted)
    return [len(series.points) for series in view.series]


def _front(side: Side) -> list[int]:
    trends = side.services.performance.trends([_model(side) for _ in range(20)])
    return [len(trend.series.values) for found in trends.values() for trend in found]


def _api_history(side: Side) -> list[int]:
    target = random.choice(bulk_history.TARGETS)
    query = f"metric=latency_p50&target={target}&batch={BATCH}"
    view = json.loads(side.get(f"/api/v1/models/{quote(_model(side))}/history?{query}"))
    return [len(series["points"]) for series in view["series"]]


QUESTIONS: dict[str, Callable[[Side], list[int]]] = {
    "service_history": _history,
    "service_front": _front,
    "api_history": _api_history,
}


def _model(side: Side) -> str:
    return f"{bulk_history.TEAM}/model-{random.randint(1, side.models):05}"


def _compare(
    name: str, question: Callable[[Side], list[int]], full: Side, few: Side, rounds: int
) -> dict[str, Any]:
    """Time a question to both in turns; the answers have equally many figures."""
    expected = question(few)
    times: dict[str, list[float]] = {"full": [], "few": []}
    for number in range(rounds + 1):
        sides = [("full", full), ("few", few)]
        for which, side in sides if number % 2 else reversed(sides):
            began = time.perf_counter()
            answer = question(side)
            taken = (time.perf_counter() - began) * 1000
            assert answer == expected, (name, which, answer)
            if number:  # the first round opens connections
                times[which].append(taken)
    result: dict[str, Any] = {which: _quantiles(values) for which, values in times.items()}
    result["p95_ratio"] = round(result["full"]["p95"] / result["few"]["p95"], 2)
    say(f"{name}: {result}")
    return result


def _quantiles(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=100)
    return {"p50": round(cuts[49], 2), "p95": round(cuts[94], 2)}


def _another(url: str) -> str:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE few")
    return url.replace("/pt2hub?", "/few?")


def _seed(url: str, measurements: int) -> tuple[bulk_history.Seeded, float]:
    migrations.upgrade(url)
    began = time.monotonic()
    seeded = bulk_history.insert_history(url, measurements, say)
    seconds = time.monotonic() - began
    say(f"{seeded} in {seconds:.0f} s")
    return seeded, seconds


def _sizes(url: str) -> dict[str, dict[str, float]]:
    with psycopg.connect(url) as connection:
        rows = connection.execute(_SIZES).fetchall()
    return {
        name: {"with_indexes": round(whole / 1e6), "rows": round(heap / 1e6)} for name, whole, heap in rows
    }


@contextlib.contextmanager
def _side(folder: Path, url: str, models: int) -> Iterator[Side]:
    folder.mkdir()
    environ = {
        "PT2HUB_HOME": str(folder / "home"),
        "PT2HUB_STORAGE": str(folder / "blobs"),
        "PT2HUB_DATABASE_URL": url,
    }
    (folder / "blobs").mkdir()
    config = ServerConfig.from_environ(environ)
    with open_container(config, database_url=url) as services, serving(folder, environ) as connection:
        yield Side(models, services, connection)


@contextlib.contextmanager
def serving(folder: Path, environ: dict[str, str]) -> Iterator[http.client.HTTPConnection]:
    """Run the API; a connection to it."""
    command = [sys.executable, "-m", "pt2hub", "api", "--json", "--port", "0", "--processes", "1"]
    with (folder / "api.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            env=TemporaryServer(folder / "trial", **environ).environ,
            stdout=subprocess.PIPE,
            stderr=log,
            preexec_fn=die_with_parent(signal.SIGTERM),  # noqa: PLW1509  # one system call through an already loaded library
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (folder / "api.log").read_text()
        address = urlsplit(json.loads(line)["url"])
        connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=30)
        with contextlib.closing(connection):
            yield connection
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(START_SECONDS)


if __name__ == "__main__":
    main()
