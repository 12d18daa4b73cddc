"""The worker's runner over real services, with real children."""

from __future__ import annotations

import importlib.metadata
import os
import re
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from pt2hub.domain.artifacts import BASELINE_PROFILE_TYPE, MEASUREMENT_RUN_TYPE, PROFILE_TYPE
from pt2hub.domain.builds import STEPS
from pt2hub.domain.debug_logs import DEBUG_LOGS
from pt2hub.domain.tokens import SERVER, Actor
from pt2hub.server.blobs.memory import MemoryStorage
from pt2hub.server.container import Container
from pt2hub.server.db import engine as engines
from pt2hub.server.db.queue import BuildQueue
from pt2hub_workers.builds.job import WorkerContext
from pt2hub_workers.operations.device_lock import DeviceLock
from pt2hub_workers.operations.heartbeat import HeartbeatMonitor
from pt2hub_workers.runner import BuildRunner
from support.headers import ready
from support.postgres import create_database
from support.registry import SILENCE, Registry, a_registration
from support.workbench import FACTORIES, child_environ, tiny_spec, toolchain_in
from support.working import members, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pt2hub.server.db.embedded import EmbeddedPostgres
    from pt2hub.wire.responses import BuildView
    from pt2hub_workers.sandbox import Level

pytestmark = pytest.mark.compiles
ALLOWED = (FACTORIES, "support.region_models")


class Shop(Registry):
    """The services and one worker, run build by build."""

    def __init__(
        self, services: Container, url: str, scratch: Path, target: str = "auto", level: Level = "process"
    ) -> None:
        super().__init__(services, url)
        self.scratch = scratch
        environ = child_environ()
        if target != "auto":  # one compile does not repay precompiled headers of a target's own
            environ["PT2HUB_HEADERS"] = ""
        self.toolchain = toolchain_in(scratch / "rooms", environ, target=target, level=level)
        if target == "auto":
            ready(self.toolchain, environ, scratch)
        machine = self.toolchain.machine()
        context = WorkerContext(
            services,
            machine,
            self.toolchain,
            DeviceLock(scratch / "device"),
            ALLOWED,
            verification_seconds=120.0,
        )
        self.target = machine.target.name
        said = a_registration(f"at {self.target}", self.target, packages=machine.packages)
        self.monitor = HeartbeatMonitor(services, said, database_url=url, every=1.0, on_refused=print)
        self.runner = BuildRunner(context, self.monitor)
        self.monitor.start()

    def job(self, build: BuildView) -> BuildView:
        """The measuring job that a publication queued, done."""
        ((job,),) = self.sql(
            "SELECT id FROM builds WHERE kind = 'measure' AND request ->> 'artifact' = %s", build.artifact
        )
        self.runner.run(job)
        return self.services.builds.view(job)

    def submit(self, factory: str = "Mlp", seed: int = 3, debug: Sequence[str] = (), **kwargs: str) -> str:
        """Publish a tiny model whose measuring job is to time torch.compile, too; return the id of its build."""
        source = {"factory": f"{FACTORIES}:{factory}", "seed": seed, "kwargs": kwargs}
        measure = {"torch_compile": True, "processes": 1, "seconds": 0.05}
        spec = tiny_spec(factory, source=source, targets=[self.target], measure=measure)
        spec["compile"] = {"debug": list(debug)}
        return self.services.publish.submit(spec, by=SERVER).builds[0].id

    def build(self, factory: str = "Mlp", seed: int = 3, debug: Sequence[str] = ()) -> BuildView:
        """Publishes a tiny model and runs its build."""
        build = self.submit(factory, seed, debug)
        self.runner.run(build)
        return self.services.builds.view(build)

    def begin(self, build: str) -> threading.Thread:
        """Runs a build in a thread."""
        worker = threading.Thread(target=self.runner.run, args=(build,))
        worker.start()
        return worker

    def key(self, build: str) -> str:
        """Wait until a build compiles; return its program key."""
        said = re.compile(r"Program key (sha256:\w+): compiling, because no code has this key yet")
        until(lambda: said.search(self.log(build)))
        return said.findall(self.log(build))[0]

    def close(self) -> None:
        """Ends the worker."""
        self.monitor.stop()
        self.toolchain.close()

    def log(self, build: str) -> str:
        """A build's log as text."""
        return "\n".join(line.text for line in self.services.logs.lines(build)[1])


