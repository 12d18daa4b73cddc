"""One attempt at a rebuild, which builds a published artifact again and stores only the bytes that are damaged.

It changes neither the artifact nor its version: where it makes other bytes, it fails with their digests.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pt2hub.domain.builds import RebuildRequest
from pt2hub.domain.codec import decode
from pt2hub.errors import RebuildDiffers
from pt2hub_workers.builds.attempt import Attempt
from pt2hub_workers.builds.child_answers import Answers
from pt2hub_workers.builds.publication import BlobFile
from pt2hub_workers.inside.operations import files
from pt2hub_workers.operations.retries import retry_outage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pt2hub.domain.builds import Claim
    from pt2hub.domain.digests import Digest
    from pt2hub_workers.builds.build_verification import Verification
    from pt2hub_workers.builds.job import WorkerContext
    from pt2hub_workers.builds.journal import Journal
    from pt2hub_workers.builds.publication import Files
    from pt2hub_workers.operations.cancellation import CancellationToken

_NO_REUSE = "a rebuild reuses no code"
_HINT = (
    "Nothing was replaced by them. Look for the right bytes in caches, mirrors and backups (pt2hub admin heal), or yank "
    "the version and publish it anew; pt2hub delete removes it."
)


class Rebuild(Attempt):
    """One attempt at a rebuild."""

    def __init__(
        self, claim: Claim, context: WorkerContext, journal: Journal, token: CancellationToken
    ) -> None:
        wanted = decode(RebuildRequest, claim.request)
        self._artifact = wanted.artifact
        self._rebuilds = context.container.rebuilds
        super().__init__(replace(claim, request=wanted.request), context, journal, token)

    def _open_answers(self, verification: Verification) -> Answers:
        self._rebuilt = _RebuildAnswers(self._claim, self._context, self._journal, verification, self._token)
        return self._rebuilt

    def run(self) -> None:
        """Run every step; return when everything that was damaged is replaced.

        Raises:
            RebuildDiffers: Some of the bytes are others.
        """
        damaged = retry_outage(lambda: self._rebuilds.damaged(self._artifact), self._token)
        if damaged:
            with ExitStack() as stack, self._device_hold.shared():
                self._replace(stack, damaged)
        else:
            self._journal.line(f"No file of {self._artifact} is damaged any more; nothing is built.")
        with self._journal.time_step("publish"), self._journal.unsent_steps() as steps:
            retry_outage(lambda: self._rebuilds.record(self._claim, steps), self._token)

    def _replace(self, stack: ExitStack, damaged: Mapping[str, Digest]) -> None:
        listed = ", ".join(f"{part} {digest}" for part, digest in damaged.items())
        self._journal.line(f"Rebuilding {self._artifact} to replace {listed}")
        self._rebuilt.begin(damaged.get("version"))
        result = self._run_verified(stack)
        with self._journal.time_step("upload"):
            made, _ = self._answers.verified_output(result)
            self._store(made, damaged)

    def _store(self, made: Files, damaged: Mapping[str, Digest]) -> None:
        """Store the files that have the damaged digests.

        Raises:
            RebuildDiffers: Others have not.
        """
        found = {"code": made.code, "weights": made.weights}
        # The version's weights were stored when the build made them.
        wanted = [(part, found[part], digest) for part, digest in damaged.items() if part in found]
        blobs, holder = self._context.container.blobs, self._claim.holder
        same = [file.chunk for _, file, digest in wanted if file.digest == digest]
        retry_outage(lambda: blobs.store(same, holder=holder), self._token)
        for part, file, digest in wanted:
            if file.digest == digest:
                self._journal.line(f"The {part} has the same bytes, {digest}: the damaged copy is replaced.")
        others = [(part, file, digest) for part, file, digest in wanted if file.digest != digest]
        if others:
            raise _differs([(part, file.digest, digest) for part, file, digest in others])


class _RebuildAnswers(Answers):
    """Answers to a rebuild, which records nothing."""

    _lost: Digest | None = None

    def begin(self, lost: Digest | None) -> None:
        """Begin.

        Args:
            lost: The version's weights if they are damaged, so that the build makes them again.
        """
        self.forbid_reuse(_NO_REUSE)
        if lost is not None:
            self._lost, self._weights = lost, None

    def _answer_weights(self) -> str:
        workspace = self._of_build()
        held = BlobFile.of(workspace.take(files.WEIGHTS))
        if held.digest != self._lost:
            raise _differs([("weights", held.digest, self._lost)])
        self._store(held.chunk)
        self._journal.line(f"The weights have the same bytes, {held.digest}: the damaged copy is replaced.")
        self._weights = held.digest
        return workspace.seen(workspace.give(held.path, "weights.safetensors"))


def _differs(found: list[tuple[str, Digest, Digest | None]]) -> RebuildDiffers:
    listed = "; ".join(f"{part} {made} instead of {wanted}" for part, made, wanted in found)
    context: dict[str, Any] = {part: {"made": made, "wanted": wanted} for part, made, wanted in found}
    return RebuildDiffers(
        f"The rebuild made other bytes: {listed}", where=found[0][2], hint=_HINT, context=context
    )
