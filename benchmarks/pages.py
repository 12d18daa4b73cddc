"""How quick the web pages are, and how heavy.

Two servers of one process each, over one embedded PostgreSQL: one has the demo's year (`make seed-demo`), the other
has it beside a million measurements (`bulk_history`). Of each kind of page, pages chosen by chance are asked for
in turns; the time is what passes until the whole page is here, over the loopback. Pages are asked for twice before, so that
code is imported and connections are open, as on a server that runs.

The weight is what a browser takes at its first visit: the compressed page, and every style and script that it names. With
`--browser PATH` a real Chromium draws a chart of 10,000 points, which says itself how long it took.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import http.client
import random
import re
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

import bulk_history
from common import report, say
from history_scale import serving
from pt2hub.domain.artifacts import SOURCES_TYPE
from pt2hub.server.config import ServerConfig
from pt2hub.server.container import open_container
from pt2hub.server.db import migrations
from pt2hub.server.db.embedded import EmbeddedPostgres

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))  # the story is the tests'

from support.story import replay as story

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GOALS = {"demo": 100.0, "million": 200.0}
"""Milliseconds of the 95th percentile of each kind of page."""
MOST_BYTES = 150_000
MOST_DRAWN = 100.0
POINTS = 10_000
CHARTED = "demo-ranking/two-tower-items"
_ASSET = re.compile(r'(?:href|src)="(/static/[^"]+)"')
_ROWS = {
    "model": "SELECT name FROM models",
    "version": "SELECT m.name, v.number FROM versions v JOIN models m ON m.id = v.model_id",
    "alias": "SELECT m.name, a.name FROM aliases a JOIN models m ON m.id = a.model_id",
    "artifact": f"SELECT artifact FROM referrers WHERE artifact_type = '{SOURCES_TYPE}'",
    "build": "SELECT id FROM builds",
    "compare": """
        SELECT m.name, v.number, b.target FROM artifacts JOIN builds b ON b.id = build_id
        JOIN versions v ON v.id = b.version_id JOIN models m ON m.id = v.model_id
        JOIN versions w ON (w.model_id, w.number) = (v.model_id, v.number - 1)
        JOIN builds c ON (c.version_id, c.target, c.state) = (w.id, b.target, 'succeeded')
    """,
}
_MANY = """
    INSERT INTO series_points
    SELECT series.id, 100 + nth, point.artifact, point.value * (1 + nth %% 7 * 0.004), point.low, point.high, 1,
        point.measured_at + nth * interval '1 minute'
    FROM generate_series(1, %(points)s) AS step (nth) CROSS JOIN
        (SELECT id FROM series WHERE metric = 'latency_p50' AND implementation = 'artifact' AND model_id =
            (SELECT id FROM models WHERE name = %(model)s) ORDER BY newest_at DESC LIMIT 1) AS series
    JOIN LATERAL (SELECT * FROM series_points WHERE series_id = series.id ORDER BY number LIMIT 1) AS point ON true
