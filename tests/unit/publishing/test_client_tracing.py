"""Live models become specs: arguments by path, dimensions from every form of dynamic_shapes, files to upload."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.export import Dim, ShapesCollection

from pt2hub.archive.exported_programs import check_program, join_program
from pt2hub.client.publishing.live_models import trace as trace_model
from pt2hub.domain.digests import Digest
from pt2hub.domain.publishing.spec import Spec
from pt2hub.errors import (
    DataDependent,
    DimensionSpecialised,
    ExampleOutOfRange,
    HiddenState,
    InputRefused,
    InvalidInput,
    ProgramDiffers,
    Pt2hubError,
    UnsupportedTensor,
    UnusedInput,
)
from support.tiny_models import FixedBatch, Mlp

if TYPE_CHECKING:
    from collections.abc import Callable

    from pt2hub.client.publishing.spec_files import SpecFiles

    Trace = Callable[..., "Traced"]

DIGEST = Digest("sha256:" + 64 * "0")
X = torch.arange(32.0).reshape(4, 8)


class Traced(SimpleNamespace):
    """A traced model: its spec as the server would see it, and its files."""

    spec: Spec
    parts: SpecFiles

    @property
    def shapes(self) -> dict[str, list[int | str]]:
        return {item.name: item.shape for item in self.spec.inputs}

    @property
    def dims(self) -> dict[str, dict[str, int]]:
        return {name: dim.model_dump(exclude_defaults=True) for name, dim in self.spec.dims.items()}


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    def run(
        model: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None, **options: Any
    ) -> Traced:
        scratch = tmp_path / "scratch"
        scratch.mkdir(exist_ok=True)
        document, parts = trace_model(model, args, kwargs or {}, {"name": "team/model", **options}, scratch)
        document = parts.named_in(document, lambda _: DIGEST, None)  # type: ignore[arg-type]  # nothing is fetched
        return Traced(spec=Spec.model_validate(document), parts=parts)

    return run


class Nested(nn.Module):
    """Tensors in containers, and settings beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(
        self,
        batch: dict[str, torch.Tensor],
        pair: list[torch.Tensor],
        scale: float = 1.0,
        *,
        flags: tuple[bool, int | None] = (True, 1),
        note: str = "",
    ) -> dict[str, torch.Tensor]:
        del note
        out = self.linear(batch["x-ray"]) * scale + pair[0]
        return {"out": out if flags[0] else -out, "sum": pair[1].sum() * 1.0}


def nested_call() -> tuple[tuple[Any, ...], dict[str, Any]]:
    args = ({"x-ray": X}, [X + 1, torch.arange(12).reshape(4, 3)], 2.5)
    return args, {"flags": (False, None), "note": "text"}


def test_nested_arguments_become_paths_and_what_is_no_tensor_is_fixed(trace: Trace) -> None:
    args, kwargs = nested_call()
    batch = Dim("Batch", max=64)
    shapes = {"batch": {"x-ray": {0: batch}}, "pair": [{0: batch}, None]}
    found = trace(Nested().eval(), args, kwargs, dynamic_shapes=shapes)
    assert found.shapes == {"batch.x-ray": ["batch", 8], "pair[0]": ["batch", 8], "pair[1]": [4, 3]}
    assert [item.dtype for item in found.spec.inputs] == ["float32", "float32", "int64"]
    assert found.dims == {"batch": {"max": 64, "example": 4}}
    assert found.spec.fixed == {"scale": 2.5, "flags(0)": False, "flags(1)": None, "note": "text"}
    examples = safetensors.torch.load_file(found.parts.examples or "")
    assert examples["batch.x-ray"].equal(X)
    assert examples["pair[1]"].equal(args[1][1])
    assert {item.example for item in found.spec.inputs} == {DIGEST}


def collected() -> ShapesCollection:
    shapes = ShapesCollection()
    shapes[X] = {0: Dim("b", max=32)}
    return shapes


