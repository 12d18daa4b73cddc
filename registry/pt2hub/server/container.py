"""The composition root: the API, admin commands and workers all get their services here."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from pt2hub.domain.specs import DEFAULT_FACTORIES
from pt2hub.server.blobs.opening import open_storage
from pt2hub.server.blobs.ports import Storage
from pt2hub.server.db import engine as engines
from pt2hub.server.db.queue import BuildQueue
from pt2hub.server.services.access import AccessService
from pt2hub.server.services.aliases import AliasService
from pt2hub.server.services.builds import BuildService
from pt2hub.server.services.catalog import CatalogService
from pt2hub.server.services.health import HealthService
from pt2hub.server.services.logs import LogService
from pt2hub.server.services.publish import PublishService
from pt2hub.server.services.reindex import ReindexService
from pt2hub.server.services.resolve import ResolveService
from pt2hub.server.services.single_file import SingleFileService
from pt2hub.server.services.statistics import StatisticsService
from pt2hub.server.services.upkeep import UpkeepService
from pt2hub.server.services.workers import WorkerService

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.server.config import ServerConfig


@dataclass(frozen=True, slots=True)
class Container:
    """A process's services.

    Attributes:
        publish: Submissions of specs, and versions.
        builds: Builds, as people follow and steer them and workers do them.
        logs: Logs of builds.
        catalog: Lists of models, versions and builds.
        aliases: Movable names on versions.
        resolve: References, manifests and artifacts.
        single_file: The one `model.pt2` of an artifact.
        workers: Who lives, what they offer and what they do.
        upkeep: What lost workers leave behind, and what nobody needs any more; `Reaper` calls it.
        statistics: What is counted.
        health: Whether this process can do its work.
        access: API tokens.
        reindex: Rebuilding rows from the storage.
        storage: Blobs and manifests.
        queue: Puts builds into the queue.
        database_url: Where listeners and consumers connect to by themselves.
    """

    publish: PublishService
    builds: BuildService
    logs: LogService
    catalog: CatalogService
    aliases: AliasService
    resolve: ResolveService
    single_file: SingleFileService
    workers: WorkerService
    upkeep: UpkeepService
    statistics: StatisticsService
    health: HealthService
    access: AccessService
    reindex: ReindexService
    storage: Storage
    queue: BuildQueue
    database_url: str


@contextlib.contextmanager
def open_container(config: ServerConfig, *, database_url: str) -> Iterator[Container]:
    """Builds the services of a process and closes their connections at the end.

    Args:
        config: The server's settings.
        database_url: `postgresql://...`; with the embedded PostgreSQL only its starter knows it.

    Raises:
        BadConfiguration: A setting cannot be used.
    """
    storage = open_storage(config.storage)
    engine = engines.create(database_url)
    try:
        yield compose(
            engines.Sessions(engine),
            BuildQueue(database_url),
            storage,
            silence=timedelta(seconds=config.lost_worker_seconds),
            factories=config.factories,
        )
    finally:
        engine.dispose()


def compose(
    sessions: engines.Sessions,
    queue: BuildQueue,
    storage: Storage,
    *,
    silence: timedelta,
    factories: tuple[str, ...] = DEFAULT_FACTORIES,
) -> Container:
    """The services over parts that exist already; tests give a storage of their own.

    Args:
        sessions: Opens transactions.
        queue: Takes builds.
        storage: Blobs and manifests.
        silence: Time without a heartbeat after which a worker is lost.
        factories: Modules whose factories a spec may name.
    """
    logs = LogService(sessions, storage)
    statistics = StatisticsService(sessions, silence=silence)
    return Container(
        publish=PublishService(sessions, queue, storage, silence=silence, factories=factories),
        builds=BuildService(sessions, queue, storage, silence=silence),
        logs=logs,
        catalog=CatalogService(sessions, silence=silence),
        aliases=AliasService(sessions),
        resolve=ResolveService(sessions, storage),
        single_file=SingleFileService(sessions, storage),
        workers=WorkerService(sessions, queue, silence=silence),
        upkeep=UpkeepService(
            sessions, queue, silence=silence, archive=logs.archive, add_up=statistics.add_up
        ),
        statistics=statistics,
        health=HealthService(sessions, storage, database_url=queue.database_url),
        access=AccessService(sessions),
        reindex=ReindexService(sessions, storage),
        storage=storage,
        queue=queue,
        database_url=queue.database_url,
    )
