"""PyTorch's precompiled headers in child processes: compiling them once, and using those that the worker prepared.

Inductor precompiles the headers that its generated code includes. A precompiled header's name is a digest of the
compiler's version, its command line and the text of all included files, but not of its path. Inductor looks for it in
one directory for all processes of a user, which is fixed on import (`torch._inductor.codecache._HEADER_DIR`; torch 2.11
to 2.13). Here every process has its own directory with links to the headers that the worker prepared: no two jobs can
write the same file, and missing headers are compiled for this process alone. Without any prepared header a build compiles
without precompiling: it includes each header once, so that a header of its own costs more than it saves.

The answers of Inductor's probes of the CPU's instruction sets are prepared with them (`vec_isa_probes`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.domain.codec import decode
from pt2hub.domain.targets import Target
from pt2hub.errors import CompileFailed
from pt2hub_workers.inside.builds.compile import vec_isa_probes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pt2hub_workers.inside.operations.channel import Channel

HEADERS_VARIABLE = "PT2HUB_HEADERS"
"""Variable with the directory of the headers that the worker prepared."""
SUFFIXES = (".h", ".gch")
"""Suffixes of a header that Inductor writes (one line that includes PyTorch's) and of its compiled form."""


def use_prepared(environ: Mapping[str, str], own: Path) -> None:
    """Make the prepared files available to Inductor in this process; must be called before anything is compiled.

    Args:
        environ: Environment that may contain their directory, which this process only reads.
        own: Directory for this process's headers; it is created.
    """
    _set_directory(own)
    named = environ.get(HEADERS_VARIABLE)
    if not named or not Path(named).is_dir():
        return
    prepared = Path(named)
    for path in prepared.iterdir():
        if path.suffix in SUFFIXES:
            (own / path.name).symlink_to(path)
    vec_isa_probes.use_answers(prepared)


def header_options() -> dict[str, Any]:
    """Return Inductor's options for precompiled headers in a build's compile; they do not change the code."""
    from torch._inductor import codecache, config

    if any(Path(codecache._HEADER_DIR).glob("*.gch")):  # noqa: SLF001  # there is no setting
        return {}
    known = hasattr(config.aot_inductor, "precompile_headers")
    return {"aot_inductor.precompile_headers": False} if known else {}


def compile_headers(message: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Compile the headers that builds for a target include, by building a model of one operator, and the probes.

    Args:
        message: `directory`, the workspace; `target`, the worker's target.

    Returns:
        `files`: paths of the headers and of the probes' answers relative to the workspace.
    """
    _require_compiler()
    from pt2hub_workers.inside.builds.compile.caches import isolate_caches

    workspace = Path(message["directory"])
    target, out = decode(Target, message["target"]), workspace / "out"
    isolate_caches(workspace)
    _set_directory(out)
    vec_isa_probes.keep_answers(out)
    with channel.step("headers"):
        _compile_example(target, workspace / "tmp" / "headers.pt2")
    found = (path.name for path in out.iterdir() if path.suffix in (*SUFFIXES, vec_isa_probes.SUFFIX))
    return {"files": sorted(f"out/{name}" for name in found)}


def _set_directory(folder: Path) -> None:
    from torch._inductor import codecache

    locks = folder / "locks"
    locks.mkdir(parents=True)
    codecache._HEADER_DIR, codecache._HEADER_LOCK_DIR = str(folder), str(locks)  # noqa: SLF001  # there is no setting


def _compile_example(target: Target, package: Path) -> None:
    import torch

    from pt2hub_workers.inside.builds.compile.compiler import compile_program
    from pt2hub_workers.inside.builds.compile.options import compile_options
    from pt2hub_workers.inside.builds.compile.torch_compile import try_torch_compile

    model = torch.nn.ReLU().eval()
    example = torch.ones(2, 8, device=target.device)
    compile_program(torch.export.export(model, (example,)), compile_options(target, {}), package)
    if target.device == "cpu":
        # torch.compile, the baseline of the artifact, compiles for exactly this CPU and needs another header; on a GPU
        # it needs none. A failure shows in the build.
        try_torch_compile(model, {"input": example})


def _require_compiler() -> None:
    """Raise CompileFailed if there is no C++ compiler, as on workers that only reuse code."""
    if not vec_isa_probes.compiler_version():
        command = os.environ.get("CXX") or "g++"
        raise CompileFailed(
            f"C++ compiler not found: {command[:80]!r}",
            where="headers",
            hint="Install g++, or set CXX to the compiler; without one a worker can only reuse code.",
        )
