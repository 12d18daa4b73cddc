"""What a project declares, and how a lock differs from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pt2hub.client.lock.declarations import Project, read_declaration
from pt2hub.client.lock.lock_file import format_lock
from pt2hub.errors import InvalidInput
from support.locks import CPU, GPU, a_lock, a_stored, locked_model

if TYPE_CHECKING:
    from pathlib import Path


def declare(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "pyproject.toml"
    path.write_text(text)
    return path


def test_references_are_read_sorted_and_once(tmp_path: Path) -> None:
    path = declare(tmp_path, f'[tool.pt2hub]\nmodels = ["b/b@1", "a/a", "b/b@1"]\ntargets = ["{GPU}"]\n')
    found = read_declaration(path)
    assert found is not None
    assert (found.models, found.targets) == (("a/a", "b/b@1"), (GPU,))


@pytest.mark.parametrize("text", ["", "[project]\nname = 'x'\n", "[tool.uv]\n", "tool = 3\n"])
def test_a_project_without_our_table_declares_nothing(tmp_path: Path, text: str) -> None:
    assert read_declaration(declare(tmp_path, text)) is None
    assert read_declaration(tmp_path / "absent" / "pyproject.toml") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[tool.pt2hub]\n", "models is missing or empty|models: is missing or empty"),
        ("[tool.pt2hub]\nmodels = []\n", "is missing or empty"),
        ('[tool.pt2hub]\nmodel = ["a/b"]\n', "model: is unknown"),
        ('[tool.pt2hub]\nmodels = "a/b"\n', "must be an array of texts"),
        ('[tool.pt2hub]\nmodels = ["a/b", 3]\n', "must be an array of texts"),
        ('[tool.pt2hub]\nmodels = ["a/b", "A"]\n', r"models\[1\]: invalid model name"),
        ('[tool]\npt2hub = "a/b"\n', "must be a table"),
        ("[tool.pt2hub\n", "Cannot read the file"),
    ],
)
def test_a_wrong_declaration_is_named_with_its_file(tmp_path: Path, text: str, words: str) -> None:
    path = declare(tmp_path, text)
    with pytest.raises(InvalidInput) as caught:
        read_declaration(path)
    assert str(path) in str(caught.value.where)
    import re

    assert re.search(words, str(caught.value)), str(caught.value)


def test_a_project_is_found_from_folders_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(tmp_path / "repository", '[tool.pt2hub]\nmodels = ["a/b@prod"]\n')
    declare(tmp_path / "repository" / "package", "[project]\n")
    below = tmp_path / "repository" / "package" / "src"
    below.mkdir()
    monkeypatch.chdir(below)
    found = Project.find()
    assert found.lock == tmp_path / "repository" / "pt2hub.lock"
    assert found.declaration is not None
    (below / "pt2hub.lock").write_text(format_lock(a_lock()))
    assert Project.find() == Project(below / "pt2hub.lock", None), "the nearest one counts"
    assert Project.find(tmp_path / "repository" / "other.lock").declaration == found.declaration


def test_differences_between_declaration_and_lock_are_named(tmp_path: Path) -> None:
    lock = a_lock(locked_model("a/b@prod", a_stored(CPU)), locked_model("c/d@1", a_stored(CPU)))
    path = declare(tmp_path, '[tool.pt2hub]\nmodels = ["a/b@prod", "e/f"]\n')
    declaration = read_declaration(path)
    assert declaration is not None
    found = [(item.path, item.message) for item in declaration.differences(lock)]
    assert found == [("e/f", "is declared and not locked"), ("c/d@1", "is locked and no longer declared")]
    declaration = read_declaration(
        declare(tmp_path, f'[tool.pt2hub]\nmodels = ["a/b@prod", "c/d@1"]\ntargets = ["{GPU}"]\n')
    )
    assert declaration is not None
    assert [item.path for item in declaration.differences(lock)] == ["targets"]
