"""Baselines of an artifact, eager and torch.compile: a sandboxed process rebuilds the model from its source."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from pt2hub.domain.codec import encode
from pt2hub.errors import Pt2hubError
from pt2hub_workers.builds.build_inputs import BuildInputs
from pt2hub_workers.children.child import ChildDied, ChildHung
from pt2hub_workers.performance.implementations import MAX_NOTE
from pt2hub_workers.performance.measurements import read_baselines

if TYPE_CHECKING:
    from pt2hub.domain.builds import Claim
    from pt2hub.domain.performance.measurements import Measurement
    from pt2hub_workers.builds.job import WorkerContext
    from pt2hub_workers.performance.implementations import Implementation
    from pt2hub_workers.performance.replicates import BenchmarkContext


class Baselines:
    """Benchmark of eager and torch.compile next to the artifact of one version."""

    def __init__(self, claim: Claim, context: WorkerContext, benchmark: BenchmarkContext) -> None:
        self._claim = claim
        self._context = context
        self._benchmark = benchmark
        self._asked = False

    def measure(self, artifact: Implementation) -> tuple[list[Measurement], str | None]:
        """Time eager and torch.compile.

        Returns:
            The measurements and None, or no measurements and the reason; the artifact's own do not depend on them.
        """
        try:
            return self._measure(artifact), None
        except (Pt2hubError, OSError, ChildDied, ChildHung) as error:
            self._benchmark.token.check()
            why = _explain(error)[:MAX_NOTE]
            self._benchmark.listener.line(f"Eager and torch.compile are not measured: {why}", "warning")
            return [], f"eager and torch.compile are not measured: {why}"
        finally:
            if not self._benchmark.token.is_set():
                self._benchmark.become("shared")

    def _measure(self, artifact: Implementation) -> list[Measurement]:
        with closing(self._benchmark.toolchain.take("baselines")) as child:
            workspace = child.workspace
            inputs = BuildInputs.of(self._claim, self._claim.weights)
            job = {
                "directory": str(workspace.inside),
                "spec": self._claim.spec,
                "request": artifact.request,
                "factories": list(self._context.factories),
                "config": encode(artifact.config),
                "code": workspace.seen(workspace.give(artifact.code, "artifact-code.zip")),
                "layer": workspace.seen(workspace.give(artifact.weights, "artifact-weights.safetensors")),
                **inputs.fetch(workspace, self._context.container.storage, self._benchmark.token),
            }
            began = time.monotonic()
            value = child.work(
                job,
                on_event=self._on_event,
                on_output=self._benchmark.listener.output,
                seconds=float(self._claim.spec.get("limits", {}).get("seconds", 3600)),
                token=self._benchmark.token,
            )
        return read_baselines(value, seconds=time.monotonic() - began)

    def _on_event(self, message: dict[str, Any]) -> None:
        """Lock the device exclusively at the first request: only timing follows."""
        if message["event"] == "ask" and message.get("question") == "device" and not self._asked:
            self._asked = True
            self._benchmark.become("exclusive")
        else:
            self._benchmark.listener.hear(message, "measure")


def _explain(error: Exception) -> str:
    match error:
        case ChildDied():
            return f"their process {error.how} (step: {error.doing})"
        case ChildHung():
            return f"their process did not answer within {error.seconds:g} s (step: {error.doing})"
        case Pt2hubError():
            return error.message
        case _:
            return str(error)
