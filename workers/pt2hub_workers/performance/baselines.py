"""Baselines of an artifact, eager and torch.compile: a sandboxed process rebuilds the model from its source."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pt2hub.domain.codec import encode
from pt2hub.domain.performance.measurements import Measurement
from pt2hub.errors import OutputRefused, Pt2hubError
from pt2hub_workers.builds.build_inputs import BuildInputs
from pt2hub_workers.children.child import ChildDied, ChildHung
from pt2hub_workers.inside.operations import files
from pt2hub_workers.performance.implementations import MAX_NOTE
from pt2hub_workers.performance.measurements import TORCH_COMPILE, combine_baselines, read_baselines
from pt2hub_workers.performance.traces import Trace, read_trace

if TYPE_CHECKING:
    from pt2hub.domain.builds import Claim
    from pt2hub_workers.builds.job import WorkerContext
    from pt2hub_workers.performance.implementations import Implementation
    from pt2hub_workers.performance.measurements import Times
    from pt2hub_workers.performance.replicates import BenchmarkContext
    from pt2hub_workers.sandbox.workspaces import Workspace


@dataclass(frozen=True, slots=True)
class BaselineResult:
    """Result of timing the baselines.

    Attributes:
        note: Why there are no measurements, or None.
        trace: Some calls of torch.compile under a profiler, after the last timing; None if not requested or not available.
    """

    measurements: list[Measurement] = field(default_factory=list)
    note: str | None = None
    trace: Trace | None = None


class Baselines:
    """Benchmark of eager and torch.compile next to the artifact of one version."""

    def __init__(self, claim: Claim, context: WorkerContext, benchmark: BenchmarkContext) -> None:
        self._claim = claim
        self._context = context
        self._benchmark = benchmark
        self._asked = False
        self._began = 0.0
        self._times: Times | None = None

    def measure(self, artifact: Implementation, *, profiled: bool) -> BaselineResult:
        """Time eager and torch.compile; the artifact's own measurements do not depend on them.

        Args:
            profiled: Whether some calls of torch.compile are traced after the last timing.
        """
        try:
            trace = self._measure(artifact, profiled=profiled)
        except (Pt2hubError, OSError, ChildDied, ChildHung) as error:
            self._benchmark.token.check()
            why = _explain(error)[:MAX_NOTE]
            if self._times is None:
                self._benchmark.listener.line(f"Eager and torch.compile are not measured: {why}", "warning")
                return BaselineResult(note=f"eager and torch.compile are not measured: {why}")
            self._log_missing_trace(why)
            trace = None
        finally:
            if not self._benchmark.token.is_set():
                self._benchmark.become("shared")
        return BaselineResult(combine_baselines(self._times) if self._times else [], trace=trace)

    def _measure(self, artifact: Implementation, *, profiled: bool) -> Trace | None:
        """Have a process time the baselines; return its trace of torch.compile."""
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
                "profile": profiled,
                **inputs.fetch(workspace, self._context.container.storage, self._benchmark.token),
            }
            self._began = time.monotonic()
            value = child.work(
                job,
                on_event=self._on_event,
                on_output=self._benchmark.listener.output,
                seconds=float(self._claim.spec.get("limits", {}).get("seconds", 3600)),
                token=self._benchmark.token,
            )
            if self._times is None:
                self._keep(value)
            return self._take_trace(workspace, artifact) if profiled else None

    def _on_event(self, message: dict[str, Any]) -> None:
        """Lock the device exclusively at the first request, since only timing follows, and keep the measurements."""
        question = message.get("question") if message["event"] == "ask" else None
        if question == "device" and not self._asked:
            self._asked = True
            self._benchmark.become("exclusive")
        elif question == "last" and self._times is None:
            self._keep(message.get("figures"))
        else:
            self._benchmark.listener.hear(message, "measure")

    def _keep(self, figures: Any) -> None:
        """Keep the measurements; the profiler may end the process from now on."""
        self._times = read_baselines(figures, seconds=time.monotonic() - self._began)

    def _take_trace(self, workspace: Workspace, artifact: Implementation) -> Trace | None:
        """Read the trace of the process; log and drop an invalid one."""
        own = self._times.of(TORCH_COMPILE) if self._times else None
        if own is None or not workspace.has(files.TRACE):
            return None
        try:
            trace = read_trace(workspace.take(files.TRACE), artifact.config.signature.device)
        except (OutputRefused, OSError) as error:
            self._log_missing_trace(_explain(error))
            return None
        times = own.batches[0]
        return replace(trace, batch=times.batch, plain_us=round(times.p50 * 1000, 3))

    def _log_missing_trace(self, why: str) -> None:
        self._benchmark.listener.line(f"No trace of torch.compile was recorded: {why}"[:MAX_NOTE], "warning")


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
