"""Every form of call goes through torch.export, a refusal is explained, and one build shows them all at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from pt2hub.client.artifacts.loader import LoadedModel, load_artifact
from pt2hub.client.artifacts.local import LocalArtifact
from pt2hub.domain.artifacts import ArtifactConfig, Dim
from pt2hub.domain.codec import decode
from pt2hub.errors import (
    BadCall,
    DataDependent,
    DimensionSpecialised,
    ExportFailed,
    InputMutated,
    InvalidInput,
)
from pt2hub_workers.inside.builds.export import inputs, model_lines
from pt2hub_workers.inside.builds.verify import largest_sizes
from support.forms import BATCH, EVERY_FORM, adapted, exported, spec_of, tensor
from support.tiny_models import EveryForm
from support.workbench import tiny_spec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pt2hub.domain.publishing.spec import Spec
    from support.workbench import Workbench

EVERY = {key: EVERY_FORM[key] for key in ("dims", "fixed")}


def every_spec(**fields: Any) -> Spec:
    return spec_of(*EVERY_FORM["inputs"], **{**EVERY, **fields})


@pytest.mark.parametrize("strict", [False, True])
def test_every_form_is_exported_in_the_order_that_compiled_code_takes(strict: bool) -> None:
    found, notes = exported(EveryForm(), every_spec(export={"strict": strict}))

    signature = found.signature
    assert signature.arguments == ("batch", "pair", "scale", "state", "ids", "mask")
    assert [item.name for item in signature.inputs] == ["batch.image", "pair[1]", "state(0)", "ids", "mask"]
    assert [item.dtype for item in signature.inputs] == ["float32"] * 3 + ["int64", "bool"]
    assert signature.fixed == {"pair[0]": 3, "batch.keep": True, "scale": 2.0}
    assert signature.dims == {"batch": Dim(1, 8), "seq": Dim(8, 32, 8)}
    assert found.mutated == {"calls"}
    assert "keeps this state across calls" in found.notes[0]
    assert [note.partition(":")[0] for note in notes] == [
        "output 1 shares memory with output 0",
        "output 4 shares memory with input batch.image",
        "output 5 shares memory with the weight linear.weight",
        "output 6 shares memory with the buffer calls",
    ]
    placeholders = found.program.graph_signature.user_inputs
    assert list(placeholders) == ["batch_image", "pair_0", "state_0", "ids", "mask"]


class Doubled(nn.Module):
    """Doubles, by a line that a test chooses."""

    def __init__(self, line: Callable[..., Any]) -> None:
        super().__init__()
        self.line = line

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return self.line(x, y)


XY = (tensor("x", ["batch", 4]), tensor("y", ["other", 4]))
WIDE = {name: {"min": 1, "max": 32, "example": 8} for name in ("batch", "other")}


def test_equal_names_are_equal_sizes_and_different_names_are_not() -> None:
    found, _ = exported(Doubled(lambda x, y: (x * 2, y * 2)), spec_of(*XY, dims=WIDE))
    assert len(found.program.range_constraints) == 2

    same = (XY[0], tensor("y", ["batch", 4]))
    found, _ = exported(Doubled(lambda x, y: x + y), spec_of(*same))
    assert len(found.program.range_constraints) == 1
    with pytest.raises(DimensionSpecialised, match="must have the same size") as caught:
        exported(Doubled(lambda x, y: x + y), spec_of(*XY, dims=WIDE))
    assert "replace other by batch" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("line", "problem", "hint"),
    [
        (lambda x, _: x.reshape(8, 4) * 2, "fixes dimension batch at 8", "Write 8 instead of batch"),
        (lambda x, _: x + torch.arange(16)[: x.shape[0], None], "fewer sizes of batch", "{max: 16}"),
        (lambda x, _: x.view(-1, 4, 4).sum(1), "batch must be a multiple of 4", "{multiple_of: 4}"),
    ],
    ids=["one size", "a smaller largest size", "multiples"],
)
def test_sizes_that_the_model_does_not_take_are_explained_with_the_line_and_what_to_write(
    line: Callable[..., Any], problem: str, hint: str
) -> None:
    with pytest.raises(DimensionSpecialised, match=problem) as caught:
        exported(Doubled(line), spec_of(*XY, dims=WIDE))

    error = caught.value
    assert error.where == "dims.batch"
    assert hint in (error.hint or "")
    assert "test_export_forms.py:" in error.message
    assert error.context["code"].startswith("(lambda x, _: x")
    assert error.context["locals"] == {"x": "tensor[batch, 4]"}


def test_multiples_are_exported_as_such_and_hold_for_what_the_model_needs() -> None:
    dims = {"batch": {"max": 32, "example": 8, "multiple_of": 4}}
    by_four = lambda x, y: x.view(-1, 4, 4).sum(1) + y.view(-1, 4, 4).sum(1)  # noqa: E731  # the model
    found, _ = exported(Doubled(by_four), spec_of(XY[0], tensor("y", ["batch", 4]), dims=dims))
    assert found.signature.dims == {"batch": Dim(4, 32, 4)}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("line", "problem", "hint"),
    [
        (lambda x, _: x.reshape(16, 4) * 2, "fixes dimension batch at 16", "Write 16"),
        (lambda x, _: x.view(-1, 8, 4).sum(1), "batch must be a multiple of 8", "{multiple_of: 8}"),
        (lambda x, _: x + torch.arange(20)[: x.shape[0], None], "fewer sizes of batch", "{max: 20}"),
    ],
    ids=["one size", "greater multiples", "a smaller largest size"],
)
def test_what_a_program_assumes_beyond_the_declared_multiples_is_found_though_torch_says_nothing(
    line: Callable[..., Any], problem: str, hint: str, strict: bool
) -> None:
    dims = {"batch": {"max": 32, "example": 16, "multiple_of": 4}}
    with pytest.raises(DimensionSpecialised, match=problem) as caught:
        exported(Doubled(line), spec_of(XY[0], tensor("y", [4]), dims=dims, export={"strict": strict}))
    assert caught.value.where == "dims.batch"
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (
            lambda x, y: x.sum() + y.sum() if x.shape[0] >= y.shape[0] else x.sum() - y.sum(),
            "batch=2 and other=8 together: the exported program is valid only where batch >= other",
        ),
        (
            lambda x, y: x.sum() + y.sum() if x.shape[0] + y.shape[0] < 40 else x.sum() - y.sum(),
            "batch=8 and other=32 together",
        ),
    ],
    ids=["an order", "a sum"],
)
def test_what_a_program_assumes_of_two_dimensions_is_found_though_torch_says_nothing(
    line: Callable[..., Any], problem: str, strict: bool
) -> None:
    with pytest.raises(DimensionSpecialised, match=problem) as caught:
        exported(Doubled(line), spec_of(*XY, dims=WIDE, export={"strict": strict}))
    assert caught.value.where == "dims.other"


def test_dimensions_of_multiples_that_must_be_equal_are_said_to_be() -> None:
    dims = {name: {"max": 64, "example": 16, "multiple_of": 8} for name in ("batch", "other")}
    with pytest.raises(DimensionSpecialised, match="batch and other must have the same size"):
        exported(Doubled(lambda x, y: x + y), spec_of(*XY, dims=dims))


def test_the_points_of_the_gate_are_multiples_also_where_memory_bounds_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dims = {"batch": {"max": 3 * 64, "example": 16, "multiple_of": 8}}
    spec = spec_of(tensor("input"), dims=dims)
    model, _ = adapted(nn.Linear(4, 4), spec)
    monkeypatch.setattr(largest_sizes, "available_bytes", lambda _: 16 * 4 * 4 * 5)

    sizes, note = largest_sizes.choose_largest_sizes(spec, model, {})

    assert 16 <= sizes["batch"] < 192
    assert "of 192" in (note or "")
    assert {point.sizes["batch"] for point in inputs.make_points(spec, sizes)} == {8, 16, sizes["batch"]}
    assert sizes["batch"] % 8 == 0


def test_memory_is_bounded_for_models_with_higher_order_operators() -> None:
    class Either(nn.Module):
        def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002  # the spec's name
            return torch.ops.higher_order.cond(input.sum() > 0, torch.sin, torch.cos, (input,))

    spec = spec_of(tensor("input"), dims={"batch": {"max": 64, "example": 16}})
    model, _ = adapted(Either(), spec)

    assert largest_sizes.choose_largest_sizes(spec, model, {}) == ({"batch": 64}, None)


def by_value(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    limit = 3
    if x.sum() > limit:
        return x * 2
    return y


def by_size(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    longest = int(y.sum().item())
    return x[:, :longest]


@pytest.mark.parametrize("strict", [False, True])
def test_control_flow_by_values_is_explained_with_the_authors_line_and_locals(
    strict: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DataDependent) as caught:
        exported(Doubled(by_value), spec_of(*XY, dims=WIDE, export={"strict": strict}))

    error = caught.value
    line = by_value.__code__.co_firstlineno + 2
    assert f"test_export_forms.py:{line}: if x.sum() > limit: (" in error.message
    assert "torch.cond" in (error.hint or "")
    assert error.where == "source"
    context = error.context
    assert context["file"].endswith("test_export_forms.py")
    assert not context["file"].startswith("/")
    assert (context["line"], context["code"]) == (line, "if x.sum() > limit:")
    assert "[batch, 4]" in context["locals"]["x"]
    assert strict or context["locals"]["limit"] == "3"
    assert "torch.cond" in context["suggestion"]
    assert "1. Data dependent error" in "".join(error.__notes__)
    assert "def forward" not in capsys.readouterr().err


def test_every_line_that_depends_on_values_is_named_and_not_only_the_first() -> None:
    def both(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return by_value(by_size(x, y), y)

    with pytest.raises(DataDependent) as caught:
        exported(Doubled(both), spec_of(XY[0], tensor("y", ["batch", 4], "int64"), dims=BATCH))

    first, second = (function.__code__.co_firstlineno for function in (by_size, by_value))
    assert caught.value.context["line"] == first + 1
    assert f"test_export_forms.py:{second + 2}" in (caught.value.hint or "")


def test_any_other_refusal_says_the_line_too_and_a_slow_report_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def leaves_torch(x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy() * 2)

    monkeypatch.setattr(model_lines, "MAX_REPORT_S", 1e-6)
    with pytest.raises(ExportFailed, match=r"numpy.* is not supported") as caught:
        exported(Doubled(leaves_torch), spec_of(*XY, dims=WIDE))
    assert f":{leaves_torch.__code__.co_firstlineno + 1}: return torch.from_numpy" in caught.value.message
    assert type(caught.value) is ExportFailed
    assert "draft" not in "".join(caught.value.__notes__)


def test_a_write_to_an_input_that_changes_nothing_at_the_example_is_found_in_the_program() -> None:
    spec = spec_of(tensor("x"), {**tensor("y"), "generate": {"constant": 1.0}})
    with pytest.raises(InputMutated) as caught:
        exported(Doubled(lambda x, y: x + y[:, 1:3].relu_().sum()), spec)
    assert caught.value.where == "inputs.y"


def test_inputs_are_the_same_whatever_defaults_a_source_has_set() -> None:
    spec = every_spec()
    points = inputs.make_points(spec, {"batch": 8, "seq": 32})
    before = [inputs.make_inputs(spec, point, {}) for point in points]
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            after = [inputs.make_inputs(spec, point, {}) for point in points]
    finally:
        torch.set_default_dtype(torch.float32)
    for one, other in zip(before, after, strict=True):
        assert all(
            torch.equal(one[name], other[name]) and one[name].dtype is other[name].dtype for name in one
        )


def test_an_uploaded_example_keeps_its_values_and_must_have_the_declared_sizes(tmp_path: Path) -> None:
    import safetensors.torch

    path, values = tmp_path / "example.safetensors", torch.arange(8).reshape(2, 4)
    safetensors.torch.save_file({"batch.ids": values}, path)
    plain = {**tensor("batch.ids", ["batch", 4], "int64"), "example": "sha256:" + 64 * "0"}
    del plain["generate"]

    def made(*shape: int | str) -> torch.Tensor:
        spec = spec_of({**plain, "shape": list(shape)})
        return inputs.make_inputs(spec, inputs.make_points(spec, {})[0], {"batch.ids": path})["batch.ids"]

    assert torch.equal(made("batch", 4), values)
    with pytest.raises(InvalidInput, match=r"shape \[2, 4\], the spec declares \['batch', 3\]"):
        made("batch", 3)


@pytest.fixture(scope="module")
def built(bench: Workbench) -> dict[str, Any]:
    parts = bench.build(tiny_spec("EveryForm", **EVERY_FORM))
    return {**parts, "logged": [event["text"] for event in bench.events if event["event"] == "log"]}


@pytest.fixture
def loaded(built: dict[str, Any]) -> LoadedModel:
    from pathlib import Path

    paths = [Path(built[name]) for name in ("code_path", "weights_path")]
    return load_artifact(LocalArtifact.from_files(decode(ArtifactConfig, built["config"]), *paths))


def call(batch: int = 3, seq: int = 24) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(batch)
    return {
        "batch": {"keep": True, "image": torch.randn(batch, 4, generator=generator)},
        "pair": (3, torch.randn(batch, 4, generator=generator)),
        "scale": 2.0,
        "state": [torch.randn(2, 3, generator=generator)],
        "ids": torch.randint(0, 5, (batch, seq), generator=generator),
        "mask": torch.rand(batch, seq, generator=generator) > 0.5,
    }


def reference(built: dict[str, Any]) -> EveryForm:
    import safetensors.torch

    model = EveryForm().eval().requires_grad_(False)
    model.load_state_dict(safetensors.torch.load_file(built["weights_path"]))
    return model


@pytest.mark.compiles
def test_an_artifact_of_every_form_is_called_like_the_module_and_answers_like_it(
    built: dict[str, Any], loaded: LoadedModel
) -> None:
    model, given = reference(built), call()
    expected = model(**given)
    found = loaded(**given)

    assert list(found) == ["hidden", "pair", "heads", "given", "weight", "calls"]
    assert type(found["pair"]) is tuple
    assert found["heads"].keys() == {"scores"}
    flat = [
        found["hidden"],
        *found["pair"],
        found["heads"]["scores"],
        found["given"],
        found["weight"],
        found["calls"],
    ]
    right = [
        expected["hidden"],
        *expected["pair"],
        expected["heads"].scores,
        expected["given"],
        model.linear.weight,
    ]
    for one, other in zip(flat, [*right, torch.ones(4)], strict=True):
        assert one.dtype is other.dtype
        torch.testing.assert_close(one, other)
    short = {**call(), "batch": {"image": given["batch"]["image"]}}
    del short["scale"]
    torch.testing.assert_close(loaded(**short)["hidden"], expected["hidden"])


@pytest.mark.compiles
def test_what_the_artifact_returns_shares_no_memory_with_anything(loaded: LoadedModel) -> None:
    from torch.utils import _pytree as pytree

    given = call()
    first, second = pytree.tree_leaves(loaded(**given)), pytree.tree_leaves(loaded(**given))
    places = [
        *first,
        *second,
        *(item for item in pytree.tree_leaves(given) if isinstance(item, torch.Tensor)),
    ]
    places += loaded.constants().values()
    assert len({item.untyped_storage().data_ptr() for item in places}) == len(places)


@pytest.mark.compiles
def test_a_buffer_keeps_its_state_across_calls_until_reset_and_log_and_report_say_so(
    built: dict[str, Any], loaded: LoadedModel
) -> None:
    assert loaded.mutated == ("calls",)
    counts = [float(loaded(**call())["calls"][0]) for _ in range(3)]
    loaded.reset()
    assert (counts, float(loaded(**call())["calls"][0])) == ([1.0, 2.0, 3.0], 1.0)

    for said in (
        "output 5 shares memory with the weight linear.weight",
        "writes to calls: the artifact keeps this state",
    ):
        assert any(said in line for line in built["logged"])
        assert any(said in note for note in built["verification"]["notes"])


@pytest.mark.compiles
def test_the_loaded_artifact_refuses_other_forms_and_shows_its_own(loaded: LoadedModel) -> None:
    with pytest.raises(BadCall) as caught:
        loaded(**{**call(), "pair": [4, call()["pair"][1]]})
    assert caught.value.where == "pair[0]"
    with pytest.raises(BadCall, match="not a multiple of 8"):
        loaded(**call(seq=20))
    shown = str(loaded)
    for words in ("batch.image", "state(0)", "seq 8 to 32 by 8", "batch.keep", "pair[0]"):
        assert words in shown
