"""`pt2hub demo`: the main job from the first publish to a retrained one, in a home of its own, measured."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.errors import InternalError, ServerUnreachable, from_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pt2hub.client.client import Client
    from pt2hub.client.publishing import BuildEvent
    from pt2hub.domain.digests import Digest
    from pt2hub.wire.shapes import BuildView

SPEC: dict[str, Any] = {
    "model": "vision/resnet18",
    "source": {"factory": "torchvision.models:resnet18", "kwargs": {}, "seed": 0},
    "inputs": [
        {"name": "x", "shape": ["batch", 3, 224, 224], "dtype": "float32", "generate": {"normal": {}}}
    ],
    "dims": {"batch": {"min": 1, "max": 32, "example": 2}},
    "targets": ["auto"],
    "checks": {"tolerance": 1.0e-3},
}
CHILD_SECONDS = 600.0
REPEATS = 3
"""Fresh processes per first-inference figure, except torch.compile with cold caches; the median is reported."""


def run(*, say: Callable[[str], None], make_client: Callable[[str, str], Client]) -> dict[str, Any]:
    """Runs the demo.

    Args:
        say: Shows a line of what happens.
        make_client: A client for a URL and a token.

    Returns:
        The measured figures.

    Raises:
        Pt2hubError: A step failed; nothing is left running.
    """
    with tempfile.TemporaryDirectory(prefix="pt2hub-demo-") as folder, ExitStack() as stack:
        demo = _Demo(Path(folder), say, make_client)
        with demo.server():
            first = demo.publish_first()
            timings = demo.first_inferences()
            medians = demo.latencies()
            weights = demo.retrained_weights()
        # A second start of the same home: what was published is still there. The builds of this worker get a
        # compiler that always fails, so that reuse is shown and not said.
        stack.enter_context(demo.server(build_environ={"PT2HUB_BUILD_ENV": "CXX=/bin/false"}))
        second = demo.publish_retrained(weights)
        return {**first, **second, **timings, **medians}


class _Demo:
    def __init__(
        self, folder: Path, say: Callable[[str], None], make_client: Callable[[str, str], Client]
    ) -> None:
        self._home = folder / "home"
        self._folder = folder
        self._say = say
        self._make_client = make_client
        self._client: Client | None = None
        self._environ = {k: v for k, v in os.environ.items() if not k.startswith("PT2HUB_")} | {
            "PT2HUB_HOME": str(self._home),
            "PT2HUB_PORT": "0",
            "PT2HUB_SCRATCH": os.environ.get("PT2HUB_SCRATCH", ""),
        }

    @property
    def _reference(self) -> str:
        return f"{SPEC['model']}@1"

    @contextmanager
    def server(self, build_environ: dict[str, str] | None = None) -> Iterator[None]:
        """`pt2hub up` on the demo's home while the block runs."""
        self._say("pt2hub up: PostgreSQL, API and a worker for this machine")
        started = time.monotonic()
        log = self._folder / "up.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "pt2hub", "up", "--json"],
                env=self._environ | (build_environ or {}),
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,  # Ctrl-C reaches this process, which then stops the server in order
            )
        try:
            url = _await_url(process, log)
            token = _token(self._home)
            self._client = self._make_client(url, token)
            self._say(f"  ready after {time.monotonic() - started:.1f} s at {url}")
            yield
        finally:
            _stop(process)

    def publish_first(self) -> dict[str, Any]:
        """The first publish: export, compile, prove, measure, store."""
        self._say(f"publish {SPEC['model']}: torchvision's resnet18, batch 1 to 32")
        build, seconds = self._publish(SPEC)
        return {
            "first_publish_s": round(seconds, 3),
            "first_publish_steps": _steps(build),
            "artifact_digest": _digest(build),
            "target": build.target,
        }

    def publish_retrained(self, weights: Path) -> dict[str, Any]:
        """The same graph with other weights, on a worker whose builds have no compiler."""
        self._say("publish retrained weights; the worker's builds have CXX=/bin/false")
        client = self._connected()
        first = client.artifact(client.resolve(self._reference).artifacts[0].digest)
        started = time.monotonic()
        digest = client.upload_file(weights)
        build, _ = self._publish({**SPEC, "weights": digest})
        seconds = time.monotonic() - started
        second = client.artifact(_digest(build))
        before, after = _code(first), _code(second)
        provenance = second["config"]["provenance"]
        return {
            "retrained_publish_s": round(seconds, 3),
            "retrained_publish_steps": _steps(build),
            "compiler_processes_retrained": len(provenance["compiler_processes"]),
            "code_reused": provenance["code_reused_from"] == before["digest"]
            and before["digest"] == after["digest"],
            "code_digest": after["digest"],
            "retrained_artifact_digest": _digest(build),
            "code_bytes": after["size"],
            "weights_bytes": second["manifest"]["layers"][1]["size"],
        }

    def first_inferences(self) -> dict[str, float]:
        """Time from `import torch` to the first result, each in a fresh process."""
        self._say("first inference in fresh processes, after import torch")
        self._run("artifact")  # fills the client's cache
        figures = {
            "aot_first_inference_ms": self._median("artifact"),
            "eager_first_inference_ms": self._median("eager"),
        }
        with tempfile.TemporaryDirectory(prefix="pt2hub-caches-") as caches:
            self._environ |= {"TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor", "TMPDIR": caches}
            figures["torch_compile_cold_ms"] = self._shown(
                "torch.compile, cold caches", self._run("torch_compile")
            )
            figures["torch_compile_warm_ms"] = self._median("torch_compile")
        for name in ("TORCHINDUCTOR_CACHE_DIR", "TMPDIR"):
            del self._environ[name]
        return figures

    def latencies(self) -> dict[str, Any]:
        """p50 latency of the three forms, interleaved in one process."""
        self._say("steady latency, batch 2, interleaved in one process")
        found = self._child("latencies")
        p50 = found["p50_ms"]
        for name, value in p50.items():
            self._say(f"  {name:14} p50 {value:8.1f} ms on {found['threads']} threads")
        return {
            "aot_p50_ms": round(p50["artifact"], 3),
            "torch_compile_p50_ms": round(p50["torch_compile"], 3),
            "eager_p50_ms": round(p50["eager"], 3),
            "relative_error": found["relative_error"],
            "threads": found["threads"],
        }

    def retrained_weights(self) -> Path:
        """A weights file of the same model under another seed."""
        path = self._folder / "retrained.safetensors"
        self._child("retrain", str(path))
        return path

    def _publish(self, spec: dict[str, Any]) -> tuple[BuildView, float]:
        started = time.monotonic()
        version = self._connected().publish(spec, wait=True, on_event=self._show)
        seconds = time.monotonic() - started
        build = version.builds[0]
        if build.error:
            raise from_dict(build.error)
        self._say(
            f"  {version.model}@{version.number} for {build.target} proven and stored in {seconds:.1f} s"
        )
        return build, seconds

    def _show(self, event: BuildEvent) -> None:
        if event.step and event.step.state == "done":
            self._say(f"  {event.step.name:14} {event.step.seconds or 0:8.2f} s")

    def _connected(self) -> Client:
        if self._client is None:
            raise InternalError("the demo's server does not run")
        return self._client

    def _median(self, what: str) -> float:
        values = sorted(self._run(what) for _ in range(REPEATS))
        return self._shown(what.replace("_", "."), values[len(values) // 2])

    def _shown(self, name: str, milliseconds: float) -> float:
        self._say(f"  {name:28} {milliseconds:10.1f} ms")
        return milliseconds

    def _run(self, what: str) -> float:
        return round(float(self._child(what)["milliseconds"]), 3)

    def _child(self, what: str, *rest: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "pt2hub_workers.demonstration", what, self._reference, *rest]
        done = subprocess.run(
            command, env=self._environ, capture_output=True, timeout=CHILD_SECONDS, check=False, text=True
        )
        if done.returncode:
            raise InternalError(
                f"the demonstration {what} ended with code {done.returncode}: {done.stderr.strip()[-800:]}",
                where=what,
            )
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


def _digest(build: BuildView) -> Digest:
    if build.artifact is None:
        raise InternalError(f"build {build.id} ended as {build.state} without an artifact")
    return build.artifact


def _steps(build: BuildView) -> dict[str, float]:
    return {step.name: round(step.seconds or 0.0, 3) for step in build.steps}


def _code(artifact: dict[str, Any]) -> dict[str, Any]:
    layer: dict[str, Any] = artifact["manifest"]["layers"][0]
    return layer


def _await_url(process: subprocess.Popen[bytes], log: Path) -> str:
    """Reads the one JSON line that `pt2hub up --json` prints when everything runs."""
    if process.stdout is None:
        raise InternalError("subprocess.PIPE gives a stream")
    line = process.stdout.readline()
    if not line:
        code = process.wait()
        raise ServerUnreachable(
            f"pt2hub up ended with code {code}: {log.read_text(errors='replace').strip()[-800:]}",
            where="pt2hub up",
            hint="Run `pt2hub up` by itself to see the whole message.",
        )
    answer = json.loads(line)
    if error := answer.get("error"):
        raise from_dict(error)
    return str(answer["url"])


def _token(home: Path) -> str:
    from pt2hub.client.config import ClientConfig

    return ClientConfig.from_environ({"PT2HUB_HOME": str(home)}).token or ""


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(60)
        return
    process.kill()
    process.wait()
