"""Completion of commands, as each shell asks for it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

QUESTIONS = {
    "bash": {"COMP_WORDS": "pt2hub al", "COMP_CWORD": "1"},
    "zsh": {"_TYPER_COMPLETE_ARGS": "pt2hub al"},
    "fish": {"_TYPER_COMPLETE_ARGS": "pt2hub al", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
}


def run(*args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pt2hub", *args]
    return subprocess.run(command, env=os.environ | environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("shell", QUESTIONS)
def test_a_shell_gets_a_script_and_then_the_commands(shell: str) -> None:
    assert "complete_" + shell in run("completion", shell).stdout
    answer = run(_PT2HUB_COMPLETE=f"complete_{shell}", **QUESTIONS[shell])
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "alias" in answer.stdout
    assert "publish" not in answer.stdout


def test_bash_completes_with_the_script() -> None:
    script = run("completion", "bash").stdout
    words = 'COMP_WORDS=(pt2hub alias ro); COMP_CWORD=2; _pt2hub_completion pt2hub; echo "${COMPREPLY[@]}"'
    bin_folder = os.path.dirname(sys.executable)  # noqa: PTH120  # an environment's own link must not be followed
    answer = subprocess.run(
        ["bash", "-c", f"{script}\n{words}"],
        env=os.environ | {"PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.split() == ["rollback"]
