"""What came after the builds: artifacts that were measured again, figures from production, policies, further targets."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pt2hub.domain.artifacts import Environment
from pt2hub.domain.builds import BuildKind, BuildState, LogLine, MeasureRequest
from pt2hub.domain.codec import encode
from pt2hub.domain.measurements import NO_BATCH
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.performance import What
from pt2hub.server.demo import artifacts, figures
from pt2hub.server.demo.models import chance
from pt2hub.server.demo.plan import made_up
from pt2hub.server.demo.present import NEVER_OFFERED
from pt2hub.server.services.documents import named_by
from pt2hub.server.services.policy_spec import Gate, MetricRule, PolicySpec

if TYPE_CHECKING:
    from datetime import datetime

    from pt2hub.server.demo.artifacts import Made
    from pt2hub.server.demo.plan import Version
    from pt2hub.server.demo.writing import Writer

CLICKS = "clicks_per_view"
"""A metric that only its reporter knows."""
_LATENCY = Gate(alias="prod", metric="latency_p50", max_worse=0.05)
_POLICIES = {
    "demo-vision/resnet50-classifier": PolicySpec(gates=[_LATENCY]),
    "demo-text/minilm-l6-embedder": PolicySpec(gates=[_LATENCY]),
    "demo-ranking/feed-ranker-dcn": PolicySpec(
        gates=[_LATENCY, Gate(alias="prod", metric="latency_p99", max_worse=0.1, missing="pass")],
        metrics={CLICKS: MetricRule(better="higher", min_effect=0.01)},
    ),
}
_REPORTED = "demo-ranking/feed-ranker-dcn"
_REPORTED_VERSIONS = 14
_PRODUCTION = Environment(
    "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz",
    "x86_64_v4",
    32,
    128 << 30,
    "2.13.0+cpu",
    container="kubernetes",
)
_ORDERED = "demo-text/modernbert-large-reranker"
"""The model that waits for GPUs that are not there yet."""
_REASSURED = "demo-ranking/feed-ranker-dcn"
"""The model whose newest artifact waits to be measured again."""
_JOB_STEPS = (("fetch", 3.2), ("measure", 41.0), ("publish", 0.04))


def write(writer: Writer, model_id: int, version_ids: dict[int, int], versions: list[Version]) -> None:
    """Writes what came after the builds of a model."""
    name = versions[0].model.name
    for number in versions[0].model.rolled_back:
        for made in _both(writer, versions[number - 1]):
            _measured_again(writer, model_id, version_ids[number], made)
    if policy := _POLICIES.get(name):
        at = versions[0].at + timedelta(days=40)
        row = {"model_id": model_id, "revision": 1, "document": policy.document(), "by": "ada", "at": at}
        writer.rows.add("policies", **row)
    if name == _REPORTED:
        _report(writer, model_id, versions)
    if name == _ORDERED:
        _waiting(
            writer,
            version_ids[versions[-1].number],
            NEVER_OFFERED,
            versions[-1].at,
            {"target": NEVER_OFFERED},
        )
    if name == _REASSURED:
        _asked_again(writer, version_ids, versions[-1])


def _both(writer: Writer, version: Version) -> list[Made]:
    """Two artifacts of a version."""
    found = (writer.made.get((version.model.name, version.number, build.target)) for build in version.builds)
    return [made for made in found if made][:2]


def _measured_again(writer: Writer, model_id: int, version_id: int, made: Made) -> None:
    before = writer.before(made.version, made.build)
    if before is None:
        return
    job = _job_id(made, "again")
    began = made.build.finished + timedelta(hours=chance(job).uniform(1, 5))
    ended = began + timedelta(seconds=sum(seconds for _, seconds in _JOB_STEPS))
    request = MeasureRequest(made.build.target, made.manifest.digest, 1, "ada")
    _job(writer, version_id, job, request, began)
    at = ended.isoformat(timespec="milliseconds")
    run = figures.run_again(made.version, made.build, before.baseline, job, at)
    manifest = artifacts.run_again(made, run, writer.bytes)
    writer.refer_to(made.manifest.digest, manifest)
    stored = sorted(key for key in named_by(manifest) if key != _empty_key(manifest))
    writer.refer(stored, f"artifact:{made.manifest.digest}")
    writer.history.add(run, writer.measured(made, model_id), writer.measured(before, model_id))


def _empty_key(manifest: Any) -> StorageKey:  # noqa: ANN401  # a Manifest
    """The empty config, to which the artifact refers already."""
    return StorageKey.blob(manifest.config.digest)


def _job_id(made: Made, what: str) -> str:
    return made_up(f"measuring {made.build.id} {what}").removeprefix("sha256:")[:16]


def _job(writer: Writer, version_id: int, job: str, request: MeasureRequest, began: datetime) -> None:
    """A measuring job that is over."""
    worker = f"measuring-{job[:4]}"
    ended = began + timedelta(seconds=sum(seconds for _, seconds in _JOB_STEPS))
    row = _row(version_id, job, request.target, encode(request), began)
    writer.rows.add(
        "builds",
        **{
            **row,
            "state": BuildState.SUCCEEDED.value,
            "attempt": 1,
            "started_at": began,
            "finished_at": ended,
        },
    )
    told = [
        LogLine(
            1,
            began.timestamp() + 3,
            "fetch",
            "info",
            f"times {request.artifact}, beside the version before it",
        ),
        LogLine(2, began.timestamp() + 44, "measure", "info", "measure took 41.00 s"),
    ]
    log = writer.bytes.log(told)
    writer.refer([StorageKey.blob(log.digest)], f"log:{job}:1")
    writer.attempt_row(job, worker, (began, ended), log.digest, (log.size, len(told)))
    at = began
    for name, seconds in _JOB_STEPS:
        step = {"build_id": job, "attempt": 1, "name": name, "state": "done", "started_at": at}
        writer.rows.add("build_steps", **step, seconds=seconds, detail=None)
        at += timedelta(seconds=seconds)


def _row(version_id: int, build: str, target: str, request: dict[str, Any], at: datetime) -> dict[str, Any]:
    """A build's row that nobody began yet."""
    kind = BuildKind.MEASURE if "artifact" in request else BuildKind.BUILD
    return {
        "id": build,
        "kind": kind.value,
        "version_id": version_id,
        "target": target,
        "position": 0 if kind is BuildKind.MEASURE else 9,
        "request": request,
        "first_submitted": False,
        "state": BuildState.QUEUED.value,
        "priority": -10 if kind is BuildKind.MEASURE else 0,
        "attempt": 0,
        "failures": 0,
        "worker_id": None,
        "created_at": at,
        "queued_at": at,
        "started_at": None,
        "finished_at": None,
        "error": None,
    }


