"""Exit codes, errors as sentences or JSON, and a start that imports next to nothing."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING

import click
import pytest
import typer.main

import pt2hub
from pt2hub import errors
from pt2hub.cli import main as cli
from pt2hub.cli import output

if TYPE_CHECKING:
    from pathlib import Path

HEAVY = (
    "torch",
    "urllib3",
    "rich.live",
    "pydantic",
    "sqlalchemy",
    "flask",
    "boto3",
    "psycopg",
    "yaml",
    "asyncio",
)


def loaded_by(code: str) -> list[str]:
    command = [sys.executable, "-c", f"{code}; import sys; print(*sys.modules)"]
    modules = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return sorted(set(HEAVY) & set(modules))


def test_the_command_line_starts_without_server_torch_or_http() -> None:
    assert loaded_by("import pt2hub.cli.main") == []


def test_importing_pt2hub_and_the_cached_path_of_a_pull_stay_light() -> None:
    assert loaded_by("import pt2hub; assert 'pt2hub.client' not in __import__('sys').modules") == []
    assert loaded_by("import pt2hub; pt2hub.load") == []
    assert loaded_by("import pt2hub; pt2hub.errors.Pt2hubError") == []


def test_the_public_names_exist_and_others_do_not() -> None:
    assert {name for name in pt2hub.__all__ if callable(getattr(pt2hub, name))} == {
        "Client",
        "environment",
        "load",
        "publish",
        "pull",
        "save_program",
    }
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        pt2hub.lode  # noqa: B018  # reading it is the test


@pytest.mark.parametrize("args", [["show"], ["show", "--nope"], ["nope"], ["run", "a/b", "--calls", "0"]])
def test_wrong_usage_is_2(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(args) == 2
    assert "Usage:" in capsys.readouterr().err
    assert cli.run([*args, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "usage"


@pytest.mark.parametrize("args", [["modles"], ["admin", "reindexx"]])
def test_a_misspelt_command_is_answered_with_the_nearest_one_once(
    args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(args) == 2
    assert capsys.readouterr().err.count("Did you mean") == 1


def test_help_and_version_are_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out.strip() == pt2hub.__version__
    assert cli.run(["--help"]) == 0
    assert "publish" in capsys.readouterr().out


def commands() -> dict[str, click.Command]:
    root = typer.main.get_command(cli.app)
    assert isinstance(root, click.Group)
    found: dict[str, click.Command] = {}
    for name, item in root.commands.items():
        below = item.commands if isinstance(item, click.Group) else {}
        found |= {f"{name} {each}": command for each, command in below.items()} or {name: item}
    return found


def test_help_shows_the_commands_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--help"]) == 0
    groups = re.findall(r"─ (\w+) ─", capsys.readouterr().out)
    assert groups == ["Options", "Publishing", "Reading", "Using", "Operating"]


@pytest.mark.parametrize("name", commands())
def test_every_command_explains_itself_with_an_example(name: str) -> None:
    command = commands()[name]
    assert command.help
    assert len(command.help.splitlines()[0]) <= 65, "one line of `pt2hub --help`"
    assert f"$ pt2hub {name}" in str(command.epilog)
    assert [param.name for param in command.params if not getattr(param, "help", None)] == []
    assert "--json" in [option for param in command.params for option in param.opts]


@pytest.mark.parametrize("name", commands())
def test_every_example_is_a_right_command_line(name: str) -> None:
    command = commands()[name]
    for line in re.findall(r"\$ pt2hub (.+)", str(command.epilog)):
        arguments = shlex.split(line)[len(name.split()) :]
        command.make_context(name, arguments)  # parses, and raises what the shell would see


def test_a_failure_is_1_and_says_what_where_and_what_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PT2HUB_HOME", str(tmp_path))
    monkeypatch.setenv("PT2HUB_URL", "nowhere")
    assert cli.run(["show", "team/net"]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines() == [
        "pt2hub: PT2HUB_URL: Invalid server address 'nowhere'",
        "  Write an address such as http://127.0.0.1:8400.",
        "  [bad_configuration]",
    ]
    assert cli.run(["show", "team/net", "--json"]) == 1
    told = capsys.readouterr()
    assert json.loads(told.out)["error"]["where"] == "PT2HUB_URL"
    assert told.err == ""


def test_a_warning_of_a_command_is_one_line_without_its_place_in_the_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = output.show_warning
        warnings.warn("Using team/net@3: it is degraded here", UserWarning, stacklevel=1)
    assert capsys.readouterr().err == "pt2hub: warning: Using team/net@3: it is degraded here\n"


def test_wrong_usage_has_the_shape_of_all_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["show"]) == 2
    first, hint, code = capsys.readouterr().err.splitlines()
    assert (first, code) == ("pt2hub: Missing argument 'REFERENCE'.", "  [usage]")
    assert hint == "  Usage: pt2hub show [OPTIONS] REFERENCE. See pt2hub show --help."


def test_errors_are_broken_between_words_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    error = errors.InvalidInput("word " * 40, where="spec", hint="advice " * 30)
    output.complain(error)
    assert max(map(len, capsys.readouterr().err.splitlines())) > 80
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    output.complain(error)
    lines = capsys.readouterr().err.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1].startswith("  word")


@pytest.mark.parametrize("name", commands())
def test_help_fits_80_columns(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.run([*name.split(), "--help"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_quiet_hides_progress_and_json_too() -> None:
    output.choose_quiet(False)
    assert output.shows_progress() is None
    output.choose_quiet(True)
    assert output.shows_progress() is False
    output.choose_quiet(False)
    output.choose_json(True)
    assert output.shows_progress() is False
    output.choose_json(False)
