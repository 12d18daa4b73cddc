"""Answers to the questions of a build's process, and the blobs that the attempt knows so far.

The process runs users' code. It names files relative to its workspace; each is moved out of its reach first, and then
hashed, verified and stored.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pt2hub.domain.artifacts import NO_TENSORS, Constants, ProgramKey
from pt2hub.domain.codec import encode
from pt2hub.domain.digests import Digest, canonical_json, digest_bytes
from pt2hub.domain.publishing.compile_options import run_dtype, weights_form
from pt2hub.domain.publishing.spec_settings import debug_logs
from pt2hub.errors import InternalError
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.services.blobs.blob_writes import BlobChunk
from pt2hub_workers.builds.build_inputs import BuildInputs
from pt2hub_workers.builds.build_verification import VerificationRun
from pt2hub_workers.builds.child_messages import MessageFields, output_refused, read
from pt2hub_workers.builds.debug_logs import pack_debug_logs
from pt2hub_workers.builds.publication import BlobFile, Files, Origin, make_config
from pt2hub_workers.builds.region_answers import RegionAnswers, explain_compile
from pt2hub_workers.inside.operations import files
from pt2hub_workers.operations.retries import retry_outage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pt2hub.domain.artifacts import ArtifactConfig
    from pt2hub.domain.builds import Claim
    from pt2hub.domain.publications import ReusableCode, ReusableRegion
    from pt2hub_workers.builds.build_verification import Verification
    from pt2hub_workers.builds.child_messages import Result
    from pt2hub_workers.builds.job import WorkerContext
    from pt2hub_workers.builds.journal import Journal
    from pt2hub_workers.operations.cancellation import CancellationToken
    from pt2hub_workers.sandbox.workspaces import Workspace

UNRECORDED = Digest("sha256:" + "0" * 64)
"""Placeholder of the version's golden blob, in configs that are loaded for verification only."""

_NO_DEBUG_LOGS = (
    "compile.debug: nothing is compiled, so no debug logs are recorded. The artifact shows those of the artifact that its "
    "code was compiled for, if that has any."
)
_NO_WEIGHTS = digest_bytes(NO_TENSORS)


@dataclass(frozen=True, slots=True)
class VerifiedArtifact:
    """An artifact that passed verification, and exactly what is published of it."""

    fields: MessageFields
    files: Files
    report: dict[str, Any]


