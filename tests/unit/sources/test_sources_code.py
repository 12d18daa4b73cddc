"""Uploaded code: what is imported and called, and what is said where it cannot be."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pt2hub.domain.publishing.spec import CodeSource
from pt2hub.errors import (
    BadCodeArchive,
    FactoryArguments,
    FactoryFailed,
    MissingRequirement,
    NotAModule,
    Pt2hubError,
    UnknownEntry,
    UnsupportedTensor,
)
from pt2hub_workers.inside.sources import build_model
from pt2hub_workers.inside.sources.source_files import SourceFiles
from support.code import DIGEST, NET, archive, forgetting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SCRIPT = f"""{NET}
import os

model = Net()
size = 3


def reading():
    return open("/home/me/weights.pt")


def failing():
    return torch.ones(2) + torch.ones(3)


def counting():
    return 3


def the_class():
    return Net


def scripted():
    return torch.jit.script(Net())


def compiled():
    return torch.compile(Net())


def function(x, *, gain=2.0):
    return x * gain


def asking(width: int):
    return Net(width)


def making_a_function():
    return function
"""


@pytest.fixture(autouse=True)
def _forgetting(tmp_path: Path) -> Iterator[None]:
    with forgetting(tmp_path):
        yield


def _build(tmp_path: Path, files: Mapping[str, str], entry: str = "net:build", **fields: Any) -> Any:
    source = CodeSource.model_validate({"code": DIGEST, "entry": entry, **fields})
    (tmp_path / "up").mkdir()
    return build_model(source, SourceFiles((), archive(tmp_path / "up", files), None, tmp_path / "tmp"))


def _refused(tmp_path: Path, kind: type[Pt2hubError], files: Mapping[str, str], **fields: Any) -> str:
    with pytest.raises(kind) as caught:
        _build(tmp_path, files, **fields)
    assert caught.value.hint
    assert str(tmp_path) not in str(caught.value)
    return str(caught.value)


def test_a_builder_is_called_with_its_arguments_under_the_seed(tmp_path: Path) -> None:
    model = _build(tmp_path, {"net.py": NET}, kwargs={"width": 4}, seed=7)

    torch.manual_seed(7)
    assert torch.equal(model.linear.weight, torch.nn.Linear(8, 4).weight)
    assert not model.training


def test_the_entry_may_be_a_class_of_a_package_that_imports_its_neighbours_when_called(
    tmp_path: Path,
) -> None:
    late = NET.replace("return self", "from .late import GAIN; return GAIN * self")
    model = _build(tmp_path, {"pkg/net.py": late, "pkg/late.py": "GAIN = 0.0"}, entry="pkg.net:Net")

    assert torch.equal(model(torch.randn(2, 8)), torch.zeros(2, 8))


@pytest.mark.parametrize(
    ("entry", "fields"), [("net:making_a_function", {}), ("net:function", {"entry_is": "function"})]
)
def test_a_function_becomes_a_module(tmp_path: Path, entry: str, fields: dict[str, Any]) -> None:
    model = _build(tmp_path, {"net.py": SCRIPT}, entry=entry, **fields)

    assert isinstance(model, torch.nn.Module)
    assert torch.equal(model(torch.ones(2), gain=3.0), torch.full((2,), 3.0))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_model_that_was_given_to_torch_compile_is_taken_as_it_was_before(tmp_path: Path) -> None:
    model = _build(tmp_path, {"net.py": SCRIPT}, entry="net:compiled")

    assert [name for name, _ in model.named_parameters()] == ["linear.weight", "linear.bias"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*torch.jit.script")
@pytest.mark.parametrize(
    ("entry", "kind", "said"),
    [
        (
            "net:model",
            NotAModule,
            "net:model must be callable without being the model, got an instance of Net",
        ),
        ("net:counting", NotAModule, "must return a torch.nn.Module, got an object of type int"),
        ("net:the_class", NotAModule, "must return a torch.nn.Module, got the class Net"),
        ("net:scripted", NotAModule, "before scripting"),
        ("net:buidl", UnknownEntry, "Did you mean build?"),
        ("net:size", UnknownEntry, "no function size, only a value of type int"),
        ("net:function", FactoryArguments, "set `entry_is: function`"),
        ("net:failing", FactoryFailed, "at net.py:28 (return torch.ones(2) + torch.ones(3))"),
        ("net:reading", FactoryFailed, "no access to files on your machine"),
        ("nett:build", UnknownEntry, "Did you mean net?"),
    ],
)
def test_an_entry_that_makes_no_model_is_refused(
    tmp_path: Path, entry: str, kind: type[Pt2hubError], said: str
) -> None:
    assert said in _refused(tmp_path, kind, {"net.py": SCRIPT}, entry=entry)


@pytest.mark.parametrize(
    ("entry", "kwargs"), [("net:asking", {"widht": 4}), ("net:asking", {}), ("net:build", {"widht": 4})]
)
def test_a_builder_is_not_taken_for_the_model_where_its_arguments_are_wrong(
    tmp_path: Path, entry: str, kwargs: dict[str, int]
) -> None:
    said = _refused(tmp_path, FactoryArguments, {"net.py": SCRIPT}, entry=entry, kwargs=kwargs)

    assert "The signature is" in said
    assert "entry_is" not in said


def test_an_entry_that_was_to_be_a_function_is_one(tmp_path: Path) -> None:
    fields = {"entry": "net:Net", "entry_is": "function"}

    assert "the class Net" in _refused(tmp_path, NotAModule, {"net.py": NET}, **fields)


@pytest.mark.parametrize(
    ("files", "entry", "said"),
    [
        ({"src/net.py": NET}, "net:build", "Did you mean src.net?"),
        ({"net.py": "import nowhere.at_all"}, "net:build", "at net.py:1 (import nowhere.at_all)"),
        ({"net.py": "import nowhere.at_all"}, "net:build", "Declare its package in source.requirements"),
        ({"net.py": "x = 1\nx = = 2"}, "net:build", "SyntaxError"),
        ({"net.py": "x = 1\nx = = 2"}, "net:build", "at net.py:2 (x = = 2)"),
        (
            {"pkg/net.py": "import other", "pkg/other.py": "raise KeyError('HOME2')"},
            "pkg.net:build",
            "The archive has pkg.other",
        ),
        (
            {"pkg/net.py": "from . import other", "pkg/other.py": "raise KeyError('HOME2')"},
            "pkg.net:build",
            "KeyError: 'HOME2' at pkg/other.py:1",
        ),
        ({"net.py": "import pkg.layer", "pkg/layers.py": ""}, "net:build", "Did you mean pkg.layers"),
    ],
)
def test_code_that_cannot_be_imported_is_shown_its_own_line(
    tmp_path: Path, files: dict[str, str], entry: str, said: str
) -> None:
    assert said in _refused(tmp_path, UnknownEntry, files, entry=entry)


@pytest.mark.skipif(importlib.util.find_spec("triton") is not None, reason="triton is installed")
def test_a_worker_without_triton_names_targets_that_have_it(tmp_path: Path) -> None:
    said = _refused(tmp_path, UnknownEntry, {"net.py": "import triton.language as tl"}, entry="net:build")

    assert "choose targets with a GPU" in said


def test_names_that_the_build_imports_itself_cannot_be_taken(tmp_path: Path) -> None:
    free = {"net.py": NET, "tests/__init__.py": "", "test/__init__.py": "", "data/json.py": ""}
    taken = ("torch.py", "json.py", "profile.py", "safetensors/__init__.py", "networkx/__init__.py")

    said = _refused(tmp_path, BadCodeArchive, {**free, **dict.fromkeys(taken, "")})

    assert "the archive's json, networkx, profile, safetensors, torch would replace a module" in said
    assert "net" not in sys.modules


def test_what_is_required_must_be_there_before_anything_is_imported(tmp_path: Path) -> None:
    wanted = ["torch>=2", "numpy <1", "no-such-thing", "timm[nope]", "transformers[torch]>=4"]

    with pytest.raises(MissingRequirement) as caught:
        _build(tmp_path, {"net.py": "raise SystemExit"}, requirements=wanted)

    found = {detail.path: detail.message for detail in caught.value.details}
    assert list(found) == [f"source.requirements[{place}]" for place in (1, 2, 3, 4)]
    assert caught.value.where == "source.requirements[1]"
    assert "the worker has numpy" in found["source.requirements[1]"]
    assert found["source.requirements[2]"] == "the worker lacks no-such-thing"
    assert "has no extra nope" in found["source.requirements[3]"]
    assert "which transformers[torch] needs" in found["source.requirements[4]"]
    assert "installs it in the worker's environment" in (caught.value.hint or "")


def test_requirements_that_are_met_are_no_hindrance(tmp_path: Path) -> None:
    release = torch.__version__.partition("+")[0]

    assert _build(tmp_path, {"net.py": NET}, requirements=[f"torch=={release}", "Safetensors", "numpy>=1.26"])


@pytest.mark.parametrize("text", ["torch>=banana", "torch<<2"])
def test_a_requirement_that_is_none_is_said(tmp_path: Path, text: str) -> None:
    said = _refused(tmp_path, MissingRequirement, {"net.py": NET}, requirements=[text])

    assert f"invalid requirement {text!r}" in said


def test_a_model_with_lazy_layers_must_have_seen_an_example(tmp_path: Path) -> None:
    lazy = NET.replace("torch.nn.Linear(8, width)", "torch.nn.LazyLinear(width)")

    said = _refused(tmp_path, UnsupportedTensor, {"net.py": lazy})

    assert "linear.weight has no shape yet: its layer is lazy" in said
