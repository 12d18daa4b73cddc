"""Errors about a publication name the option that gave the value, and no other one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pt2hub.cli.publishing.option_errors import in_request
from pt2hub.domain.labels import check_labels, too_many
from pt2hub.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

SPEC = "model: a/b\nfiles: {model.txt.sig: x.sig}\nlabels: {git.sha: main}\n"


def named(
    tmp_path: Path, error: InvalidInput, *, labels: tuple[str, ...] = (), files: tuple[str, ...] = ()
) -> str:
    """Return where an error is, for a publication with labels and files as options."""
    spec = tmp_path / "net.yaml"
    spec.write_text(SPEC)
    options = {"labels": dict.fromkeys(labels, "1"), "files": dict.fromkeys(files, "x")}
    return in_request(error, spec, options).where or ""  # type: ignore[arg-type]  # only these two are read


@pytest.mark.parametrize("key", ["Bad Key", "pt2hub.x", "Ünicode", "x" * 100, "o'Neil"])
def test_a_malformed_key_is_named_and_no_part_of_it(tmp_path: Path, key: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_labels({key: "2"})
    assert named(tmp_path, caught.value, labels=("a", "pt2hub", "x", key)) == f"--label {key[:80]}"
    assert "--label" not in named(tmp_path, caught.value, labels=("a", "x", "e"))


def test_no_label_is_named_for_too_many(tmp_path: Path) -> None:
    assert "--label" not in named(tmp_path, too_many(65), labels=("a", "65", "labels"))


@pytest.mark.parametrize(("key", "option"), [("git", ""), ("git.sha", "--label git.sha")])
def test_a_label_is_no_part_of_another_one(tmp_path: Path, key: str, option: str) -> None:
    error = InvalidInput("Invalid value of label git.sha: 'main'", where="labels.git.sha")
    where = named(tmp_path, error, labels=(key, "owner"))
    assert where == option if option else "--label" not in where


@pytest.mark.parametrize(
    ("where", "files", "option"),
    [
        ("files.model.txt.sig", ("model.txt",), ""),
        ("files.model.txt.sig", ("model.txt", "model.txt.sig"), "--file model.txt.sig"),
        ("files.model.txt.sig.kind", ("model.txt", "model.txt.sig"), "--file model.txt.sig"),
        ("files.model.txt.kind", ("model", "model.txt"), "--file model.txt"),
        ("files.model.txt", ("model.txt",), "--file model.txt"),
        ("files.model.txts", ("model.txt",), ""),
        ("files", ("model.txt",), ""),
    ],
)
def test_a_file_is_no_part_of_another_one(
    tmp_path: Path, where: str, files: tuple[str, ...], option: str
) -> None:
    found = named(tmp_path, InvalidInput("The kind is unknown", where=where), files=files)
    assert found == option if option else "--file" not in found
