"""docs/reference/cli.md."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import click
import typer.main

from pt2hub.cli.main import app
from reference_generator import markdown as md

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_INTRO = """
`pt2hub` speaks to a server by HTTP. It takes address and token from `PT2HUB_URL` and `PT2HUB_TOKEN`, else from
its `config.toml`, which `pt2hub up` writes. `python3 -m pt2hub` is the same; with
`PYTHONPATH=registry:workers` it runs from a checkout without installation.

`-h` and `--help` explain any command. With `--json` a command prints one JSON value on standard output, errors
included, and no progress. Without it long commands show progress on standard error, live on a terminal. A reference
is `team/name` for the newest ready version, `team/name@3`, `team/name@prod` for an alias, or
`team/name@sha256:...` for an artifact, where six digits of the digest are enough if they are unambiguous.

`up`, `demo` and `admin` need the server: `pip install 'pt2hub[server]'`; builds and `demo` need
`pip install 'pt2hub[worker]'` too, and `run` needs torch.

## Exit codes

| code | meaning |
|---|---|
| 0 | done |
| 1 | it failed: the message says what happened and what to do next, and ends with a [code](errors.md); without a message where the reader of its output has gone, such as `head` |
| 2 | the command line itself is wrong |
| 130 | interrupted by Ctrl-C; `pt2hub up`, which runs until then, ends with 0 |
"""
_PLACE = 3


def page() -> str:
    """Return the page."""
    root = typer.main.get_command(app)
    groups: dict[str, list[click.Command]] = {}
    for command in _commands(root):
        groups.setdefault(getattr(command, "rich_help_panel", None) or "Commands", []).append(command)
    found = [(title, [*_leaves(commands)]) for title, commands in groups.items()]
    rows = [
        (md.link(md.code(name), md.anchor(name)), _summary(command), title)
        for title, leaves in found
        for name, command in leaves
    ]
    sections = [
        "\n\n".join((md.heading(2, title), *(_section(name, command) for name, command in leaves)))
        for title, leaves in found
    ]
    index = f"## Commands\n\n{md.table(('command', 'does', 'for'), rows)}"
    return md.document("The command line", _INTRO, index, *sections)


def _commands(group: click.Command) -> list[click.Command]:
    return [*getattr(group, "commands", {}).values()]


def _leaves(commands: Iterable[click.Command], prefix: str = "pt2hub") -> Iterator[tuple[str, click.Command]]:
    for command in commands:
        name = f"{prefix} {command.name}"
        if inner := _commands(command):
            yield from _leaves(inner, name)
        elif not command.hidden:
            yield name, command


def _summary(command: click.Command) -> str:
    return _help(command).partition("\n\n")[0]


def _help(command: click.Command) -> str:
    return inspect.cleandoc(command.help or "").partition("\f")[0]


def _section(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    arguments = [item for item in command.params if isinstance(item, click.Argument)]
    options = [item for item in command.params if isinstance(item, click.Option)]
    parts = (
        md.heading(_PLACE, name),
        md.prose(_help(command)),
        md.fence(usage, "text"),
        md.table(("argument", "needed", "meaning"), [_argument(item, context) for item in arguments]),
        md.table(("option", "takes", "default", "meaning"), map(_option, options)),
        _examples(command),
    )
    return "\n\n".join(part for part in parts if part)


def _argument(item: click.Argument, context: click.Context) -> tuple[str, str, str]:
    metavar = item.make_metavar(context)
    shown = metavar[1:-1] if metavar.startswith("[") else metavar  # brackets say that it may be left out
    return md.code(shown), "yes" if item.required else "no", getattr(item, "help", "") or ""


def _option(item: click.Option) -> tuple[str, str, str, str]:
    names = ", ".join(md.code(name) for name in (*item.opts, *item.secondary_opts))
    default = item.to_info_dict()["default"]
    known = default not in (None, False, ()) and not callable(default)
    shown = item.opts[0] if default is True else str(default)
    return (
        names,
        _takes(item),
        "required" if item.required else md.code(shown) if known else "",
        item.help or "",
    )


def _takes(item: click.Option) -> str:
    kind: dict[str, Any] = {**item.type.to_info_dict()}
    if item.is_flag:
        return ""
    if item.metavar:
        return md.code(item.metavar)
    if choices := kind.get("choices"):
        return md.choice(choices)
    low, high = kind.get("min"), kind.get("max")
    limits = f"{low} to {high}" if None not in (low, high) else f"at least {low}" if low is not None else ""
    named: str = kind["name"].removesuffix(" range")
    return f"{named}, {limits}" if limits else named


def _examples(command: click.Command) -> str:
    lines = [line.strip() for line in (command.epilog or "").splitlines()]
    shown = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return md.fence("\n".join(shown), "sh") if shown else ""
