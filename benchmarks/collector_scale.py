"""A collection over a million rows of blobs with one per cent of garbage: time, memory, and publishes beside it.

The collection runs in a process of its own, which prints its memory after each batch. Publishes (lease, write, confirm,
refer) run in this one before and during it. Objects exist for the garbage, or with `--objects` for all rows, which takes
some minutes to write and shows what listing costs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from common import report, say
from pt2hub.domain.digests import digest_bytes
from pt2hub.domain.storage import CollectionSchedule
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.blobs.local import LocalStorage
from pt2hub.server.db import engine as engines
from pt2hub.server.db import migrations
from pt2hub.server.db.embedded import EmbeddedPostgres
from pt2hub.server.db.stores.blobs.blobs import BlobStore
from pt2hub.server.services.blobs.blob_writes import BlobChunk, BlobService
from pt2hub.server.services.blobs.collection import CollectorService
from pt2hub.system.processes import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable

    from pt2hub.wire.collections import CollectionReport

PUBLISHES = 300
BLOBS_OF_A_PUBLISH = 12
GARBAGE_OF = 100
GOAL_S = 600.0
_ROWS = """
    INSERT INTO blobs (kind, digest, state, size, changed_at)
    SELECT 'blobs', 'sha256:' || encode(sha256(CAST(CAST(number AS text) AS bytea)), 'hex'), 'stored', 7,
        now() - interval '2 days'
    FROM generate_series(1, %s) AS number"""
_REFERENCES = """
    INSERT INTO blob_references (kind, digest, owner)
    SELECT 'blobs', 'sha256:' || encode(sha256(CAST(CAST(number AS text) AS bytea)), 'hex'), 'artifact:' || number / 12
    FROM generate_series(1, %s) AS number WHERE number %% %s <> 0"""


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of blobs (default 1,000,000)")
    parser.add_argument(
        "--objects", action="store_true", help="write an object for each row, not only for garbage"
    )
    parser.add_argument("--collect", nargs=2, metavar=("URL", "ROOT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.collect:
        _collect(*options.collect)
        return
    with (
        tempfile.TemporaryDirectory(prefix="pt2hub-benchmark-") as name,
        EmbeddedPostgres(Path(name) / "pg") as pg,
    ):
        migrations.upgrade(pg.url)
        root = Path(name) / "blobs"
        _seed(pg.url, root, options.rows, every=1 if options.objects else GARBAGE_OF)
        _measure(pg.url, root, options.rows)


def _seed(url: str, root: Path, rows: int, *, every: int) -> None:
    began = time.monotonic()
    with psycopg.connect(engines.conninfo(url), autocommit=True) as connection:
        connection.execute(_ROWS, [rows])
        connection.execute(_REFERENCES, [rows, GARBAGE_OF])
        connection.execute("VACUUM ANALYZE")
    for number in range(every, rows + 1, every):
        path = root / StorageKey.blob(digest_bytes(str(number).encode())).path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"garbage")
    say(f"{rows} rows, {rows // every} objects in {time.monotonic() - began:.0f} s")


def _measure(url: str, root: Path, rows: int) -> None:
    publish = _publisher(url, root)
    before = [publish() for _ in range(PUBLISHES)]
    during: list[float] = []
    collector = subprocess.Popen(
        [sys.executable, __file__, "--collect", url, str(root)],
        stdout=subprocess.PIPE,
        text=True,
    )
    while collector.poll() is None:
        during.append(publish())
    assert collector.stdout is not None
    lines = [json.loads(line) for line in collector.stdout]
    *batches, result = lines
    quarter, last = batches[len(batches) // 4]["rss"], batches[-1]["rss"]
    alone, beside = statistics.median(before), statistics.median(during)
    report(
        "collector_scale",
        rows=rows,
        removed=result["removed"],
        listed=result["listed"],
        seconds=round(result["seconds"], 1),
        goal_s=GOAL_S,
        peak_mib=round(max(item["rss"] for item in batches) / 1024, 1),
        growth=round(last / quarter, 3),
        publish_ms={"alone": round(alone * 1e3, 2), "beside": round(beside * 1e3, 2), "n": len(during)},
        publish_ratio=round(beside / alone, 2),
        ok=result["removed"] == rows // GARBAGE_OF and result["seconds"] < GOAL_S,
    )


def _publisher(url: str, root: Path) -> Callable[[], float]:
    """Return what stores the blobs of an artifact, refers to them, and returns the seconds it took."""
    sessions, numbers = engines.Sessions(engines.create(url)), itertools.count()
    blobs = BlobService(sessions, LocalStorage(root))

    def publish() -> float:
        number, began = next(numbers), time.perf_counter()
        data = [b"%d of publish %d" % (part, number) for part in range(BLOBS_OF_A_PUBLISH)]
        chunks = [BlobChunk(StorageKey.blob(digest_bytes(item)), len(item), item) for item in data]
        blobs.store(chunks, holder=f"build:{number}:1")
        with sessions.begin() as session:
            BlobStore(session).refer({chunk.key: chunk.size for chunk in chunks}, f"artifact:new-{number}")
            BlobStore(session).drop(f"build:{number}:1")
        return time.perf_counter() - began

    return publish


def _collect(url: str, root: str) -> None:
    """Collect, as the child process; print the memory in KiB after each batch, and the report last."""
    die_with_parent()
    engine = engines.create(url)
    service = CollectorService(
        engines.Sessions(engine), LocalStorage(Path(root)), schedule=CollectionSchedule()
    )

    def note(_: CollectionReport) -> None:
        print(json.dumps({"rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}), flush=True)

    done = service.collect(grace=timedelta(hours=1), on_progress=note)
    print(json.dumps({"removed": done.removed, "listed": done.listed, "seconds": done.seconds}), flush=True)
    engine.dispose()


if __name__ == "__main__":
    main()
