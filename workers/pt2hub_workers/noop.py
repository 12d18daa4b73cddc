"""The no-op toolchain: every step, question and blob of a build, and no compiler.

For trying out queues, storage and operations, and for tests of them. It runs in the worker's own process and needs
no torch. What it publishes says so: its target is one that no machine is, its gate's report names it.
"""

from __future__ import annotations

import json
import os
import platform
import struct
import time
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub import __version__, archive
from pt2hub.domain.artifacts import (
    KEY_SCHEMA,
    NO_TENSORS,
    Constant,
    Constants,
    Dim,
    Environment,
    NativeCode,
    ProgramKey,
    Signature,
    TensorInput,
    Toolchain,
)
from pt2hub.domain.codec import decode, encode
from pt2hub.domain.compiling import weights_form
from pt2hub.domain.digests import canonical_json, digest_bytes, digest_file, digest_json
from pt2hub.domain.paths import parse
from pt2hub.domain.targets import Target
from pt2hub.errors import BadConfiguration
from pt2hub_workers.children import ChildHung
from pt2hub_workers.inside import files
from pt2hub_workers.machine import Machine
from pt2hub_workers.rooms import Room, Rooms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pt2hub.domain.digests import Digest
    from pt2hub.domain.workers import Isolation
    from pt2hub_workers.halting import Halt
    from pt2hub_workers.toolchains import Hand

TARGET = Target(torch="0.0", device="cpu", arch="x86_64")
"""torch 0.0 never was: no machine satisfies it, so that nobody loads what was not compiled."""
VERSION = "0.0.0+noop"
STEPS = ("export", "key", "compile", "reuse", "pack", "verify", "measure")
"""What takes a toolchain's time: the steps of a build that are not the worker's own, and each process of a benchmark."""
MAX_PAUSE = 3600.0
_CALL_SECONDS = 1e-7
"""What a call is said to take: less than it takes to say so, or it would not be believed."""
_ROOT = "model"
_BLOB = f"{_ROOT}/data/aotinductor/model/model.wrapper_weights.blob"
_ALIGNED = 64
_TENSOR = '[1, {"type": null, "context": null, "children_spec": []}]'
"""torch's tree specification of one tensor."""


def read_pauses(text: str) -> dict[str, float]:
    """Reads `PT2HUB_NOOP_PAUSES`, such as `compile=0.5,verify=0.2`.

    Raises:
        BadConfiguration: A step is none of the toolchain's, or a number is none.
    """
    pauses = {}
    for word in text.replace(",", " ").split():
        name, _, value = word.partition("=")
        try:
            seconds = float(value)
        except ValueError:
            seconds = -1.0
        if name not in STEPS or not 0 <= seconds <= MAX_PAUSE:
            raise BadConfiguration(
                f"{word[:80]!r} is no step with its seconds",
                where="PT2HUB_NOOP_PAUSES",
                hint=f"Write compile=0.5,verify=0.2. Steps: {', '.join(STEPS)}; seconds from 0 to {MAX_PAUSE:g}.",
            )
        pauses[name] = seconds
    return pauses


