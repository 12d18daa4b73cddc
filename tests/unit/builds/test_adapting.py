"""A model as its spec calls it: arguments put together, outputs chosen, shared memory found. Nothing is exported."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from pt2hub.errors import IndexOutOfRange, InputMutated, InputRefused, UnknownInput, UnsupportedOutput
from pt2hub_workers.inside.builds.export import adapter, eager
from pt2hub_workers.inside.builds.export.call import arguments
from support.forms import adapted, spec_of, tensor
from support.tiny_models import EveryForm, Heads, Pair


class Remembering(nn.Module):
    """Remembers what it was called with, and returns what it is told to."""

    def __init__(self, result: Any = None) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.result = result
        self.seen: Any = None

    def ran(self, *seen: Any) -> Any:
        self.seen = seen
        return self.result or torch.ones(1)


def test_tensors_and_fixed_values_reach_forward_where_their_paths_say() -> None:
    class Model(Remembering):
        def forward(self, a: Any, pair: Any, batch: Any, sizes: Any = (1,), flag: bool = False) -> Any:
            return self.ran(a, pair, batch, sizes, flag)

    fixed = {"pair[0]": 7, "batch.name": "n", "batch.parts[1]": [1, 2], "sizes(0)": 5, "flag": True}
    spec = spec_of(tensor("batch.parts[0]"), tensor("pair[1]"), tensor("a"), fixed=fixed)
    model, made = adapted(Model(), spec)
    eager.run(model, made)

    a, pair, batch, sizes, flag = model.seen
    assert a is made["a"]
    assert pair[0] == 7
    assert pair[1] is made["pair[1]"]
    assert batch == {"parts": [made["batch.parts[0]"], [1, 2]], "name": "n"}
    assert (sizes, flag) == ((5,), True)
    assert list(arguments(made)) == ["batch", "pair", "a"]
    assert len(arguments(made)["pair"]) == 1


def test_arguments_without_names_and_of_any_number_are_taken() -> None:
    class Model(Remembering):
        def forward(self, a: Any, scale: float = 2.0, /, b: Any = None, *rest: Any, **more: Any) -> Any:
            return self.ran(a, scale, b, rest, more)

    spec = spec_of(tensor("rest(1)"), tensor("rest(0)"), tensor("a"), tensor("extra"), fixed={"word": "x"})
    model, made = adapted(Model(), spec)
    eager.run(model, made)

    a, scale, b, rest, more = model.seen
    assert a is made["a"]
    assert (scale, b) == (2.0, None)
    assert rest == (made["rest(0)"], made["rest(1)"])
    assert more == {"extra": made["extra"], "word": "x"}
    call = adapter.get_call(model)
    assert call.arguments == ("a", "scale", "b", "rest(0)", "rest(1)", "extra", "word")
    assert call.fixed == {"word": "x", "scale": 2.0, "b": None}


def test_a_call_by_position_follows_forwards_own_order_up_to_the_first_gap() -> None:
    class Model(Remembering):
        def forward(self, a: Any, b: Any, scale: float = 1.0, c: Any = None) -> Any:
            return self.ran(a, b, scale, c)

    model, made = adapted(Model(), spec_of(tensor("c"), tensor("b"), tensor("a")))
    model(made["a"], made["b"], c=made["c"])

    assert model.seen == (made["a"], made["b"], 1.0, made["c"])
    assert str(adapter.get_call(model).signature) == "(self, a, b, *, c)"


@pytest.mark.parametrize(
    ("names", "fixed", "kind", "where", "hint"),
    [
        (["x", "batch.image"], {}, UnknownInput, "inputs.batch.image", r"forward\(x, y, \*rest\)"),
        (["x", "y"], {"scale": 1}, UnknownInput, "fixed.scale", "forward"),
        (["x"], {}, InputRefused, "inputs", "y"),
        (["x", "y", "rest"], {}, UnknownInput, "inputs.rest", r"rest\(0\), rest\(1\)"),
    ],
)
def test_arguments_that_forward_lacks_or_needs_are_named_with_their_paths(
    names: list[str], fixed: dict[str, Any], kind: type[Exception], where: str, hint: str
) -> None:
    class Model(nn.Module):
        def forward(self, x: Any, y: Any, *rest: Any) -> Any:
            return x, y, rest

    with pytest.raises(kind, match=hint) as caught:
        adapted(Model(), spec_of(*map(tensor, names), fixed=fixed))
    assert caught.value.where == where  # type: ignore[attr-defined]  # of every error here


ONE, TWO = torch.ones(2), torch.zeros(3)


@pytest.mark.parametrize(
    ("result", "kept", "expected"),
    [
        (Pair(ONE, TWO), [], (ONE, TWO)),
        (Heads(ONE), [], {"scores": ONE}),
        ({"a": None, "b": [Heads(ONE, TWO)]}, [], {"b": [{"scores": ONE, "boxes": TWO}]}),
        (torch.max(torch.eye(2), dim=0), ["[0]"], torch.ones(2)),
        (Heads(ONE, TWO), [".boxes"], TWO),
        ({"a": (ONE, {"b": TWO})}, [".a[1].b", ".a[0]"], {"a[1].b": TWO, "a[0]": ONE}),
    ],
)
def test_results_become_plain_containers_and_only_the_chosen_outputs_stay(
    result: Any, kept: list[str], expected: Any
) -> None:
    class Model(Remembering):
        def forward(self, x: Any) -> Any:
            return self.ran(x)

    model, made = adapted(Model(result), spec_of(tensor("x"), outputs=kept))

    found = eager.run(model, made)
    assert repr(found) == repr(expected)
    assert type(found) is type(expected)


def test_an_output_that_is_not_there_is_answered_with_those_that_are() -> None:
    class Model(Remembering):
        def forward(self, x: Any) -> Any:
            return self.ran(x)

    model, made = adapted(Model({"a": (ONE, TWO)}), spec_of(tensor("x"), outputs=[".a[2]"]))
    with pytest.raises(
        UnsupportedOutput, match=r"\.a\[0\] \(float32\[2\]\), \.a\[1\] \(float32\[3\]\)"
    ) as caught:
        eager.run(model, made)
    assert caught.value.where == "outputs[0]"


@pytest.mark.parametrize(
    "result", [{("a", 1): ONE}, [{ONE}], [{"a": iter(())}]], ids=["key", "set", "iterator"]
)
def test_containers_that_no_caller_could_put_together_are_refused(result: Any) -> None:
    with pytest.raises(UnsupportedOutput, match=r"key \('a', 1\)|set|iterator"):
        eager.check_outputs(result)


def test_hooks_see_the_call_by_position_and_nothing_of_the_model_is_compiled() -> None:
    compiled: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    class Model(nn.Module):
        @torch.compile(backend=backend)
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    model = Model()
    model.register_forward_pre_hook(lambda _, args: (args[0] + 1,))
    adapted_model, made = adapted(model, spec_of(tensor("x")))

    assert torch.equal(eager.run(adapted_model, made), (made["x"] + 1) * 2)
    assert compiled == []


def test_an_index_error_is_about_ids_only_where_there_are_some() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return [x].pop(1)

    model, made = adapted(Model(), spec_of(tensor("x")))
    with pytest.raises(InputRefused, match="IndexError"):
        eager.run(model, made)
    model, made = adapted(
        nn.Embedding(2, 3), spec_of({**tensor("input", dtype="int64"), "generate": {"constant": 9}})
    )
    with pytest.raises(IndexOutOfRange):
        eager.run(model, made)


def test_a_class_that_asks_something_of_its_subclasses_is_adapted() -> None:
    class Registered(nn.Module):
        def __init_subclass__(cls, *, key: str) -> None:
            cls.key = key

    class Model(Registered, key="a"):
        key: str

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    model, made = adapted(Model(), spec_of(tensor("x")))
    assert torch.equal(eager.run(model, made), made["x"] * 2)
    assert model.key == "a"


def test_names_of_class_and_weights_stay_and_a_copy_calls_itself() -> None:
    model, made = adapted(EveryForm(), spec_of(*EVERY, fixed=EVERY_FIXED))
    adapter.copy_shared_outputs(model, made)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.linear.weight.zero_()

    assert type(model).__name__ == "EveryForm"
    assert type(model).__qualname__ == EveryForm.__qualname__
    assert set(model.state_dict()) == {"linear.weight", "linear.bias", "table.weight", "calls"}
    assert not torch.equal(eager.run_flat(model, made)[0], eager.run_flat(twin, made)[0])
    assert (
        eager.run_flat(eager.to_double(model), eager.convert_inputs(made, torch.float64))[0].dtype
        is torch.float64
    )


EVERY = (
    tensor("batch.image"),
    tensor("pair[1]"),
    tensor("state(0)"),
    tensor("ids", ["batch", 8], "int64"),
    tensor("mask", ["batch", 8], "bool"),
)
EVERY_FIXED = {"pair[0]": 3, "batch.keep": True, "scale": 2.0}


def test_outputs_that_share_memory_are_found_named_and_copied() -> None:
    class Model(nn.Module):
        kept: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.register_buffer("kept", torch.ones(4))
            self.plain = torch.ones(4)

        def forward(self, x: torch.Tensor) -> Any:
            own = x * 2
            halves = own.chunk(2)
            return (
                own,
                x.view(-1),
                self.linear.weight.t(),
                self.kept,
                self.plain,
                own,
                x + 1,
                halves[1],
                x * self.kept,
            )

    model, made = adapted(Model(), spec_of(tensor("x")))
    notes = adapter.copy_shared_outputs(model, made).notes

    assert [note.removesuffix(": the artifact returns a copy") for note in notes] == [
        "output 1 shares memory with input x",
        "output 2 shares memory with the weight linear.weight",
        "output 3 shares memory with the buffer kept",
        "output 4 shares memory with a constant of the model",
        "output 5 shares memory with output 0",
        "output 7 shares memory with output 0",
    ]
    results = eager.run(model, made)
    places = [made["x"], *model.parameters(), model.kept, model.plain, *results]
    assert len({item.untyped_storage().data_ptr() for item in places}) == len(places)
    assert adapter.copy_shared_outputs(model, made).notes == notes


@pytest.mark.parametrize("write", [lambda x: x.mul_(2), lambda x: x[:, 0].zero_()], ids=["all", "a part"])
def test_a_model_that_writes_to_an_input_is_refused_before_anything_is_compared(write: Any) -> None:
    class Model(nn.Module):
        def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
            write(batch["x"])
            return batch["x"] + 1

    model, made = adapted(Model(), spec_of(tensor("batch.x")))
    with pytest.raises(InputMutated, match=r"clone") as caught:
        adapter.copy_shared_outputs(model, made)
    assert caught.value.where == "inputs.batch.x"


def test_complex_outputs_are_refused_with_a_way_on() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return {"waves": torch.fft.fft(x), "x": x + 1}

    model, made = adapted(Model(), spec_of(tensor("x")))
    with pytest.raises(UnsupportedOutput, match=r"complex64[\s\S]*`outputs`"):
        adapter.copy_shared_outputs(model, made)
    model, made = adapted(Model(), spec_of(tensor("x"), outputs=[".x"]))
    assert adapter.copy_shared_outputs(model, made).notes == ()


def test_a_program_is_adapted_and_copied_like_any_model() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, batch: dict[str, torch.Tensor], scale: float) -> Any:
            return {"y": self.linear(batch["x"]) * scale}

    args = ({"x": torch.randn(2, 4)}, 2.0)
    shapes = {"batch": {"x": {0: torch.export.Dim("batch", max=16)}}, "scale": None}
    program = torch.export.export(Model(), args, dynamic_shapes=shapes)
    spec = spec_of(tensor("batch.x"), fixed={"scale": 2.0}, outputs=[".y"])
    model = adapter.adapt_model(program.module(check_guards=False), spec)

    x = {"batch.x": torch.randn(3, 4)}
    expected = program.module()({"x": x["batch.x"]}, 2.0)["y"]
    assert torch.equal(eager.run(model, x), expected)
    assert torch.equal(eager.run(copy.deepcopy(model), x), expected)
