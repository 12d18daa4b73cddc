"""The composition root: the API, admin commands and workers all get their services here."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from pt2hub.domain.specs import DEFAULT_FACTORIES
from pt2hub.server.blobs.opening import open_storage
from pt2hub.server.blobs.ports import Storage, Transfers
from pt2hub.server.config import DEFAULT_MAX_BLOB_BYTES
from pt2hub.server.db import engine as engines
from pt2hub.server.db.queue import BuildQueue
from pt2hub.server.services.access import AccessService
from pt2hub.server.services.aliases import AliasService
from pt2hub.server.services.blobs import BlobService
from pt2hub.server.services.briefs import BriefService
from pt2hub.server.services.builds import BuildService
from pt2hub.server.services.catalog import CatalogService
from pt2hub.server.services.charting import ChartingService
from pt2hub.server.services.comparing import ComparingService
from pt2hub.server.services.generated import GeneratedService
from pt2hub.server.services.health import HealthService
from pt2hub.server.services.inspecting import InspectingService
from pt2hub.server.services.isolation import IsolationService
from pt2hub.server.services.key_audits import KeyAuditService
from pt2hub.server.services.log_windows import LogWindowService
from pt2hub.server.services.logs import LogService
from pt2hub.server.services.measuring import MeasuringService
from pt2hub.server.services.overview import OverviewService
from pt2hub.server.services.performance import PerformanceService
from pt2hub.server.services.policies import PolicyService
from pt2hub.server.services.publish import PublishService
from pt2hub.server.services.reindex import ReindexService
from pt2hub.server.services.reports import ReportService
from pt2hub.server.services.resolve import ResolveService
from pt2hub.server.services.single_file import SingleFileService
from pt2hub.server.services.statistics import StatisticsService
from pt2hub.server.services.upkeep import LEFT_SECONDS, Hourly, UpkeepService
from pt2hub.server.services.uploads import UploadService
from pt2hub.server.services.web_sessions import WebSessionService
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
        log_windows: Parts of them, for who leafs through them.
        catalog: Lists of models, versions and builds.
        aliases: Movable names on versions.
        resolve: References, manifests and artifacts.
        briefs: The artifacts of a version in brief.
        single_file: The one `model.pt2` of an artifact.
        inspecting: What is in an artifact, for people.
        generated: Its generated sources, likewise.
        workers: Who lives, what they offer and what they do.
        isolation: How much workers must confine what they run.
        upkeep: What lost workers leave behind, and what nobody needs any more; `Reaper` calls it.
        performance: Histories of figures.
        charting: Charts of them.
        overview: Models at a glance, and how all of them do.
        comparing: Comparisons of artifacts, and flagged changes.
        measuring: Jobs that time artifacts again.
        policies: What models' owners demand of performance.
        reports: Figures that others took.
        statistics: What is counted.
        health: Whether this process can do its work.
        access: API tokens.
        web_sessions: Browsers that signed in with one.
        reindex: Rebuilding rows from the storage.
        key_audits: Which artifacts reuse code that may not be their own.
        blobs: Storing bytes so that they stay until they are referred to.
        uploads: Uploads of clients that reach the storage by themselves; closed with the container.
        storage: Blobs and manifests, to be read.
        queue: Puts builds into the queue.
        database_url: Where listeners and consumers connect to by themselves.
    """

    publish: PublishService
    builds: BuildService
    logs: LogService
    log_windows: LogWindowService
    catalog: CatalogService
    aliases: AliasService
    resolve: ResolveService
    briefs: BriefService
    single_file: SingleFileService
    inspecting: InspectingService
    generated: GeneratedService
    workers: WorkerService
    isolation: IsolationService
    upkeep: UpkeepService
    performance: PerformanceService
    charting: ChartingService
    overview: OverviewService
    comparing: ComparingService
    measuring: MeasuringService
    policies: PolicyService
    reports: ReportService
    statistics: StatisticsService
    health: HealthService
    access: AccessService
    web_sessions: WebSessionService
    reindex: ReindexService
    key_audits: KeyAuditService
    blobs: BlobService
    uploads: UploadService
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
    storage = open_storage(config.storage, public_endpoint=config.s3_public_endpoint_url)
    engine = engines.create(database_url)
    container = compose(
        engines.Sessions(engine),
        BuildQueue(database_url),
        storage,
        silence=timedelta(seconds=config.lost_worker_seconds),
        factories=config.factories,
        max_blob_bytes=config.max_blob_bytes,
    )
    try:
        yield container
    finally:
        container.uploads.close()
        engine.dispose()


