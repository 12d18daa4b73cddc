"""One attempt at a build: its steps, and the errors for the ways its process may end."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import structlog

from pt2hub.domain.codec import encode
from pt2hub.errors import (
    ArtifactCrashed,
    ArtifactHung,
    ArtifactWrong,
    BuildTimedOut,
    CompileFailed,
    ExportFailed,
    InternalError,
    ModelInterferes,
    Pt2hubError,
)
from pt2hub_workers.builds.build_verification import Verification, worker_lost
from pt2hub_workers.builds.child_answers import Answers
from pt2hub_workers.builds.child_messages import output_refused, read_log, read_result, read_step
from pt2hub_workers.builds.job import Job, compare_measurements
from pt2hub_workers.builds.publication import compose
from pt2hub_workers.children.child import ChildDied, ChildHung
from pt2hub_workers.operations.retries import retry_outage

if TYPE_CHECKING:
    from pt2hub.domain.builds import Claim
    from pt2hub.domain.publications import Publication
    from pt2hub_workers.builds.child_messages import Result
    from pt2hub_workers.builds.job import WorkerContext
    from pt2hub_workers.builds.journal import Journal
    from pt2hub_workers.operations.cancellation import CancellationToken
    from pt2hub_workers.sandbox.workspaces import Workspace

DEFAULT_SECONDS = 3600
MAX_REPORTS = 1000
"""Reports of steps and their progress; a build sends about twenty, and each is stored or logged."""

_log = structlog.get_logger()


class Attempt(Job):
    """One attempt at a build."""

    def __init__(
        self, claim: Claim, context: WorkerContext, journal: Journal, token: CancellationToken
    ) -> None:
        super().__init__(claim, context, journal, token)
        self._reports = 0
        listener = self.listener(lambda text: journal.step("verify", "running", detail=text))
        verification = Verification(
            context.toolchain, seconds=context.verification_seconds, token=token, listener=listener
        )
        self._answers = self._open_answers(verification)

    def _open_answers(self, verification: Verification) -> Answers:
        return Answers(self._claim, self._context, self._journal, verification, self._token)

    def run(self) -> None:
        """Run every step; return when the artifact is published."""
        # The whole attempt shares the device: hashing a large file disturbs timings as well.
        with ExitStack() as stack:
            with self._device_hold.shared():
                result = self._run_verified(stack)
                with self._journal.time_step("upload"):
                    publication = self._upload(result)
            with self._journal.time_step("publish"), self._journal.unsent_steps() as steps:
                builds = self._context.container.builds
                retry_outage(lambda: builds.publish(self._claim, publication, steps), self._token)
            self._answers.keep_autotune_times()
        compare_measurements(self._context.container)

    def _run_verified(self, stack: ExitStack) -> Result:
        """Run the build and its verification; if reused code fails verification, compile instead."""
        try:
            return self._work(stack)
        except (ArtifactWrong, ArtifactCrashed, ArtifactHung) as error:
            reused = self._answers.reused_code
            if not reused:
                raise
            code = ", ".join(reused)
            self._journal.line(f"Reused code {code} failed verification, compiling instead: {error}", "error")
            _log.error("reused code failed", build=self._claim.build, code=code, error=error.code)
        self._answers.forbid_reuse()
        stack.close()  # nothing of the first try may be left for the second
        self._device_hold.become("shared")
        return self._work(stack)

    def _work(self, stack: ExitStack) -> Result:
        with self._journal.time_step("fetch"):
            child = self._context.toolchain.take("build")
            stack.callback(child.close)
            job = self._job(child.workspace)
        try:
            value = child.work(
                job,
                on_event=self._on_event,
                on_output=self._journal.add_output,
                seconds=float(self._claim.spec.get("limits", {}).get("seconds", DEFAULT_SECONDS)),
                token=self._token,
            )
        except ChildHung as hung:
            raise BuildTimedOut(
                f"the build took longer than {hung.seconds:g} s (step: {hung.doing})",
                where=hung.doing,
                hint="Raise limits.seconds in the spec, or reduce the autotuning options.",
            ) from hung
        except ChildDied as died:
            raise self._death_error(died) from died
        return read_result(value)

    def _job(self, workspace: Workspace) -> dict[str, Any]:
        claim = self._claim
        return {
            "spec": claim.spec,
            "request": claim.request,
            "target": encode(claim.target),
            "toolchain": encode(self._context.machine.toolchain),
            "directory": str(workspace.inside),
            **self._answers.fetch(workspace),
            "host_flags": list(self._context.machine.cpu_flags),
            "factories": list(self._context.factories),
        }

    def _death_error(self, died: ChildDied) -> Pt2hubError:
        if died.from_outside:
            return worker_lost(died, "the build's process")
        step = self._step
        if died.by_itself and step not in ("fetch", "compile"):
            kind = ModelInterferes if died.lost_channel else ExportFailed
            return kind(
                f"the build's process {died.how} (step: {step})",
                where=step,
                hint="A model must not end or stop its process, or close its file descriptors.",
            )
        context = {"signal": died.signal_name}
        if step not in ("fetch", "compile"):  # the model's code is imported in that process
            return ExportFailed(
                f"the build's process {died.how} (step: {died.doing}): the model's code, or a library that it calls, "
                "crashed",
                where=step,
                hint="The build's log has its last output. Import the code and call the model at the spec's sizes in a "
                "fresh process of `python -X faulthandler`, which names the line.",
                context=context,
            )
        error = CompileFailed if step == "compile" else InternalError
        return error(
            f"the build's process {died.how} (step: {died.doing})",
            where=died.doing,
            hint="The build's log has its last output.",
            context=context,
        )

    def _on_event(self, message: dict[str, Any]) -> Any:
        match message["event"]:
            case "ask" if message.get("question") == "device":
                self._device_hold.become("exclusive" if message.get("mode") == "exclusive" else "shared")
                return None
            case "ask":
                return self._answers.answer(message)
            case "step":
                self._reports += 1
                if self._reports > MAX_REPORTS:
                    raise output_refused(f"it sent more than {MAX_REPORTS} reports of steps")
                step = read_step(message)
                self._step = step.name
                seconds = (
                    None if step.seconds is None else self._journal.without_waits(step.name, step.seconds)
                )
                self._journal.step(step.name, step.state, seconds=seconds, detail=step.detail)
            case "log":
                level, lines = read_log(message)
                for line in lines:
                    self._journal.line(line, level)
            case other:
                raise output_refused(f"unknown event {other[:40]!r}")
        return None

    def _upload(self, result: Result) -> Publication:
        files, config = self._answers.verified_output(result)
        publication, chunks = compose(files, result, config, self._journal.now())
        blobs = self._context.container.blobs
        retry_outage(lambda: blobs.store(chunks, holder=self._claim.holder), self._token)
        return publication
