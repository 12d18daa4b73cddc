"""Exported programs, taken apart and put together without torch, and without running anything of them."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import safetensors.torch
import torch
from torch import nn

from pt2hub.archive.calls import check_call
from pt2hub.archive.exported_programs import check_program, join_program, split_program
from pt2hub.archive.safetensors_header import Form
from pt2hub.archive.sources import FileSource
from pt2hub.domain.publishing.spec import Spec
from pt2hub.errors import (
    BadProgram,
    DimensionSpecialised,
    InputRefused,
    NotFound,
    UnknownInput,
    UnsupportedTensor,
    WeightsMismatch,
)
from support.programs import (
    SIZE,
    bomb,
    changed,
    edited,
    members,
    save,
    save_everything,
    strided,
)

if TYPE_CHECKING:
    from collections.abc import Callable

WEIGHTS_CONFIG, CONSTANTS_CONFIG = "model_weights_config.json", "model_constants_config.json"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_everything(tmp_path_factory.mktemp("saved") / "everything.pt2")


@pytest.fixture(scope="module")
def parts(saved: Path) -> tuple[Path, Path]:
    program, weights = saved.with_name("program"), saved.with_name("weights.safetensors")
    split_program(saved, program, weights)
    return program, weights


def separate(source: Path, tmp_path: Path) -> tuple[Path, Path]:
    program, weights = tmp_path / "program", tmp_path / "weights.safetensors"
    split_program(source, program, weights)
    return program, weights


def test_a_program_joined_again_is_the_program_that_was_saved(
    saved: Path, parts: tuple[Path, Path], tmp_path: Path
) -> None:
    join_program(*parts, tmp_path / "joined.pt2")
    before, after = torch.export.load(saved), torch.export.load(tmp_path / "joined.pt2")
    assert before.graph_module.code == after.graph_module.code
    assert str(before.range_constraints) == str(after.range_constraints)
    assert {k: str(v.dtype) for k, v in before.state_dict.items()} == {
        k: str(v.dtype) for k, v in after.state_dict.items()
    }
    inputs = torch.arange(3), torch.randn(3, SIZE)
    wanted, found = before.module()(*inputs), after.module()(*inputs)
    assert all(torch.equal(wanted[name], found[name]) for name in ("scores", "hidden"))
    tied = after.state_dict["head.weight"].data_ptr() == after.state_dict["table.weight"].data_ptr()
    assert tied
    assert after.example_inputs is None


def test_a_program_that_another_tool_zipped_again_is_the_same_program(
    saved: Path, parts: tuple[Path, Path], tmp_path: Path
) -> None:
    with zipfile.ZipFile(saved) as before:
        before.extractall(tmp_path / "files")
    with zipfile.ZipFile(tmp_path / "again.pt2", "w", zipfile.ZIP_DEFLATED) as again:
        again.comment = b"zipped again"
        for path in sorted((tmp_path / "files").rglob("*")):
            again.write(path, path.relative_to(tmp_path / "files"))
        assert any(info.is_dir() for info in again.infolist())
    found = separate(tmp_path / "again.pt2", tmp_path)
    assert [path.read_bytes() for path in found] == [path.read_bytes() for path in parts]


def test_the_weights_are_the_file_that_safetensors_writes_of_the_state_dict_with_ties_once(
    saved: Path, parts: tuple[Path, Path]
) -> None:
    state = dict(torch.export.load(saved).state_dict)
    del state["table.weight"]
    assert parts[1].read_bytes() == safetensors.torch.save({k: v.contiguous() for k, v in state.items()})


def test_the_summary_says_what_the_program_is_and_how_it_is_called(parts: tuple[Path, Path]) -> None:
    summary = check_program(parts[0])
    assert summary.torch_version == torch.__version__
    assert summary.weights["narrow"] == Form("bfloat16", (SIZE,))
    assert summary.weights["scale"] == Form("float32", ())
    assert summary.ties == (("table.weight", "head.weight"),)
    assert "steps" not in summary.weights
    ids, x = summary.call.inputs
    assert (ids.name, ids.dtype, x.name, x.dtype) == ("ids", "int64", "x", "float32")
    assert str(x.shape[0]) == "1 to 64"
    assert x.shape[1] == SIZE
    assert (summary.nodes > 5, summary.operators) == (True, ())


def test_the_server_reads_the_same_from_bytes_in_its_storage(parts: tuple[Path, Path]) -> None:
    with parts[0].open("rb") as file:
        assert check_program(FileSource(file)) == check_program(parts[0])


def test_the_same_model_with_other_weights_is_the_same_program(
    parts: tuple[Path, Path], tmp_path: Path
) -> None:
    program, weights = separate(save_everything(tmp_path / "other-name.pt2", seed=1), tmp_path)
    assert program.read_bytes() == parts[0].read_bytes()
    assert weights.read_bytes() != parts[1].read_bytes()


def test_folders_of_the_exporting_machine_stay_there(parts: tuple[Path, Path]) -> None:
    graph = next(data for name, data in members(parts[0]).items() if name.endswith("model.json"))
    assert str(Path(__file__).parents[2]).encode() not in graph
    assert b"site-packages" not in graph
    assert b'File \\"programs.py\\", line' in graph  # the user's own line is still said


def test_nothing_of_the_example_inputs_travels(tmp_path: Path) -> None:
    source = save(nn.ReLU(), tmp_path / "relu.pt2", (torch.full((2, 3), 1234.5),))
    program, weights = separate(source, tmp_path)
    needle = torch.full((2, 3), 1234.5).numpy().tobytes()
    assert needle in source.read_bytes()
    assert needle not in program.read_bytes()
    assert weights.read_bytes() == safetensors.torch.save({})


def test_views_strides_and_shared_storage_become_contiguous_tensors(tmp_path: Path) -> None:
    flat = torch.arange(24.0)
    tensors = {
        "turned": flat.reshape(4, 6).t(),
        "slice": flat[5:9],
        "every_third": flat[1::3],
        "image": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "wide": torch.randn(3, 1).expand(3, 7),
        "one": torch.tensor([7], dtype=torch.int8).expand(5),
        "narrow": torch.randn(6, 4, dtype=torch.float16).t()[1:3],
        "flags": torch.tensor([True, False, True]),
        "nothing": torch.empty(0, 3),
        "eighth": torch.randn(4, 2).to(torch.float8_e4m3fn),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch says that no tensor covers the whole storage
        source = save(strided(tensors), tmp_path / "views.pt2", (torch.randn(2),))
    program, weights = separate(source, tmp_path)
    found = safetensors.torch.load_file(weights)
    assert set(found) == set(tensors)
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype, name
        assert torch.equal(found[name].float(), tensor.float()), name
    join_program(program, weights, tmp_path / "joined.pt2")
    wanted = torch.export.load(source).module()(torch.zeros(2))
    assert torch.allclose(torch.export.load(tmp_path / "joined.pt2").module()(torch.zeros(2)), wanted)


def test_the_light_client_takes_programs_apart_without_torch(saved: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from pt2hub.archive.exported_programs import check_program, split_program\n"
        "split_program(*map(Path, sys.argv[1:])); check_program(Path(sys.argv[2]))\n"
        "print(sorted({'torch', 'numpy', 'pydantic', 'safetensors'} & set(sys.modules)))"
    )
    paths = [str(saved), str(tmp_path / "program"), str(tmp_path / "weights")]
    root = str(Path(__file__).parents[3] / "registry")
    done = subprocess.run(
        [sys.executable, "-c", code, *paths],
        env={"PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def with_pickled_inputs(saved: Path, out: Path, marker: Path) -> Path:
    return changed(saved, out, **{"sample_inputs/model.pt": bomb(marker)})


def test_hostile_example_inputs_are_dropped_unread(saved: Path, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    source = with_pickled_inputs(saved, tmp_path / "hostile.pt2", marker)
    torch.load(io.BytesIO(bomb(marker)), weights_only=False)  # what torch.export.load falls back to
    assert marker.exists()
    marker.rmdir()
    program, weights = separate(source, tmp_path)
    check_program(program)
    join_program(program, weights, tmp_path / "joined.pt2")
    torch.export.load(tmp_path / "joined.pt2")
    assert not marker.exists()


def pickled_weight(document: Any) -> None:
    document["config"]["mean"]["use_pickle"] = True


def add_object(document: Any) -> None:
    document["config"]["tool"] = {
        "path_name": "opaque_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None,
    }  # fmt: skip


def hostile_weight(saved: Path, out: Path, marker: Path) -> Path:
    whole = edited(saved, out, WEIGHTS_CONFIG, pickled_weight)
    return changed(whole, out, weight_0=bomb(marker))


def hostile_object(saved: Path, out: Path, marker: Path) -> Path:
    whole = edited(saved, out, CONSTANTS_CONFIG, add_object)
    return changed(whole, out, **{"data/constants/opaque_obj_0": pickle.dumps(marker)})


@pytest.mark.parametrize(
    ("make", "names"),
    [(hostile_weight, "mean is saved as a pickle"), (hostile_object, "opaque_obj_0 is a pickled object")],
)
def test_pickles_are_refused_by_name_and_never_read(
    saved: Path, tmp_path: Path, make: Callable[[Path, Path, Path], Path], names: str
) -> None:
    marker = tmp_path / "ran"
    source = make(saved, tmp_path / "hostile.pt2", marker)
    with pytest.raises(BadProgram, match=names) as caught:
        separate(source, tmp_path)
    assert caught.value.where == str(source)
    assert caught.value.hint
    assert not marker.exists()
    assert not (tmp_path / "program").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data/executorch/x.pte": b"x"}, "executorch"),
        ({"data/aotinductor/model/x.so": b"x"}, "compiled code"),
        ({"models/other.json": b"{}"}, "several programs"),
        ({"data/weights/model.pt": b"x"}, "older torch"),
        ({"data/surprise": b"x"}, "not part of an exported program"),
        ({"models/model.json": None}, "lacks"),
        ({"models/model.json": b"{"}, "content that torch.export.save does not write"),
        ({"models/model.json": b"[" * 100_000}, "content that torch.export.save does not write"),
        ({"models/model.json": b"{}"}, "content that torch.export.save does not write"),
        ({WEIGHTS_CONFIG: b'{"config": {"a": 3}}'}, "entry of a has content that"),
        ({"weight_0": b""}, "fake tensors"),
        ({"weight_1": None}, "missing"),
        ({"archive_version": b"1"}, "unknown version"),
        ({"byteorder": b"big"}, "byte order"),
    ],
)
def test_files_that_are_no_saved_program_are_refused(
    saved: Path, tmp_path: Path, changes: dict[str, bytes | None], message: str
) -> None:
    with pytest.raises(BadProgram, match=message) as caught:
        separate(changed(saved, tmp_path / "changed.pt2", **changes), tmp_path)
    assert caught.value.hint


def test_damaged_files_and_other_files_are_refused(saved: Path, tmp_path: Path) -> None:
    data = saved.read_bytes()
    broken = tmp_path / "broken.pt2"
    for content, message in (
        (data[:-100], "damaged or not a zip"),
        (data.replace(b"Symbol(", b"Xymbol(", 1), "damaged or not a zip"),
        (b"not a zip", "damaged or not a zip"),
    ):
        broken.write_bytes(content)
        with pytest.raises(BadProgram, match=message):
            separate(broken, tmp_path)
    torch.save({"a": torch.zeros(2)}, broken)
    with pytest.raises(BadProgram, match=r"torch\.save wrote the file, not torch\.export\.save") as caught:
        separate(broken, tmp_path)
    assert caught.value.where == str(broken)


@pytest.mark.parametrize("member", ["net/constants.pkl", "net/code/__torch__.py"])
def test_torchscript_archives_are_called_by_their_name(tmp_path: Path, member: str) -> None:
    path = tmp_path / "script.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("net/data.pkl", b"x")
        archive.writestr(member, b"x")
    with pytest.raises(BadProgram, match="TorchScript archive"):
        separate(path, tmp_path)


@pytest.mark.parametrize("name", ["nope.pt2", "."])
def test_a_program_that_is_not_there_is_not_found(tmp_path: Path, name: str) -> None:
    with pytest.raises(NotFound, match="The program cannot be read") as caught:
        separate(tmp_path / name, tmp_path)
    assert caught.value.where == str(tmp_path / name)


def test_members_that_climb_out_of_their_folder_are_refused(saved: Path, tmp_path: Path) -> None:
    from support.zips import RawMember, raw_zip

    raw = [RawMember(name.encode(), data) for name, data in members(saved).items()]
    hostile = tmp_path / "hostile.pt2"
    hostile.write_bytes(raw_zip(*raw, RawMember(b"everything/extra/../../../escaped", b"x")))
    with pytest.raises(BadProgram, match="leaves its folder"):
        separate(hostile, tmp_path)


def test_a_file_with_its_weights_is_not_taken_for_a_program(saved: Path) -> None:
    with pytest.raises(BadProgram, match="still contains its weights") as caught:
        check_program(saved)
    assert "--program" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sample_inputs/model.pt": b"pickle"}, "has unexpected content for a program"),
        ({"extra/note": b"x"}, "has unexpected content for a program"),
        ({"tensor_0": b"short"}, "has unexpected content for a program"),
        ({"tensor_1": None}, "lacks"),
        ({".data/version": b"7"}, "unknown version"),
    ],
)
def test_a_program_changed_by_hand_is_refused_at_submission(
    parts: tuple[Path, Path], tmp_path: Path, changes: dict[str, bytes | None], message: str
) -> None:
    with pytest.raises(BadProgram, match=message):
        check_program(changed(parts[0], tmp_path / "changed", **changes))


def test_a_program_that_lays_a_constant_out_otherwise_is_refused(
    parts: tuple[Path, Path], tmp_path: Path
) -> None:
    def shift(document: Any) -> None:
        next(iter(document["config"].values()))["tensor_meta"]["strides"] = [{"as_int": 1 << 40}]

    with pytest.raises(BadProgram, match=CONSTANTS_CONFIG):
        check_program(edited(parts[0], tmp_path / "changed", CONSTANTS_CONFIG, shift))


def test_a_program_is_joined_for_another_device_with_its_constants_there(
    parts: tuple[Path, Path], tmp_path: Path
) -> None:
    join_program(*parts, tmp_path / "joined.pt2", device="cuda")
    found = {name.rpartition("/")[2]: data for name, data in members(tmp_path / "joined.pt2").items()}
    for name in ("model.json", CONSTANTS_CONFIG):
        assert b'{"type":"cuda","index":null}' in found[name]
        assert b'"type":"cpu"' not in found[name]
    assert b'"type":"cuda"' not in found[WEIGHTS_CONFIG]  # they are loaded again and moved later


def test_weights_of_another_model_are_refused_by_name(parts: tuple[Path, Path], tmp_path: Path) -> None:
    state = safetensors.torch.load_file(parts[1])
    state["surprise"] = torch.zeros(1)
    state["mean"] = torch.zeros(3)
    del state["scale"]
    other = tmp_path / "other.safetensors"
    safetensors.torch.save_file(state, other)
    with pytest.raises(WeightsMismatch) as caught:
        join_program(parts[0], other, tmp_path / "joined.pt2")
    assert {item.path: item.message for item in caught.value.details} == {
        "scale": "missing from the file",
        "surprise": "not in the model",
        "mean": "another shape or dtype",
    }
    assert not (tmp_path / "joined.pt2").exists()


@pytest.mark.parametrize("names", [("table.weight",), ("table.weight", "head.weight")])
def test_a_tied_weight_may_come_under_any_of_its_names(
    parts: tuple[Path, Path], tmp_path: Path, names: tuple[str, ...]
) -> None:
    state = safetensors.torch.load_file(parts[1])
    tied = state.pop("head.weight")
    other = tmp_path / "other.safetensors"
    safetensors.torch.save_file({**state, **{name: tied.clone() for name in names}}, other)
    join_program(parts[0], other, tmp_path / "joined.pt2")
    assert torch.equal(torch.export.load(tmp_path / "joined.pt2").state_dict["head.weight"], tied)


def test_complex_weights_are_refused(tmp_path: Path) -> None:
    source = save(
        strided({"phase": torch.zeros(2, dtype=torch.complex64)}), tmp_path / "c.pt2", (torch.ones(2),)
    )
    with pytest.raises(UnsupportedTensor, match="complex64") as caught:
        separate(source, tmp_path)
    assert "phase" in str(caught.value.where)
    assert "view_as_real" in str(caught.value.hint)


class Nested(nn.Module):
    def forward(
        self,
        x: torch.Tensor,
        batch: dict[str, Any],
        flag: int = 3,
        *,
        pair: tuple[torch.Tensor, int] | None = None,
    ) -> torch.Tensor:
        assert pair is not None
        return x * flag + batch["a"]["b"] + batch["list"][0] * pair[0].sum() * pair[1]


def test_nested_arguments_and_fixed_values_are_named_as_specs_name_them(tmp_path: Path) -> None:
    source = save(
        Nested(),
        tmp_path / "nested.pt2",
        (torch.ones(2, 4), {"a": {"b": torch.ones(4)}, "list": [torch.ones(2, 4)]}, 5),
        kwargs={"pair": (torch.ones(3), 2)},
    )
    program, _ = separate(source, tmp_path)
    call = check_program(program).call
    assert [item.name for item in call.inputs] == ["x", "batch.a.b", "batch.list[0]", "pair(0)"]
    assert call.fixed == {"flag": 5, "pair(1)": 2}


def spec(shape_ids: list[Any], shape_x: list[Any], *, dims: Any = None, **fields: Any) -> Spec:
    inputs = [
        {"name": "ids", "shape": shape_ids, "dtype": "int64", "generate": {"randint": {"high": 16}}},
        {"name": "x", "shape": shape_x, "generate": {"normal": {}}},
    ]
    return Spec.model_validate({
        "model": "tiny/everything",
        "source": {"program": "sha256:" + 64 * "0"},
        "weights": "sha256:" + 64 * "0",
        "inputs": inputs,
        "dims": {"batch": {"min": 1, "max": 16, "example": 2}} if dims is None else dims,
        **fields,
    })  # fmt: skip


BATCH = {"min": 1, "max": 16, "example": 2}


def test_a_spec_within_the_programs_ranges_passes(parts: tuple[Path, Path]) -> None:
    call = check_program(parts[0]).call
    check_call(call, spec(["batch"], ["batch", SIZE]))
    check_call(call, spec([64], [64, SIZE], dims={}))


@pytest.mark.parametrize(
    ("given", "error", "where", "message"),
    [
        (spec(["b"], ["b", SIZE], dims={"b": {**BATCH, "max": 65}}), DimensionSpecialised, "inputs.ids.shape[0]", "1 to 64.*1 to 65"),
        (spec(["batch"], ["batch", "w"], dims={"batch": BATCH, "w": BATCH}), DimensionSpecialised, "inputs.x.shape[1]", "only takes size 8;.*1 to 16"),
        (spec(["batch"], ["batch", 9]), InputRefused, "inputs.x.shape[1]", "size 8, the spec says 9"),
        (spec([65], [65, SIZE], dims={}), InputRefused, "inputs.ids.shape[0]", "1 to 64, the spec says 65"),
        (spec(["batch"], ["other", SIZE], dims={"batch": BATCH, "other": BATCH}), InputRefused, "inputs.x.shape[0]", "same size"),
        (spec(["batch"], ["batch"]), InputRefused, "inputs.x", r"float32\[\(1 to 64\), 8\].*float32\[batch\]"),
        (spec(["batch"], ["batch", SIZE], fixed={"flag": 1}), UnknownInput, "fixed.flag", "no argument flag"),
    ],
)  # fmt: skip
def test_a_spec_that_calls_the_program_otherwise_is_refused_before_anything_is_loaded(
    parts: tuple[Path, Path], given: Spec, error: type[Exception], where: str, message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        check_call(check_program(parts[0]).call, given)
    assert caught.value.where == where  # type: ignore[attr-defined]  # all of them are ours
    assert caught.value.hint  # type: ignore[attr-defined]


def test_values_that_the_export_fixed_must_be_said_and_are(tmp_path: Path) -> None:
    class Scaled(nn.Module):
        def forward(self, x: torch.Tensor, times: int = 1) -> torch.Tensor:
            return x * times

    program, _ = separate(save(Scaled(), tmp_path / "scaled.pt2", (torch.ones(2, 3), 4)), tmp_path)
    call = check_program(program).call
    document: dict[str, Any] = {
        "model": "tiny/scaled",
        "source": {"program": "sha256:" + 64 * "0"},
        "weights": "sha256:" + 64 * "0",
        "inputs": [{"name": "x", "shape": [2, 3], "generate": {"normal": {}}}],
    }
    with pytest.raises(InputRefused) as caught:
        check_call(call, Spec.model_validate(document))
    assert caught.value.hint == "Write fixed: {times: 4}."
    with pytest.raises(InputRefused, match="times = 4, the spec says 5"):
        check_call(call, Spec.model_validate({**document, "fixed": {"times": 5}}))
    check_call(call, Spec.model_validate({**document, "fixed": {"times": 4}}))


def test_multiples_are_read_from_the_program(tmp_path: Path) -> None:
    class Blocks(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.reshape(-1, 4).sum(0)

    count = torch.export.Dim("count", min=2, max=10)
    source = save(Blocks(), tmp_path / "blocks.pt2", (torch.ones(16),), dynamic_shapes={"x": {0: 4 * count}})
    call = check_program(separate(source, tmp_path)[0]).call

    def asked(**dim: int) -> Spec:
        return Spec.model_validate({
            "model": "tiny/blocks",
            "source": {"program": "sha256:" + 64 * "0"},
            "weights": "sha256:" + 64 * "0",
            "inputs": [{"name": "x", "shape": ["n"], "generate": {"normal": {}}}],
            "dims": {"n": dim},
        })  # fmt: skip

    check_call(call, asked(min=8, max=40, example=16, multiple_of=4))
    with pytest.raises(DimensionSpecialised, match="multiples of 4"):
        check_call(call, asked(min=8, max=40, example=16))