"""


@dataclass(frozen=True)
class Side:
    """A server.

    Attributes:
        name: `demo` or `million`.
        database_url: Its database.
        connection: To its API.
        rows: What addresses are made of, by kind of page.
    """

    name: str
    database_url: str
    connection: http.client.HTTPConnection
    rows: dict[str, list[Any]]

    def get(self, path: str) -> bytes:
        """Return the compressed answer."""
        self.connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
        response = self.connection.getresponse()
        body = response.read()
        assert response.status == 200, (path, response.status, body[:300])
        return body

    def any(self, kind: str) -> Any:
        """Return a row by chance."""
        return random.choice(self.rows[kind])


def _version(side: Side) -> str:
    name, number = side.any("version")
    return f"/models/{name}/versions/{number}"


def _alias(side: Side) -> str:
    name, alias = side.any("alias")
    return f"/models/{name}/aliases/{alias}"


def _compare(side: Side) -> str:
    name, number, target = side.any("compare")
    return f"/compare?before={name}%40{number - 1}&after={name}%40{number}&target={target}"


TABS = ("files", "kernels", "autotune", "benchmark", "trace", "provenance", "raw")
PAGES: dict[str, Callable[[Side], str]] = {
    "front": lambda _: "/",
    "search": lambda _: f"/search?q={random.choice(('bert', 'rank', 'model-000', 'resnet'))}",
    "model": lambda side: f"/models/{side.any('model')[0]}",
    "version": _version,
    "alias": _alias,
    "artifact": lambda side: f"/artifacts/{side.any('artifact')[0]}",
    "artifact's tab": lambda side: f"/artifacts/{side.any('artifact')[0]}?view={random.choice(TABS)}",
    "sources": lambda side: f"/artifacts/{side.any('artifact')[0]}/sources",
    "builds": lambda _: "/builds",
    "failed builds": lambda _: "/builds?state=failed",
    "build": lambda side: f"/builds/{side.any('build')[0]}",
    "performance": lambda side: f"/models/{side.any('model')[0]}/performance",
    "compare": _compare,
    "changes": lambda _: "/changes",
    "targets": lambda _: "/targets",
    "publish": lambda _: "/publish",
    "sign in": lambda _: "/sign-in",
}


def main() -> None:
    """Run and prints."""
    options = _options()
    random.seed(0)
    with tempfile.TemporaryDirectory(prefix="pt2hub-benchmark-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        postgres = stack.enter_context(EmbeddedPostgres(folder / "pg"))
        sides = [stack.enter_context(_side(folder, postgres.url, name, options)) for name in options.sides]
        figures = {side.name: {kind: _timed(side, kind, options.rounds) for kind in PAGES} for side in sides}
        report(
            "pages",
            rounds=options.rounds,
            measurements=options.measurements,
            goals_p95=GOALS,
            milliseconds=figures,
            slowest={
                name: max(found, key=lambda kind: found[kind]["p95"]) for name, found in figures.items()
            },
            first_visit_bytes={kind: _weight(sides[0], kind) for kind in PAGES},
            goal_bytes=MOST_BYTES,
            **(_chart(sides[0], options.browser) if options.browser else {}),
        )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--measurements", type=int, default=1_000_000, help="beside the demo (default 1,000,000)"
    )
    parser.add_argument("--rounds", type=int, default=200, help="pages of each kind (default 200)")
    parser.add_argument("--sides", nargs="+", choices=list(GOALS), default=list(GOALS), help="which servers")
    parser.add_argument("--browser", help="path of a Chromium that draws a chart; needs playwright")
    return parser.parse_args()


@contextlib.contextmanager
def _side(folder: Path, url: str, name: str, options: argparse.Namespace) -> Iterator[Side]:
    own = folder / name
    (own / "blobs").mkdir(parents=True)
    environ = {
        "PT2HUB_HOME": str(own / "home"),
        "PT2HUB_STORAGE": str(own / "blobs"),
        "PT2HUB_DATABASE_URL": _database(url, name),
    }
    database_url = environ["PT2HUB_DATABASE_URL"]
    migrations.upgrade(database_url)
    began = time.monotonic()
    with open_container(ServerConfig.from_environ(environ), database_url=database_url) as services:
        say(f"{story.seed(services)} artifacts")
    say(f"{name}: seeded in {time.monotonic() - began:.0f} s")
    if name == "million":
        say(f"{bulk_history.insert_history(database_url, options.measurements)}")
    with psycopg.connect(database_url) as connection:
        rows = {kind: connection.execute(query).fetchall() for kind, query in _ROWS.items()}
    with serving(own, environ) as connection:
        yield Side(name, database_url, connection, rows)


def _database(url: str, name: str) -> str:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return url.replace("/pt2hub?", f"/{name}?")


def _timed(side: Side, kind: str, rounds: int) -> dict[str, float]:
    times = []
    for number in range(rounds + 2):
        path = PAGES[kind](side)
        began = time.perf_counter()
        side.get(path)
        if number > 1:
            times.append((time.perf_counter() - began) * 1000)
    cuts = statistics.quantiles(times, n=100)
    found = {"p50": round(cuts[49], 1), "p95": round(cuts[94], 1)}
    say(f"{side.name} {kind}: {found}" + ("" if cuts[94] < GOALS[side.name] else "  MISSED"))
    return found


def _weight(side: Side, kind: str) -> int:
    """Return the bytes of the heaviest of some first visits: a page and what it names, compressed."""
    found = []
    for _ in range(10):
        page = side.get(PAGES[kind](side))
        html = gzip.decompress(page).decode() if page[:2] == b"\x1f\x8b" else page.decode()
        assets = {path: len(side.get(path)) for path in set(_ASSET.findall(html))}
        found.append(len(page) + sum(assets.values()))
    return max(found)


def _chart(side: Side, browser: str) -> dict[str, Any]:
    """Draw a chart of many points in a browser that knows nothing yet; the median of five."""
    from playwright.sync_api import sync_playwright

    with psycopg.connect(side.database_url, autocommit=True) as connection:
        connection.execute(_MANY, {"points": POINTS, "model": CHARTED})
    address = f"http://127.0.0.1:{side.connection.port}/models/{CHARTED}/performance?metric=latency_p50&limit={POINTS}"
    taken = []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        for _ in range(5):
            page = chromium.new_page()
            page.goto(address)
            page.wait_for_selector("[data-drawn-ms]")
            taken.append(float(page.locator("[data-drawn-ms]").first.get_attribute("data-drawn-ms") or "inf"))
            page.close()
        chromium.close()
    return {
        "chart_points": POINTS,
        "chart_ms": round(statistics.median(taken), 1),
        "goal_chart_ms": MOST_DRAWN,
    }


if __name__ == "__main__":
    main()
