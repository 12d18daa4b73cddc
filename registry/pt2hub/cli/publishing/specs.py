"""`pt2hub spec`: starts a spec file, and checks one."""

from __future__ import annotations

import shlex
from enum import StrEnum
from pathlib import Path  # noqa: TC003  # typer reads annotations when it runs
from typing import TYPE_CHECKING, Annotated

import typer

from pt2hub.cli import panels
from pt2hub.cli.output import emit
from pt2hub.cli.publishing import previews
from pt2hub.errors import Conflict, HomeUnusable

if TYPE_CHECKING:
    from pt2hub.client.publishing.options import SpecOptions

_COMMON = """\
inputs:
  # One entry for each argument. A name in a shape is a dynamic dimension, described in dims.
  - {name: x, shape: [batch, 3, 224, 224], dtype: float32, generate: {normal: {}}}
dims:
  batch: {min: 1, max: 32, example: 2}
# auto is the best target that a live worker offers; `pt2hub targets` lists them.
targets: [auto]
# Largest error of an output, relative to its signal, that verification accepts.
checks: {tolerance: 1.0e-3}
"""


class Kind(StrEnum):
    """The kind of a spec's source."""

    FACTORY = "factory"
    CODE = "code"
    PROGRAM = "program"


_SOURCES = {
    Kind.FACTORY: """\
# To publish it: pt2hub publish {file} --wait
model: team/resnet18
source:
  # A function of torchvision, timm or transformers, and its arguments.
  factory: "torchvision.models:resnet18"
  kwargs: {{}}
  # Random weights from this seed; for trained ones: pt2hub publish {file} --weights trained.safetensors
  seed: 0
""",
    Kind.CODE: """\
# To publish it: pt2hub publish {file} --code src/ --weights trained.safetensors --wait
model: team/net
source:
  # module:function in the folder src/; it returns the torch.nn.Module.
  entry: "net:build"
  kwargs: {{}}
""",
    Kind.PROGRAM: """\
# To publish it: pt2hub publish {file} --program exported.pt2 --wait
# exported.pt2 is a file of torch.export.save; program and weights are named in the spec when it is published.
model: team/net
""",
}


def register(app: typer.Typer) -> None:
    """Add the commands of specs to the app."""
    group = typer.Typer(
        help="Specs: the files that describe a version.", no_args_is_help=True, suggest_commands=False
    )
    panels.add(group, init, check)
    app.add_typer(group, name="spec", rich_help_panel=panels.PUBLISHING)


@panels.command(None, "pt2hub spec init resnet18.yaml", "pt2hub spec init net.yaml --source code")
def init(
    file: Annotated[Path, typer.Argument(help="The file to write; an existing one is not replaced.")],
    *,
    source: Annotated[Kind, typer.Option(help="Where the model comes from.")] = Kind.FACTORY,
) -> None:
    """Write a commented spec to start from."""
    text = _SOURCES[source].format(file=file) + _COMMON
    try:
        with file.open("x", encoding="utf-8") as target:
            target.write(text)
    except FileExistsError as exc:
        raise Conflict(
            f"{file} already exists", where=str(file), hint="Choose another name, or delete the file first."
        ) from exc
    except OSError as exc:
        raise HomeUnusable(
            f"Cannot write the spec: {exc.strerror}", where=str(file), hint="Choose another place."
        ) from exc
    document = {"file": str(file), "source": source.value}
    more = _UPLOADED.get(source.value, "")
    emit(document, lambda out: out.print(f"Wrote {file}. To check it: pt2hub spec check {file}{more}"))


_UPLOADED = {"code": " --code FOLDER", "program": " --program FILE"}
"""Options of a check, by source: the file that the spec is about."""


@panels.command(
    None,
    "pt2hub spec check resnet18.yaml",
    "pt2hub spec check net.yaml --code src/ --weights net.safetensors",
)
def check(
    spec: Annotated[Path, typer.Argument(help="Path of the spec, YAML or JSON.")],
    *,
    weights: Annotated[str | None, typer.Option(metavar="FILE|NAME", help="As for `pt2hub publish`.")] = None,
    code: Annotated[Path | None, typer.Option(help="As for `pt2hub publish`.")] = None,
    program: Annotated[Path | None, typer.Option(help="As for `pt2hub publish`.")] = None,
) -> None:
    """Check a spec on the server, as `pt2hub publish --dry-run` does.

    Files are uploaded, since the server reads them; nothing is published.
    """
    from pt2hub.client.client import Client

    files: SpecOptions = {"weights": weights, "code": code, "program": program}
    with Client() as client:
        previews.show(client, spec, files, next_step=f"To publish it: {_publish_command(spec, files)}")


def _publish_command(spec: Path, files: SpecOptions) -> str:
    given = {name: files.get(name) for name in ("weights", "code", "program")}
    options = [f"--{name} {shlex.quote(str(value))}" for name, value in given.items() if value]
    return " ".join(["pt2hub publish", shlex.quote(str(spec)), *options])
