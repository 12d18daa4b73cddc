"""`pt2hub completion`: completion of commands and options in a shell."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from pt2hub.cli import panels
from pt2hub.cli.output import emit, print_text

VARIABLE = "_PT2HUB_COMPLETE"
"""Set by the script when the shell asks for completions."""


class ShellName(StrEnum):
    """A shell with completion."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@panels.command(
    panels.ACCESS,
    "pt2hub completion bash",
    "pt2hub completion zsh",
    "pt2hub completion fish",
)
def completion(shell: Annotated[ShellName, typer.Argument(help="The shell.")]) -> None:
    """Print the script that completes commands in a shell.

    Redirect it to a file that the shell reads at its start: for bash
    ~/.local/share/bash-completion/completions/pt2hub, for zsh a file _pt2hub in a folder of fpath, for fish
    ~/.config/fish/completions/pt2hub.fish.
    """
    from typer._completion_shared import get_completion_script

    script = get_completion_script(prog_name="pt2hub", complete_var=VARIABLE, shell=shell.value)
    emit({"shell": shell.value, "script": script}, lambda _out: print_text(script))


def prepare() -> None:
    """Let this process answer the shell's question for completions."""
    from typer.completion import completion_init  # type: ignore[attr-defined]  # typer exports it without saying so

    completion_init()
