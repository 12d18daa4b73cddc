"""The no-op toolchain: every step, question and blob of a build, without a compiler.

It is for trying out and testing queues, storage and operations. It runs in the worker's own process and needs no
torch. Its artifacts say so: no machine satisfies their target, and their verification report names the toolchain.
"""

from __future__ import annotations

import json
import os
import platform
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub import archive
from pt2hub.domain.artifacts import (
    KEY_SCHEMA,
    NO_TENSORS,
    Constant,
    Constants,
    Dim,
    Environment,
    NativeCode,
    ProgramKey,
    Region,
    Signature,
    TensorInput,
    Toolchain,
)
from pt2hub.domain.codec import decode, encode
from pt2hub.domain.digests import canonical_json, digest_bytes, digest_file, digest_json
from pt2hub.domain.publishing.compile_options import run_dtype, weights_form
from pt2hub.domain.publishing.paths import parse
from pt2hub.domain.publishing.regions import requested_regions
from pt2hub.domain.publishing.spec_settings import strip_settings
from pt2hub.domain.targets import Target
from pt2hub.version import __version__
from pt2hub_workers.children.child import ChildHung
from pt2hub_workers.inside.operations import files
from pt2hub_workers.operations.machine import Machine
from pt2hub_workers.sandbox.workspaces import Workspace, Workspaces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.domain.digests import Digest
    from pt2hub.domain.workers import Isolation
    from pt2hub_workers.builds.toolchains import ChildHandle
    from pt2hub_workers.operations.cancellation import CancellationToken

TARGET = Target(torch="0.0", device="cpu", arch="x86_64")
"""torch 0.0 was never released: no machine satisfies it, so that no artifact without code is loaded."""
VERSION = "0.0.0+noop"
_CALL_SECONDS = 1e-7
"""Reported time of a call, short enough to pass the plausibility checks."""
_ROOT = "model"
_LIBRARIES = f"{_ROOT}/data/aotinductor/model"
_BLOB = f"{_LIBRARIES}/model.wrapper_weights.blob"
_NATIVE = NativeCode(TARGET.arch, (), (), (), "", "")
_ALIGNED = 64
_TENSOR = '[1, {"type": null, "context": null, "children_spec": []}]'
"""torch's tree specification of one tensor."""


class NoopToolchain:
    """Stand-in for a compiler. It runs no users' code, so there is nothing to confine.

    Args:
        pauses: Seconds per step (`config.NOOP_STEPS`); other steps take almost no time.
    """

    isolation: Isolation = "none"
    isolation_profile: Digest | None = None

    def __init__(self, scratch: Path, pauses: Mapping[str, float] | None = None) -> None:
        self._workspaces = Workspaces(scratch, inside=None)
        self._pauses = dict(pauses or {})

    def machine(self) -> Machine:
        """Return the no-op machine, on which no artifact can run."""
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
            device="noop",  # it times nothing and blocks no timing of others
        )

    def take(self, role: str) -> ChildHandle:
        """Return a child for a job: `build`, `artifact`, `verify`, `measure` or `baselines`."""
        workspace = self._workspaces.open(role) if role in ("build", "baselines") else _NullWorkspace()
        return NoopChild(workspace, _DO[role], self._pauses)

    def open_workspace(self) -> Workspace:
        """Return a workspace without a process; see `toolchains.Toolchain`."""
        return self._workspaces.open("files")

    def refill(self) -> None:
        """Do nothing: there is nothing to prepare."""

    def wait_warm(self, seconds: float) -> bool:
        """Return True: it is always ready."""
        del seconds
        return True

    def close(self) -> None:
        """Do nothing: no child waits."""


class _NullWorkspace(Workspace):
    """Workspace of jobs that touch no file: creating and removing directories would dominate their time."""

    def __init__(self) -> None:
        self.host = self.inside = Path(os.sep)

    def give(self, path: Path, name: str) -> Path:
        """Return the file itself."""
        del name
        return path

    def take(self, relative: object) -> Path:
        """Return an empty file."""
        del relative
        return Path(os.devnull)

    def close(self) -> None:
        """Do nothing: there is nothing to remove."""


@dataclass(frozen=True, slots=True)
class NoopChild:
    """Child that does its job in the worker's own process."""

    workspace: Workspace
    do: Callable[[Mapping[str, Any], _Parent], Any]
    pauses: Mapping[str, float]

    @property
    def alive(self) -> bool:
        """Always true: there is no process that could end."""
        return True

    def wait_warm(self, seconds: float) -> bool:
        """Return True: it is always ready."""
        del seconds
        return True

    def close(self) -> None:
        """Remove the workspace."""
        self.workspace.close()

    def work(
        self,
        job: Mapping[str, Any],
        *,
        on_event: Callable[[dict[str, Any]], Any],
        on_output: Callable[[str], None],
        seconds: float,
        token: CancellationToken,
    ) -> Any:
        """Do the job; see `toolchains.ChildHandle`."""
        token.check()
        return self.do(job, _Parent(on_event, on_output, token, self.pauses, seconds))


