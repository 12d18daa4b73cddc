"""The server's services over a real, migrated PostgreSQL and a storage in memory."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Engine, event

from pt2hub.domain import artifacts as oci
from pt2hub.domain.artifacts import (
    Descriptor,
    Environment,
    Manifest,
    Member,
    ProgramKey,
    SingleFile,
    StepTiming,
    Toolchain,
    VersionIdentity,
)
from pt2hub.domain.attached_files.files import file_layers
from pt2hub.domain.builds import StepReport
from pt2hub.domain.codec import encode
from pt2hub.domain.digests import Digest, canonical_json, digest_bytes
from pt2hub.domain.performance.measurements import RUN_SCHEMA, Measurement, MeasurementRun
from pt2hub.domain.publications import Publication
from pt2hub.domain.targets import parse_target
from pt2hub.domain.tokens import SERVER, Actor
from pt2hub.domain.workers import Registration
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.blobs.memory import MemoryStorage
from pt2hub.server.container import Container
from pt2hub.server.db import engine as engines
from pt2hub.server.db.queue import BuildQueue
from pt2hub.server.services.blobs.blob_writes import BlobChunk
from pt2hub.server.services.publishing.version_files import NewFile
from support.artifacts import a_config
from support.postgres import CONSOLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.domain.builds import Claim
    from pt2hub.wire.files import FileList
    from pt2hub.wire.responses import VersionView

V3 = "torch2.13-cpu-x86_64_v3"
V4 = "torch2.13-cpu-x86_64_v4"
GPU = "torch2.11-cu130-sm90"
SILENCE = timedelta(minutes=10)
"""Workers of tests send no heartbeats: none may be lost on a slow machine but those that `silence` names."""
TOOLCHAIN = Toolchain("2.13.0+cpu", "3.11.2", "g++ (Debian 12.2.0)", "glibc 2.36", "0.1.0")
ENVIRONMENT = Environment("EPYC", "x86_64_v4", 2, 24 << 30, "2.13.0+cpu")
PACKAGES = {"torch": "2.13.0+cpu", "torchvision": "0.28.0"}
AUTOTUNE = [
    {
        "op": "mm",
        "shapes": [[2, 512], [512, 1000]],
        "dtypes": ["float32", "float32"],
        "strides": [["512", "1"], ["1", "512"]],
        "candidate": name,
        "template": template,
        "parameters": parameters,
        "milliseconds": 0.1 * rank if not reason else None,
        "reason": reason,
        "rank": rank,
        "chosen": rank == 1,
        "operation": 1,
        "precompile_seconds": 1.5,
        "benchmark_seconds": 0.25,
    }
    for rank, (name, template, parameters, reason) in enumerate(
        (
            ("cpp_gemm", "cpp_gemm", {"block_m": 8}, ""),
            ("mkl", "extern: mkl", {}, ""),
            ("cpp_gemm_7", "cpp_gemm", {"block_m": 64}, "RuntimeError: out of registers"),
        ),
        1,
    )
]
MEASUREMENTS = [
    Measurement(
        "latency_p50",
        10.5,
        "ms",
        implementation,
        batch=2,
        samples=[[10.5, 11.0], [10.0]],
        replicates=[10.75, 10.0],
    )
    for implementation in ("artifact", "eager", "torch_compile")
]


def a_spec(**changes: Any) -> dict[str, Any]:
    """A spec that is right; its publication queues no measuring job, which most tests would only count around."""
    spec: dict[str, Any] = {
        "model": "vision/resnet18",
        "source": {"factory": "torchvision.models:resnet18"},
        "inputs": [
            {"name": "x", "shape": ["batch", 3, 224, 224], "dtype": "float32", "generate": {"normal": {}}}
        ],
        "dims": {"batch": {"min": 1, "max": 32, "example": 2}},
        "measure": {"processes": 0},
        "targets": [V4],
    }
    return spec | changes


def a_registration(name: str, target: str = V4, **changes: Any) -> Registration:
    """What a worker says about itself."""
    said = Registration(
        worker_id=name,
        target=parse_target(target),
        toolchain=TOOLCHAIN,
        environment=ENVIRONMENT,
        packages=PACKAGES,
        host="host",
        version="0.1.0",
        concurrency=1,
        clock=time.time(),
        isolation="sandbox",
        isolation_profile=digest_bytes(b"profile"),
    )
    return replace(said, **changes)


@dataclass(frozen=True)
class Registry:
    """The services, and what tests do with them again and again."""

    services: Container
    database_url: str

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Runs SQL behind the services' back."""
        return CONSOLE.run(self.database_url, statement, values)

    def worker(self, name: str, target: str = V4, **changes: Any) -> str:
        """A live worker."""
        self.services.workers.register(a_registration(name, target, **changes))
        return name

    def silence(self, worker: str) -> None:
        """Lets a worker's last heartbeat be an hour old."""
        self.sql("UPDATE workers SET last_seen = now() - interval '1 hour' WHERE id = %s", worker)

    def submit(self, *, priority: int = 0, **changes: Any) -> VersionView:
        """Submits a spec."""
        return self.services.publish.submit(a_spec(**changes), priority=priority, by=SERVER)

    def claim(self, build: str, worker: str = "w1") -> Claim:
        """Claims a queued build."""
        self.worker(worker)
        claim = self.services.builds.claim(build, worker)
        assert claim is not None
        return claim

    def step(
        self, claim: Claim, name: str, state: str, *, seconds: float | None = None, detail: str | None = None
    ) -> None:
        """Reports a step that began now."""
        report = StepReport(name, state, time.time(), seconds, detail)
        self.services.builds.report(claim, [report], [])

    def jobs(self, build: str) -> list[tuple[str, str]]:
        """Queue and status of each job of a build."""
        return self.sql(
            "SELECT queue_name, status::text FROM procrastinate_jobs WHERE args ->> 'build_id' = %s ORDER BY id",
            build,
        )

    def blob(
        self, data: bytes, media_type: str = "application/octet-stream", *, holder: str = "api"
    ) -> Descriptor:
        """Stores a blob."""
        digest = digest_bytes(data)
        self.services.blobs.store([BlobChunk(StorageKey.blob(digest), len(data), data)], holder=holder)
        return Descriptor(media_type, digest, len(data))

    def attach(self, name: str, data: bytes, *, model: str = "vision/resnet18", number: int = 1) -> FileList:
        """Stores a documentation file and attaches it to a version."""
        new = NewFile(name, self.blob(data).digest)
        return self.services.version_files.put(model, number, new, by=Actor("test"))

    def manifest(self, manifest: Manifest, *, holder: str = "api") -> Manifest:
        """Stores a manifest."""
        data = manifest.as_bytes()
        self.services.blobs.store(
            [BlobChunk(StorageKey.manifest(manifest.digest), len(data), data)], holder=holder
        )
        return manifest

    def publication(
        self,
        claim: Claim,
        *,
        code: bytes = b"code",
        key: str | ProgramKey = "key",
        weights_data: bytes = b"weights",
        **changes: Any,
    ) -> Publication:
        """What a worker publishes, its blobs and manifests stored first."""
        blob = partial(self.blob, holder=claim.holder)
        weights = claim.weights or blob(weights_data).digest
        golden = claim.golden or blob(b"golden").digest
        members = (
            Member("model/version", 1, digest_bytes(b"0")),
            Member("model/a.so", 4, digest_bytes(code)),
        )
        config = replace(
            a_config(),
            version=VersionIdentity(
                claim.model, claim.number, claim.identity, claim.version_spec, claim.pins, weights, golden
            ),
            target=claim.target,
            toolchain=TOOLCHAIN,
            environment=ENVIRONMENT,
            key=key
            if isinstance(key, ProgramKey)
            else ProgramKey(digest_bytes(key.encode()), {"graph": key}),
            single_file=SingleFile(digest_bytes(b"single" + code), 99, members),
            steps=(StepTiming("fetch", 0.1), StepTiming("compile", 12.5)),
            verification={"result": "passed", "relative_error": 1e-6},
            provenance={
                "build": claim.build,
                "attempt": claim.attempt,
                "request": claim.request,
                "isolation": "sandbox",
                "key_schema": oci.KEY_SCHEMA,
                "operators": [],
                "never_reused": None,
            },
            dtype=claim.request.get("dtype"),
        )
        config = replace(config, **changes)
        manifest = self.manifest(
            Manifest(
                artifactType=oci.ARTIFACT_TYPE,
                config=blob(canonical_json(encode(config)), oci.CONFIG_TYPE),
                layers=(
                    blob(code, oci.CODE_TYPE),
                    blob(weights_data, oci.WEIGHTS_TYPE),
                    *file_layers(claim.pins),
                ),
                annotations={oci.CREATED: "2026-11-21T10:00:00+00:00", oci.BUILD: claim.build},
            ),
            holder=claim.holder,
        )
        run = MeasurementRun(
            schema=RUN_SCHEMA,
            id=f"{claim.build}:{claim.attempt}",
            source="build",
            measured_at="2026-11-21T10:00:00+00:00",
            environment=config.environment,
            conditions={"processes": 2},
            measurements=MEASUREMENTS,
        )
        tables = {oci.AUTOTUNE_TYPE: AUTOTUNE, oci.MEASUREMENT_RUN_TYPE: encode(run)}
        referrers = [
            self._referrer(manifest, kind, canonical_json(rows), claim.holder)
            for kind, rows in tables.items()
        ]
        return Publication(manifest, config, tuple(referrers), AUTOTUNE, (run,))

    def published(self, version: VersionView | None = None, **changes: Any) -> Digest:
        """Builds and publishes the first build of a version."""
        view = version or self.submit()
        claim = self.claim(view.builds[0].id)
        publication = self.publication(claim, **changes)
        self.services.builds.publish(claim, publication)
        return publication.manifest.digest

    def published_with(
        self, *contents: tuple[str, bytes], version: VersionView | None = None, layer: str | None = None
    ) -> Digest:
        """Publishes the first build of a version with further referrers, each a media type and its content.

        Args:
            layer: Another media type for what they contain.
        """
        claim = self.claim((version or self.submit()).builds[0].id)
        publication = self.publication(claim)
        manifest = publication.manifest
        further = [self._referrer(manifest, kind, data, claim.holder, layer) for kind, data in contents]
        self.services.builds.publish(
            claim, replace(publication, referrers=(*publication.referrers, *further))
        )
        return manifest.digest

    def _referrer(
        self, subject: Manifest, kind: str, data: bytes, holder: str, layer: str | None = None
    ) -> Manifest:
        return self.manifest(
            Manifest(
                artifactType=kind,
                config=self.blob(b"{}", oci.EMPTY_TYPE, holder=holder),
                layers=(self.blob(data, layer or kind, holder=holder),),
                subject=Descriptor(oci.MANIFEST_TYPE, subject.digest, len(subject.as_bytes())),
            ),
            holder=holder,
        )


@pytest.fixture
def registry(migrated_url: str) -> Iterator[Registry]:
    """The services over an empty database and an empty storage."""
    engine = engines.create(migrated_url)
    sessions, queue = engines.Sessions(engine), BuildQueue(migrated_url)
    yield Registry(Container(sessions, queue, MemoryStorage(), heartbeat_timeout=SILENCE), migrated_url)
    engine.dispose()


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """Every statement sent through SQLAlchemy."""
    sent: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        sent.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    yield sent
    event.remove(Engine, "before_cursor_execute", note)
