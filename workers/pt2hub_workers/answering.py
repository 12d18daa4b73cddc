"""The answers to what a build's process asks, and what the attempt knows of its artifact by then.

What runs users' code sees files as they are in its room and names them relative to it. What it names is taken out of
its reach first, then hashed, proven and stored.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pt2hub.domain.artifacts import NO_TENSORS, Constants, ProgramKey
from pt2hub.domain.codec import encode
from pt2hub.domain.compiling import weights_form
from pt2hub.domain.digests import Digest, canonical_json, digest_bytes
from pt2hub.errors import InternalError
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.services.blobs import Piece
from pt2hub_workers.build_inputs import BuildInputs
from pt2hub_workers.gating import Trial
from pt2hub_workers.inside import files
from pt2hub_workers.messages import Fields, read, refused
from pt2hub_workers.outages import persisting
from pt2hub_workers.publication import Files, Held, Origin, make_config

if TYPE_CHECKING:
    from collections.abc import Callable

    from pt2hub.domain.artifacts import ArtifactConfig
    from pt2hub.domain.builds import Claim
    from pt2hub.domain.publications import ReusableCode
    from pt2hub_workers.attempt import Tools
    from pt2hub_workers.gating import Gate
    from pt2hub_workers.halting import Halt
    from pt2hub_workers.journal import Journal
    from pt2hub_workers.messages import Result
    from pt2hub_workers.rooms import Room

UNRECORDED = Digest("sha256:" + "0" * 64)
"""Stands for the version's golden blob until the gate has passed, in configs that only the gate loads."""

_MAX_REASONS = 2_000
"""Characters of one log line that say why code is never reused."""
_NO_WEIGHTS = digest_bytes(NO_TENSORS)


@dataclass(frozen=True, slots=True)
class Proven:
    """What passed the gate: this and nothing else is published.

    Attributes:
        fields: What the build's process said of the artifact then.
        files: Its layers.
        report: The judge's.
    """

    fields: Fields
    files: Files
    report: dict[str, Any]