class NoopToolchain:
    """Stands in for a compiler; it runs nothing of others, so there is nothing to confine."""

    isolation: Isolation = "none"
    isolation_profile: Digest | None = None

    def __init__(self, scratch: Path, pauses: Mapping[str, float] | None = None) -> None:
        """Needs no more than a place.

        Args:
            scratch: Parent of the rooms.
            pauses: Seconds that a step takes, by its name (`STEPS`); the others take next to none.
        """
        self._rooms = Rooms(scratch, inside=None)
        self._pauses = dict(pauses or {})

    def machine(self) -> Machine:
        """What this worker is: nothing that an artifact could run on."""
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return Machine(
            target=TARGET,
            toolchain=Toolchain(
                torch=VERSION,
                python=platform.python_version(),
                compiler="none",
                libc=" ".join(platform.libc_ver()),
                pt2hub=__version__,
            ),
            environment=Environment(
                cpu_model="no-op toolchain",
                cpu_level=TARGET.arch,
                cores=len(os.sched_getaffinity(0)),
                memory_bytes=memory,
                torch=VERSION,
                isolation="none",
            ),
            packages={"torch": VERSION},
            cpu_flags=(),
            device="noop",  # it times nothing, and keeps nobody from timing
        )

    def take(self, role: str) -> Hand:
        """One for a job: `build`, `gate`, `measure`, `baselines` or `judge`."""
        if role == "build":
            return NoopBuild(self._rooms.open(), self._pauses)
        if role in ("measure", "baselines"):  # the second is given files of its own
            room = self._rooms.open(role) if role == "baselines" else _NoRoom()
            return NoopMeasure(room, self._pauses.get("measure", 0.0))
        return NoopGate(_NoRoom()) if role == "gate" else NoopJudge(_NoRoom())

    def open_room(self) -> Room:
        """A room in which nothing works; see `toolchains.Toolchain`."""
        return self._rooms.open("files")

    def refill(self) -> None:
        """There is nothing to prepare."""

    def wait_warm(self, seconds: float) -> bool:
        """It is always ready."""
        del seconds
        return True

    def close(self) -> None:
        """Nothing waits."""


class _NoRoom(Room):
    """Where those work who touch no file: making and removing directories would be most of what they do."""

    def __init__(self) -> None:
        self.host = self.inside = Path(os.sep)

    def give(self, path: Path, name: str) -> Path:
        """The file where it is."""
        del name
        return path

    def take(self, relative: object) -> Path:
        """An empty file."""
        del relative
        return Path(os.devnull)

    def close(self) -> None:
        """There is nothing to remove."""


@dataclass(frozen=True, slots=True)
class _InRoom:
    """One that works in a room."""

    room: Room

    @property
    def alive(self) -> bool:
        """It has nothing to die of."""
        return True

    def wait_warm(self, seconds: float) -> bool:
        """It is always ready."""
        del seconds
        return True

    def close(self) -> None:
        """Removes the room."""
        self.room.close()


@dataclass(frozen=True, slots=True)
class NoopMeasure(_InRoom):
    """Times nothing, and says the same of every call: a comparison of two such artifacts finds no change.

    Attributes:
        pause: Seconds that it takes.
    """

    pause: float = 0.0

    def work(
        self,
        job: Mapping[str, Any],
        *,
        on_event: Callable[[dict[str, Any]], Any],
        on_output: Callable[[str], None],
        seconds: float,
        halt: Halt,
    ) -> Any:  # noqa: ANN401  # as `Hand.work`
        """Figures of calls that nobody made; see `toolchains.Hand`."""
        del on_event, on_output, seconds
        halt.wait(self.pause)
        halt.check()
        if "subjects" not in job:  # no model is built, in eager mode or otherwise
            return {"measurements": []}
        return {
            "threads": 1,
            "subjects": [{"name": s["name"], "batches": _calls(job)} for s in job["subjects"]],
        }


def _calls(job: Mapping[str, Any]) -> list[dict[str, Any]]:
    told = {"calls": 1, "seconds": _CALL_SECONDS, "samples": [_CALL_SECONDS * 1000]}
    times = dict.fromkeys(("p50", "p95", "p99"), _CALL_SECONDS * 1000)
    return [{"batch": batch, **told, **times} for batch in job["batches"]]


class NoopGate(_InRoom):
    """Runs nothing."""

    def work(
        self,
        job: Mapping[str, Any],
        *,
        on_event: Callable[[dict[str, Any]], Any],
        on_output: Callable[[str], None],
        seconds: float,
        halt: Halt,
    ) -> Any:  # noqa: ANN401  # as `Hand.work`
        """The runs of an artifact that cannot run; see `toolchains.Hand`."""
        del job, on_output, seconds
        halt.check()
        on_event({"event": "progress", "text": "the no-op toolchain compares nothing"})
        return {"threads": 1, "runs": []}


