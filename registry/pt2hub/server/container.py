"""Composition root with the services of the API, admin commands and workers."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import TYPE_CHECKING

from pt2hub.domain.limits import Limits
from pt2hub.domain.publishing.spec import DEFAULT_FACTORIES
from pt2hub.domain.storage import CollectionSchedule
from pt2hub.server.blobs.open import open_storage
from pt2hub.server.blobs.ports import PresignedTransfers
from pt2hub.server.config import DEFAULT_MAX_BLOB_BYTES, DEFAULT_SCRUB_BYTES_PER_S
from pt2hub.server.db import engine as engines
from pt2hub.server.db.queue import BuildQueue
from pt2hub.server.services.access.audit_log import AuditLogService
from pt2hub.server.services.access.devices import DeviceService
from pt2hub.server.services.access.issuers import HttpIssuers
from pt2hub.server.services.access.people import PeopleService
from pt2hub.server.services.access.rate_limits import RateLimitService
from pt2hub.server.services.access.roles import RoleService
from pt2hub.server.services.access.sign_in import SignInService
from pt2hub.server.services.access.token_management import TokenManagementService
from pt2hub.server.services.access.tokens import AccessService
from pt2hub.server.services.access.trust import TrustService
from pt2hub.server.services.access.visibility import VisibilityService
from pt2hub.server.services.access.web_sessions import WebSessionService
from pt2hub.server.services.artifacts.artifact_summaries import ArtifactSummaryService
from pt2hub.server.services.artifacts.call_profiles import CallProfileService
from pt2hub.server.services.artifacts.debug_logs import DebugLogService
from pt2hub.server.services.artifacts.generated_sources import GeneratedSourceService
from pt2hub.server.services.artifacts.host_checks import HostCheckService
from pt2hub.server.services.artifacts.inspection import InspectionService
from pt2hub.server.services.artifacts.kernels import KernelService
from pt2hub.server.services.artifacts.resolution import ResolutionService
from pt2hub.server.services.artifacts.single_file import SingleFileService
from pt2hub.server.services.blobs.blob_writes import BlobService
from pt2hub.server.services.blobs.collection import CollectorService
from pt2hub.server.services.blobs.damage import DamageService
from pt2hub.server.services.blobs.damage_reports import DamageReportService
from pt2hub.server.services.blobs.scrub import ScrubService
from pt2hub.server.services.blobs.tombstone_documents import TombstoneDocuments
from pt2hub.server.services.blobs.uploads import UploadService
from pt2hub.server.services.builds.build_service import BuildService
from pt2hub.server.services.builds.log_windows import LogWindowService
from pt2hub.server.services.builds.logs import LogService
from pt2hub.server.services.builds.old_logs import OldLogService
from pt2hub.server.services.builds.rebuilds import RebuildService
from pt2hub.server.services.builds.step_durations import StepDurationService
from pt2hub.server.services.operations.document_scrub import DocumentScrub
from pt2hub.server.services.operations.heal import HealService
from pt2hub.server.services.operations.health import HealthService
from pt2hub.server.services.operations.isolation import IsolationService
from pt2hub.server.services.operations.journal import JournalService
from pt2hub.server.services.operations.key_audits import KeyAuditService
from pt2hub.server.services.operations.maintenance import ABANDONED_AFTER_S, HourlyTask, MaintenanceService
from pt2hub.server.services.operations.reindex import ReindexService
from pt2hub.server.services.operations.statistics import StatisticsService
from pt2hub.server.services.operations.storage_acquaintance import StorageAcquaintanceService
from pt2hub.server.services.operations.storage_check import StorageCheckService
from pt2hub.server.services.operations.usage import UsageService
from pt2hub.server.services.operations.workers import WorkerService
from pt2hub.server.services.performance.charts import ChartService
from pt2hub.server.services.performance.comparisons import ComparisonService
from pt2hub.server.services.performance.diffs import DiffService
from pt2hub.server.services.performance.evaluations import EvaluationService
from pt2hub.server.services.performance.history import PerformanceService
from pt2hub.server.services.performance.measuring_jobs import MeasuringJobService
from pt2hub.server.services.performance.reports import ReportService
from pt2hub.server.services.performance.version_changes import VersionChangeService
from pt2hub.server.services.promotion.aliases import AliasService
from pt2hub.server.services.promotion.policies import PolicyService
from pt2hub.server.services.promotion.yanks import YankService
from pt2hub.server.services.publishing.catalog import CatalogService
from pt2hub.server.services.publishing.labels import LabelService
from pt2hub.server.services.publishing.lineage import LineageService
from pt2hub.server.services.publishing.overview import OverviewService
from pt2hub.server.services.publishing.publish import PublishService
from pt2hub.server.services.publishing.search import SearchService
from pt2hub.server.services.publishing.submission_validation import SpecValidator
from pt2hub.server.services.publishing.version_files import VersionFileService
from pt2hub.server.services.retention.deletion import DeletionService
from pt2hub.server.services.retention.forced_deletion import ForcedDeletionService
from pt2hub.server.services.retention.policies import RetentionService
from pt2hub.server.services.retention.pulls import PullService
from pt2hub.server.services.webhooks.dispatch import WebhookDispatcher
from pt2hub.server.services.webhooks.sending import WebhookSender
from pt2hub.server.services.webhooks.webhooks import WebhookService
from pt2hub.system.egress import Egress

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from contextlib import AbstractContextManager

    from pt2hub.server.blobs.ports import Storage
    from pt2hub.server.config import ServerConfig


class Container:
    """The services of a process.

    Args:
        storage: Where blobs are; tests give one of their own.
        heartbeat_timeout: Time without a heartbeat after which a worker is lost.
        webhook_receivers: Host and port of receivers that may have private addresses.
        scrub_bytes_per_s: Rate of the scrub; 0 for none.
    """

    def __init__(  # noqa: PLR0913  # parts and settings, most by name
        self,
        sessions: engines.Sessions,
        queue: BuildQueue,
        storage: Storage,
        *,
        heartbeat_timeout: timedelta,
        factories: tuple[str, ...] = DEFAULT_FACTORIES,
        max_blob_bytes: int = DEFAULT_MAX_BLOB_BYTES,
        limits: Limits | None = None,
        webhook_receivers: Collection[tuple[str, int]] = (),
        scrub_bytes_per_s: int = DEFAULT_SCRUB_BYTES_PER_S,
        collection: CollectionSchedule | None = None,
    ) -> None:
        self.storage = storage
        self.queue = queue
        self.database_url = queue.database_url
        self._sessions = sessions
        self._heartbeat_timeout = heartbeat_timeout
        self._limits = limits or Limits()
        self._collection = collection or CollectionSchedule()

        self._open_blobs(max_blob_bytes, scrub_bytes_per_s)
        self._open_artifacts()
        self._open_builds()
        self._open_publishing(factories)
        self._open_performance()
        self._open_promotion()
        self._open_retention()
        self._open_access()
        self._open_webhooks(Egress(webhook_receivers))
        self._open_operations()

    def believe(self, issuer: str) -> None:
        """Let people have the roles of their groups at this provider; those of another one have none."""
        self._sessions.believe(issuer)

    def read_together(self) -> AbstractContextManager[None]:
        """Let everything that this thread reads in the block be of one moment; what writes is refused."""
        return self._sessions.read_together()

    def _open_blobs(self, max_blob_bytes: int, scrub_bytes_per_s: int) -> None:
        storage = self.storage
        transfers = storage if isinstance(storage, PresignedTransfers) else None
        self.journal = JournalService(self._sessions, storage)
        self.storage_acquaintance = StorageAcquaintanceService(self._sessions, storage, self.journal)
        self.damage = DamageService(self._sessions, storage)
        self.scrub = ScrubService(
            self._sessions,
            self.damage,
            bytes_per_s=scrub_bytes_per_s,
            check_documents=DocumentScrub(self._sessions, storage).check,
        )
        self.blobs = BlobService(self._sessions, storage)
        self.uploads = UploadService(
            self._sessions,
            self.blobs,
            transfers,
            limit=max_blob_bytes,
            most_open=self._limits.uploads_per_token,
        )
        self.old_logs = OldLogService(self._sessions, keep=self._collection.keep_logs)
        self.collector = CollectorService(
            self._sessions,
            storage,
            schedule=self._collection,
            check_writer=self.journal.check_writer,
            chores=(
                self.old_logs.remove,
                self.blobs.tidy,
                self.uploads.sweep,
                lambda: storage.sweep(ABANDONED_AFTER_S),
            ),
        )

    def _open_artifacts(self) -> None:
        sessions, storage, timeout = self._sessions, self.storage, self._heartbeat_timeout
        self.resolve = ResolutionService(sessions, storage)
        self.host_checks = HostCheckService(self.resolve, storage)
        self.single_file = SingleFileService(sessions, storage)
        self.artifact_summaries = ArtifactSummaryService(sessions)
        self.inspection = InspectionService(sessions, storage, heartbeat_timeout=timeout)
        self.generated_sources = GeneratedSourceService(sessions, storage)
        self.kernels = KernelService(sessions, storage)
        self.debug_logs = DebugLogService(sessions, storage)
        self.call_profiles = CallProfileService(sessions, storage, self.kernels, self.generated_sources)

    def _open_builds(self) -> None:
        sessions, queue, timeout = self._sessions, self.queue, self._heartbeat_timeout
        self.builds = BuildService(sessions, queue, self.storage, heartbeat_timeout=timeout)
        self.rebuilds = RebuildService(sessions, queue)
        self.logs = LogService(sessions, self.storage, self.blobs)
        self.log_windows = LogWindowService(sessions, self.storage)
        self.step_durations = StepDurationService(sessions)

    def _open_publishing(self, factories: tuple[str, ...]) -> None:
        sessions, queue, timeout = self._sessions, self.queue, self._heartbeat_timeout
        self.version_files = VersionFileService(sessions, self.storage, self.blobs, self._limits)
        self.publish = PublishService(
            sessions,
            queue,
            SpecValidator(self.storage, factories=factories),
            self.version_files,
            heartbeat_timeout=timeout,
            limits=self._limits,
        )
        self.catalog = CatalogService(sessions, heartbeat_timeout=timeout)
        self.labels = LabelService(sessions)
        self.search = SearchService(sessions)
        self.lineage = LineageService(sessions)

    def _open_performance(self) -> None:
        sessions, queue, timeout = self._sessions, self.queue, self._heartbeat_timeout
        self.performance = PerformanceService(sessions)
        self.charts = ChartService(sessions)
        self.comparisons = ComparisonService(sessions, self.resolve.resolve)
        self.version_changes = VersionChangeService(sessions)
        self.diffs = DiffService(sessions, self.storage, self.comparisons, self.kernels)
        self.measuring_jobs = MeasuringJobService(
            sessions, queue, self.resolve, heartbeat_timeout=timeout, limits=self._limits
        )
        self.reports = ReportService(sessions)
        self.evaluations = EvaluationService(sessions)
        self.overview = OverviewService(sessions, self.performance.speeds, heartbeat_timeout=timeout)

    def _open_promotion(self) -> None:
        self.aliases = AliasService(self._sessions)
        self.policies = PolicyService(self._sessions)
        self.yanks = YankService(self._sessions)

    def _open_retention(self) -> None:
        sessions, storage = self._sessions, self.storage
        self.tombstones = TombstoneDocuments(sessions, storage)
        self.deletion = DeletionService(sessions, self.tombstones)
        self.forced_deletion = ForcedDeletionService(sessions, storage, self.deletion)
        self.retention = RetentionService(sessions, self.deletion)
        self.pulls = PullService(sessions)

    def _open_access(self) -> None:
        self.access = AccessService(self._sessions)
        self.visibility = VisibilityService(self._sessions)
        self.audit_log = AuditLogService(self._sessions)
        self.web_sessions = WebSessionService(self._sessions, self.access)
        self.token_management = TokenManagementService(self._sessions, self.access)
        issuers = HttpIssuers()
        self.trust = TrustService(self._sessions, self.access, issuers)
        self.sign_in = SignInService(self._sessions, issuers)
        self.roles = RoleService(self._sessions)
        self.people = PeopleService(self._sessions)
        self.devices = DeviceService(self._sessions, self.access)
        self.rate_limits = RateLimitService(self._sessions, self._limits)
        self.damage_reports = DamageReportService(self.damage, self.rate_limits)

    def _open_webhooks(self, egress: Egress) -> None:
        self.webhooks = WebhookService(self._sessions, egress)
        self.webhook_dispatcher = WebhookDispatcher(self._sessions)
        self.webhook_sender = WebhookSender(self._sessions, egress)

    def _open_operations(self) -> None:
        sessions, queue, timeout = self._sessions, self.queue, self._heartbeat_timeout
        self.workers = WorkerService(sessions, queue, heartbeat_timeout=timeout)
        self.isolation = IsolationService(sessions)
        self.key_audits = KeyAuditService(sessions, self.storage)
        self.reindex = ReindexService(sessions, self.storage, queue)
        self.heal = HealService(sessions, self.blobs, self.damage, self.rebuilds)
        self.storage_check = StorageCheckService(sessions, self.storage)
        self.statistics = StatisticsService(sessions, heartbeat_timeout=timeout)
        self.usage = UsageService(sessions, self._limits)
        self.health = HealthService(sessions, self.storage, database_url=queue.database_url)
        self.maintenance = MaintenanceService(
            sessions,
            queue,
            heartbeat_timeout=timeout,
            archive=self.logs.archive,
            chores=(
                self.statistics.add_up,
                self.comparisons.examine,
                self.uploads.sweep,
                self.blobs.tidy,
                self.webhook_dispatcher.sweep,
                self.damage.tidy,
                self.tombstones.write,
                self.forced_deletion.remove_left,
                HourlyTask(lambda: self.storage.sweep(ABANDONED_AFTER_S)),
                HourlyTask(self.retention.note_running),
                HourlyTask(self.storage_acquaintance.check),
                HourlyTask(self.web_sessions.sweep),
                HourlyTask(self.devices.sweep),
                HourlyTask(self.rate_limits.sweep),
                HourlyTask(self.webhook_dispatcher.forget),
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
        limits=config.limits,
        webhook_receivers=config.webhook_receivers,
        scrub_bytes_per_s=config.scrub_bytes_per_s,
        collection=config.collection,
    )
    try:
        yield container
    finally:
        container.uploads.close()
        engine.dispose()
