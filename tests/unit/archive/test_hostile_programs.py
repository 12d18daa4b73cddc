"""What strangers may upload as a program, weights or code: refused in words, in little time and memory."""

from __future__ import annotations

import json
import random
import sys
import time
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from pt2hub.archive.calls import check_call, read_call
from pt2hub.archive.exported_programs import check_program, split_program
from pt2hub.archive.payloads import read_json
from pt2hub.archive.safetensors_header import Form
from pt2hub.archive.sources import FileSource
from pt2hub.archive.weights_check import check_fit
from pt2hub.archive.zip.encoder import write_zip
from pt2hub.archive.zip.reader import open_archive
from pt2hub.archive.zip.validation import validate
from pt2hub.domain.publishing.spec import Spec
from pt2hub.errors import BadProgram, InputRefused, UnknownEntry, WeightsMismatch
from pt2hub.server.services.publishing.source_checks import check_uploaded
from support.programs import changed, edited, save

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SECONDS = 10.0
"""Each of these took minutes, or more memory than there is; now they take parts of a second."""


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor, times: int = 1) -> torch.Tensor:
        return x * times


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    rows = torch.export.Dim("rows", min=2, max=8)
    shapes = {"x": {0: 4 * rows}, "times": None}
    saved = save(Scaled(), folder / "saved.pt2", (torch.ones(16, 3), 2), dynamic_shapes=shapes)
    split_program(saved, folder / "program", folder / "weights")
    return folder / "program"


@pytest.fixture
def spec() -> Spec:
    return Spec.model_validate({
        "model": "tiny/scaled",
        "source": {"program": "sha256:" + 64 * "0"},
        "weights": "sha256:" + 64 * "0",
        "inputs": [{"name": "x", "shape": [16, 3], "generate": {"normal": {}}}],
        "fixed": {"times": 2},
    })  # fmt: skip


def graph_of(program: Path) -> Any:
    with open_archive(program) as archive:
        return read_json(archive, "program/models/model.json")


def sized(value: Any) -> Callable[[Any], None]:
    def edit(graph: Any) -> None:
        graph["graph_module"]["graph"]["tensor_values"]["x"]["sizes"][0] = value

    return edit


def bounded(end: str, value: Any) -> Callable[[Any], None]:
    def edit(graph: Any) -> None:
        for bounds in graph["range_constraints"].values():
            bounds[end] = value

    return edit


def named(value: Any) -> Callable[[Any], None]:
    def edit(graph: Any) -> None:
        graph["graph_module"]["module_call_graph"][0]["signature"]["forward_arg_names"][0] = value

    return edit


def fixed(value: Any) -> Callable[[Any], None]:
    def edit(graph: Any) -> None:
        leaves = graph["graph_module"]["signature"]["input_specs"]
        leaves[-1]["constant_input"]["value"] = {"as_string": value}

    return edit


def versioned(value: str) -> Callable[[Any], None]:
    def edit(graph: Any) -> None:
        graph["torch_version"] = value

    return edit


@pytest.mark.parametrize(
    "edit",
    [
        sized({"as_int": 10**400}),
        sized({"as_int": -1}),
        sized({"as_int": "16"}),
        bounded("max_val", "ab"),
        bounded("max_val", []),
        bounded("min_val", "a" * 1000),
        named(3),
        fixed([[]]),
        versioned(f"2.{'9' * 5000}"),
    ],
)
def test_numbers_and_names_that_are_none_are_refused(
    program: Path, tmp_path: Path, edit: Callable[[Any], None]
) -> None:
    with pytest.raises(BadProgram, match=r"has content that torch\.export\.save does not write"):
        check_program(edited(program, tmp_path / "hostile", "models/model.json", edit))


def test_a_size_that_is_a_multiple_of_zero_is_a_formula_like_others(
    program: Path, tmp_path: Path, spec: Spec
) -> None:
    edit = sized({"as_expr": {"expr_str": "0*s0", "hint": None}})
    call = check_program(edited(program, tmp_path / "hostile", "models/model.json", edit)).call
    check_call(call, spec)
    assert str(call.inputs[0].shape[0]) == "0 or more"


