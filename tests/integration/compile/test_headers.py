"""PyTorch's precompiled headers: made once, kept whole, read by builds, and never written by them."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pt2hub.errors import BadConfiguration, CompileFailed
from pt2hub_workers.builds import precompiled_headers
from pt2hub_workers.builds.noop_toolchain import NoopToolchain
from pt2hub_workers.builds.precompiled_headers import PrecompiledHeaders
from pt2hub_workers.inside.builds.compile.precompiled_headers import (
    HEADERS_VARIABLE,
    header_options,
    use_prepared,
)
from pt2hub_workers.operations.device_lock import DeviceLock
from pt2hub_workers.sandbox.workspaces import Workspaces
from support.headers import PLACE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pt2hub_workers.sandbox.workspaces import Workspace
    from support.working import Works

FILES = {"caa.h": b"#include <a>\n", "caa.h.gch": b"compiled", "cpp.probe": b"1"}
A_MONTH = 31 * 86400


class Compiler(NoopToolchain):
    """A toolchain whose children write headers at once."""

    def __init__(self, folder: Path, files: dict[str, bytes] = FILES, release: str = "2.13.0") -> None:
        super().__init__(folder)
        self.compiled = 0
        self.files = files
        self.error: Exception | None = None
        self._workspaces = Workspaces(folder / "rooms", inside=None)
        self._torch = release

    def machine(self) -> Any:
        machine = super().machine()
        return replace(machine, toolchain=replace(machine.toolchain, torch=self._torch))

    def take(self, role: str) -> Any:
        assert role == "headers"
        return _Child(self, self._workspaces.open(role))


class _Child:
    def __init__(self, compiler: Compiler, workspace: Workspace) -> None:
        self.workspace = workspace
        self._compiler = compiler

    def work(self, job: dict[str, Any], **_: Any) -> dict[str, Any]:
        assert job["directory"] == str(self.workspace.inside)
        time.sleep(0.1)
        self._compiler.compiled += 1
        if self._compiler.error:
            raise self._compiler.error
        for name, data in self._compiler.files.items():
            (self.workspace.host / "out" / name).write_bytes(data)
        return {"files": [f"out/{name}" for name in self._compiler.files]}

    def close(self) -> None:
        self.workspace.close()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    precompiled_headers.prepare(tmp_path / "headers")
    return tmp_path / "headers"


@pytest.fixture
def ensure(place: Path, tmp_path: Path) -> Callable[[Compiler], PrecompiledHeaders]:
    def ensured(compiler: Compiler) -> PrecompiledHeaders:
        made = PrecompiledHeaders(place, compiler, {})
        made.ensure(DeviceLock(tmp_path / "device"))
        return made

    return ensured


def kept(place: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes() for path in place.iterdir() if path.suffix in (".h", ".gch", ".probe")
    }


def test_headers_are_compiled_once_and_can_only_be_read(
    tmp_path: Path, place: Path, ensure: Callable[[Compiler], PrecompiledHeaders]
) -> None:
    first, second = Compiler(tmp_path / "a"), Compiler(tmp_path / "b")
    ensure(first)
    ensure(second)

    assert (first.compiled, second.compiled) == (1, 0)
    assert kept(place) == FILES
    assert place.stat().st_mode & 0o777 == 0o700
    assert {(place / name).stat().st_mode & 0o777 for name in FILES} == {0o444}
    assert not list((tmp_path / "a" / "rooms").iterdir())


def test_two_workers_that_start_together_compile_once(
    tmp_path: Path, ensure: Callable[[Compiler], PrecompiledHeaders]
) -> None:
    compiler = Compiler(tmp_path)
    both = [threading.Thread(target=ensure, args=(compiler,)) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()

    assert compiler.compiled == 1


def test_two_toolchains_that_share_a_header_do_not_compile_it_for_each_other_for_ever(
    tmp_path: Path, place: Path, ensure: Callable[[Compiler], PrecompiledHeaders]
) -> None:
    first = Compiler(tmp_path / "a")
    second = Compiler(
        tmp_path / "b", {**FILES, "caa.h.gch": b"compiled anew", "cbb.h": b"own"}, release="2.11.0"
    )
    for compiler in (first, second, first, second):
        ensure(compiler).close()

    assert (first.compiled, second.compiled) == (1, 1)
    assert kept(place) == {**FILES, "cbb.h": b"own"}


@pytest.mark.parametrize("damage", ["removed", "shortened"])
def test_what_a_tidying_program_removed_is_compiled_again(
    tmp_path: Path, place: Path, ensure: Callable[[Compiler], PrecompiledHeaders], damage: str
) -> None:
    compiler = Compiler(tmp_path)
    ensure(compiler).close()
    (place / "caa.h.gch").unlink()
    if damage == "shortened":
        (place / "caa.h.gch").touch()

    ensure(compiler)

    assert compiler.compiled == 2
    assert kept(place) == FILES


def test_a_failure_is_told_and_keeps_no_worker_from_starting(
    tmp_path: Path,
    place: Path,
    ensure: Callable[[Compiler], PrecompiledHeaders],
    capsys: pytest.CaptureFixture[str],
) -> None:
    compiler = Compiler(tmp_path)
    compiler.error = CompileFailed("'/bin/false' is no C++ compiler")
    ensure(compiler)

    said = capsys.readouterr().out
    assert "cannot prepare PyTorch's precompiled headers" in said
    assert "'/bin/false' is no C++ compiler" in said
    assert list(place.iterdir()) == []
    compiler.error = None
    ensure(compiler)
    assert kept(place) == FILES


def test_a_toolchain_that_nobody_uses_any_more_leaves_what_others_need(
    tmp_path: Path, place: Path, ensure: Callable[[Compiler], PrecompiledHeaders]
) -> None:
    of_old = ensure(Compiler(tmp_path / "old", {**FILES, "cbb.h": b"old"}, release="2.11.0"))
    (listed,) = place.glob("*.json")
    os.utime(listed, (0, time.time() - A_MONTH))
    new = Compiler(tmp_path / "new")

    ensure(new)
    assert "cbb.h" in kept(place)  # a worker that uses it runs
    of_old.close()
    ensure(new)
    assert kept(place) == FILES
    assert not listed.exists()


def test_one_that_was_used_lately_stays(
    tmp_path: Path, place: Path, ensure: Callable[[Compiler], PrecompiledHeaders]
) -> None:
    ensure(Compiler(tmp_path / "old", {"cbb.h": b"old"}, release="2.11.0")).close()
    ensure(Compiler(tmp_path / "new"))

    assert kept(place) == {**FILES, "cbb.h": b"old"}


def test_the_kernel_frees_the_directory_of_a_worker_that_was_killed(
    tmp_path: Path, place: Path, ensure: Callable[[Compiler], PrecompiledHeaders]
) -> None:
    descriptor = os.open(place, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    compiler = Compiler(tmp_path)
    waiting = threading.Thread(target=ensure, args=(compiler,))
    waiting.start()
    time.sleep(0.3)
    assert compiler.compiled == 0

    os.close(descriptor)
    waiting.join(10)

    assert compiler.compiled == 1


def test_a_directory_of_someone_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "headers").symlink_to(tmp_path / "theirs")

    with pytest.raises(BadConfiguration, match="belongs to another user") as refused:
        precompiled_headers.prepare(tmp_path / "headers")
    assert refused.value.where == "PT2HUB_HEADERS"


def test_what_shapes_the_headers_makes_another_toolchain(tmp_path: Path) -> None:
    machine = NoopToolchain(tmp_path).machine()
    known = precompiled_headers.identity(machine, {"HOME": "/home/a", "CXX": "g++"})

    assert known == precompiled_headers.identity(machine, {"HOME": "/home/b", "CXX": "g++"})
    for others in ({"CXX": "g++-13"}, {"CXX": "g++", "TORCHINDUCTOR_CPP_MARCH": "x86-64"}):
        assert known != precompiled_headers.identity(machine, others)
    assert known != precompiled_headers.identity(replace(machine, cpu_flags=("avx",)), {"CXX": "g++"})


def test_a_process_has_a_directory_of_its_own_with_links_to_what_is_prepared(
    tmp_path: Path,
    place: Path,
    ensure: Callable[[Compiler], PrecompiledHeaders],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torch._inductor import codecache

    for name in ("_HEADER_DIR", "_HEADER_LOCK_DIR"):
        monkeypatch.setattr(codecache, name, getattr(codecache, name))  # put back afterwards
    ensure(Compiler(tmp_path))
    own = tmp_path / "own"

    use_prepared({HEADERS_VARIABLE: str(place)}, own)

    assert header_options() == {}
    assert (str(own), str(own / "locks")) == (codecache._HEADER_DIR, codecache._HEADER_LOCK_DIR)
    headers = [name for name in FILES if not name.endswith(".probe")]
    assert {path.name: path.resolve() for path in own.iterdir() if path.is_symlink()} == {
        name: place / name for name in headers
    }
    (own / "locks" / "caa.lock").touch()


@pytest.mark.parametrize("environ", [{}, {HEADERS_VARIABLE: "/nowhere"}])
def test_without_prepared_headers_a_process_has_a_directory_of_its_own_and_a_build_precompiles_none(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor import codecache

    for name in ("_HEADER_DIR", "_HEADER_LOCK_DIR"):
        monkeypatch.setattr(codecache, name, getattr(codecache, name))

    use_prepared(environ, tmp_path / "own")

    assert [path.name for path in (tmp_path / "own").iterdir()] == ["locks"]
    assert str(tmp_path / "own") == codecache._HEADER_DIR
    assert header_options() == {"aot_inductor.precompile_headers": False}


@pytest.mark.compiles
def test_a_build_in_the_sandbox_compiles_no_header_and_no_probe_and_cannot_harm_the_prepared_ones(
    works: Works,
) -> None:
    works.start()
    before = _times()
    assert len([name for name in before if name.endswith(".gch")]) >= 3
    source = {"factory": "support.header_models:Looking", "kwargs": {}, "seed": 1}
    build = works.publish(source=source, measure={"torch_compile": True, "processes": 1})

    view = works.await_state(build, "succeeded", "failed")

    assert view.state == "succeeded", view.error
    lines = [line.text for line in works.services.logs.lines(build)[1]]
    (only,) = {line for line in lines if line.startswith("headers: ")}  # before the compile and after it
    assert {line for line in lines if line.startswith("probes: ")} == {"probes: 0 compiled here"}
    answers = [path for path in PLACE.glob("*.probe") if path.read_text() == "1"]
    assert bool(answers) == torch.cpu._is_avx2_supported()
    assert only.endswith("0 compiled here, harmed []")
    assert int(only.split()[1]) >= 3
    assert before.items() <= _times().items()  # workers beside this one may add theirs


def _times() -> dict[str, int]:
    """When each header was written; the lists beside them are touched by every worker that starts."""
    return {
        path.name: path.stat().st_mtime_ns
        for path in PLACE.iterdir()
        if path.suffix in (".h", ".gch", ".probe")
    }
