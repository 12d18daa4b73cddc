"""Debug logs: requested by the spec, recorded beside the compile without changing it, and cleaned by the worker."""

from __future__ import annotations

import logging
import shutil
import sys
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch._inductor.cpu_vec_isa import VecISA
from torch._logging import getArtifactLogger

from pt2hub.domain.debug_logs import DEBUG_LOGS, MAX_LOG_BYTES, MAX_STORED_BYTES
from pt2hub.domain.publishing.spec import Spec
from pt2hub.domain.publishing.spec_settings import debug_logs, find_setting, merge_settings, strip_settings
from pt2hub.errors import InvalidInput, OutputRefused
from pt2hub.server.services.publishing.spec_errors import parse_spec
from pt2hub_workers.builds.debug_logs import pack_debug_logs
from pt2hub_workers.inside.builds.compile.compiler import compile_program
from pt2hub_workers.inside.builds.compile.debug_logs import DebugLogs
from pt2hub_workers.inside.operations import files
from pt2hub_workers.sandbox.workspaces import Workspaces
from support.registry import a_spec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pt2hub_workers.sandbox.workspaces import Workspace

FUSION = getArtifactLogger("torch._inductor.scheduler", "fusion")
SOURCES_ONLY = {
    "aot_inductor.package_cpp_only": True,
    "aot_inductor.package_constants_in_so": False,
    "aot_inductor.precompile_headers": False,
    "cpp.simdlen": 1,
}


# -- the spec ------------------------------------------------------------------------------------------------


def test_debug_logs_are_a_setting_and_make_no_other_version() -> None:
    plain, debugged = parse_spec(a_spec()), parse_spec(a_spec(compile={"debug": ["fusion", "graph"]}))
    assert debugged.canonical() == plain.canonical()
    assert debugged.identity() == plain.identity()
    assert debugged.settings() == {**plain.settings(), "compile": {"debug": ["fusion", "graph"]}}
    assert "compile" not in plain.settings()


def test_debug_logs_and_options_of_a_compile_are_merged_and_parted_again() -> None:
    options = {"mode": "max-autotune", "options": {"shape_padding": True}}
    spec = parse_spec(a_spec(compile={**options, "debug": ["graph"]}, limits={"seconds": 60}))
    plain = parse_spec(a_spec(compile=options))
    assert spec.canonical() == plain.canonical()
    merged = merge_settings(spec.canonical(), spec.settings())
    assert Spec.from_canonical(merged).compile.debug == ["graph"]
    assert debug_logs(merged) == ("graph",)
    assert debug_logs(plain.canonical()) == ()
    assert strip_settings(merged, spec.settings()) == spec.canonical()
    assert find_setting(spec.settings(), "limits") == {"seconds": 60}
    assert find_setting(plain.settings(), "compile.debug") is None