@pytest.fixture(scope="module")
def shop_of(
    postgres: EmbeddedPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Shop]]:
    url = create_database(postgres, template=migrated_template)
    engine = engines.create(url)
    services = Container(
        engines.Sessions(engine),
        BuildQueue(url),
        MemoryStorage(),
        heartbeat_timeout=SILENCE,
        factories=ALLOWED,
    )
    made: list[Shop] = []

    def make(target: str = "auto", level: Level = "process") -> Shop:
        made.append(Shop(services, url, tmp_path_factory.mktemp("shop"), target, level))
        return made[-1]

    yield make
    for shop in made:
        shop.close()
    engine.dispose()


@pytest.fixture(scope="module")
def shop(shop_of: Callable[..., Shop]) -> Shop:
    return shop_of()


def test_a_build_in_the_sandbox_for_a_lower_cpu_level_reuses_code_fails_as_any_and_says_how_it_was_confined(
    shop_of: Callable[..., Shop],
) -> None:
    release = ".".join(importlib.metadata.version("torch").split(".")[:2])
    # Below every machine that runs tests, so that no test beside this one has built for it; without prepared headers.
    shop = shop_of(f"torch{release}-cpu-x86_64", level="sandbox")

    first, retrained = (
        shop.build(seed=11),
        shop.build(seed=12),
    )  # other versions than of the tests beside this one
    failed, ended = shop.build("NotANumber"), shop.build("leaving")

    assert first.state == "succeeded", first.error
    assert retrained.state == "succeeded", retrained.error
    assert first.artifact is not None
    assert retrained.artifact is not None
    for digest, reused in ((first.artifact, False), (retrained.artifact, True)):
        provenance = shop.services.resolve.artifact(digest).provenance
        assert provenance["isolation"] == "sandbox"
        assert provenance["isolation_profile"] == shop.toolchain.isolation_profile
        assert (provenance["code_reused_from"] is not None) is reused
    assert failed.error is not None
    assert failed.error["code"] == "nan_output"
    assert ended.error is not None
    assert (ended.error["code"], ended.error["where"]) == ("export_failed", "export")
    assert "exited with code 0 (step: export)" in ended.error["message"]

    assert first.target.endswith("-x86_64")
    native = shop.services.resolve.artifact(first.artifact).config["native"]
    assert native["cpu_level"] == "x86_64", "it needs no more than the level it is for"
    assert not [flag for flag in native["cpu_flags"] if flag.startswith(("avx", "fma", "bmi"))]
    shop.close()
    assert list((shop.scratch / "rooms").iterdir()) == []


@pytest.fixture(scope="module")
def overtaken(shop: Shop) -> tuple[BuildView, str]:
    """Return a build that was overtaken while it compiled, as its late worker left it, and its program key."""
    build = shop.submit("Flipped", seed=5)
    worker = shop.begin(build)
    key = shop.key(build)
    shop.sql(
        "UPDATE builds SET attempt = attempt + 1, worker_id = NULL, state = 'queued' WHERE id = %s", build
    )
    worker.join()
    view = shop.services.builds.view(build)
    shop.services.builds.cancel(build, Actor("test"))  # measuring jobs give way to a build that waits
    return view, key


def test_an_overtaken_build_ends_without_a_trace_of_the_late_worker(
    shop: Shop, overtaken: tuple[BuildView, str]
) -> None:
    view, _ = overtaken

    assert (view.state, view.artifact, view.error) == ("queued", None, None)
    assert shop.sql("SELECT count(*) FROM artifacts WHERE build_id = %s", view.id) == [(0,)]


def test_a_child_that_someone_kills_is_a_passing_fault_and_costs_a_pause(shop: Shop, tmp_path: Path) -> None:
    note = tmp_path / "note"
    build = shop.submit("sleeping", note=str(note))
    worker = shop.begin(build)
    until(lambda: note.exists() and len(note.read_text().split()) == 2)
    child, program = map(int, note.read_text().split())
    os.kill(child, signal.SIGKILL)
    worker.join()

    view = shop.services.builds.view(build)
    (attempt,) = view.attempts
    assert (view.state, view.failures, attempt.outcome, attempt.code) == (
        "queued",
        1,
        "retried",
        "worker_lost",
    )
    assert view.not_before is not None
    assert program not in members(child)
    assert "killed from outside by SIGKILL" in shop.log(build)
    shop.services.builds.cancel(build, Actor("test"))  # measuring jobs give way to a build that waits


