"""Writes the story into a server: bytes into its storage, then rows into its database, in one transaction."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING

import psycopg
from sqlalchemy import text

from pt2hub.domain.targets import parse_target
from pt2hub.errors import InvalidInput
from pt2hub.server.db import engine as engines
from pt2hub.server.db.stores.blobs import BlobStore
from pt2hub.server.db.stores.workers import WorkerStore
from pt2hub.server.demo import plan, present
from pt2hub.server.demo.artifacts import Bytes
from pt2hub.server.demo.history import History
from pt2hub.server.demo.models import TEAM_PREFIX
from pt2hub.server.demo.rows import Rows
from pt2hub.server.demo.writing import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy.orm import Session

    from pt2hub.server.blobs.keys import StorageKey
    from pt2hub.server.blobs.ports import Writes
    from pt2hub.server.container import Container

_DEMO = text(f"SELECT name FROM models WHERE name LIKE '{TEAM_PREFIX}%' LIMIT 1")  # noqa: S608  # a literal
_OTHER = text(f"SELECT name FROM models WHERE name NOT LIKE '{TEAM_PREFIX}%' LIMIT 1")  # noqa: S608  # a literal
_NOW = text("SELECT clock_timestamp()")
_PATIENT = text("SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL statement_timeout = '10min'")
"""The year is made up and its documents are stored within one transaction: minutes on a busy machine, or over S3."""
_WRITERS = 8
"""Threads that write into the storage: a local one waits for the disk, another one for the network."""


@dataclass(frozen=True, slots=True)
class Demo:
    """What was written.

    Attributes:
        models: So many models.
        versions: Of all of them.
        builds: Measuring jobs too.
        artifacts: Of all builds.
        measurements: Of all artifacts.
        changes: Flagged ones.
    """

    models: int
    versions: int
    builds: int
    artifacts: int
    measurements: int
    changes: int


def seed(
    container: Container,
    *,
    database_url: str,
    beside: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Demo:
    """Fills a server with the made-up year; its last day is today.

    Args:
        container: The server's services.
        database_url: `postgresql://...`; its schema is up to date.
        beside: Also beside other models.
        say: Told how far it is.

    Raises:
        InvalidInput: There are other models, or the demo is there already.
        DatabaseUnavailable: The database does not answer.
        StorageUnavailable: The storage does not answer.
    """
    engine = engines.create(database_url)
    try:
        with engines.Sessions(engine).begin() as session:
            _refuse_others(session, beside=beside)
            written = _write(session, container, say)
        with engines.translated(), psycopg.connect(engines.conninfo(database_url), autocommit=True) as own:
            own.execute("ANALYZE")  # many rows came at once: until it is told, the planner expects none
    finally:
        engine.dispose()
    return written


def _write(session: Session, container: Container, say: Callable[[str], None]) -> Demo:
    session.execute(_PATIENT)
    now = session.execute(_NOW).scalar_one().astimezone(UTC)
    connection = session.connection().connection.dbapi_connection
    assert isinstance(connection, psycopg.Connection), "the engine's driver is psycopg"
    rows, found = Rows(connection), Bytes()
    writer = Writer(rows, found, History(rows, now), now)
    for versions in plan.stories(now):
        writer.model(versions)
        say(f"{versions[0].model.name}: {len(versions)} versions")
    present.write_workers(rows, writer.history, now)
    writer.history.write()
    say(f"{len(found.found)} documents for the storage")
    _store(container.storage, found.found)
    BlobStore(session).restore({key.at(1): len(data) for key, data in found.found.items()})
    _known(session, writer)
    rows.write()
    for build, target in writer.queued:
        container.queue.defer(session, build, queue=target)
    return _counted(rows)


def _known(session: Session, writer: Writer) -> None:
    """Makes targets and environments known, which may be there already."""
    store = WorkerStore(session)
    for name in sorted(writer.targets | {present.NEVER_OFFERED}):
        store.add_target(parse_target(name))
    for digest in sorted(writer.history.environments):
        store.add_environment(writer.history.environments[digest])


def _store(storage: Writes, found: Mapping[StorageKey, bytes]) -> None:
    """Writes bytes, blobs before manifests: whoever lists manifests must find what they name."""
    for kind in ("blobs", "manifests"):
        with ThreadPoolExecutor(_WRITERS) as pool:
            chosen = [(key, data) for key, data in found.items() if key.kind == kind]
            list(pool.map(lambda item: storage.write(item[0], [item[1]]), chosen))


def _counted(rows: Rows) -> Demo:
    names = ("models", "versions", "builds", "artifacts", "measurements", "performance_events")
    return Demo(*(rows.count(name) for name in names))


def _refuse_others(session: Session, *, beside: bool) -> None:
    demo, other = session.scalar(_DEMO), session.scalar(_OTHER)
    if demo:
        raise InvalidInput(
            "This server has the demo already",
            where=str(demo),
            hint="Seed another one: set PT2HUB_HOME or PT2HUB_DATABASE_URL; no command takes the demo away again.",
        )
    if other and not beside:
        raise InvalidInput(
            "This server has models that are not made up",
            where=str(other),
            hint="Seed an empty server (PT2HUB_HOME, PT2HUB_DATABASE_URL), or add --beside: nothing takes it away again.",
        )
