"""The pages about code and pretrained weights: what they show is published and built as they show it."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import yaml

from pt2hub.archive.code import pack_code
from pt2hub.cli import main as cli
from pt2hub.client.publishing.pretrained.names import HubName, is_name, parse
from pt2hub.domain.digests import digest_bytes
from pt2hub.domain.publishing.spec import Spec
from pt2hub.torchvision_operators import declare_torchvision
from pt2hub_workers.inside.sources.build import build_model
from pt2hub_workers.inside.sources.source_files import SourceFiles
from support.code import forgetting

if TYPE_CHECKING:
    import pytest

    from pt2hub.client.client import Client
    from support.registry import Registry

HOW_TO = Path(__file__).resolve().parents[2] / "docs" / "how-to"
_FILE = re.compile(r"`(\w+\.\w+)`:\n\n( *)```[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^ *pt2hub (publish [^\n]+ --code [^\n]+)$", re.MULTILINE)
_NAME = re.compile(r"`((?:torchvision|hf):[^`<]+)`")


def test_the_code_of_the_page_is_published_and_builds_the_model(
    client: Client, served: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (HOW_TO / "publish-your-code.md").read_text()
    for name, indent, text in _FILE.findall(page):
        path = tmp_path / "src" / name if name.endswith(".py") else tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(re.sub(rf"^{indent}", "", text, flags=re.MULTILINE))
    served.worker("w1")
    settings = {"HOME": tmp_path / "home", "URL": client.config.url, "TOKEN": client.config.token}
    for name, value in settings.items():
        monkeypatch.setenv(f"PT2HUB_{name}", str(value))
    monkeypatch.chdir(tmp_path)
    (command,) = _COMMAND.findall(page)
    assert cli.run(shlex.split(command)) == 0
    pack_code(tmp_path / "src", tmp_path / "code.zip")
    document = yaml.safe_load((tmp_path / "net.yaml").read_text())
    document["source"]["code"] = digest_bytes((tmp_path / "code.zip").read_bytes())
    assert (
        client.versions.get("mine/net", 1).pins["blobs"]["source.code"]["digest"]
        == document["source"]["code"]
    )
    spec = Spec.model_validate(document)
    with forgetting(tmp_path):
        model = build_model(spec.source, SourceFiles((), tmp_path / "code.zip", None, tmp_path / "scratch"))
        assert model(torch.ones(2, 8)).shape == (2,)
    assert len(dict(model.named_parameters())) == 6  # depth: 3
    assert str(tmp_path) not in "".join(sys.path)


def test_the_names_of_the_page_are_names() -> None:
    declare_torchvision()
    from torchvision.models import get_weight

    names = [parse(name) for name in _NAME.findall((HOW_TO / "pretrained-weights.md").read_text())]
    listed = [get_weight(name.member).name for name in names if not isinstance(name, HubName)]
    assert set(listed) == {"IMAGENET1K_V1"}
    assert HubName("team/name", "v1.2", "unet/net.safetensors") in names
    assert not is_name("./hf:file")