@pytest.fixture(scope="module")
def first(shop: Shop) -> BuildView:
    """Return the first build of a model, with debug logs: no code has its key yet."""
    return shop.build(seed=21, debug=list(DEBUG_LOGS))


def test_a_publication_is_ready_unmeasured_and_its_job_times_it_beside_eager_and_torch_compile(
    shop: Shop, first: BuildView
) -> None:
    own = first
    assert own.artifact is not None
    assert {step.name for step in own.steps} == {*STEPS} - {"reuse"}
    figures = shop.services.resolve.artifact(own.artifact).measurements
    assert {item.source for item in figures} == {"build"}
    assert {"code_bytes", "compile_time", "relative_error"} <= {item.metric for item in figures}
    assert "latency_p50" not in {item.metric for item in figures}

    done = shop.job(own)

    assert done.state == "succeeded", done.error
    assert {step.name for step in done.steps} == {"fetch", "measure", "publish"}
    view = shop.services.resolve.artifact(own.artifact)
    again = {(item.metric, item.implementation): item for item in view.measurements if item.source == "again"}
    metrics = ("latency_p50", "throughput", "first_inference", "load_time", "host_memory_peak")
    assert {(metric, "artifact") for metric in metrics} <= set(again)
    assert {("latency_p50", name) for name in ("eager", "torch_compile")} <= set(again), shop.log(done.id)
    assert all(item.value > 0 for item in again.values())
    cold, warm = again["first_inference", "torch_compile"], again["first_inference_warm", "torch_compile"]
    fresh, ratio = again["first_inference", "artifact"], again["first_inference_speedup", "artifact"]
    assert cold.value > warm.value > fresh.value
    assert ratio.value == pytest.approx(cold.value / fresh.value, rel=1e-4)
    kinds = [item.artifact_type for item in view.referrers]
    assert {MEASUREMENT_RUN_TYPE, PROFILE_TYPE, BASELINE_PROFILE_TYPE} <= set(kinds)
    profiles = view.profile, view.torch_compile_profile
    assert all(profile and profile.rows and profile.gaps is None for profile in profiles), "a CPU has no gaps"
    assert [profile.implementation for profile in profiles if profile] == ["artifact", "torch_compile"]
    found = shop.services.call_profiles.profile(own.artifact)
    assert found.torch_compile is not None
    assert found.torch_compile.plain_us == pytest.approx(
        again["latency_p50", "torch_compile"].value * 1000, rel=1e-3
    )


def test_a_build_records_the_operations_of_each_kernel_with_the_lines_of_the_model(
    shop: Shop, first: BuildView
) -> None:
    assert first.artifact is not None
    found = shop.services.kernels.kernels(first.artifact)

    nodes = {node.name: node for node in found.graph}
    x = nodes["x"]
    assert (x.opcode, x.dtype, (x.shape or ())[1:]) == ("placeholder", "float32", ("8",))
    assert nodes["gelu"].target == "aten.gelu.default"
    lines = {name: nodes[name].source for name in ("linear", "gelu", "linear_1")}
    assert len(set(lines.values())) == 1, "the model computes them in one line"
    assert re.fullmatch(r"support/tiny_models\.py:\d+", lines["gelu"])
    holding = {name: [kernel for kernel in found.kernels if name in kernel.operations] for name in lines}
    assert any(kernel.name.startswith("cpp_fused") for kernel in holding["gelu"])
    assert any(kernel.name.startswith("aoti_torch_cpu") for kernel in holding["linear_1"])
    assert all(kernel.registers is None for kernel in found.kernels), "no Triton on a CPU"


def test_a_build_records_the_logs_of_torch_that_its_spec_asks_for(shop: Shop, first: BuildView) -> None:
    assert first.artifact is not None
    found = shop.services.debug_logs.logs(first.artifact)
    assert [log.kind for log in found.logs] == list(DEBUG_LOGS)
    texts = {log.kind: shop.services.debug_logs.log(first.artifact, log.kind).text for log in found.logs}

    assert "AOTInductorModel::run_impl" in texts["output_code"]
    assert re.search(r"attempting fusion|found \d+ possible fusions", texts["fusion"])
    assert "SchedulerNode(ComputedBuffer)" in texts["schedule"]
    assert "torch.ops.aten.addmm.default" in texts["graph"]
    assert "support/tiny_models.py" in texts["graph"]
    whole = "".join(texts.values())
    for folder in (str(shop.scratch), str(Path(torch.__file__).parents[1])):
        assert folder not in whole
    build_log = shop.log(first.id)
    assert re.search(r"debug logs: output_code [\d.]+ KiB, fusion ", build_log)
    assert "AFTER POST GRAD" not in build_log
    assert "run_impl" not in build_log
    spec = shop.services.resolve.artifact(first.artifact).config["version"]["spec"]
    assert "compile" not in spec, "a version's identity does not contain its debug logs"


