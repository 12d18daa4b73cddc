"""From the commit of a submission to a worker's claim of its build, with 10 idle workers.

The workers are real processes, with the no-op toolchain; the database is one embedded PostgreSQL. `commit` is the end
of the submission's transaction as the submitter sees it, `claim` the start of the attempt as the database has it: one
machine, one clock.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import text

from common import noop_spec, report, say, summary
from pt2hub.domain.tokens import SERVER
from pt2hub.server.config import ServerConfig
from pt2hub.server.container import open_container
from pt2hub.server.db import engine as engines
from pt2hub.server.db import migrations
from pt2hub.server.db.embedded import EmbeddedPostgres
from pt2hub.system.processes import spawn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.server.container import Container

START_SECONDS = 120.0
PAUSE_SECONDS = 0.4
"""Between two submissions: the worker that had the last one is idle again."""
_CLAIMED = text(
    "SELECT extract(epoch FROM started_at) FROM build_attempts WHERE build_id = :build AND attempt = 1"
)


def main() -> None:
    """Run and prints."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="pt2hub-benchmark-") as name, ExitStack() as stack:
        folder = Path(name)
        url = stack.enter_context(EmbeddedPostgres(folder / "pg")).url
        migrations.upgrade(url)
        config = ServerConfig.from_environ({"PT2HUB_STORAGE": str(folder / "blobs")})
        container = stack.enter_context(open_container(config, database_url=url))
        stack.enter_context(_workers(url, folder, options.workers))
        _await_idle(container, options.workers)
        taken = _measure(container, options.rounds)
    ordered = sorted(taken)
    report(
        "enqueue_to_start",
        workers=options.workers,
        milliseconds=summary(taken),
        p50_ms=round(statistics.median(taken), 2),
        p95_ms=round(ordered[int(0.95 * len(ordered))], 2),
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50, help="submissions (default 50)")
    parser.add_argument("--workers", type=int, default=10, help="idle workers (default 10)")
    return parser.parse_args()


@contextmanager
def _workers(url: str, folder: Path, count: int) -> Iterator[None]:
    """Worker processes; ended at the end."""
    environ = {
        **os.environ,
        "PT2HUB_DATABASE_URL": url,
        "PT2HUB_STORAGE": str(folder / "blobs"),
        "PT2HUB_HOME": str(folder / "home"),
        "PT2HUB_SCRATCH": str(folder),
        "PT2HUB_TOOLCHAIN": "noop",
        "TMPDIR": str(folder),
    }
    (folder / "blobs").mkdir(exist_ok=True)
    children = [
        spawn(
            [sys.executable, "-m", "pt2hub_workers"],
            log=folder / f"worker-{number}.log",
            environ=environ,
            at_parents_death=signal.SIGKILL,
        )
        for number in range(count)
    ]
    try:
        yield
    finally:
        for child in children:
            child.send(signal.SIGTERM)
        for child in children:
            child.stop()


def _await_idle(container: Container, count: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while len(found := container.workers.workers().workers) < count:
        if time.monotonic() > deadline:
            raise SystemExit(f"only {len(found)} of {count} workers registered")
        time.sleep(0.2)
    say(f"{count} workers are ready")
    time.sleep(2.0)  # whoever registered last has begun to listen by then


def _measure(container: Container, rounds: int) -> list[float]:
    """Millisecond from commit to claim of each submission."""
    taken = []
    with engines.connect(container.database_url) as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT")
        for number in range(rounds + 1):
            time.sleep(PAUSE_SECONDS)
            version = container.publish.submit(noop_spec(f"bench/n{number}", seed=number), by=SERVER)
            committed = time.time()
            while (claimed := connection.execute(_CLAIMED, {"build": version.builds[0].id}).scalar()) is None:
                time.sleep(0.01)
            if number:  # the first opens connections
                taken.append((float(claimed) - committed) * 1000)
                say(f"{taken[-1]:7.1f} ms")
    return taken


if __name__ == "__main__":
    main()
