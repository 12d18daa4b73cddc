"""What is missing is said in one sentence before anything begins."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path

import pytest

from pt2hub import extras
from pt2hub.cli import main as cli
from pt2hub.client.client import Client
from pt2hub.client.config import ClientConfig
from pt2hub.errors import BadConfiguration
from pt2hub.server.blobs.open import open_storage

NAMED_OTHERWISE = {"markdown_it_py": "markdown_it", "nvidia_ml_py": "pynvml"}
"""Packages whose module has another name."""
PROJECT = Path(__file__).parents[3] / "pyproject.toml"


@pytest.mark.parametrize("extra", extras.MODULES)
def test_the_modules_are_those_of_the_projects_extras(extra: str) -> None:
    wanted = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"][extra]
    names = {re.split(r"[\[<>=]", item)[0].replace("-", "_") for item in wanted} - {"pt2hub"}
    assert {NAMED_OTHERWISE.get(name, name) for name in names} == set(extras.MODULES[extra])


def test_loading_without_torch_says_what_to_install_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(BadConfiguration, match=r"pip install 'torch=="):
        Client(ClientConfig(home=tmp_path, url="http://127.0.0.1:1")).load("team/net@1")


def test_boto3_is_missed_only_where_the_storage_is_in_s3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    extras.require("pt2hub up", "server")
    open_storage(str(tmp_path))
    with pytest.raises(BadConfiguration, match="A storage in S3 requires the package boto3"):
        open_storage("s3://bucket/models")


@pytest.mark.parametrize(
    ("command", "absent", "hint"),
    [
        (["up"], "torch", "pip install 'pt2hub[worker]', or start without one: pt2hub up --no-worker"),
        (["up", "--no-worker"], "structlog", "pip install 'pt2hub[server]'"),
        (["demo"], "torch", "pip install 'pt2hub[worker]'"),
        (["demo"], "alembic", "pip install 'pt2hub[server]'"),
    ],
)
def test_a_command_of_the_operator_refuses_to_begin(
    command: list[str],
    absent: str,
    hint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, absent, None)
    assert cli.run([*command, "--json"]) == 1
    told = capsys.readouterr()
    error = json.loads(told.out)["error"]
    assert (error["code"], error["hint"], told.err) == ("bad_configuration", hint, "")