class NoopJudge(_InRoom):
    """Passes everything, and says that it is no proof."""

    def work(
        self,
        job: Mapping[str, Any],
        *,
        on_event: Callable[[dict[str, Any]], Any],
        on_output: Callable[[str], None],
        seconds: float,
        halt: Halt,
    ) -> Any:  # noqa: ANN401  # as `Hand.work`
        """The report of a gate that compares nothing; see `toolchains.Hand`."""
        del job, on_event, on_output, seconds
        halt.check()
        return {
            "passed": True,
            "verdict": "passed",
            "toolchain": "noop",
            "comparisons": [],
            "no_power": [],
            "relative_error": None,
        }


@dataclass(frozen=True, slots=True)
class NoopBuild(_InRoom):
    """One build, step by step as `inside.build.Build`.

    Attributes:
        room: Where it works.
        pauses: Seconds by step.
    """

    pauses: Mapping[str, float]

    def work(
        self,
        job: Mapping[str, Any],
        *,
        on_event: Callable[[dict[str, Any]], Any],
        on_output: Callable[[str], None],
        seconds: float,
        halt: Halt,
    ) -> Any:  # noqa: ANN401  # as `Hand.work`
        """Does the steps; see `toolchains.Hand`."""
        return _Run(job, _Parent(on_event, halt, self.pauses, seconds), on_output).parts()


class _Parent:
    """The attempt around a build, and how long its steps take."""

    def __init__(
        self,
        on_event: Callable[[dict[str, Any]], Any],
        halt: Halt,
        pauses: Mapping[str, float],
        seconds: float,
    ) -> None:
        self._on_event = on_event
        self._halt = halt
        self._pauses = pauses
        self._limit = seconds
        self._left = seconds

    def ask(self, question: str, **values: Any) -> Any:  # noqa: ANN401  # JSON values
        self._halt.check()
        return self._on_event({"event": "ask", "question": question, **values})

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        self._halt.check()
        self._on_event({"event": "step", "name": name, "state": "running"})
        started = time.monotonic()
        self._pause(name)
        yield
        seconds = time.monotonic() - started
        self._on_event({"event": "step", "name": name, "state": "done", "seconds": seconds})

    def _pause(self, name: str) -> None:
        pause = self._pauses.get(name, 0.0)
        if pause and self._halt.wait(min(pause, self._left)):
            self._halt.check()
        self._left -= pause
        if self._left < 0:
            raise ChildHung(self._limit, name)


