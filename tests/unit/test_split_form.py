"""The split form that a baked build is timed beside is never a reason to fail."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.targets import Target
from pt2hub.errors import CompileFailed
from pt2hub_workers.inside.packing import Circumstances
from pt2hub_workers.inside.splitform import SplitForm, Wanted, split_form
from support.artifacts import a_config

if TYPE_CHECKING:
    from pathlib import Path


class Parent:
    """The parent's end of a channel, which has no code to give."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def ask(self, question: str, **values: Any) -> None:
        assert (question, list(values)) == ("split_code", ["key"])

    def detail(self, name: str, text: str) -> None:
        self.said.append((name, text))

    def log(self, text: str, level: str = "info") -> None:
        self.said.append((level, text))


@pytest.fixture
def wanted(tmp_path: Path) -> Wanted:
    config = a_config()
    target = Target(torch="2.13", device="cpu", arch="x86_64_v3")
    around = Circumstances(tmp_path / "weights", frozenset(), frozenset(), frozenset(), target, frozenset())
    return Wanted(config.key, around, config)


def test_a_split_form_that_does_not_compile_is_a_warning(wanted: Wanted, tmp_path: Path) -> None:
    parent: Any = Parent()
    caches = []

    def compiler(package: Path) -> None:
        caches.append(os.environ["TORCHINDUCTOR_CACHE_DIR"])
        raise CompileFailed(f"no room for {package.name}")

    before = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    assert split_form(wanted, parent, tmp_path / "split", compiler) is None

    assert [kind for kind, _ in parent.said] == ["measure", "warning"]
    assert "not measured: CompileFailed: no room for package.pt2" in parent.said[-1][1]
    assert caches == [str(tmp_path / "split" / "cache")]
    assert os.environ.get("TORCHINDUCTOR_CACHE_DIR") == before


def test_a_build_that_reuses_code_compiles_no_split_form_to_time_it(wanted: Wanted, tmp_path: Path) -> None:
    parent: Any = Parent()

    assert split_form(wanted, parent, tmp_path / "split", None) is None

    assert parent.said == [
        ("info", "the split form is not measured: it has no code yet, and this build compiles nothing")
    ]


def test_the_time_of_a_compilation_is_a_measurement_of_the_split_form() -> None:
    model: Any = None

    assert SplitForm(model, None).compile_time() == []
    (told,) = SplitForm(model, 2.5).compile_time()
    assert (told["metric"], told["subject"], told["value"], told["unit"]) == (
        "compile_time",
        "split",
        2.5,
        "s",
    )
