"""Builds without a server: the build's code in this process, gate and judge in real children."""

from __future__ import annotations

import itertools
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch._inductor.codecache import CacheBase

from pt2hub.domain.builds import Claim
from pt2hub.domain.codec import encode
from pt2hub.domain.digests import Digest
from pt2hub.domain.publishing.spec import DEFAULT_FACTORIES, Spec, TargetSpec
from pt2hub.errors import Pt2hubError
from pt2hub_workers.builds import precompiled_headers
from pt2hub_workers.builds.aoti_toolchain import AotiToolchain
from pt2hub_workers.builds.build_verification import Listener, Verification, VerificationRun
from pt2hub_workers.builds.child_messages import MessageFields, read
from pt2hub_workers.builds.publication import Origin, make_config
from pt2hub_workers.inside.builds.build import Build
from pt2hub_workers.inside.builds.compilation import Compilation
from pt2hub_workers.inside.builds.compile.compiler import CompilerCount
from pt2hub_workers.inside.builds.job import Job
from pt2hub_workers.inside.operations import files
from pt2hub_workers.operations.cancellation import CancellationToken
from pt2hub_workers.operations.machine import probe_machine
from pt2hub_workers.sandbox import SandboxSettings, open_launcher
from pt2hub_workers.sandbox.limits import limits_from_environ
from pt2hub_workers.sandbox.workspaces import Workspaces
from support.code import forgetting
from support.headers import PLACE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pt2hub_workers.builds.autotune_tables import AutotuneTables
    from pt2hub_workers.sandbox import Isolation, Launcher
    from pt2hub_workers.sandbox.workspaces import Workspace

FACTORIES = "support.tiny_models"
REGION_MODELS = "support.region_models"
TEAM = "tiny"
NOWHERE = Digest("sha256:" + "0" * 64)
VERIFICATION_SECONDS = 120.0


def tiny_spec(model: str = "Mlp", **fields: Any) -> dict[str, Any]:
    """A spec for one of the tiny models; `x` is [batch, 8] unless told otherwise."""
    return {
        "model": f"tiny/{model.lower()}",
        "source": {"factory": f"{FACTORIES}:{model}", "kwargs": {}, "seed": 3},
        "inputs": [{"name": "x", "shape": ["batch", 8], "generate": {"normal": {}}}],
        "dims": {"batch": {"min": 1, "max": 16, "example": 2}},
        "measure": {"torch_compile": False, "processes": 1},
        **fields,
    }