class Answers:
    """Blobs of an attempt, and the answers to its build."""

    def __init__(
        self,
        claim: Claim,
        context: WorkerContext,
        journal: Journal,
        verification: Verification,
        token: CancellationToken,
    ) -> None:
        self._claim = claim
        self._context = context
        self._journal = journal
        self._verification = verification
        self._token = token
        self._storage = context.container.storage
        self._blobs = context.container.blobs
        self._builds = context.container.builds
        self._weights = claim.weights
        self._golden = claim.golden
        self._baked = weights_form(claim.spec, claim.request) == "baked"
        self._no_reuse = ""
        self._reused: Digest | None = None
        self._workspace: Workspace | None = None
        self._asked: set[str] = set()
        self._verified: VerifiedArtifact | None = None
        self._regions = RegionAnswers(self._find_regions, self._fetch, journal.line)
        self._answers: dict[str, Callable[[dict[str, Any]], Any]] = {
            "weights": lambda _: self._answer_weights(),
            "golden": self._answer_golden,
            "code": self._answer_code,
            "regions": lambda message: self._regions.answer(message, no_reuse=self._no_reuse),
            "autotune": lambda _: self._answer_autotune(),
            "verify": lambda message: self._verify(read(MessageFields, message.get("parts"))),
        }

    @property
    def reused_code(self) -> tuple[Digest, ...]:
        """Code layers that this attempt reuses, or parts of which it received."""
        return (self._reused,) if self._reused else self._regions.layers

    def forbid_reuse(self, because: str = "reused code failed verification") -> None:
        """Make the next try compile.

        Args:
            because: The reason, for the log.
        """
        self._reused, self._no_reuse = None, because

    def fetch(self, workspace: Workspace) -> dict[str, Any]:
        """Fetch a build's inputs into its workspace, which answers will use as well."""
        self._workspace = workspace
        self._asked.clear()
        self._regions.forget()
        golden = self._golden
        inputs = BuildInputs.of(self._claim, self._weights)
        fetched = inputs.fetch(workspace, self._storage, self._token)
        return {**fetched, "golden": self._fetch_golden(golden) if golden else None}

    def answer(self, message: dict[str, Any]) -> Any:
        """Return the answer to a question. Each may be asked once, which bounds what a build can store and cause."""
        question = message.get("question")
        if not isinstance(question, str) or question not in self._answers:
            raise output_refused(f"unknown question {str(question)[:40]!r}")
        if question in self._asked:
            raise output_refused(f"question {question!r} was asked twice")
        self._asked.add(question)
        return self._answers[question](message)

    def verified_output(self, result: Result) -> tuple[Files, ArtifactConfig]:
        """Return the files and the config to publish.

        Args:
            result: Result of the build's process; the verification report takes precedence over its fields.
        """
        verified = self._verified
        if verified is None or self._golden is None:
            raise output_refused("the build ended without verification or without golden outputs")
        report = {**result.verification, **verified.report}
        return verified.files, self._config(verified.fields, report)

    def _answer_weights(self) -> str:
        workspace = self._of_build()
        held = BlobFile.of(workspace.take(files.WEIGHTS))
        self._store(held.chunk)
        self._weights = retry_outage(
            lambda: self._builds.record_weights(self._claim, held.digest), self._token
        )
        if self._weights == held.digest:
            return workspace.seen(workspace.give(held.path, "weights.safetensors"))
        self._journal.line("Another build of this version recorded its weights first; using those.")
        return self._fetch(self._weights, "weights.safetensors")

    def _answer_golden(self, message: dict[str, Any]) -> dict[str, Any]:
        workspace, document = self._of_build(), message.get("document")
        held = {name: BlobFile.of(workspace.take(path)) for name, path in files.GOLDEN.items()}
        if not isinstance(document, dict) or any(document.get(n) != held[n].digest for n in held):
            raise output_refused("the golden document does not match its files")
        data = canonical_json(document)
        own = digest_bytes(data)
        self._store(*(item.chunk for item in held.values()), BlobChunk(StorageKey.blob(own), len(data), data))
        parts = [item.digest for item in held.values()]
        self._golden = retry_outage(lambda: self._builds.record_golden(self._claim, own, parts), self._token)
        if self._golden != own:
            return self._fetch_golden(self._golden)
        return {
            "document": document,
            **{name: workspace.seen(workspace.host / path) for name, path in files.GOLDEN.items()},
        }

    def _find_code(self, key: ProgramKey) -> ReusableCode | None:
        return self._builds.find_code(key.digest, model=self._claim.model)

    def _find_regions(self, keys: Sequence[Digest]) -> dict[Digest, ReusableRegion]:
        model = self._claim.model
        return retry_outage(lambda: self._builds.find_regions(keys, model=model), self._token)

    def _answer_code(self, message: dict[str, Any]) -> dict[str, Any] | None:
        key = read(ProgramKey, message.get("key"))
        may_reuse = not self._no_reuse and not key.never_reused
        found = retry_outage(lambda: self._find_code(key), self._token) if may_reuse else None
        if found is None:
            self._journal.line(f"Program key {key.digest}: compiling, {explain_compile(key, self._no_reuse)}")
            return None
        self._reused = found.code.digest
        self._journal.line(f"Program key {key.digest}: reusing code {found.code.digest}.")
        if debug_logs(self._claim.spec):
            self._journal.line(_NO_DEBUG_LOGS, "warning")
        path = self._fetch(found.code.digest, "code.zip")
        return {"code": path, "config": encode(found.config), "artifact": found.code.digest}

    def _answer_autotune(self) -> str | None:
        """Return the path of the times that earlier builds of the team measured on such a machine."""
        tables, workspace = self._context.autotune_tables, self._of_build()
        path = workspace.incoming("autotune-times.json")
        return workspace.seen(path) if tables and tables.fetch(self._team, path) else None

    def keep_autotune_times(self) -> None:
        """Keep what the build measured, for later builds of the team."""
        tables, workspace = self._context.autotune_tables, self._of_build()
        if tables and workspace.has(files.AUTOTUNE_TIMES):
            tables.add(self._team, workspace.take(files.AUTOTUNE_TIMES))

    @property
    def _team(self) -> str:
        return self._claim.model.partition("/")[0]

    def _verify(self, fields: MessageFields) -> dict[str, Any]:
        """Verify an artifact; return the report."""
        workspace = self._of_build()
        own = self._files(fields)
        run = VerificationRun(
            config=encode(self._config(fields)),
            code=own.code.path,
            weights=own.weights.path,
            inputs=workspace.take(files.VERIFICATION_INPUTS),
            expected=workspace.take(files.EXPECTED_OUTPUTS),
            accept=list(self._claim.spec.get("checks", {}).get("accept", [])),
        )
        report = self._verification.run(run)
        self._verified = VerifiedArtifact(fields, own, report)
        return report

    def _files(self, fields: MessageFields) -> Files:
        workspace = self._of_build()
        if fields.dtype != run_dtype(self._claim.spec, self._claim.request):
            raise output_refused("the artifact's dtype differs from the request")
        weights = BlobFile.of(workspace.take(fields.weights_path))
        # Baked weights are verified at the version's own values only, so they need an explicit request.
        if read(Constants, fields.constants).baked != self._baked:
            raise output_refused(
                "the form of the artifact's weights (baked or separate) differs from the request"
            )
        if self._baked and weights.digest != _NO_WEIGHTS:
            raise output_refused("the weights layer of an artifact with baked weights must be empty")
        if not self._baked and fields.dtype is None and weights.digest != self._weights:
            raise output_refused("the artifact's weights differ from the version's")
        code = BlobFile.of(workspace.take(fields.code_path))
        if self._reused not in (None, code.digest):
            raise output_refused("the artifact's code differs from the code to reuse")
        self._regions.check(fields, reused=self._reused)
        return Files(
            code,
            weights,
            self._if_compiled(files.SOURCES),
            self._if_compiled(files.FUSION),
            None if self._reused else pack_debug_logs(workspace, debug_logs(self._claim.spec)),
        )

    def _if_compiled(self, relative: str) -> BlobFile | None:
        """Return a file about generated code; None if code was reused or the child wrote none."""
        workspace = self._of_build()
        if self._reused or not workspace.has(relative):
            return None
        return BlobFile.of(workspace.take(relative))

    def _config(self, fields: MessageFields, verification: dict[str, Any] | None = None) -> ArtifactConfig:
        if self._weights is None:
            raise output_refused("the build recorded no weights")
        context = self._context
        origin = Origin(
            claim=self._claim,
            machine=context.machine,
            weights=self._weights,
            golden=self._golden or UNRECORDED,
            reused=self._reused,
            isolation=context.toolchain.isolation,
            isolation_profile=context.toolchain.isolation_profile,
            image=context.image,
        )
        return make_config(fields, origin, self._journal.timings, verification)

    def _store(self, *chunks: BlobChunk) -> None:
        retry_outage(lambda: self._blobs.store(chunks, holder=self._claim.holder), self._token)

    def _fetch(self, digest: Digest, name: str) -> str:
        """Fetch a blob into the build's workspace; return its path as the build sees it."""
        workspace = self._of_build()
        path = workspace.incoming(name)
        retry_outage(lambda: self._storage.fetch(StorageKey.blob(digest), path), self._token)
        return workspace.seen(path)

    def _fetch_golden(self, digest: Digest) -> dict[str, Any]:
        key = StorageKey.blob(digest)
        document = json.loads(retry_outage(lambda: b"".join(self._storage.read(key)), self._token))
        paths = {
            name: self._fetch(Digest(document[name]), f"golden-{name}.safetensors") for name in files.GOLDEN
        }
        return {"document": document, **paths}

    def _of_build(self) -> Workspace:
        if self._workspace is None:
            raise InternalError("the build asked a question before it had a workspace")
        return self._workspace