class _Run:
    """A build at work."""

    def __init__(self, job: Mapping[str, Any], parent: _Parent, on_output: Callable[[str], None]) -> None:
        self._job = job
        self._spec = job["spec"]
        self._parent = parent
        self._on_output = on_output
        self._directory = Path(job["directory"])
        self._out = self._directory / "out"

    @property
    def _baked(self) -> bool:
        return weights_form(self._spec, self._job["request"]) == "baked"

    def parts(self) -> dict[str, Any]:
        with self._parent.step("export"):
            weights = self._weights()
            entries = archive.read_safetensors_header(weights)
        with self._parent.step("key"):
            key = self._key(entries, digest_file(weights) if self._baked else None)
            reused = self._parent.ask("code", key=encode(key))
        code = self._code(key, reused, weights)
        with self._parent.step("pack"):
            parts = self._packed(key, entries, code, weights)
        with self._parent.step("verify"):
            report = self._verified(parts)
        return {**parts, "verification": report, "autotune": []}

    def _weights(self) -> Path:
        if self._job["weights"]:
            return Path(self._job["weights"])
        data = _safetensors({"noop.weight": digest_json(self._spec["source"]).encode()[-16:]})
        (self._directory / files.WEIGHTS).write_bytes(data)
        return Path(self._parent.ask("weights"))

    def _key(self, entries: Mapping[str, archive.TensorEntry], baked: Digest | None) -> ProgramKey:
        """What would shape the code, if there were any: of the weights' values only those baked, as for real code."""
        told = {name: self._spec.get(name) for name in ("source", "inputs", "dims", "compile")}
        fields = {
            "schema": KEY_SCHEMA,
            "toolchain": encode(decode(Toolchain, self._job["toolchain"])),
            "target": self._job["target"],
            "request": self._job["request"],
            "graph": digest_json(told),
            "constants": digest_json([[k, list(e.shape), e.dtype] for k, e in sorted(entries.items())]),
            **({"baked": baked} if baked else {}),
        }
        return ProgramKey(digest_json(fields), fields)

    def _code(self, key: ProgramKey, reused: dict[str, Any] | None, weights: Path) -> Path:
        if reused:
            with self._parent.step("reuse"):
                return Path(reused["code"])
        with self._parent.step("compile"):
            self._on_output("the no-op toolchain compiles nothing")
            code = self._out / "code.zip"
            members = {
                f"{_ROOT}/archive_format": b"pt2",
                f"{_ROOT}/data/aotinductor/model/model.wrapper.so": f"no code: {key.digest}\n".encode(),
            }
            if self._baked:
                members[_BLOB] = weights.read_bytes()
            archive.write_zip(code, members.items())
            return code

    def _packed(
        self, key: ProgramKey, entries: Mapping[str, archive.TensorEntry], code: Path, weights: Path
    ) -> dict[str, Any]:
        constants = _layout(entries)
        if self._baked:
            constants, weights = Constants("", 0, (), baked=True), self._out / "no-tensors.safetensors"
            weights.write_bytes(NO_TENSORS)
        out = self._out / "model.pt2"
        chunks = archive.blob_chunks(constants, weights)
        single = archive.write_single_file(code, constants.blob_member, chunks, constants.blob_size, out)
        out.unlink()
        return {
            "signature": encode(_signature(self._spec)),
            "constants": encode(constants),
            "native": encode(NativeCode(TARGET.arch, (), (), (), "", "")),
            "key": encode(key),
            "single_file": encode(single),
            "dtype": self._job["request"].get("dtype"),
            "code_path": str(code.relative_to(self._directory)),
            "weights_path": str(weights.relative_to(self._directory)),
            "compiler_processes": [],
        }

    def _verified(self, parts: dict[str, Any]) -> dict[str, Any]:
        for name in (files.TRIAL, files.EXPECTED):
            (self._directory / name).write_bytes(_safetensors({}))
        report: dict[str, Any] = self._parent.ask("verify", parts=parts)
        if not self._job["golden"]:
            document: dict[str, Any] = {"schema": 1, "points": [], "notes": ["of the no-op toolchain"]}
            for name, path in files.GOLDEN.items():
                data = _safetensors({})
                (self._directory / path).write_bytes(data)
                document[name] = digest_bytes(data)
            self._parent.ask("golden", document=document)
        return report


def _signature(spec: Mapping[str, Any]) -> Signature:
    names = tuple(item["name"] for item in spec["inputs"])
    return Signature(
        arguments=tuple(dict.fromkeys(parse(name)[0] for name in names)),
        inputs=tuple(
            TensorInput(item["name"], tuple(item["shape"]), item.get("dtype", "float32"))
            for item in spec["inputs"]
        ),
        dims={name: _dim(dim) for name, dim in spec.get("dims", {}).items()},
        device=TARGET.device,
        in_spec=json.dumps([len(names)]),
        out_spec=_TENSOR,
    )


def _dim(dim: Mapping[str, Any]) -> Dim:
    step = dim.get("multiple_of", 1)
    return Dim(dim.get("min", step), dim["max"], step)


def _layout(entries: Mapping[str, archive.TensorEntry]) -> Constants:
    """All weights, one after another, as the compiler's blob would hold them."""
    table, at = [], 0
    for name, entry in sorted(entries.items()):
        size = entry.end - entry.begin
        table.append(Constant(name, entry.shape, _strides(entry.shape), entry.dtype, at, size))
        at += -(-size // _ALIGNED) * _ALIGNED
    return Constants(_BLOB if table else "", at, tuple(table))


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _safetensors(tensors: Mapping[str, bytes]) -> bytes:
    """A safetensors file of bytes."""
    header: dict[str, Any] = {}
    at = 0
    for name, data in tensors.items():
        header[name] = {"dtype": "U8", "shape": [len(data)], "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = canonical_json(header)
    return struct.pack("<Q", len(text)) + text + b"".join(tensors.values())
