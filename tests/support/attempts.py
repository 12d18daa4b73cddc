"""Attempts in this process, one by one, with the no-op toolchain or another one."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.builds import BuildFilter, BuildKind
from pt2hub.domain.digests import digest_bytes
from pt2hub.domain.tokens import SERVER
from pt2hub.domain.workers import Registration
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.blobs.local import LocalStorage
from pt2hub.server.container import Container
from pt2hub.server.db import engine as engines
from pt2hub.server.db.queue import BuildQueue
from pt2hub.server.services.blobs.blob_writes import BlobChunk
from pt2hub.server.services.blobs.documents import read_config, read_manifest
from pt2hub_workers.builds.job import WorkerContext
from pt2hub_workers.builds.journal import Journal
from pt2hub_workers.builds.noop_toolchain import NoopToolchain
from pt2hub_workers.operations.cancellation import CancellationToken
from pt2hub_workers.operations.device_lock import DeviceLock
from pt2hub_workers.runner import KINDS
from support.plane import noop_spec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pt2hub.wire.responses import VersionView
    from pt2hub_workers.builds.toolchains import Toolchain


class AttemptBench:
    """Attempts over services of their own and a real directory."""

    def __init__(self, services: Container, folder: Path) -> None:
        self.services = services
        self._folder = folder
        self.scratch = folder / "scratch"
        machine = NoopToolchain(folder).machine()
        services.workers.register(
            Registration(
                worker_id="worker",
                target=machine.target,
                toolchain=machine.toolchain,
                environment=machine.environment,
                packages=machine.packages,
                host="here",
                version="1",
                concurrency=1,
                clock=time.time(),
                isolation="none",
            )
        )

    def store(self, data: bytes) -> str:
        """Store a blob as an upload does; return its digest."""
        digest = digest_bytes(data)
        self.services.blobs.store([BlobChunk(StorageKey.blob(digest), len(data), data)], holder="a test")
        return digest

    def submit(self, **fields: Any) -> VersionView:
        """Submits a spec."""
        return self.services.publish.submit(noop_spec("net", **fields), by=SERVER)

    def attempt(
        self,
        version: VersionView,
        token: CancellationToken | None = None,
        *,
        toolchain: Toolchain | None = None,
        image: str | None = None,
        **pauses: float,
    ) -> None:
        """Runs the version's build in this thread."""
        toolchain = toolchain or NoopToolchain(self.scratch, pauses)
        self.run(version.builds[0].id, toolchain, token, image=image)

    def run(
        self,
        build: str,
        toolchain: Toolchain,
        token: CancellationToken | None = None,
        *,
        image: str | None = None,
    ) -> None:
        """Runs a queued build or measuring job in this thread."""
        machine = toolchain.machine()
        claim = self.services.builds.claim(build, "worker")
        assert claim is not None
        context = WorkerContext(
            self.services,
            machine,
            toolchain,
            DeviceLock(self._folder / "device.lock"),
            (),
            verification_seconds=10.0,
            image=image,
        )
        journal = Journal(self.services.builds, claim)
        try:
            KINDS[claim.kind](claim, context, journal, token or CancellationToken()).run()
        finally:
            journal.close()

    def measure(self, version: VersionView, *, toolchain: Toolchain | None = None) -> str:
        """Runs the measuring job that the version's publication queued; returns its id."""
        filters = BuildFilter(model=version.model, number=version.number, kind=BuildKind.MEASURE)
        (job,) = self.services.catalog.builds(filters).builds
        self.run(job.id, toolchain or NoopToolchain(self.scratch))
        return job.id

    def config(self, version: VersionView) -> Any:
        """The config of the version's artifact."""
        digest = self.services.builds.view(version.builds[0].id).artifact
        assert digest is not None
        return read_config(self.services.storage, read_manifest(self.services.storage, digest))


@pytest.fixture
def attempts(migrated_url: str, tmp_path: Path) -> Iterator[AttemptBench]:
    """Attempts on an empty database."""
    engine = engines.create(migrated_url)
    services = Container(
        engines.Sessions(engine),
        BuildQueue(migrated_url),
        LocalStorage(tmp_path / "blobs"),
        heartbeat_timeout=timedelta(seconds=60),
        factories=("support.tiny_models",),
    )
    yield AttemptBench(services, tmp_path)
    engine.dispose()