def test_a_compressed_program_is_refused_before_it_is_read(program: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(program) as own, zipfile.ZipFile(tmp_path / "packed", "w") as packed:
        for name in own.namelist():
            packed.writestr(zipfile.ZipInfo(name), own.read(name), zipfile.ZIP_DEFLATED)
    with pytest.raises(BadProgram, match="has unexpected content for a program"):
        check_program(tmp_path / "packed")


def test_json_that_would_take_many_times_its_length_is_not_parsed(program: Path, tmp_path: Path) -> None:
    dense = b'{"graph_module": [' + b"[]," * 100_000 + b"0]}"
    hostile = changed(program, tmp_path / "hostile", **{"program/models/model.json": dense})
    with pytest.raises(BadProgram, match=r"has content that torch\.export\.save does not write"):
        check_program(hostile)


@pytest.fixture
def usual_depth() -> Iterator[None]:
    """Python's own limit: compilers that other tests ran in this process have raised it."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.usefixtures("usual_depth")
def test_a_program_nested_too_deeply_is_refused_where_it_is_taken_apart(tmp_path: Path) -> None:
    saved = save(Scaled(), tmp_path / "saved.pt2", (torch.ones(2, 3), 2))

    def edit(graph: Any) -> None:
        graph["deep"] = json.loads("[" * 480 + "]" * 480)

    hostile = edited(saved, tmp_path / "hostile.pt2", "models/model.json", edit)
    with pytest.raises(BadProgram, match="nested too deeply"):
        split_program(hostile, tmp_path / "program", tmp_path / "weights")


def test_operators_at_the_end_of_deep_paths_are_found_in_time(program: Path, tmp_path: Path) -> None:
    leaf = {"target": "torch.ops.mine.twice.default", "padding": "x" * 20}

    def edit(graph: Any) -> None:
        value: Any = [leaf] * 20_000
        for _ in range(400):
            value = [value]
        graph["deep"] = value

    hostile = edited(program, tmp_path / "hostile", "models/model.json", edit)
    began = time.monotonic()
    assert check_program(hostile).operators == ("mine::twice",)
    assert time.monotonic() - began < SECONDS


def test_long_names_of_many_arguments_are_cut(program: Path) -> None:
    graph = graph_of(program)
    leaf: dict[str, Any] = {"type": None, "context": None, "children_spec": []}
    nested = {"type": "builtins.list", "context": "null", "children_spec": [leaf] * 3000}
    signature = graph["graph_module"]["module_call_graph"][0]["signature"]
    version, tree = json.loads(signature["in_spec"])
    tree["children_spec"][0]["children_spec"] = [nested]
    signature["in_spec"] = json.dumps([version, tree])
    signature["forward_arg_names"] = ["x" * 100_000]
    graph["graph_module"]["signature"]["input_specs"] = [
        {"constant_input": {"name": "x", "value": {"as_int": 1}}}
    ] * 3000
    others = read_call(graph).others
    assert (len(others), max(map(len, others))) == (3000, 200)


def test_an_error_names_few_of_many_arguments(program: Path, spec: Spec) -> None:
    graph = graph_of(program)
    leaf: dict[str, Any] = {"type": None, "context": None, "children_spec": []}
    signature = graph["graph_module"]["module_call_graph"][0]["signature"]
    version, tree = json.loads(signature["in_spec"])
    tree["children_spec"][0]["children_spec"] = [leaf] * 3000
    signature["in_spec"] = json.dumps([version, tree])
    signature["forward_arg_names"] = [f"a b{place}" for place in range(3000)]
    graph["graph_module"]["signature"]["input_specs"] = [
        {"constant_input": {"name": "x", "value": {"as_int": 1}}}
    ] * 3000
    with pytest.raises(InputRefused, match=r"cannot describe: a b0, .*a b9, \.\.\."):
        check_call(read_call(graph), spec)


def test_many_ties_are_compared_in_time() -> None:
    names = [f"w{place}" for place in range(20_000)]
    began = time.monotonic()
    with pytest.raises(WeightsMismatch, match="20000 tensors"):
        check_fit(dict.fromkeys(names, Form("float32", ())), {}, ties=(names,))
    assert time.monotonic() - began < SECONDS


def test_names_of_very_many_parts_are_compared_in_time() -> None:
    long = {f"{'a.' * 300_000}{end}": Form("float32", ()) for end in "bcdefghi"}
    began = time.monotonic()
    with pytest.raises(WeightsMismatch) as caught:
        check_fit({"w": Form("float32", ())}, long)
    assert time.monotonic() - began < SECONDS
    assert len(str(caught.value)) < 5000


def test_members_are_read_in_the_order_of_their_places(tmp_path: Path) -> None:
    write_zip(tmp_path / "x.zip", [(f"{place}.txt", b"x") for place in range(50)])
    data = bytearray((tmp_path / "x.zip").read_bytes())
    begin = data.index(b"PK\x01\x02")
    end = data.index(b"PK\x05\x06")
    entries = data[begin:end].split(b"PK\x01\x02")[1:]
    data[begin:end] = b"".join(b"PK\x01\x02" + entry for entry in reversed(entries))
    (tmp_path / "x.zip").write_bytes(data)

    class Watched:
        def __init__(self, file: Any) -> None:
            self._file = file
            self.places: list[int] = []

        def seek(self, offset: int, whence: int = 0) -> int:
            self.places.append(offset)
            at: int = self._file.seek(offset, whence)
            return at

        def read(self, size: int) -> bytes:
            found: bytes = self._file.read(size)
            return found

    with (tmp_path / "x.zip").open("rb") as file:
        watched = Watched(file)
        names = [entry.name for entry in validate(watched)]  # type: ignore[arg-type]  # all that is used
    headers = [place for place in watched.places if 0 < place < begin]
    assert names[0] == "49.txt"
    assert headers == sorted(headers)


@pytest.mark.parametrize("letters", [60, 190])
def test_thousands_of_modules_of_nearly_the_entrys_name_are_compared_in_time(
    tmp_path: Path, spec: Spec, letters: int
) -> None:
    word, shuffle = ["a", "b"] * (letters // 2), random.Random(0).shuffle
    names: set[str] = set()
    while len(names) < 9000:
        shuffle(word)
        names.add(f"{''.join(word)}.py")
    write_zip(tmp_path / "code.zip", [(name, b"") for name in sorted(names)])
    source = {"code": "sha256:" + 64 * "0", "entry": f"{'ab' * (letters // 2)}:build"}
    document = spec.model_dump(exclude={"source", "weights"}, exclude_defaults=True) | {"source": source}
    began = time.monotonic()
    with (tmp_path / "code.zip").open("rb") as file, pytest.raises(UnknownEntry):
        check_uploaded(Spec.model_validate(document), {"source.code": FileSource(file)})
    assert time.monotonic() - began < SECONDS