@pytest.mark.parametrize(
    ("given", "where", "said"),
    [
        (["fuson"], "compile.debug[0]", "unknown debug log; did you mean fusion?"),
        (["fusion", "schedules"], "compile.debug[1]", "did you mean schedule?"),
        (["Output_Code"], "compile.debug[0]", "did you mean output_code?"),
        (["bytecode"], "compile.debug[0]", "unknown debug log"),
        ([""], "compile.debug[0]", "unknown debug log"),
        (["graph", "fusion", "graph"], "compile.debug[2]", "duplicate debug log"),
        (["fusion"] * 5, "compile.debug", "too many items"),
        ([3], "compile.debug[0]", "unknown value"),
        ([None], "compile.debug[0]", "unknown value"),
        ("fusion", "compile.debug", "must be a list"),
        ({"fusion": True}, "compile.debug", "must be a list"),
        (True, "compile.debug", "must be a list"),
    ],
)
def test_a_wrong_request_is_refused_at_its_place_with_what_there_is(
    given: Any, where: str, said: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_spec(a_spec(compile={"debug": given}))
    (detail,) = caught.value.details
    assert detail.path == where
    assert said in detail.message
    if "unknown debug log" in said:
        assert detail.allowed == "output_code, fusion, schedule, graph"


# -- recording -----------------------------------------------------------------------------------------------


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path


def test_messages_go_to_the_file_alone_without_paths_of_this_machine(
    directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = (FUSION.level, FUSION.propagate, list(FUSION.handlers))
    inside = f"{directory}/tmp/net.py and {torch.__file__}"
    logs = DebugLogs()
    with logs.record(["fusion"], directory):
        FUSION.debug("fusing %s of %s", "op4", inside)
        logs.begin_part("part 2 of 3")
        FUSION.debug(3)
    text = (directory / files.DEBUG_LOGS["fusion"]).read_text()
    assert text == "fusing op4 of tmp/net.py and torch/__init__.py\n===== pt2hub: part 2 of 3 =====\n3\n"
    assert logs.sizes == {"fusion": len(text)}
    assert str(logs) == f"debug logs: fusion {len(text)} B"
    assert capfd.readouterr() == ("", "")
    assert (FUSION.level, FUSION.propagate, list(FUSION.handlers)) == before
    assert not (directory / files.DEBUG_LOGS["graph"]).exists()


def test_without_a_request_nothing_changes(directory: Path) -> None:
    logs = DebugLogs()
    with logs.record([], directory):
        assert not FUSION.isEnabledFor(logging.DEBUG)
    logs.begin_part("part 1 of 1")
    assert logs.sizes == {}
    assert list((directory / "out").iterdir()) == []


def test_a_long_log_is_cut_and_its_last_line_says_so(directory: Path) -> None:
    line = "x" * 1023
    logs = DebugLogs()
    with logs.record(["fusion"], directory):
        for _ in range(MAX_LOG_BYTES // 1024 + 3):
            FUSION.debug(line)
    data = (directory / files.DEBUG_LOGS["fusion"]).read_bytes()
    assert MAX_LOG_BYTES < len(data) <= MAX_STORED_BYTES
    assert data.endswith(b"\n[pt2hub: 3,072 bytes more are not kept; the maximum of a log is 4 MiB]\n")
    assert logs.sizes == {"fusion": MAX_LOG_BYTES + 3 * 1024}


class Broken:
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_a_message_that_cannot_be_formatted_ends_no_compile(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with DebugLogs().record(["fusion"], directory):
        FUSION.debug("%s", Broken())
        FUSION.debug("two %s of %s", 1)
        FUSION.debug("half \ud800 a pair")
    first, second, third = (directory / files.DEBUG_LOGS["fusion"]).read_text().splitlines()
    assert first == "[pt2hub: RuntimeError while formatting a message of torch._inductor.scheduler.__fusion]"
    assert "TypeError" in second
    assert third == "half ? a pair"
    assert capsys.readouterr().err == ""


def test_an_exception_within_the_block_leaves_the_loggers_as_they_were(directory: Path) -> None:
    before = list(FUSION.handlers)
    with pytest.raises(ValueError, match="the compile failed"), DebugLogs().record(["fusion"], directory):
        raise ValueError("the compile failed")
    assert FUSION.handlers == before


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x)).softmax(-1)


def generated(package: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(package) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_generated_code_is_the_same_to_the_byte_with_all_logs_and_without(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(directory / "cache"))
    monkeypatch.setattr(VecISA, "check_build", lambda *_: True)  # nothing is compiled that could need one
    torch.manual_seed(0)
    dim = torch.export.Dim("batch", min=1, max=8)
    program = torch.export.export(Net().eval(), (torch.randn(2, 8),), dynamic_shapes={"x": {0: dim}})
    found = []
    package = directory / "package.pt2"  # its name is in the archive
    for kinds in ([], list(DEBUG_LOGS)):
        logs = DebugLogs()
        with logs.record(kinds, directory):
            compile_program(program, SOURCES_ONLY, package)
        assert list(logs.sizes) == kinds
        assert all(logs.sizes.values())
        found.append(generated(package))
        shutil.rmtree(directory / "cache")  # torch appends to sources that are there
    assert any(name.endswith(".cpp") for name in found[0])
    assert found[0] == found[1]


# -- in the worker -------------------------------------------------------------------------------------------


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    opened = Workspaces(tmp_path / "rooms", inside=None).open()
    yield opened
    opened.close()


def packed(workspace: Workspace, kinds: list[str]) -> dict[str, str]:
    held = pack_debug_logs(workspace, kinds)
    assert held is not None
    assert held.path.parent == workspace.host / "held"
    with zipfile.ZipFile(held.path) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_the_worker_packs_the_requested_logs_alone(workspace: Workspace) -> None:
    assert pack_debug_logs(workspace, ["fusion"]) is None
    for kind in DEBUG_LOGS:
        (workspace.host / files.DEBUG_LOGS[kind]).write_text(f"{kind}\n")
    assert packed(workspace, ["graph", "fusion"]) == {"fusion.txt": "fusion\n", "graph.txt": "graph\n"}


def test_control_characters_escapes_and_bytes_that_are_no_text_are_cleaned(workspace: Workspace) -> None:
    path = workspace.host / files.DEBUG_LOGS["graph"]
    path.write_bytes(
        b"\x1b[31mred\x1b[0m\x1b]0;title\x07 \x00\x9b\xff\r\n\xe2\x80\xaeturned\tend \x1b[38;5;12m!\n"
    )
    assert packed(workspace, ["graph"]) == {"graph.txt": "red]0;title \ufffd\ufffd\nturned\tend !\n"}


def test_a_log_larger_than_allowed_is_cut_by_the_worker(workspace: Workspace) -> None:
    path = workspace.host / files.DEBUG_LOGS["graph"]
    with path.open("wb") as file:
        file.write(b"\xff" * 10)
        file.truncate(1 << 30)
    text = packed(workspace, ["graph"])["graph.txt"]
    assert "bytes more are not kept" in text
    path.write_bytes(b"\xff" * MAX_STORED_BYTES)  # each becomes three
    workspace_text = packed(workspace, ["graph"])["graph.txt"]
    assert len(workspace_text.encode()) <= MAX_STORED_BYTES
    assert "bytes more are not kept" in workspace_text


def test_a_link_in_place_of_a_log_is_refused(workspace: Workspace) -> None:
    (workspace.host / files.DEBUG_LOGS["graph"]).symlink_to(sys.executable)
    with pytest.raises(OutputRefused):
        pack_debug_logs(workspace, ["graph"])