def compose(
    sessions: engines.Sessions,
    queue: BuildQueue,
    storage: Storage,
    *,
    silence: timedelta,
    factories: tuple[str, ...] = DEFAULT_FACTORIES,
    max_blob_bytes: int = DEFAULT_MAX_BLOB_BYTES,
) -> Container:
    """The services over parts that exist already; tests give a storage of their own.

    Args:
        sessions: Opens transactions.
        queue: Takes builds.
        storage: Blobs and manifests.
        silence: Time without a heartbeat after which a worker is lost.
        factories: Modules whose factories a spec may name.
        max_blob_bytes: Largest upload.
    """
    base = _base(sessions, storage, silence=silence, limit=max_blob_bytes)
    return Container(
        publish=PublishService(sessions, queue, storage, silence=silence, factories=factories),
        builds=BuildService(sessions, queue, storage, silence=silence),
        logs=base.logs,
        log_windows=LogWindowService(sessions, storage),
        catalog=CatalogService(sessions, silence=silence),
        aliases=AliasService(sessions),
        resolve=base.resolve,
        briefs=BriefService(sessions, storage),
        single_file=SingleFileService(sessions, storage),
        inspecting=InspectingService(sessions, storage, silence=silence),
        generated=GeneratedService(sessions, storage),
        workers=WorkerService(sessions, queue, silence=silence),
        isolation=IsolationService(sessions),
        upkeep=_upkeep(sessions, queue, base, silence=silence),
        performance=base.performance,
        charting=ChartingService(sessions),
        overview=OverviewService(sessions, base.performance.trends, silence=silence),
        comparing=base.comparing,
        measuring=MeasuringService(sessions, queue, base.resolve, silence=silence),
        policies=PolicyService(sessions),
        reports=ReportService(sessions),
        statistics=base.statistics,
        health=HealthService(sessions, storage, database_url=queue.database_url),
        access=base.access,
        web_sessions=base.web_sessions,
        reindex=ReindexService(sessions, storage),
        key_audits=KeyAuditService(sessions, storage),
        blobs=base.blobs,
        uploads=base.uploads,
        storage=storage,
        queue=queue,
        database_url=queue.database_url,
    )


@dataclass(frozen=True, slots=True)
class _Base:
    """Services that others are built on; what each is for says `Container`."""

    access: AccessService
    blobs: BlobService
    comparing: ComparingService
    logs: LogService
    performance: PerformanceService
    resolve: ResolveService
    statistics: StatisticsService
    storage: Storage
    uploads: UploadService
    web_sessions: WebSessionService


def _base(sessions: engines.Sessions, storage: Storage, *, silence: timedelta, limit: int) -> _Base:
    blobs = BlobService(sessions, storage)
    access = AccessService(sessions)
    resolve = ResolveService(sessions, storage)
    transfers = storage if isinstance(storage, Transfers) else None
    return _Base(
        access=access,
        blobs=blobs,
        comparing=ComparingService(sessions, resolve.resolve),
        logs=LogService(sessions, storage, blobs),
        performance=PerformanceService(sessions),
        resolve=resolve,
        statistics=StatisticsService(sessions, silence=silence),
        storage=storage,
        uploads=UploadService(sessions, blobs, transfers, limit=limit),
        web_sessions=WebSessionService(sessions, access),
    )


def _upkeep(
    sessions: engines.Sessions, queue: BuildQueue, base: _Base, *, silence: timedelta
) -> UpkeepService:
    """Upkeep, with what the other services leave behind as its chores."""
    return UpkeepService(
        sessions,
        queue,
        silence=silence,
        archive=base.logs.archive,
        chores=(
            base.statistics.add_up,
            base.comparing.examine,
            base.uploads.sweep,
            base.blobs.tidy,
            Hourly(lambda: base.storage.sweep(LEFT_SECONDS)),
            Hourly(base.web_sessions.sweep),
        ),
    )
