"""One attempt at a build: its steps, and the answers to what the build's process asks."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from pt2hub.domain.artifacts import ProgramKey
from pt2hub.domain.codec import decode, encode
from pt2hub.domain.digests import Digest, canonical_json, digest_bytes, digest_file
from pt2hub.errors import (
    ArtifactCrashed,
    ArtifactHung,
    ArtifactWrong,
    BuildTimedOut,
    CompileFailed,
    DigestMismatch,
    InternalError,
    Pt2hubError,
)
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.container import Container
from pt2hub.server.redaction import Redactor
from pt2hub_workers.children import ChildDied, ChildHung
from pt2hub_workers.device import Device
from pt2hub_workers.gating import lost, run_gate
from pt2hub_workers.machine import Machine
from pt2hub_workers.outages import persisting
from pt2hub_workers.publication import Origin, make_config, upload
from pt2hub_workers.toolchains import Toolchain

if TYPE_CHECKING:
    from collections.abc import Callable

    from pt2hub.domain.artifacts import ArtifactConfig, Manifest
    from pt2hub.domain.builds import Claim
    from pt2hub_workers.device import Hold, Mode
    from pt2hub_workers.halting import Halt
    from pt2hub_workers.journal import Journal

DEFAULT_SECONDS = 3600
UNRECORDED = Digest("sha256:" + "0" * 64)
"""Stands for the version's golden blob until the gate has passed, in configs that only the gate and the
measurements load."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Tools:
    """What every attempt of a worker uses.

    Attributes:
        container: The server's services.
        machine: What this worker is.
        toolchain: Does the work.
        device: What timings hold alone.
        factories: Modules whose factories a spec may name.
        gate_seconds: The gate's time limit.
        redactor: Takes secrets out of logs.
        image: The container image that the worker runs in, where it was told.
    """

    container: Container
    machine: Machine
    toolchain: Toolchain
    device: Device
    factories: tuple[str, ...]
    gate_seconds: float
    redactor: Redactor = field(default_factory=Redactor)
    image: str | None = None


