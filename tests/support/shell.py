"""The command line as a user of one server, inside the test's process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.cli import main as cli

if TYPE_CHECKING:
    from pt2hub.client.client import Client


@dataclass(frozen=True)
class Told:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[list[str]]:
        """Words of each line of the result."""
        return [line.split() for line in self.out.splitlines()]


class Shell:
    """Runs commands as a user of one server."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *args: str) -> Told:
        code = cli.run(args)
        told = self._capsys.readouterr()
        assert "Traceback" not in told.err
        return Told(code, told.out, told.err)

    def json(self, *args: str) -> tuple[int, Any]:
        """Exit code and the one JSON value."""
        told = self(*args, "--json")
        assert told.out.count("\n") == 1
        assert told.err == ""
        return told.code, json.loads(told.out)


@pytest.fixture
def shell(client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    """Commands that speak to the test's server."""
    monkeypatch.setenv("PT2HUB_HOME", str(client.config.home))
    monkeypatch.setenv("PT2HUB_URL", client.config.url)
    monkeypatch.setenv("PT2HUB_TOKEN", str(client.config.token))
    return Shell(capsys)