def child_environ() -> dict[str, str]:
    """The environment of real children: they must find the tiny models."""
    root = Path(__file__).resolve().parents[2]
    paths = [str(root / name) for name in ("registry", "workers", "tests")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PT2HUB_HEADERS": str(PLACE)}


def launcher_of(
    level: Isolation, environ: Mapping[str, str], readable: tuple[Path, ...] = (), **limits: str
) -> Launcher:
    """What starts children at a level.

    Args:
        level: `sandbox` or `process`.
        environ: Of the children.
        readable: Further paths that they may read.
        limits: Settings of the limits, such as PT2HUB_BUILD_DISK.
    """
    return open_launcher(SandboxSettings(level, limits_from_environ(limits), readable=readable), environ)


def toolchain_in(
    scratch: Path,
    environ: Mapping[str, str] | None = None,
    *,
    target: str = "auto",
    level: Isolation = "process",
) -> AotiToolchain:
    """AOTInductor with real children.

    Args:
        scratch: Parent of their rooms.
        environ: Of the children; one with which they find the tiny models where omitted.
        target: What to build for.
        level: `sandbox` or `process`.
    """
    environ = environ or child_environ()
    precompiled_headers.prepare(PLACE)
    launcher = launcher_of(level, environ, readable=(PLACE,))
    return AotiToolchain(launcher, probe_machine(launcher, environ, target), scratch, environ)


class Workbench:
    """Runs builds and remembers what they said.

    Attributes:
        tables: What earlier builds measured, None for nothing.
    """

    def __init__(self, directory: Path, toolchain: AotiToolchain) -> None:
        self.tables: AutotuneTables | None = None
        self.directory = directory
        self.machine = toolchain.machine()
        self.events: list[dict[str, Any]] = []
        self.output: list[str] = []
        self.keys: list[tuple[str, dict[str, Any]]] = []
        self.runs: list[VerificationRun] = []
        self.region_keys: list[list[dict[str, Any]]] = []
        self._toolchain = toolchain
        self._numbers = itertools.count()

    def build(
        self,
        document: dict[str, Any],
        *,
        reuse: dict[str, Any] | None = None,
        golden: dict[str, Any] | None = None,
        weights: Path | None = None,
        source: Path | None = None,
        modules: Path | None = None,
        examples: dict[str, Path] | None = None,
        request: dict[str, Any] | None = None,
        kind: type[Compilation] = Compilation,
        regions: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Runs a build to the end; returns its parts, with the config an artifact would get under `config`."""
        spec = Spec.model_validate(document)
        workspace = Workspaces(self.directory, inside=None).open(f"build{next(self._numbers)}")
        place = workspace.host
        target = TargetSpec.model_validate(
            {"target": self.machine.target.name, "dtype": spec.dtype, **(request or {})}
        )
        job = Job(
            spec=spec,
            request=target,
            target=self.machine.target,
            toolchain=self.machine.toolchain,
            directory=place,
            source=_incoming(workspace, source, "source.zip"),
            weights=_incoming(workspace, weights, "weights.safetensors"),
            golden=golden,
            examples=examples or {},
            host_flags=frozenset(self.machine.cpu_flags),
            factories=(FACTORIES, REGION_MODELS, *DEFAULT_FACTORIES),
            modules=_incoming(workspace, modules, "modules.zip"),
        )
        channel = _Answers(self, spec, workspace, _reusable(workspace, reuse), regions or {})
        build = Build(job, channel, CompilerCount(None))  # type: ignore[arg-type]  # the same methods
        build.compilation = kind
        with own_cache(place), forgetting(place):
            parts = build.run()
        if self.tables and workspace.has(files.AUTOTUNE_TIMES):
            assert self.tables.add(TEAM, workspace.take(files.AUTOTUNE_TIMES))
        paths = {name: str(place / parts[name]) for name in ("code_path", "weights_path")}
        return {**parts, **paths, "config": channel.config(parts), "golden": channel.golden}

    def verify(self, run: VerificationRun, seconds: float) -> dict[str, Any]:
        """Verify an artifact in real child processes."""
        self.runs.append(run)
        listener = Listener(
            progress=lambda text: self.events.append({"event": "progress", "text": text}),
            line=lambda text, level: self.events.append({"event": "log", "text": text, "level": level}),
            output=self.output.append,
        )
        return Verification(
            self._toolchain, seconds=seconds, token=CancellationToken(), listener=listener
        ).run(run)

    @property
    def steps(self) -> list[str]:
        """Names of the finished steps."""
        return [event["name"] for event in self.events if event.get("state") == "done"]


class _Answers:
    """The parent's side of the channel, in memory."""

    def __init__(
        self,
        bench: Workbench,
        spec: Spec,
        workspace: Workspace,
        reuse: dict[str, Any] | None,
        regions: dict[str, Any],
    ) -> None:
        self._bench = bench
        self._spec = spec
        self._workspace = workspace
        self._reuse = reuse
        self._known_regions = regions
        self.golden: dict[str, Any] | None = None

    def send(self, event: str, **values: Any) -> None:
        self._bench.events.append({"event": event, **values})

    def log(self, text: str, level: str = "info") -> None:
        self.send("log", text=text, level=level)

    def detail(self, name: str, text: str) -> None:
        self.send("step", name=name, state="running", detail=text)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        yield
        self.send("step", name=name, state="done", seconds=0.0)

    def ask(self, question: str, **values: Any) -> Any:
        try:
            return getattr(self, f"_{question}")(values)
        except Pt2hubError:
            shutil.rmtree(self._workspace.host / "cache", ignore_errors=True)
            raise

    def config(self, parts: dict[str, Any]) -> dict[str, Any]:
        spec, machine = self._spec, self._bench.machine
        request = {"target": machine.target.name}
        claim = Claim(
            "b", 1, "w", 1, spec.model, 1, spec.identity(), spec.canonical(), request, machine.target, {}
        )
        origin = Origin(claim, machine, NOWHERE, NOWHERE, None, isolation="process")
        found: dict[str, Any] = encode(make_config(read(MessageFields, parts), origin, []))
        return found

    def _weights(self, _: dict[str, Any]) -> str:
        return str(self._workspace.host / files.WEIGHTS)

    def _golden(self, values: dict[str, Any]) -> dict[str, Any]:
        paths = {name: str(self._workspace.host / path) for name, path in files.GOLDEN.items()}
        self.golden = {"document": values["document"], **paths}
        return self.golden

    def _device(self, values: dict[str, Any]) -> None:
        self.send("device", mode=values["mode"])

    def _code(self, values: dict[str, Any]) -> dict[str, Any] | None:
        self._bench.keys.append(("own", values["key"]))
        return self._reuse

    def _regions(self, values: dict[str, Any]) -> dict[str, Any]:
        self._bench.region_keys.append(values["keys"])
        digests = [key["digest"] for key in values["keys"]]
        return {digest: self._known_regions[digest] for digest in digests if digest in self._known_regions}

    def _autotune(self, _: dict[str, Any]) -> str | None:
        tables, path = self._bench.tables, self._workspace.incoming("autotune-times.json")
        return str(path) if tables and tables.fetch(TEAM, path) else None

    def _verify(self, values: dict[str, Any]) -> dict[str, Any]:
        parts, take = values["parts"], self._workspace.take
        run = VerificationRun(
            config=self.config(parts),
            code=take(parts["code_path"]),
            weights=take(parts["weights_path"]),
            inputs=take(files.VERIFICATION_INPUTS),
            expected=take(files.EXPECTED_OUTPUTS),
            accept=list(self._spec.checks.accept),
        )
        return self._bench.verify(run, VERIFICATION_SECONDS)


def _incoming(workspace: Workspace, path: Path | None, name: str) -> Path | None:
    """A file of another build in this one's room."""
    return workspace.give(path, name) if path else None


def _reusable(workspace: Workspace, reuse: dict[str, Any] | None) -> dict[str, Any] | None:
    return {**reuse, "code": str(_incoming(workspace, Path(reuse["code"]), "code.zip"))} if reuse else None


@contextmanager
def own_cache(directory: Path) -> Iterator[None]:
    """Two compilations of one model in one cache directory mix their outputs (docs/facts/aoti.md#one-cache-for-each-build)."""
    name = "TORCHINDUCTOR_CACHE_DIR"
    before = os.environ.get(name)
    os.environ[name] = str(directory / "cache")
    CacheBase.get_local_cache_path.cache_clear()  # a real build has a process of its own
    try:
        yield
    finally:
        os.environ.pop(name) if before is None else os.environ.update({name: before})
        CacheBase.get_local_cache_path.cache_clear()