class Answers:
    """Knows an attempt's blobs, and answers its build."""

    def __init__(self, claim: Claim, tools: Tools, journal: Journal, gate: Gate, halt: Halt) -> None:
        """Prepares.

        Args:
            claim: The attempt.
            tools: The worker's.
            journal: Where lines go.
            gate: Proves artifacts.
            halt: Ends the wait for a storage or a database that is away.
        """
        self._claim = claim
        self._tools = tools
        self._journal = journal
        self._gate = gate
        self._halt = halt
        self._storage = tools.container.storage
        self._blobs = tools.container.blobs
        self._builds = tools.container.builds
        self._weights = claim.weights
        self._golden = claim.golden
        self._baked = weights_form(claim.spec, claim.request) == "baked"
        self._reuse = True
        self._reused: Digest | None = None
        self._room: Room | None = None
        self._asked: set[str] = set()
        self._proven: Proven | None = None
        self._answers: dict[str, Callable[[dict[str, Any]], Any]] = {
            "weights": lambda _: self._answer_weights(),
            "golden": self._answer_golden,
            "code": self._answer_code,
            "verify": lambda message: self._verify(read(Fields, message.get("parts"))),
        }

    @property
    def reused(self) -> Digest | None:
        """The code layer that this attempt reuses."""
        return self._reused

    def forbid_reuse(self) -> None:
        """Has the next try compile."""
        self._reuse, self._reused = False, None

    def fetch(self, room: Room) -> dict[str, Any]:
        """Fetches a build's inputs into its room, where the answers will be, too.

        Args:
            room: The room of the build that asks from now on.

        Returns:
            The files, as the build sees them.
        """
        self._room = room
        self._asked.clear()
        golden = self._golden
        inputs = BuildInputs.of(self._claim, self._weights)
        fetched = inputs.fetch(room, self._storage, self._halt)
        return {**fetched, "golden": self._fetch_golden(golden) if golden else None}

    def answer(self, message: dict[str, Any]) -> Any:  # noqa: ANN401  # JSON values
        """The answer to a question. Each may be asked once: what a build stores and makes others do has an end.

        Args:
            message: The question, of which nothing is known.

        Raises:
            OutputRefused: It is none.
            Pt2hubError: It is answered by an error.
        """
        question = message.get("question")
        if not isinstance(question, str) or question not in self._answers:
            raise refused(f"{str(question)[:40]!r} is no question")
        if question in self._asked:
            raise refused(f"it asked for {question!r} again")
        self._asked.add(question)
        return self._answers[question](message)

    def proven(self, result: Result) -> tuple[Files, ArtifactConfig]:
        """What is published.

        Args:
            result: What the build's process returned; of the report it knows only what the judge does not say.

        Raises:
            OutputRefused: It ended without having asked for the gate.
        """
        proven = self._proven
        if proven is None or self._golden is None:
            raise refused("it ended without proof, or without golden outputs")
        report = {**result.verification, **proven.report}
        return proven.files, self._config(proven.fields, report)

    def _answer_weights(self) -> str:
        room = self._of_build()
        held = Held.of(room.take(files.WEIGHTS))
        self._store(held.piece)
        self._weights = persisting(lambda: self._builds.record_weights(self._claim, held.digest), self._halt)
        if self._weights == held.digest:
            return room.seen(room.give(held.path, "weights.safetensors"))
        self._journal.line("another build of this version recorded its weights first; they are used")
        return self._fetch(self._weights, "weights.safetensors")

    def _answer_golden(self, message: dict[str, Any]) -> dict[str, Any]:
        room, document = self._of_build(), message.get("document")
        held = {name: Held.of(room.take(path)) for name, path in files.GOLDEN.items()}
        if not isinstance(document, dict) or any(document.get(n) != held[n].digest for n in held):
            raise refused("the golden document names other files than there are")
        data = canonical_json(document)
        own = digest_bytes(data)
        self._store(*(item.piece for item in held.values()), Piece(StorageKey.blob(own), len(data), data))
        parts = [item.digest for item in held.values()]
        self._golden = persisting(lambda: self._builds.record_golden(self._claim, own, parts), self._halt)
        if self._golden != own:
            return self._fetch_golden(self._golden)
        return {
            "document": document,
            **{name: room.seen(room.host / path) for name, path in files.GOLDEN.items()},
        }

    def _find_code(self, key: ProgramKey) -> ReusableCode | None:
        return self._builds.find_code(key.digest, model=self._claim.model)

    def _answer_code(self, message: dict[str, Any]) -> dict[str, Any] | None:
        key = read(ProgramKey, message.get("key"))
        if key.never_reused:
            reasons = "; ".join(key.never_reused)[:_MAX_REASONS]
            self._journal.line(
                f"program key {key.digest}: this code is never reused, because {reasons}; compiling"
            )
            return None
        found = persisting(lambda: self._find_code(key), self._halt) if self._reuse else None
        if found is None:
            self._journal.line(f"program key {key.digest}: no code yet, compiling")
            return None
        self._reused = found.code.digest
        self._journal.line(f"program key {key.digest}: code {found.code.digest} is reused")
        path = self._fetch(found.code.digest, "code.zip")
        return {"code": path, "config": encode(found.config), "artifact": found.code.digest}

    def _verify(self, fields: Fields) -> dict[str, Any]:
        """Has the gate prove an artifact; the answer is the report."""
        room = self._of_build()
        own = self._files(fields)
        trial = Trial(
            config=encode(self._config(fields)),
            code=own.code.path,
            weights=own.weights.path,
            trial=room.take(files.TRIAL),
            expected=room.take(files.EXPECTED),
            accept=list(self._claim.spec.get("checks", {}).get("accept", [])),
        )
        report = self._gate.prove(trial)
        self._proven = Proven(fields, own, report)
        return report

    def _files(self, fields: Fields) -> Files:
        room = self._of_build()
        if fields.dtype != self._claim.request.get("dtype"):
            raise refused("the artifact's dtype is not that which was asked for")
        weights = Held.of(room.take(fields.weights_path))
        # What is baked is proven at the version's weights alone: nobody gets that who did not ask for it.
        if read(Constants, fields.constants).baked != self._baked:
            raise refused("the artifact's weights are not in the form that was asked for")
        if self._baked and weights.digest != _NO_WEIGHTS:
            raise refused("an artifact with baked weights has a weights layer with something in it")
        if not self._baked and fields.dtype is None and weights.digest != self._weights:
            raise refused("the artifact's weights are not the version's")
        code = Held.of(room.take(fields.code_path))
        if self._reused not in (None, code.digest):
            raise refused("the artifact's code is not that which was to be reused")
        sources = None if self._reused or not room.has(files.SOURCES) else Held.of(room.take(files.SOURCES))
        return Files(code, weights, sources)

    def _config(self, fields: Fields, verification: dict[str, Any] | None = None) -> ArtifactConfig:
        if self._weights is None:
            raise refused("it recorded no weights")
        tools = self._tools
        origin = Origin(
            claim=self._claim,
            machine=tools.machine,
            weights=self._weights,
            golden=self._golden or UNRECORDED,
            reused=self._reused,
            isolation=tools.toolchain.isolation,
            isolation_profile=tools.toolchain.isolation_profile,
            image=tools.image,
        )
        return make_config(fields, origin, self._journal.timings, verification)

    def _store(self, *pieces: Piece) -> None:
        persisting(lambda: self._blobs.store(pieces, holder=self._claim.holder), self._halt)

    def _fetch(self, digest: Digest, name: str) -> str:
        """Fetches a blob into the build's room; where the build sees it."""
        room = self._of_build()
        path = room.incoming(name)
        persisting(lambda: self._storage.fetch(StorageKey.blob(digest), path), self._halt)
        return room.seen(path)

    def _fetch_golden(self, digest: Digest) -> dict[str, Any]:
        key = StorageKey.blob(digest)
        document = json.loads(persisting(lambda: b"".join(self._storage.read(key)), self._halt))
        paths = {
            name: self._fetch(Digest(document[name]), f"golden-{name}.safetensors") for name in files.GOLDEN
        }
        return {"document": document, **paths}

    def _of_build(self) -> Room:
        if self._room is None:
            raise InternalError("a build asked before it had a room")
        return self._room