def _measure(job: Mapping[str, Any], parent: _Parent) -> dict[str, Any]:
    """Report equal times without any call, so that a comparison of two such artifacts finds no change."""
    parent.pause("measure")
    # No model is built, so that `baselines` times the artifact alone.
    names = [item["name"] for item in job.get("implementations", ({"name": "artifact"},))]
    sample = {"calls": 1, "seconds": _CALL_SECONDS, "samples": [_CALL_SECONDS * 1000]}
    times = dict.fromkeys(("p50", "p95", "p99"), _CALL_SECONDS * 1000)
    batches = [{"batch": batch, **sample, **times} for batch in job.get("batches", (None,))]
    return {"threads": 1, "implementations": [{"name": name, "batches": batches} for name in names]}


def _run_nothing(_: Mapping[str, Any], parent: _Parent) -> dict[str, Any]:
    """Return no runs: the artifact has no code."""
    parent.send({"event": "progress", "text": "the no-op toolchain compares nothing"})
    return {"threads": 1, "runs": []}


def _pass(_: Mapping[str, Any], __: _Parent) -> dict[str, Any]:
    """Return a verification report that names the no-op toolchain and has no comparisons."""
    return {
        "result": "passed",
        "toolchain": "noop",
        "comparisons": [],
        "no_power": [],
        "relative_error": None,
    }


class _Parent:
    """Connection of a build to its attempt, with the pauses of its steps."""

    def __init__(
        self,
        send: Callable[[dict[str, Any]], Any],
        on_output: Callable[[str], None],
        token: CancellationToken,
        pauses: Mapping[str, float],
        seconds: float,
    ) -> None:
        self.send = send
        self.on_output = on_output
        self._token = token
        self._pauses = pauses
        self._limit = seconds
        self._left = seconds

    def ask(self, question: str, **values: Any) -> Any:
        self._token.check()
        return self.send({"event": "ask", "question": question, **values})

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        self._token.check()
        self.send({"event": "step", "name": name, "state": "running"})
        started = time.monotonic()
        self.pause(name)
        yield
        seconds = time.monotonic() - started
        self.send({"event": "step", "name": name, "state": "done", "seconds": seconds})

    def pause(self, name: str) -> None:
        pause = self._pauses.get(name, 0.0)
        if pause and self._token.wait(min(pause, self._left)):
            self._token.check()
        self._left -= pause
        if self._left < 0:
            raise ChildHung(self._limit, name)