def test_a_retrained_version_gets_one_short_run_and_the_full_comparison_on_request(
    shop: Shop, first: BuildView
) -> None:
    own = shop.build(seed=22, debug=["fusion"])
    assert own.artifact is not None
    assert "reuse" in {step.name for step in own.steps}
    assert "nothing is compiled, so no debug logs are recorded" in shop.log(own.id)
    assert shop.services.debug_logs.logs(own.artifact).compiled_for == first.artifact
    assert shop.services.kernels.kernels(own.artifact).compiled_for == first.artifact
    done = shop.job(own)
    assert done.state == "succeeded", done.error
    assert "code unchanged" in shop.log(done.id)
    short = shop.services.resolve.artifact(own.artifact)
    assert {item.implementation for item in short.measurements} == {"artifact"}
    assert short.profile is not None
    assert short.torch_compile_profile is None, "a short run times no baselines"

    (job,) = shop.services.measuring_jobs.measure(f"{own.model}@{own.number}", by=Actor("test")).builds
    shop.runner.run(job.id)

    pairs = shop.sql(
        "SELECT baseline, ratios FROM measurement_pairs WHERE artifact = %s AND run = %s",
        *(own.artifact, f"{job.id}:1:1"),
    )
    assert {baseline for baseline, _ in pairs} == {first.artifact}
    assert all(ratio > 0 for _, ratios in pairs for ratio in ratios)
    whole = shop.services.resolve.artifact(own.artifact)
    assert {"eager", "torch_compile"} <= {item.implementation for item in whole.measurements}
    assert whole.profile == short.profile
    assert whole.torch_compile_profile is not None
    assert [item.artifact_type for item in whole.referrers].count(PROFILE_TYPE) == 1
    assert shop.services.measuring_jobs.profiled(own.artifact) == {"artifact", "torch_compile"}


def test_code_that_was_stored_under_a_wrong_key_is_caught_and_compiled_anew(
    shop: Shop, first: BuildView, overtaken: tuple[BuildView, str]
) -> None:
    _, key = overtaken
    ((stored_under,),) = shop.sql("SELECT program_key FROM artifacts WHERE digest = %s", first.artifact)
    assert stored_under != key
    # What a field missing from the key would do: another program's code under this program's key.
    shop.sql("UPDATE artifacts SET program_key = %s WHERE digest = %s", key, first.artifact)

    again = shop.build("Flipped", seed=6)

    assert again.state == "succeeded", again.error
    assert "failed verification, compiling instead" in shop.log(again.id)
    assert again.artifact is not None
    provenance = shop.services.resolve.artifact(again.artifact).provenance
    assert provenance["code_reused_from"] is None
    assert provenance["compiler_processes"] != []


def test_a_region_of_one_model_is_reused_by_another_one(shop: Shop) -> None:
    builds = []
    for blocks in (3, 5):
        source = {"factory": "support.region_models:deep", "kwargs": {"blocks": blocks}}
        spec = tiny_spec(
            f"deep{blocks}", source=source, compile={"regions": ["Plain"]}, targets=[shop.target]
        )
        build = shop.services.publish.submit(spec | {"measure": {"processes": 0}}, by=SERVER).builds[0].id
        shop.runner.run(build)
        builds.append(shop.services.builds.view(build))

    first, second = builds
    assert (first.state, second.state) == ("succeeded", "succeeded"), (first.error, second.error)
    assert first.artifact is not None
    assert second.artifact is not None
    (compiled,), (reused,) = (
        shop.services.resolve.artifact(build.artifact or "").regions for build in builds
    )
    assert (compiled.calls, compiled.code_reused_from) == (3, None)
    assert reused.program_key == compiled.program_key
    assert reused.modules == tuple(f"layers.{number}" for number in range(5))
    assert reused.code_reused_from == shop.services.resolve.artifact(first.artifact).code
    assert f"reusing code {reused.code_reused_from}" in shop.log(second.id)
