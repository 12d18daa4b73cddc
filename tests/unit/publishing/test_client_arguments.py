"""Arguments that are of no use are answered in a sentence, before anything is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.client.artifacts.local import LocalArtifact
from pt2hub.client.artifacts.single_file import write_model
from pt2hub.client.client import Client
from pt2hub.client.config import ClientConfig
from pt2hub.domain.names import Reference
from pt2hub.errors import HomeUnusable, InvalidInput
from support.artifacts import a_config

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("wrong", [None, 3, ["team/name"]])
def test_what_is_no_text_is_no_reference(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="invalid reference"):
        Reference.parse(wrong)


def test_tensors_or_nothing_where_a_file_or_a_spec_belongs_are_told_what_to_do(tmp_path: Path) -> None:
    client = Client(ClientConfig(tmp_path, url="http://127.0.0.1:1"))
    with pytest.raises(InvalidInput, match="save_file"):
        client.publish({}, weights={"w": 1})  # type: ignore[arg-type]  # what a user may do
    with pytest.raises(InvalidInput, match="Expected a spec or a model"):
        client.publish(None)  # type: ignore[arg-type]  # likewise


def test_a_directory_is_no_place_for_a_file(tmp_path: Path) -> None:
    artifact = LocalArtifact(a_config(), tmp_path / "code.zip", tmp_path / "weights")
    with pytest.raises(HomeUnusable, match=r"is a directory(?s:.*)model.pt2"):
        write_model(artifact, tmp_path)