class _Run:
    """A running build, with the steps of `inside.builds.build.Build`."""

    def __init__(self, job: Mapping[str, Any], parent: _Parent) -> None:
        self._job = job
        self._spec = job["spec"]
        self._parent = parent
        self._directory = Path(job["directory"])
        self._out = self._directory / "out"

    @property
    def _is_baked(self) -> bool:
        return weights_form(self._spec, self._job["request"]) == "baked"

    def parts(self) -> dict[str, Any]:
        with self._parent.step("export"):
            weights = self._weights()
            entries = archive.read_safetensors_header(weights)
        with self._parent.step("key"):
            key = self._key(entries, digest_file(weights) if self._is_baked else None)
            reused = self._parent.ask("code", key=encode(key))
            libraries, regions = self._divide(reused)
        code = self._code(key, reused, weights, libraries)
        with self._parent.step("pack"):
            parts = self._pack(key, entries, code, weights) | {"regions": regions}
        with self._parent.step("verify"):
            report = self._verify(parts)
        return {**parts, "verification": report, "autotune": []}

    def _weights(self) -> Path:
        if self._job["weights"]:
            return Path(self._job["weights"])
        data = _safetensors({"noop.weight": digest_json(self._spec["source"]).encode()[-16:]})
        (self._directory / files.WEIGHTS).write_bytes(data)
        return Path(self._parent.ask("weights"))

    def _key(self, entries: Mapping[str, archive.TensorEntry], baked: Digest | None) -> ProgramKey:
        """Return the program key; as for real code it depends on the values of baked weights only."""
        spec = strip_settings(self._spec, {"compile": {"debug": ()}})
        graph = {name: spec.get(name) for name in ("source", "inputs", "dims", "compile")}
        fields = {
            "schema": KEY_SCHEMA,
            "toolchain": encode(decode(Toolchain, self._job["toolchain"])),
            "target": self._job["target"],
            "request": self._job["request"],
            "graph": digest_json(graph),
            "constants": digest_json([[k, list(e.shape), e.dtype] for k, e in sorted(entries.items())]),
            **({"baked": baked} if baked else {}),
        }
        return ProgramKey(digest_json(fields), fields)

    def _divide(self, reused: dict[str, Any] | None) -> tuple[dict[str, bytes], list[dict[str, Any]]]:
        """Return files and descriptions of the regions that the spec names, as if the model called each twice."""
        names = requested_regions(self._spec, self._job["request"])
        if reused or not isinstance(names, tuple):
            return {}, reused["config"]["regions"] if reused else []
        given = {name: self._part_key(name) for name in names}
        texts = [f"2 calls of {name}.0, {name}.1" for name in names]
        found = self._parent.ask("regions", keys=encode(list(given.values())), names=texts)
        members, regions = {}, []
        for number, (name, key) in enumerate(given.items()):
            known, member = found.get(key.digest), f"{_LIBRARIES}/region{number}.so"
            members[member] = _part_code(key, known)
            origin = known["artifact"] if known else None
            modules = (f"{name}.0", f"{name}.1")
            empty = Constants("", 0, ())
            regions.append(encode(Region(key, (member,), empty, _NATIVE, modules, len(modules), origin)))
        return members, regions

    def _part_key(self, name: str) -> ProgramKey:
        fields = {"schema": KEY_SCHEMA, "toolchain": self._job["toolchain"], "graph": digest_json(name)}
        return ProgramKey(digest_json(fields), fields)

    def _code(
        self,
        key: ProgramKey,
        reused: dict[str, Any] | None,
        weights: Path,
        regions: Mapping[str, bytes],
    ) -> Path:
        if reused:
            with self._parent.step("reuse"):
                return Path(reused["code"])
        with self._parent.step("compile"):
            self._parent.on_output("the no-op toolchain compiles nothing")
            code = self._out / "code.zip"
            members = {
                f"{_ROOT}/archive_format": b"pt2",
                f"{_LIBRARIES}/model.wrapper.so": f"no code: {key.digest}\n".encode(),
                **regions,
            }
            if self._is_baked:
                members[_BLOB] = weights.read_bytes()
            archive.write_zip(code, members.items())
            return code

    def _pack(
        self, key: ProgramKey, entries: Mapping[str, archive.TensorEntry], code: Path, weights: Path
    ) -> dict[str, Any]:
        constants = _layout(entries)
        if self._is_baked:
            constants, weights = Constants("", 0, (), baked=True), self._out / "no-tensors.safetensors"
            weights.write_bytes(NO_TENSORS)
        out = self._out / "model.pt2"
        chunks = archive.blob_chunks(constants, weights)
        single = archive.write_single_file(code, constants.blob_member, chunks, constants.blob_size, out)
        out.unlink()
        return {
            "signature": encode(_signature(self._spec)),
            "constants": encode(constants),
            "native": encode(_NATIVE),
            "key": encode(key),
            "single_file": encode(single),
            "dtype": run_dtype(self._spec, self._job["request"]),
            "code_path": str(code.relative_to(self._directory)),
            "weights_path": str(weights.relative_to(self._directory)),
            "compiler_processes": [],
        }

    def _verify(self, parts: dict[str, Any]) -> dict[str, Any]:
        for name in (files.VERIFICATION_INPUTS, files.EXPECTED_OUTPUTS):
            (self._directory / name).write_bytes(_safetensors({}))
        report: dict[str, Any] = self._parent.ask("verify", parts=parts)
        if not self._job["golden"]:
            document: dict[str, Any] = {
                "schema": 1,
                "points": [],
                "notes": ["written by the no-op toolchain"],
            }
            for name, path in files.GOLDEN.items():
                data = _safetensors({})
                (self._directory / path).write_bytes(data)
                document[name] = digest_bytes(data)
            self._parent.ask("golden", document=document)
        return report


_DO: dict[str, Callable[[Mapping[str, Any], _Parent], Any]] = {
    "build": lambda job, parent: _Run(job, parent).parts(),
    "artifact": _run_nothing,
    "verify": _pass,
    "measure": _measure,
    "baselines": _measure,
}
"""Work of each role."""


def _part_code(key: ProgramKey, known: Mapping[str, Any] | None) -> bytes:
    """Return the file of a part: that of another artifact's code layer if there is one."""
    if known is None:
        return f"no code: {key.digest}\n".encode()
    return archive.read_member(Path(known["code"]), known["region"]["members"][0])


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
    """Return the table of all weights, laid out as in the compiler's blob."""
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
    """Return a safetensors file of bytes."""
    header: dict[str, Any] = {}
    at = 0
    for name, data in tensors.items():
        header[name] = {"dtype": "U8", "shape": [len(data)], "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = canonical_json(header)
    return struct.pack("<Q", len(text)) + text + b"".join(tensors.values())
