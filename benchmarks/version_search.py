"""Searches for versions among 100,000 with ten labels each: by rare and frequent labels, fields, and combinations.

One embedded PostgreSQL with its usual settings. Each question is asked many times with other values, through the service in
this process.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from common import report, say
from pt2hub.server.config import ServerConfig
from pt2hub.server.container import open_container
from pt2hub.server.db import migrations
from pt2hub.server.db.embedded import EmbeddedPostgres

if TYPE_CHECKING:
    from collections.abc import Callable

    from pt2hub.server.services.publishing.catalog import CatalogService

GOAL_MS = 20.0
PAGE = 50
MODELS = 500
_SEED = """
INSERT INTO models (name) SELECT 'team' || n % 20 || '/model' || n FROM generate_series(0, {models} - 1) AS n;
INSERT INTO targets (name, torch, device, arch, os, machine)
SELECT 'torch2.13-cpu-x86_64_v' || n, '2.13', 'cpu', 'x86_64_v' || n, 'linux', 'x86_64' FROM generate_series(3, 4) AS n;
INSERT INTO versions (model_id, number, identity, spec, pins, published_by, created_at)
SELECT (SELECT min(id) FROM models) + n % {models}, n / {models} + 1, 'sha256:' || md5(n::text) || md5(n::text), '{{}}', '{{}}',
    jsonb_build_object('kind', 'token', 'name', 'person' || n % 50), now() - ({versions} - n) * interval '5 minutes'
FROM generate_series(0, {versions} - 1) AS n;
INSERT INTO builds (id, version_id, target, position, request, first_submitted, state)
SELECT 'build' || id, id, CASE WHEN id % 1000 = 0 THEN 'torch2.13-cpu-x86_64_v3' ELSE 'torch2.13-cpu-x86_64_v4' END, 0,
    '{{}}', true, CASE WHEN id % 500 = 0 THEN 'failed' ELSE 'succeeded' END FROM versions;
INSERT INTO labels (model_id, version_id, key, value, by)
SELECT model_id, versions.id, label.key, label.value, '{{"kind": "token", "name": "ci"}}' FROM versions, LATERAL (VALUES
    ('git.sha', md5(versions.id::text) || '00000000'), ('git.branch', CASE WHEN id % 2 = 0 THEN 'main' ELSE 'dev' END),
    ('git.repository', 'https://git.example.org/team' || id % 20), ('run', 'https://runs.example.org/' || id),
    ('data', 'set' || id % 200), ('license', 'Apache-2.0'), ('owner', 'team' || id % 20),
    ('stage', CASE WHEN id % 2 = 0 THEN 'candidate' ELSE 'rejected' END), ('cost', (id % 10)::text),
    ('region', 'zone' || id % 3)) AS label (key, value);
INSERT INTO aliases (model_id, name, version_id) SELECT model_id, 'prod', max(id) FROM versions GROUP BY model_id;
ANALYZE;
"""
QUESTIONS: dict[str, Callable[[int], list[str]]] = {
    "newest": lambda _: [],
    "commit": lambda n: [f"git.sha={'0' * 40}" if n % 7 == 0 else f"run=https://runs.example.org/{n}"],
    "frequent label": lambda _: ["license=Apache-2.0"],
    "two frequent labels": lambda n: ["git.branch=main", f"owner=team{n % 20}"],
    "two frequent labels that never meet": lambda _: ["git.branch=main", "stage=rejected"],
    "any value": lambda _: ["git.sha", "owner"],
    "alias": lambda n: ["alias=prod", f"owner=team{n % 20}"],
    "rare target": lambda _: ["target=torch2.13-cpu-x86_64_v3"],
    "failed": lambda n: ["state=failed", f"owner=team{n % 20}"],
    "ready": lambda _: ["state=ready", "region=zone1"],
    "publisher and date": lambda n: [f"publisher=person{n % 50}", "since=30d"],
    "one model": lambda n: [f"model=team{n % MODELS % 20}/model{n % MODELS}", "cost=3"],
    "one team": lambda n: [f"model=team{n % 20}/", "cost=3", "data"],
}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--versions", type=int, default=100_000, help="versions to seed (default 100,000)")
    parser.add_argument("--rounds", type=int, default=200, help="searches of each kind (default 200)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pt2hub-benchmark-") as name, ExitStack() as stack:
        folder = Path(name)
        postgres = stack.enter_context(EmbeddedPostgres(folder / "pg"))
        migrations.upgrade(postgres.url)
        say(f"seeding {options.versions:,} versions with ten labels each")
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute(_SEED.format(models=MODELS, versions=options.versions))  # type: ignore[arg-type]  # built from numbers
        config = ServerConfig(folder, storage=str(folder / "storage"))
        services = stack.enter_context(open_container(config, database_url=postgres.url))
        figures = {kind: _time(services.catalog, ask, options) for kind, ask in QUESTIONS.items()}
    report(
        "version_search",
        versions=options.versions,
        rounds=options.rounds,
        goal_ms=GOAL_MS,
        milliseconds=figures,
    )


def _time(
    catalog: CatalogService, ask: Callable[[int], list[str]], options: argparse.Namespace
) -> dict[str, float]:
    taken = []
    for _ in range(options.rounds + 5):
        conditions = ask(random.randrange(1, options.versions))
        start = time.perf_counter()
        catalog.search(conditions, limit=PAGE)
        taken.append(1000 * (time.perf_counter() - start))
    kept = taken[5:]
    return {"p50": round(statistics.median(kept), 2), "p95": round(statistics.quantiles(kept, n=20)[-1], 2)}


if __name__ == "__main__":
    main()
