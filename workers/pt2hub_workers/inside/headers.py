"""PyTorch's precompiled headers, the child's side: compiling them once, and using those that were compiled before.

Inductor precompiles the headers that its generated code includes. A precompiled header's name says what it holds: the
compiler's version, its command line and the text of everything that is included, never where it lies. Inductor looks
for it in one directory for all processes of a user, which it fixes when it is imported
(`torch._inductor.codecache._HEADER_DIR`; torch 2.11 to 2.13). Here every process has a directory of its own, with links
to what the worker prepared: no two jobs can write the same one, and what is missing is compiled for this process alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.domain.codec import decode
from pt2hub.domain.targets import Target
from pt2hub.errors import CompileFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pt2hub_workers.inside.channel import Channel

PREPARED = "PT2HUB_HEADERS"
"""The variable that names the directory of the headers that the worker prepared."""
SUFFIXES = (".h", ".gch")
"""Of a header as Inductor writes it, one line that includes PyTorch's, and of what the compiler made of it."""


def use_prepared(environ: Mapping[str, str], own: Path) -> None:
    """Lets Inductor in this process find the headers that were prepared; call it before anything is compiled.

    Args:
        environ: Names their directory, which this process only reads, or none.
        own: A directory of this process alone, made here; what was not prepared is compiled into it.
    """
    _keep_in(own)
    prepared = environ.get(PREPARED)
    for path in Path(prepared).iterdir() if prepared and Path(prepared).is_dir() else ():
        if path.suffix in SUFFIXES:
            (own / path.name).symlink_to(path)


def compile_headers(message: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Compiles the headers that builds for a target include, by building a model of one operator.

    Args:
        message: `directory`, the room; `target`, what the worker builds for.
        channel: To the parent.

    Returns:
        `files`: what was made, as the parent is told of files.

    Raises:
        CompileFailed: There is no compiler, or it failed.
    """
    _require_compiler(os.environ.get("CXX") or "g++")
    from pt2hub_workers.inside.build import isolate_caches

    room = Path(message["directory"])
    isolate_caches(room)
    _keep_in(room / "out")
    with channel.step("headers"):
        _build(decode(Target, message["target"]), room / "tmp" / "headers.pt2")
    return {
        "files": sorted(f"out/{path.name}" for path in (room / "out").iterdir() if path.suffix in SUFFIXES)
    }


def _keep_in(folder: Path) -> None:
    from torch._inductor import codecache

    locks = folder / "locks"
    locks.mkdir(parents=True)
    codecache._HEADER_DIR, codecache._HEADER_LOCK_DIR = str(folder), str(locks)  # noqa: SLF001  # there is no setting


def _build(target: Target, package: Path) -> None:
    import torch

    from pt2hub_workers.inside.baselines import compiled_or_why
    from pt2hub_workers.inside.compiling import compile_program
    from pt2hub_workers.inside.recipe import compile_options

    model = torch.nn.ReLU().eval()
    example = torch.ones(2, 8, device=target.device)
    compile_program(torch.export.export(model, (example,)), compile_options(target, {}), package)
    if target.device == "cpu":
        # torch.compile, which is timed beside the artifact, compiles for this very CPU: another header. On a GPU it
        # has none. If it fails, the build says so.
        compiled_or_why(model, {"input": example})


def _require_compiler(command: str) -> None:
    """A worker may be without one on purpose, such as one that only reuses code."""
    program = shutil.which(command.split(maxsplit=1)[0])
    said = subprocess.run([program, "--version"], capture_output=True, check=False).stdout if program else b""
    if not said:
        raise CompileFailed(
            f"{command[:80]!r} is no C++ compiler",
            where="headers",
            hint="Install g++, or let CXX name the compiler; without one a worker can only reuse code.",
        )
