"""Composition root with the services of the API, admin commands and workers."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import TYPE_CHECKING

from pt2hub.domain.publishing.spec import DEFAULT_FACTORIES
from pt2hub.server.blobs.open import open_storage
from pt2hub.server.blobs.ports import PresignedTransfers
from pt2hub.server.config import DEFAULT_MAX_BLOB_BYTES
from pt2hub.server.db import engine as engines
from pt2hub.server.db.queue import BuildQueue
from pt2hub.server.services.access.tokens import AccessService
from pt2hub.server.services.access.web_sessions import WebSessionService
from pt2hub.server.services.artifacts.artifact_summaries import ArtifactSummaryService
from pt2hub.server.services.artifacts.generated_sources import GeneratedSourceService
from pt2hub.server.services.artifacts.inspection import InspectionService
from pt2hub.server.services.artifacts.resolution import ResolutionService
from pt2hub.server.services.artifacts.single_file import SingleFileService
from pt2hub.server.services.blobs.blob_writes import BlobService
from pt2hub.server.services.blobs.uploads import UploadService
from pt2hub.server.services.builds.build_service import BuildService
from pt2hub.server.services.builds.log_windows import LogWindowService
from pt2hub.server.services.builds.logs import LogService
from pt2hub.server.services.operations.health import HealthService
from pt2hub.server.services.operations.isolation import IsolationService
from pt2hub.server.services.operations.key_audits import KeyAuditService
from pt2hub.server.services.operations.maintenance import ABANDONED_AFTER_S, HourlyTask, MaintenanceService
from pt2hub.server.services.operations.reindex import ReindexService
from pt2hub.server.services.operations.statistics import StatisticsService
from pt2hub.server.services.operations.workers import WorkerService
from pt2hub.server.services.performance.charts import ChartService
from pt2hub.server.services.performance.comparisons import ComparisonService
from pt2hub.server.services.performance.history import PerformanceService
from pt2hub.server.services.performance.measuring_jobs import MeasuringJobService
from pt2hub.server.services.performance.reports import ReportService
from pt2hub.server.services.promotion.aliases import AliasService
from pt2hub.server.services.promotion.policies import PolicyService
from pt2hub.server.services.publishing.catalog import CatalogService
from pt2hub.server.services.publishing.overview import OverviewService
from pt2hub.server.services.publishing.publish import PublishService

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.server.blobs.ports import Storage
    from pt2hub.server.config import ServerConfig


class Container:
    """The services of a process.

    Args:
        storage: Where blobs are; tests give one of their own.
        heartbeat_timeout: Time without a heartbeat after which a worker is lost.
    """

    def __init__(
        self,
        sessions: engines.Sessions,
        queue: BuildQueue,
        storage: Storage,
        *,
        heartbeat_timeout: timedelta,
        factories: tuple[str, ...] = DEFAULT_FACTORIES,
        max_blob_bytes: int = DEFAULT_MAX_BLOB_BYTES,
    ) -> None:
        self.storage = storage
        self.queue = queue
        self.database_url = queue.database_url

        # Publishing
        self.publish = PublishService(
            sessions, queue, storage, heartbeat_timeout=heartbeat_timeout, factories=factories
        )
        self.catalog = CatalogService(sessions, heartbeat_timeout=heartbeat_timeout)
        self.resolve = ResolutionService(sessions, storage)
        self.key_audits = KeyAuditService(sessions, storage)

        # Blobs and artifacts
        self.blobs = BlobService(sessions, storage)
        transfers = storage if isinstance(storage, PresignedTransfers) else None
        self.uploads = UploadService(sessions, self.blobs, transfers, limit=max_blob_bytes)
        self.single_file = SingleFileService(sessions, storage)
        self.artifact_summaries = ArtifactSummaryService(sessions)
        self.inspection = InspectionService(sessions, storage, heartbeat_timeout=heartbeat_timeout)
        self.generated_sources = GeneratedSourceService(sessions, storage)
        self.reindex = ReindexService(sessions, storage)

        # Builds and workers
        self.builds = BuildService(sessions, queue, storage, heartbeat_timeout=heartbeat_timeout)
        self.logs = LogService(sessions, storage, self.blobs)
        self.log_windows = LogWindowService(sessions, storage)
        self.workers = WorkerService(sessions, queue, heartbeat_timeout=heartbeat_timeout)
        self.isolation = IsolationService(sessions)

        # Performance and promotion
        self.performance = PerformanceService(sessions)
        self.charts = ChartService(sessions)
        self.comparisons = ComparisonService(sessions, self.resolve.resolve)
        self.measuring_jobs = MeasuringJobService(
            sessions, queue, self.resolve, heartbeat_timeout=heartbeat_timeout
        )
        self.reports = ReportService(sessions)
        self.overview = OverviewService(
            sessions, self.performance.trends, heartbeat_timeout=heartbeat_timeout
        )
        self.aliases = AliasService(sessions)
        self.policies = PolicyService(sessions)

        # Access and operations
        self.access = AccessService(sessions)
        self.web_sessions = WebSessionService(sessions, self.access)
        self.statistics = StatisticsService(sessions, heartbeat_timeout=heartbeat_timeout)
        self.health = HealthService(sessions, storage, database_url=queue.database_url)
        self.maintenance = MaintenanceService(
            sessions,
            queue,
            heartbeat_timeout=heartbeat_timeout,
            archive=self.logs.archive,
            chores=(
                self.statistics.add_up,
                self.comparisons.examine,
                self.uploads.sweep,
                self.blobs.tidy,
                HourlyTask(lambda: storage.sweep(ABANDONED_AFTER_S)),
                HourlyTask(self.web_sessions.sweep),
            ),
        )


@contextlib.contextmanager
def open_container(config: ServerConfig, *, database_url: str) -> Iterator[Container]:
    """Build the services of a process and close their connections at the end.

    Args:
        database_url: `postgresql://...`; with the embedded PostgreSQL only its starter knows it.

    Raises:
        BadConfiguration: A setting cannot be used.
    """
    storage = open_storage(config.storage, public_endpoint=config.s3_public_endpoint_url)
    engine = engines.create(database_url)
    container = Container(
        engines.Sessions(engine),
        BuildQueue(database_url),
        storage,
        heartbeat_timeout=timedelta(seconds=config.lost_worker_seconds),
        factories=config.factories,
        max_blob_bytes=config.max_blob_bytes,
    )
    try:
        yield container
    finally:
        container.uploads.close()
        engine.dispose()