FORMS: dict[str, Any] = {
    "by name": lambda: {"x": {0: Dim("b", max=32)}},
    "by place": lambda: ({0: Dim("b", max=32)},),
    "a size for each axis": lambda: [(Dim("b", max=32), 8)],
    "with what is static": lambda: {"x": {0: Dim("b", max=32), 1: Dim.STATIC}},
    "a collection": collected,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_dynamic_shapes_says_the_same(trace: Trace, form: str) -> None:
    found = trace(Mlp().eval(), (X,), dynamic_shapes=FORMS[form]())
    assert (found.shapes, found.dims) == ({"x": ["b", 8]}, {"b": {"max": 32, "example": 4}})


def test_a_dimension_without_a_name_is_called_by_argument_and_axis(trace: Trace) -> None:
    found = trace(Mlp().eval(), (X,), dynamic_shapes={"x": {0: Dim.AUTO(max=9)}})
    assert (found.shapes, found.dims) == ({"x": ["x_0", 8]}, {"x_0": {"max": 9, "example": 4}})


def test_the_smallest_size_is_the_one_that_was_said(trace: Trace) -> None:
    found = trace(Mlp().eval(), (X,), dynamic_shapes={"x": {0: Dim("b", min=2, max=9)}})
    assert found.dims == {"b": {"min": 2, "max": 9, "example": 4}}


@pytest.mark.parametrize("shipped", [{}, {"code": ".", "entry": "net:build"}])
def test_a_factor_becomes_multiple_of(
    trace: Trace, shipped: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text("")
    found = trace(Mlp().eval(), (X,), dynamic_shapes={"x": {0: 2 * Dim("half", max=16)}}, **shipped)
    assert found.shapes == {"x": ["half", 8]}
    assert found.dims == {"half": {"min": 2, "max": 32, "example": 4, "multiple_of": 2}}


WRONG: dict[str, tuple[Any, type[Pt2hubError], str]] = {
    "no largest size": ({"x": {0: Dim("b")}}, InvalidInput, r'Dim\("b", max=64\)'),
    "nor an automatic one": ({"x": {0: Dim.AUTO}}, InvalidInput, r'Dim\("x_0", max=64\)'),
    "a sum": ({"x": {0: Dim("b", max=9) + 1}}, InvalidInput, "several terms"),
    "another argument": ({"y": {0: Dim("b", max=9)}}, InvalidInput, "The arguments are x"),
    "too many arguments": ([None, None], InvalidInput, "The arguments are x"),
    "an axis too many": ({"x": {2: Dim("b", max=9)}}, InvalidInput, "2 dimensions"),
    "text": ({"x": {0: "b"}}, InvalidInput, "Invalid dimension 'b'"),
    "a container that is none": ({"x": 3}, InvalidInput, "2 dimensions"),
    "too small": ({"x": {0: Dim("b", max=3)}}, ExampleOutOfRange, "size 4"),
    "the smallest multiple": ({"x": {0: 4 * Dim("b", max=9)}}, DimensionSpecialised, "size 8 or more"),
}


@pytest.mark.parametrize("case", WRONG)
def test_dimensions_that_no_spec_can_hold_are_explained(trace: Trace, case: str) -> None:
    shapes, kind, words = WRONG[case]
    with pytest.raises(kind, match=words) as caught:
        trace(Mlp().eval(), (X,), dynamic_shapes=shapes)
    assert caught.value.where
    assert caught.value.hint


def test_an_example_of_size_one_is_refused_before_anything_is_traced(trace: Trace) -> None:
    with pytest.raises(DimensionSpecialised, match="size 2 or more") as caught:
        trace(Mlp().eval(), (X[:1],), dynamic_shapes={"x": {0: Dim.AUTO(max=9)}})
    assert caught.value.where == "x, axis 0"


def test_two_sizes_that_differ_by_a_factor_are_refused(trace: Trace) -> None:
    half = Dim("half", max=9)

    def both(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.sum() + y.sum()

    with pytest.raises(InvalidInput, match="is a multiple of") as caught:
        trace(both, (X, X[:2]), dynamic_shapes={"x": {0: 2 * half}, "y": {0: half}})
    assert caught.value.where == "y, axis 0"


def test_a_dimension_that_the_model_fixes_comes_with_torchs_suggestion(trace: Trace) -> None:
    with pytest.raises(DimensionSpecialised, match="b = 2") as caught:
        trace(FixedBatch().eval(), (X[:2],), dynamic_shapes={"x": {0: Dim("b", max=9)}})
    assert "draft_export" not in str(caught.value)


def doubled(x: torch.Tensor, times: int = 2) -> torch.Tensor:
    """A plain function."""
    return x * times


def test_a_plain_function_is_published_as_it_is(trace: Trace) -> None:
    found = trace(doubled, (X,), {"times": 3}, export={"strict": True}, outputs=["[0]"])
    assert found.shapes == {"x": [4, 8]}
    assert found.spec.fixed == {"times": 3}
    assert found.spec.export.strict
    assert found.spec.outputs == ["[0]"]
    assert doubled.__name__ == "doubled"


MODULE = nn.Linear(8, 2).eval()


def around(x: torch.Tensor) -> torch.Tensor:
    """A function with weights that are nobody's."""
    return MODULE(x)


def halved(*tensors: torch.Tensor) -> torch.Tensor:
    """A function whose arguments have no names."""
    return tensors[0] / 2


def choosing(x: torch.Tensor) -> torch.Tensor:
    """Control flow that depends on values."""
    return x if x.sum() > 0 else -x


REFUSED: dict[str, tuple[object, tuple[Any, ...], type[Pt2hubError], str]] = {
    "training": (Mlp(), (X,), InvalidInput, r"model\.eval\(\)"),
    "a part in training": (
        nn.Sequential(MODULE, nn.Dropout()).train(mode=False).append(nn.Dropout()),
        (X,),
        InvalidInput,
        "training mode: 2",
    ),
    "a method": (MODULE.forward, (X,), InvalidInput, "Wrap it in a function"),
    "a class": (Mlp, (X,), InvalidInput, r"Mlp\(\.\.\.\)\.eval\(\)"),
    "weights from outside": (around, (X,), InvalidInput, "uses the module MODULE"),
    "arguments without names": (halved, (X,), InvalidInput, "no names"),
    "an argument too many": (MODULE, (X, X), InvalidInput, "too many positional"),
    "no tensor": (doubled, (3,), InvalidInput, "at least one tensor"),
    "an object": (doubled, (X, object()), InvalidInput, "of the class object"),
    "infinity": (doubled, (X, float("inf")), InvalidInput, "The argument is inf"),
    "an empty list": (doubled, (X, []), InvalidInput, "times is empty"),
    "a key without a name": (doubled, ({1: X},), InvalidInput, "has the invalid key"),
    "complex": (doubled, (X * 1j,), UnsupportedTensor, "complex"),
    "sparse": (doubled, (X.to_sparse(),), UnsupportedTensor, "sparse"),
    "unsigned": (doubled, (X.to(torch.uint16),), UnsupportedTensor, "uint16"),
    "on meta": (doubled, (X.to("meta"),), UnsupportedTensor, "without values"),
    "a subclass": (doubled, (nn.Buffer(X).as_subclass(type("Mine", (torch.Tensor,), {})),), UnsupportedTensor, "Mine"),
    "values decide": (choosing, (X,), DataDependent, "in choosing"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_published_is_refused_with_what_to_do(trace: Trace, case: str) -> None:
    model, args, kind, words = REFUSED[case]
    with pytest.raises(kind, match=words) as caught:
        trace(model, args)
    assert caught.value.where
    assert caught.value.hint


class Counting(nn.Module):
    """Keeps a count, and takes eight columns."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 2)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return self.linear(x.mul_(2))


def test_an_example_of_a_wrong_shape_is_refused_at_the_models_line_with_nothing_changed(
    trace: Trace, capfd: pytest.CaptureFixture[str]
) -> None:
    model, given = Counting().eval(), torch.ones(4, 9)
    with pytest.raises(InputRefused, match=r"test_client_tracing\.py:\d+ in forward: RuntimeError") as caught:
        trace(model, (given,))
    assert "x float32 [4, 9]" in str(caught.value.hint)
    assert (model.count.item(), given.unique().tolist()) == (0, [1])
    assert capfd.readouterr().err == ""


class Tied(nn.Module):
    """Two names of one weight, a view that is no tie, and a buffer that no state_dict holds."""

    table: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8, bias=False)
        self.second = nn.Linear(8, 8, bias=False)
        self.second.weight = self.first.weight
        self.scale = nn.Parameter(torch.randn(8, 8).t())
        self.register_buffer("table", torch.ones(8), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x)) @ self.scale + self.table


def test_weights_are_apart_from_the_program_and_tied_ones_once(trace: Trace) -> None:
    model = Tied().eval()
    found = trace(model, (X,))
    assert isinstance(found.spec.source.model_dump()["program"], str)
    assert found.parts.program
    assert set(check_program(found.parts.program).weights) == {"second.weight", "scale"}
    weights = safetensors.torch.load_file(found.parts.weights or "")
    assert weights["second.weight"].equal(model.first.weight)
    assert weights["scale"].equal(model.scale)


def test_shipped_code_comes_with_the_weights_that_the_model_has(trace: Trace, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("def build(): ...\n")
    model = Tied().eval()
    given = {"code": tmp_path, "entry": "net:build", "entry_kwargs": {"a": 1}, "requirements": ["timm>=1"]}
    found = trace(model, (X,), dynamic_shapes={"x": {0: Dim("b", max=9)}}, **given)
    assert found.spec.source.model_dump() == {
        "code": DIGEST,
        "entry": "net:build",
        "entry_is": "builder",
        "kwargs": {"a": 1},
        "requirements": ["timm>=1"],
        "seed": 0,
    }
    assert found.dims == {"b": {"max": 9, "example": 4}}
    weights = safetensors.torch.load_file(found.parts.weights or "")
    assert set(weights) == {"second.weight", "scale"}
    assert weights["scale"].equal(model.scale)
    assert (
        trace(doubled, (X,), code=tmp_path, entry="net:f").spec.source.model_dump()["entry_is"] == "function"
    )
    with pytest.raises(InvalidInput, match="entry="):
        trace(model, (X,), code=tmp_path)
    with pytest.raises(InvalidInput, match="code="):
        trace(model, (X,), entry="net:build")


def test_an_exported_program_brings_its_own_inputs_and_dimensions(trace: Trace) -> None:
    batch = Dim("b", max=64)
    args, kwargs = nested_call()
    shapes = {
        "batch": {"x-ray": {0: batch}},
        "pair": [{0: batch}, None],
        "scale": None,
        "flags": (None, None),
    }
    program = torch.export.export(Nested().eval(), args, kwargs, dynamic_shapes={**shapes, "note": None})
    found = trace(program)
    assert found.shapes == {
        "batch.x-ray": ["batch_x_ray_0", 8],
        "pair[0]": ["batch_x_ray_0", 8],
        "pair[1]": [4, 3],
    }
    assert found.dims == {"batch_x_ray_0": {"max": 64, "example": 4}}
    assert found.spec.fixed["flags(1)"] is None
    program.example_inputs = None
    with pytest.raises(InvalidInput, match="without example inputs"):
        trace(program)
    with pytest.raises(InvalidInput, match="do not match those that the program was exported with"):
        trace(program, (X,))
    with pytest.raises(InvalidInput, match="cannot be combined with an exported program"):
        trace(program, dynamic_shapes=shapes)


def test_the_users_model_stays_as_it_is(trace: Trace) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout()).eval()
    model[0].bias.requires_grad_(requires_grad=False)

    def look() -> list[object]:
        state = [(name, tensor.clone()) for name, tensor in model.state_dict().items()]
        known = [(name, id(part), part.training, sorted(vars(part))) for name, part in model.named_modules()]
        return [*known, *((name, tensor.tolist()) for name, tensor in state)]

    before, random = look(), torch.random.get_rng_state()
    trace(model, (X,), dynamic_shapes={"input": {0: Dim("b", max=9)}})
    assert look() == before
    assert torch.random.get_rng_state().equal(random)
    assert [item.requires_grad for item in model[0].parameters()] == [True, False]
    assert not X.requires_grad


def test_the_same_model_gives_the_same_bytes_and_a_retrained_one_another_weights_file(trace: Trace) -> None:
    def files(model: nn.Module) -> list[bytes]:
        parts = trace(model, (X,), dynamic_shapes={"x": {0: Dim("b", max=9)}}).parts
        return [path.read_bytes() for path in (parts.program, parts.examples, parts.weights) if path]  # type: ignore[union-attr]  # files

    model = Mlp().eval()
    first = files(model)
    assert files(model) == first
    retrained = files(Mlp().eval())
    assert retrained[:2] == first[:2]
    assert retrained[2] != first[2]


def run(traced: Traced, tmp_path: Path) -> nn.Module:
    """The shipped program, as a worker would load it."""
    assert traced.parts.program
    assert traced.parts.weights
    join_program(
        Path(traced.parts.program), Path(traced.parts.weights), tmp_path / "joined.pt2", device="cpu"
    )
    return torch.export.load(tmp_path / "joined.pt2").module()


def test_one_tensor_for_two_arguments_is_two_inputs(trace: Trace, tmp_path: Path) -> None:
    found = trace(lambda x, y: torch.cos(x) + torch.sin(y), (X, X))

    x, y = torch.randn(4, 8), torch.randn(4, 8)
    torch.testing.assert_close(run(found, tmp_path)(x, y), torch.cos(x) + torch.sin(y))
    assert found.spec.checks.accept == []


def test_attention_of_one_tensor_to_itself_has_three_inputs(trace: Trace, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    found = trace(model, (X[None], X[None], X[None]))

    query, key, value = (torch.randn(1, 4, 8) for _ in range(3))
    expected = model(query, key, value)
    result = run(found, tmp_path)(query, key, value)
    torch.testing.assert_close(result[0], expected[0])


def test_a_weight_given_as_an_argument_stays_apart_from_it(trace: Trace, tmp_path: Path) -> None:
    model = nn.Linear(8, 8, bias=False).eval()
    found = trace(model, (model.weight.detach(),))

    x = torch.randn(8, 8)
    torch.testing.assert_close(run(found, tmp_path)(x), model(x))


def test_an_argument_that_the_model_ignores_is_accepted_by_name_and_one_that_is_lost_is_not(
    trace: Trace,
) -> None:
    found = trace(lambda x, spare: x * 2, (X, X))  # noqa: ARG005  # the case
    assert found.spec.checks.accept == ["unused:spare"]
    assert found.spec.checks.tolerance == 1e-3
    with pytest.raises(UnusedInput, match="its output moves") as caught:
        trace(lambda x, y: x if torch.compiler.is_exporting() else x + 1e-4 * y, (X, X))
    assert caught.value.where == "y"


def test_a_program_that_never_reads_an_input_is_refused_unless_the_spec_says_so(trace: Trace) -> None:
    class Summed(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.cos(x) + torch.sin(y)

    merged = torch.export.export(Summed(), (X, X))
    with pytest.raises(UnusedInput, match="never reads") as caught:
        trace(merged)
    assert "x.clone()" in str(caught.value.hint)
    assert trace(merged, checks={"accept": ["unused:x"]}).spec.checks.accept == ["unused:x"]


def test_outputs_that_are_not_finite_are_no_sign_of_state(trace: Trace) -> None:
    trace(lambda x: torch.cat([torch.log(x * 0), (x * 0).log() * 0, x.softmax(-1)]), (X,))


class OtherwiseExported(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if torch.compiler.is_exporting() else x


class RightOnce(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x if self.calls <= 1 else 2 * x


def test_a_model_that_its_program_is_not_is_refused_where_it_is_and_never_called_itself(trace: Trace) -> None:
    with pytest.raises(ProgramDiffers, match="off by"):
        trace(OtherwiseExported().eval(), (X,))
    model = RightOnce().eval()
    with pytest.raises(HiddenState, match="depend on earlier calls"):
        trace(model, (X,))
