"""Builds without a server: the build's code in this process, the gate in a real child."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.domain.builds import Claim
from pt2hub.domain.codec import encode
from pt2hub.domain.digests import Digest
from pt2hub.domain.specs import Spec, TargetSpec
from pt2hub.errors import Pt2hubError
from pt2hub_workers.gating import run_gate
from pt2hub_workers.halting import Halt
from pt2hub_workers.inside.build import Build, Job
from pt2hub_workers.inside.compiling import CompilerCount
from pt2hub_workers.publication import Origin, make_config
from pt2hub_workers.toolchains import AotiToolchain

if TYPE_CHECKING:
    from collections.abc import Iterator

FACTORIES = "support.tiny_models"
NOWHERE = Digest("sha256:" + "0" * 64)


def tiny_spec(model: str = "Mlp", **fields: Any) -> dict[str, Any]:
    """A spec for one of the tiny models; `x` is [batch, 8] unless told otherwise."""
    return {
        "model": f"tiny/{model.lower()}",
        "source": {"factory": f"{FACTORIES}:{model}", "kwargs": {}, "seed": 3},
        "inputs": [{"name": "x", "shape": ["batch", 8], "generate": {"normal": {}}}],
        "dims": {"batch": {"min": 1, "max": 16, "example": 2}},
        "measure": {"torch_compile": False},
        **fields,
    }


def child_environ() -> dict[str, str]:
    """The environment of real children: they must find the tiny models."""
    root = Path(__file__).resolve().parents[2]
    paths = [str(root / name) for name in ("registry", "workers", "tests")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


class Workbench:
    """Runs builds and remembers what they said."""

    def __init__(self, directory: Path, toolchain: AotiToolchain) -> None:
        self.directory = directory
        self.machine = toolchain.machine()
        self.events: list[dict[str, Any]] = []
        self.output: list[str] = []
        self._toolchain = toolchain

    def build(
        self,
        document: dict[str, Any],
        *,
        reuse: dict[str, Any] | None = None,
        golden: dict[str, Any] | None = None,
        weights: Path | None = None,
        request: dict[str, Any] | None = None,
        kind: type[Build] = Build,
        gate_seconds: float = 120.0,
    ) -> dict[str, Any]:
        """Runs a build to the end; returns its parts, with the config an artifact would get under `config`."""
        spec = Spec.model_validate(document)
        number = len(list(self.directory.iterdir()))
        place = self.directory / str(number)
        for name in ("in", "out", "tmp", "cache"):
            (place / name).mkdir(parents=True)
        target = TargetSpec.model_validate({"target": self.machine.target.name, **(request or {})})
        job = Job(
            spec=spec,
            request=target,
            target=self.machine.target,
            toolchain=self.machine.toolchain,
            directory=place,
            weights=weights,
            golden=golden,
            examples={},
            host_flags=frozenset(self.machine.cpu_flags),
            factories=(FACTORIES, "torchvision.models"),
        )
        channel = _Answers(self, spec, place, reuse, gate_seconds)
        with _caches_in(place):
            parts = kind(job, channel, CompilerCount(None)).run()  # type: ignore[arg-type]  # the same methods
        return {**parts, "config": channel.config(parts), "directory": place, "golden": channel.golden}

    def gate(self, job: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The gate in a real child."""
        return run_gate(
            job,
            self._toolchain,
            seconds=seconds,
            halt=Halt(),
            on_event=self.events.append,
            on_output=self.output.append,
        )

    @property
    def steps(self) -> list[str]:
        """Names of the finished steps."""
        return [event["name"] for event in self.events if event.get("state") == "done"]


class _Answers:
    """The parent's side of the channel, in memory."""

    def __init__(
        self, bench: Workbench, spec: Spec, place: Path, reuse: dict[str, Any] | None, gate_seconds: float
    ) -> None:
        self._bench = bench
        self._spec = spec
        self._place = place
        self._reuse = reuse
        self._gate_seconds = gate_seconds
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
            shutil.rmtree(self._place / "cache", ignore_errors=True)
            raise

    def config(self, parts: dict[str, Any]) -> dict[str, Any]:
        spec, machine = self._spec, self._bench.machine
        request = {"target": machine.target.name}
        claim = Claim(
            "b", 1, "w", 1, spec.model, 1, spec.identity(), spec.canonical(), request, machine.target, {}
        )
        found: dict[str, Any] = encode(make_config(parts, Origin(claim, machine, NOWHERE, NOWHERE, None), []))
        return found

    def _weights(self, values: dict[str, Any]) -> str:
        return str(values["path"])

    def _golden(self, values: dict[str, Any]) -> dict[str, Any]:
        paths = {n: f"{values['directory']}/golden-{n}.safetensors" for n in ("inputs", "outputs")}
        self.golden = {"document": values["document"], **paths}
        return self.golden

    def _device(self, values: dict[str, Any]) -> None:
        self.send("device", mode=values["mode"])

    def _code(self, _: dict[str, Any]) -> dict[str, Any] | None:
        return self._reuse

    def _config(self, values: dict[str, Any]) -> dict[str, Any]:
        return self.config(values["parts"])

    def _verify(self, values: dict[str, Any]) -> dict[str, Any]:
        parts = values["parts"]
        job = {
            "directory": str(self._place),
            "config": self.config(parts),
            "code": parts["code_path"],
            "weights": parts["weights_path"],
            "reference": values["reference"],
            "accept": list(self._spec.checks.accept),
        }
        return self._bench.gate(job, self._gate_seconds)


@contextmanager
def _caches_in(place: Path) -> Iterator[None]:
    name = "TORCHINDUCTOR_CACHE_DIR"
    before = os.environ.get(name)
    os.environ[name] = str(place / "cache")
    try:
        yield
    finally:
        os.environ.pop(name) if before is None else os.environ.update({name: before})


@contextmanager
def workbench(directory: Path) -> Iterator[Workbench]:
    """A workbench with its pool of real children."""
    toolchain = AotiToolchain(child_environ())
    try:
        yield Workbench(directory, toolchain)
    finally:
        toolchain.close()