class Attempt:
    """One attempt at a build."""

    def __init__(self, claim: Claim, tools: Tools, journal: Journal, directory: Path, halt: Halt) -> None:
        """Prepares the attempt.

        Args:
            claim: The build.
            tools: The worker's.
            journal: Where steps and lines go.
            directory: An empty workspace.
            halt: Stops it.
        """
        self._claim = claim
        self._tools = tools
        self._journal = journal
        self._directory = directory
        self._halt = halt
        self._storage = tools.container.storage
        self._builds = tools.container.builds
        self._step = "fetch"
        self._weights = claim.weights
        self._golden = claim.golden
        self._reuse = True
        self._reused: Digest | None = None
        self._report: dict[str, Any] | None = None
        self._proven: tuple[Digest, ...] = ()
        self._hold: Hold | None = None
        self._waits_since: float | None = None
        self._answers: dict[str, Callable[[dict[str, Any]], Any]] = {
            "weights": self._answer_weights,
            "golden": self._answer_golden,
            "code": self._answer_code,
            "config": lambda message: encode(self._config(message["parts"], self._golden or UNRECORDED)),
            "verify": self._answer_verify,
            "device": lambda message: self._take_device(message["mode"]),
        }

    def run(self) -> None:
        """Runs every step; returns when the artifact is published.

        Raises:
            Halted: It was told to stop.
            Pt2hubError: A step failed.
        """
        # The whole attempt shares the device, for hashing a large file disturbs timings as well.
        with self._tools.device.shared(self._halt, self._say_waiting) as self._hold:
            self._say_waited()
            with self._journal.timed("fetch"):
                job = self._fetch()
            parts = self._prove(job)
            self._take_device("shared")
            with self._journal.timed("upload"):
                config = self._final_config(parts)
                publication = persisting(lambda: upload(parts, config, self._storage), self._halt)
                self._check_proven(publication.manifest)
        with self._journal.timed("publish"), self._journal.handing_over() as steps:
            persisting(lambda: self._builds.publish(self._claim, publication, steps), self._halt)

    def _take_device(self, mode: Mode) -> None:
        if self._hold is None:
            raise InternalError("the attempt holds no device", where=self._step)
        self._hold.become(mode, self._say_waiting)
        self._say_waited()

    def _say_waiting(self, whom: str) -> None:
        self._waits_since = self._waits_since or time.monotonic()
        self._tell(f"waits for the device: {whom}")

    def _say_waited(self) -> None:
        if self._waits_since is not None:
            self._tell(f"waited {time.monotonic() - self._waits_since:.1f} s for the device")
            self._waits_since = None

    def _tell(self, detail: str) -> None:
        self._journal.step(self._step, "running", detail=detail)

    def _fetch(self) -> dict[str, Any]:
        claim = self._claim
        uploaded = {i["name"]: i["example"] for i in claim.spec["inputs"] if i.get("example")}
        return {
            "spec": claim.spec,
            "request": claim.request,
            "target": encode(claim.target),
            "toolchain": encode(self._tools.machine.toolchain),
            "directory": str(self._directory),
            "weights": str(self._fetch_blob(claim.weights, "weights.safetensors")) if claim.weights else None,
            "golden": self._fetch_golden(claim.golden) if claim.golden else None,
            "examples": {
                name: str(self._fetch_blob(Digest(digest), f"example-{name}.safetensors"))
                for name, digest in uploaded.items()
            },
            "host_flags": list(self._tools.machine.cpu_flags),
            "factories": list(self._tools.factories),
        }

    def _prove(self, job: dict[str, Any]) -> dict[str, Any]:
        """Runs the build; reused code that fails the gate is not tried again, or every retry would fail with it."""
        try:
            return self._work(job)
        except (ArtifactWrong, ArtifactCrashed, ArtifactHung) as error:
            if self._reused is None:
                raise
            self._journal.line(
                f"reused code {self._reused} failed the gate, compiling instead: {error}", "error"
            )
            _log.error(
                "reused code failed the gate", build=self._claim.build, code=self._reused, error=error.code
            )
        self._reuse, self._reused = False, None
        shutil.rmtree(self._directory / "out")
        (self._directory / "out").mkdir()
        return self._work(job)

    def _work(self, job: dict[str, Any]) -> dict[str, Any]:
        seconds = float(self._claim.spec.get("limits", {}).get("seconds", DEFAULT_SECONDS))
        child = self._tools.toolchain.take("build")
        try:
            parts: dict[str, Any] = child.work(
                job,
                on_event=self._on_event,
                on_output=self._journal.printed,
                seconds=seconds,
                halt=self._halt,
            )
        except ChildHung as hung:
            raise BuildTimedOut(
                f"the build took longer than {hung.seconds:g} s; it was at {hung.doing}",
                where=hung.doing,
                hint="Raise limits: {seconds: ...} in the spec, or lower the autotuning options.",
            ) from hung
        except ChildDied as died:
            raise self._died(died) from died
        return parts

    def _died(self, died: ChildDied) -> Pt2hubError:
        if died.from_outside:
            return lost(died, "the build's process")
        error = CompileFailed if died.doing == "compile" else InternalError
        return error(
            f"the build's process {died.how} during {died.doing}",
            where=died.doing,
            hint="The build's log has its last output.",
            context={"signal": died.signal_name},
        )

    def _on_event(self, message: dict[str, Any]) -> Any:  # noqa: ANN401  # JSON values
        if message["event"] == "ask":
            return self._answers[message["question"]](message)
        if message["event"] == "step":
            self._step = message["name"]
            seconds, detail = message.get("seconds"), message.get("detail")
            self._journal.step(self._step, message["state"], seconds=seconds, detail=detail)
        elif message["event"] == "log":
            for line in str(message["text"]).splitlines():
                self._journal.line(line, message["level"])
        return None

    def _answer_weights(self, message: dict[str, Any]) -> str:
        path = Path(message["path"])
        own = self._store(path)
        self._weights = persisting(lambda: self._builds.record_weights(self._claim, own), self._halt)
        if self._weights == own:
            return str(path)
        self._journal.line("another build of this version recorded its weights first; they are used")
        return str(self._fetch_blob(self._weights, "weights.safetensors"))

    def _answer_golden(self, message: dict[str, Any]) -> dict[str, Any]:
        directory = Path(message["directory"])
        for name in ("inputs", "outputs"):
            self._store(directory / f"golden-{name}.safetensors")
        data = canonical_json(message["document"])
        own = digest_bytes(data)
        persisting(lambda: self._storage.write(StorageKey.blob(own), [data]), self._halt)
        self._golden = persisting(lambda: self._builds.record_golden(self._claim, own), self._halt)
        if self._golden == own:
            paths = {name: str(directory / f"golden-{name}.safetensors") for name in ("inputs", "outputs")}
            return {"document": message["document"], **paths}
        return self._fetch_golden(self._golden)

    def _answer_code(self, message: dict[str, Any]) -> dict[str, Any] | None:
        key = decode(ProgramKey, message["key"])
        found = persisting(lambda: self._builds.find_code(key.digest), self._halt) if self._reuse else None
        if found is None:
            self._journal.line(f"program key {key.digest}: no code yet, compiling")
            return None
        self._reused = found.code.digest
        self._journal.line(f"program key {key.digest}: code {found.code.digest} is reused")
        path = self._fetch_blob(found.code.digest, "code.zip")
        return {"code": str(path), "config": encode(found.config), "artifact": found.code.digest}

    def _answer_verify(self, message: dict[str, Any]) -> dict[str, Any]:
        parts = message["parts"]
        job = {
            "directory": str(self._directory),
            "config": encode(self._config(parts, self._golden or UNRECORDED)),
            "code": parts["code_path"],
            "weights": parts["weights_path"],
            "reference": message["reference"],
            "accept": self._claim.spec.get("checks", {}).get("accept", []),
        }
        self._report = run_gate(
            job,
            self._tools.toolchain,
            seconds=self._tools.gate_seconds,
            halt=self._halt,
            on_event=self._on_gate_event,
            on_output=self._journal.printed,
        )
        self._proven = tuple(digest_file(Path(parts[name])) for name in ("code_path", "weights_path"))
        return self._report

    def _on_gate_event(self, message: dict[str, Any]) -> None:
        if message["event"] == "progress":
            self._journal.step("verify", "running", detail=message["text"])
        else:
            self._on_event(message)

    def _config(self, parts: dict[str, Any], golden: Digest) -> ArtifactConfig:
        if self._weights is None:
            raise InternalError("the build recorded no weights", where="publish")
        tools = self._tools
        origin = Origin(self._claim, tools.machine, self._weights, golden, self._reused, tools.image)
        return make_config(parts, origin, self._journal.timings)

    def _final_config(self, parts: dict[str, Any]) -> ArtifactConfig:
        """The config to publish: the gate's report is the one that the gate gave this process, not the build's."""
        if self._report is None or self._golden is None:
            raise InternalError(
                "the build did not pass the gate or recorded no golden outputs", where="publish"
            )
        report = {**parts["verification"], **self._report}
        return self._config({**parts, "verification": report}, self._golden)

    def _check_proven(self, manifest: Manifest) -> None:
        if tuple(layer.digest for layer in manifest.layers) != self._proven:
            raise DigestMismatch(
                "the files changed between the gate and the upload",
                where="upload",
                hint="Only what was proven is published. Retry the build; if it stays, report it.",
            )

    def _store(self, path: Path) -> Digest:
        digest = digest_file(path)
        persisting(lambda: self._storage.write_file(StorageKey.blob(digest), path), self._halt)
        return digest

    def _fetch_blob(self, digest: Digest, name: str) -> Path:
        path = self._directory / "in" / name
        persisting(lambda: self._storage.fetch(StorageKey.blob(digest), path), self._halt)
        return path

    def _fetch_golden(self, digest: Digest) -> dict[str, Any]:
        key = StorageKey.blob(digest)
        document = json.loads(persisting(lambda: b"".join(self._storage.read(key)), self._halt))
        paths = {
            name: str(self._fetch_blob(Digest(document[name]), f"golden-{name}.safetensors"))
            for name in ("inputs", "outputs")
        }
        return {"document": document, **paths}