def _waiting(writer: Writer, version_id: int, target: str, at: datetime, request: dict[str, Any]) -> None:
    """A build or a measuring job that waits for a worker."""
    build = made_up(f"waiting {version_id} {target} {sorted(request)}").removeprefix("sha256:")[:16]
    writer.rows.add("builds", **_row(version_id, build, target, request, at))
    writer.queued.append((build, target))


def _asked_again(writer: Writer, version_ids: dict[int, int], version: Version) -> None:
    made = next(item for item in _both(writer, version))
    request = MeasureRequest(made.build.target, made.manifest.digest, 3, "mary")
    at = writer.now - timedelta(minutes=52)
    _waiting(writer, version_ids[version.number], made.build.target, at, encode(request))


def _report(writer: Writer, model_id: int, versions: list[Version]) -> None:
    """What the feed itself tells: clicks of a view, and how long the slowest calls take in production."""
    environment, in_class = writer.history.environment(_PRODUCTION)
    for version in versions[-_REPORTED_VERSIONS - 1 : -1]:
        made = next(item for item in _both(writer, version) if "x86_64_v4" in item.build.target)
        luck = chance(version.number, "reports")
        of = writer.measured(made, model_id)
        call = version.model.speeds["x86_64_v4"].of(64) * luck.lognormvariate(0.0, 0.03)
        for metric, unit, batch, value in (
            (CLICKS, "1", NO_BATCH, 0.0721 * luck.lognormvariate(0.0, 0.006)),
            ("latency_p99", "ms", 64, 1.9 * call),
        ):
            what = What(model_id, of.target, metric, batch, "artifact", in_class, unit)
            key = f"feed-{version.number}-{metric}"
            told = {"environment": environment, "reporter": "feed-frontend", "key": key}
            writer.history.report(
                what, of, figures.rounded(value), made.build.finished + timedelta(days=1), told
            )
