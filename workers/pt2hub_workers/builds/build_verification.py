"""Verification of an artifact: one process runs it, another one compares its outputs with the expected ones.

The first runs unverified code. The second runs none of it and never loads torch, so that anything the artifact forges
is at most a wrong output.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.errors import (
    ArtifactCrashed,
    ArtifactHung,
    ArtifactWrong,
    InternalError,
    OutputRefused,
    Pt2hubError,
    WorkerLost,
)
from pt2hub_workers.builds.child_messages import MAX_DETAIL, read_log
from pt2hub_workers.children.child import ChildDied, ChildHung
from pt2hub_workers.inside.operations.files import ARTIFACT_OUTPUTS

if TYPE_CHECKING:
    from pt2hub_workers.builds.toolchains import ChildHandle, Toolchain
    from pt2hub_workers.operations.cancellation import CancellationToken
    from pt2hub_workers.sandbox.workspaces import Workspace


@dataclass(frozen=True, slots=True)
class VerificationRun:
    """Artifact to verify. Its files were moved out of the build's workspace."""

    config: dict[str, Any]
    code: Path
    weights: Path
    inputs: Path
    expected: Path
    accept: list[str]


@dataclass(frozen=True, slots=True)
class Listener:
    """Callbacks for progress, log lines and output of a child process."""

    progress: Callable[[str], object]
    line: Callable[[str, str], object]
    output: Callable[[str], None]

    def hear(self, message: dict[str, Any], step: str) -> None:
        """Handle a message of a process that asks no questions.

        Raises:
            OutputRefused: It is neither progress nor a log message.
        """
        text = message.get("text")
        if message["event"] == "progress" and isinstance(text, str):
            self.progress(text[:MAX_DETAIL] or "working")
        elif message["event"] == "log":
            level, lines = read_log(message)
            for line in lines:
                self.line(line, level)
        else:
            raise OutputRefused(f"unexpected message {message['event'][:40]!r}", where=step)


class Verification:
    """Verifies artifacts in child processes."""

    def __init__(
        self, toolchain: Toolchain, *, seconds: float, token: CancellationToken, listener: Listener
    ) -> None:
        self._toolchain = toolchain
        self._seconds = seconds
        self._token = token
        self._listener = listener

    def run(self, run: VerificationRun) -> dict[str, Any]:
        """Run the artifact in a fresh process, and compare its outputs in another one.

        Raises:
            ArtifactCrashed: The process ended by itself, such as by a signal of a fault.
            ArtifactHung: The process did not answer in time.
            ArtifactWrong: The outputs are wrong, or the process broke the protocol.
        """
        with closing(self._toolchain.take("artifact")) as child:
            runs = self._run_artifact(child, run)
            found = _take_outputs(child.workspace)
            return self._compare(run, runs, found)

    def _run_artifact(self, child: ChildHandle, run: VerificationRun) -> Any:
        workspace = child.workspace
        files = {name: getattr(run, name) for name in ("code", "weights", "inputs")}
        names = {"code": "code.zip", "weights": "weights.safetensors", "inputs": "inputs.safetensors"}
        job = {
            "directory": str(workspace.inside),
            "config": run.config,
            "found": workspace.seen(workspace.host / ARTIFACT_OUTPUTS),
            **{name: workspace.seen(workspace.give(path, names[name])) for name, path in files.items()},
        }
        try:
            return self._work(child, job)
        except ChildHung as hung:
            raise ArtifactHung(
                f"the artifact did not answer within {hung.seconds:g} s (step: {hung.doing})",
                where="verify",
                hint="It was not published. Its last output is in the build's log.",
            ) from hung
        except ChildDied as died:
            raise _artifact_died(died) from died
        except OutputRefused as error:
            raise _artifact_wrong(error) from error

    def _compare(self, run: VerificationRun, runs: Any, found: Path) -> dict[str, Any]:
        with closing(self._toolchain.take("verify")) as child:
            workspace = child.workspace
            job = {
                "expected": workspace.seen(workspace.give(run.expected, "expected.safetensors")),
                "found": workspace.seen(workspace.give(found, "found.safetensors")),
                "runs": runs,
                "device": run.config["target"]["device"],
                "accept": run.accept,
            }
            try:
                report: dict[str, Any] = self._work(child, job)
            except (ChildHung, ChildDied) as ended:
                raise _comparison_ended(ended) from ended
            return report

    def _work(self, child: ChildHandle, job: dict[str, Any]) -> Any:
        return child.work(
            job,
            on_event=lambda message: self._listener.hear(message, "verify"),
            on_output=self._listener.output,
            seconds=self._seconds,
            token=self._token,
        )


def _take_outputs(workspace: Workspace) -> Path:
    try:
        return workspace.take(ARTIFACT_OUTPUTS)
    except OutputRefused as error:
        raise _artifact_wrong(error) from error


def _artifact_wrong(error: OutputRefused) -> ArtifactWrong:
    return ArtifactWrong(
        f"the artifact's process broke the protocol: {error.message}",
        where="verify",
        hint="It was not published. Its last output is in the build's log.",
    )


def _artifact_died(died: ChildDied) -> Pt2hubError:
    if died.from_outside:
        return worker_lost(died, "the artifact's process")
    return ArtifactCrashed(
        f"the artifact's process {died.how} (step: {died.doing})",
        where="verify",
        hint="It was not published. A known cause is a compiler that links libstdc++ statically: "
        "set CXX to the system's g++.",
        context={"signal": died.signal_name, "doing": died.doing},
    )


def _comparison_ended(ended: ChildDied | ChildHung) -> Pt2hubError:
    if isinstance(ended, ChildDied) and ended.from_outside:
        return worker_lost(ended, "the comparing process")
    return InternalError(
        f"the process that compares the artifact's outputs failed: {ended}",
        where="verify",
        hint="No code of the artifact runs in this process. Please report this with the build's log.",
    )


def worker_lost(died: ChildDied, what: str) -> WorkerLost:
    """Return the error of a child that was killed from outside."""
    return WorkerLost(
        f"{what} was killed from outside by {died.signal_name} (step: {died.doing})",
        where=died.doing,
        hint="The likely cause is a lack of memory: see the kernel's log, or run fewer builds at a time on that machine.",
        context={"signal": died.signal_name},
    )
