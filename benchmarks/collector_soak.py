"""A soak of the blob collector: collections at a grace near zero, beside publishes, pulls, deletions and kill -9.

Processes of their own publish, delete and move aliases (each its own model), pull what the others publish, and collect
without a pause; this process kills a collecting one again and again, and now and then a publisher. Weights and code are
drawn from few values, so that deletions leave blobs unreferenced that the next publish refers to again: the race that
broke 40 pushes in the published soak of quay (docs/facts/storage.md). A pull reads every blob of an artifact and compares
digests; an artifact is broken if that fails while its version exists. At the end all leases expire, and what a last
collection leaves must be what is referenced.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from common import report, say  # noqa: E402
from pt2hub.domain.digests import Digest, digest_bytes  # noqa: E402
from pt2hub.domain.tokens import Actor  # noqa: E402
from pt2hub.errors import BlobGone, Conflict, NotFound, Pt2hubError, TransientError  # noqa: E402
from pt2hub.server.blobs.local import LocalStorage  # noqa: E402
from pt2hub.server.container import Container  # noqa: E402
from pt2hub.server.db import engine as engines  # noqa: E402
from pt2hub.server.db import migrations  # noqa: E402
from pt2hub.server.db.embedded import EmbeddedPostgres  # noqa: E402
from pt2hub.server.db.queue import BuildQueue  # noqa: E402
from pt2hub.server.services.blobs.documents import named_by, read_manifest  # noqa: E402
from pt2hub.system.processes import die_with_parent  # noqa: E402
from support.registry import Registry  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.process import BaseProcess
    from multiprocessing.sharedctypes import Synchronized

EVENTS = 100_000
COLLECTIONS = 481
PUBLISHERS = 2
PULLERS = 1
COLLECTORS = 2
KEPT_VERSIONS = 12
"""Versions of each model, about; older ones are deleted."""
BETWEEN_KILLS_S = (4.0, 14.0)
_SAID_EVERY_S = 15.0
PULLS_PER_PUBLISH = 4
GRACE = timedelta(milliseconds=50)
ADMIN = Actor("soak", admin=True)
WEIGHTS = [b"weights %d " % number * 400 for number in range(6)]
CODE = [b"code %d " % number * 400 for number in range(20)]
_spawn = multiprocessing.get_context("spawn")


class Counters:
    """Counts over all processes."""

    def __init__(self) -> None:
        self.publishes, self.pulls, self.deletions, self.moves, self.uploads = (
            _spawn.Value("q", 0) for _ in range(5)
        )
        self.collections, self.repeats, self.broken, self.errors = (_spawn.Value("q", 0) for _ in range(4))
        self.kills = _spawn.Value("q", 0)

    @property
    def events(self) -> int:
        """Publishes, pulls, deletions, moves and uploads."""
        return sum(
            each.value for each in (self.publishes, self.pulls, self.deletions, self.moves, self.uploads)
        )


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=EVENTS, help=f"least events (default {EVENTS})")
    parser.add_argument(
        "--collections",
        type=int,
        default=COLLECTIONS,
        help=f"least whole collections (default {COLLECTIONS})",
    )
    parser.add_argument("--seed", type=int, default=1, help="of the random choices")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="pt2hub-soak-") as name,
        EmbeddedPostgres(Path(name) / "pg") as pg,
    ):
        migrations.upgrade(pg.url)
        root, counters, began = Path(name) / "blobs", Counters(), time.monotonic()
        _soak(pg.url, root, counters, options)
        broken, orphans, versions = _verify(pg.url, root)
        counts = {name: value.value for name, value in vars(counters).items()}
        whole = counters.events >= options.events and counters.collections.value >= options.collections
        report(
            "collector_soak",
            events=counters.events,
            **counts,
            versions_left=versions,
            broken_at_the_end=broken,
            orphans=orphans,
            seconds=round(time.monotonic() - began),
            ok=whole and not (counters.broken.value or broken or orphans or counters.errors.value),
        )


def _soak(url: str, root: Path, counters: Counters, options: argparse.Namespace) -> None:
    """Run the processes until there were enough events and collections."""
    stop, random_ = _spawn.Event(), random.Random(options.seed)
    roles: list[tuple[Callable[..., None], int]] = [
        *((publish, number) for number in range(PUBLISHERS)),
        *((pull, number) for number in range(PULLERS)),
        *((collect, number) for number in range(COLLECTORS)),
    ]

    def start(role: Callable[..., None], number: int) -> BaseProcess:
        process = _spawn.Process(
            target=role, args=(url, str(root), counters, stop, number, random_.random()), daemon=True
        )
        process.start()
        return process

    running = [(role, number, start(role, number)) for role, number in roles]
    said = kill_at = 0.0
    while counters.events < options.events or counters.collections.value < options.collections:
        time.sleep(1)
        if time.monotonic() - said > _SAID_EVERY_S:
            said = time.monotonic()
            say(
                f"{counters.events} events, {counters.collections.value} collections, {counters.kills.value} kills"
            )
        if time.monotonic() < kill_at:
            continue
        kill_at = time.monotonic() + random_.uniform(*BETWEEN_KILLS_S)
        place = random_.choice([*range(PUBLISHERS + PULLERS, len(running)), random_.randrange(PUBLISHERS)])
        role, number, process = running[place]
        if role is collect or random_.random() < 0.1:
            os.kill(process.pid or 0, signal.SIGKILL)
            process.join()
            counters.kills.value += 1
            running[place] = (role, number, start(role, number))
    stop.set()
    for _, _, process in running:
        process.join(60)
        if process.is_alive():
            process.kill()


@contextmanager
def _registry(url: str, root: str) -> Iterator[Registry]:
    die_with_parent()
    engine = engines.create(url)
    container = Container(
        engines.Sessions(engine),
        BuildQueue(url),
        LocalStorage(Path(root)),
        heartbeat_timeout=timedelta(hours=1),
    )
    try:
        yield Registry(container, url)
    finally:
        engine.dispose()


def publish(url: str, root: str, counters: Counters, stop: Any, number: int, seed: float) -> None:
    """Publish versions of one model, delete old ones, move its alias, and upload what nothing needs."""
    random_, model = random.Random(seed), f"soak/model{number}"
    with _registry(url, root) as registry:
        while not stop.is_set():
            try:
                _publish_one(registry, model, random_, counters)
                if random_.random() < 0.3:
                    _move(registry, model, random_, counters)
                _delete_old(registry, model, random_, counters)
            except TransientError:
                time.sleep(0.1)
            except Pt2hubError as error:
                say(f"publisher {number}: {error.code}: {error}")
                _add(counters.errors)


def _publish_one(registry: Registry, model: str, random_: random.Random, counters: Counters) -> None:
    seed = random_.randrange(1 << 40)
    view = registry.submit(model=model, source={"factory": "torchvision.models:resnet18", "seed": seed})
    weights, code = random_.choice(WEIGHTS), random_.choice(CODE)
    claim = registry.claim(view.builds[0].id, f"worker-{model.rpartition('/')[2]}")
    while True:
        publication = registry.publication(claim, code=code, weights_data=weights, key=str(seed))
        if random_.random() < 0.1:  # the lease is over before it is published: six hours in a moment
            registry.sql("DELETE FROM blob_leases WHERE holder = %s", claim.holder)
        try:
            registry.services.builds.publish(claim, publication)
        except BlobGone:
            _add(counters.repeats)
            continue
        _add(counters.publishes)
        break
    if random_.random() < 0.3:
        registry.blob(b"upload %d" % random_.randrange(50))
        registry.sql("DELETE FROM blob_leases WHERE holder = 'api'")
        _add(counters.uploads)


def _move(registry: Registry, model: str, random_: random.Random, counters: Counters) -> None:
    numbers = [
        each.number for each in registry.services.catalog.versions(model, limit=KEPT_VERSIONS).versions
    ]
    try:
        now = registry.services.aliases.alias(model, "prod").number
    except NotFound:
        now = None
    try:
        registry.services.aliases.move(
            model, "prod", random_.choice(numbers), expected=now, reason="soak", by=ADMIN
        )
    except (Conflict, NotFound):
        return
    _add(counters.moves)


def _delete_old(registry: Registry, model: str, random_: random.Random, counters: Counters) -> None:
    rows = registry.sql(
        """SELECT number FROM versions JOIN models ON models.id = model_id WHERE name = %s
        ORDER BY number DESC OFFSET %s LIMIT 5""",
        model,
        KEPT_VERSIONS,
    )
    for (number,) in rows:
        for (build,) in registry.sql(
            """SELECT builds.id FROM builds JOIN versions ON versions.id = version_id JOIN models ON models.id = model_id
            WHERE name = %s AND number = %s AND state IN ('queued', 'running')""",
            model,
            number,
        ):
            registry.services.builds.cancel(build, ADMIN)  # of a publisher that was killed
        try:
            if random_.random() < 0.2:
                registry.services.yanks.yank(model, number, reason="soak", by=ADMIN)
            registry.services.deletion.version(model, number, by=ADMIN, reason="soak")
        except (Conflict, NotFound):
            continue
        _add(counters.deletions)


def pull(url: str, root: str, counters: Counters, stop: Any, number: int, seed: float) -> None:
    """Pull random versions, every blob with its digest."""
    del seed  # PostgreSQL chooses
    with _registry(url, root) as registry:
        while not stop.is_set():
            rows = registry.sql(
                """SELECT artifacts.digest FROM artifacts OFFSET
                floor(random() * greatest((SELECT count(*) FROM artifacts), 1)) LIMIT 1"""
            )
            for (manifest,) in rows:
                if not _is_whole(registry, Digest(manifest)):
                    _add(counters.broken)
                    say(f"puller {number}: {manifest} is broken")
                _add(counters.pulls)
            if not rows or counters.pulls.value > PULLS_PER_PUBLISH * counters.publishes.value:
                time.sleep(0.05)


def _is_whole(registry: Registry, manifest: Digest) -> bool:
    """Return whether every blob of an artifact is readable and right, or the artifact was deleted meanwhile."""
    storage = registry.services.storage
    try:
        whole = all(
            digest_bytes(b"".join(storage.read(key))) == key.digest
            for key in named_by(read_manifest(storage, manifest))
        )
    except NotFound:
        whole = False
    return whole or not registry.sql("SELECT FROM artifacts WHERE digest = %s", manifest)


def collect(url: str, root: str, counters: Counters, stop: Any, number: int, seed: float) -> None:
    """Collect without a pause."""
    del seed
    with _registry(url, root) as registry:
        while not stop.is_set():
            try:
                registry.services.collector.collect(grace=GRACE)
            except TransientError:
                time.sleep(0.1)
            except Pt2hubError as error:
                say(f"collector {number}: {error.code}: {error}")
                _add(counters.errors)
            else:
                _add(counters.collections)


def _verify(url: str, root: Path) -> tuple[int, int, int]:
    """Return broken artifacts, orphans, and versions, once everything is quiet."""
    with _registry(url, str(root)) as registry:
        registry.sql("UPDATE blob_leases SET pending_until = now() - interval '1 second'")
        time.sleep(1)
        for _ in range(2):
            registry.services.collector.collect(grace=timedelta())
        artifacts = [Digest(digest) for (digest,) in registry.sql("SELECT digest FROM artifacts")]
        broken = sum(not _is_whole(registry, digest) for digest in artifacts)
        needed = set(registry.sql("SELECT kind, digest FROM blob_references"))
        storage = registry.services.storage
        objects = [key for kind in ("blobs", "manifests") for key in storage.keys(kind)]  # type: ignore[arg-type]
        there = {(key.kind, key.digest) for key in objects}
        orphans = len(there - needed) + len(objects) - len(there)
        return broken + len(needed - there), orphans, len(artifacts)


def _add(counter: Synchronized[int]) -> None:
    with counter.get_lock():
        counter.value += 1


if __name__ == "__main__":
    main()
