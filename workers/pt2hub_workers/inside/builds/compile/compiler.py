"""Compiles an exported program with AOTInductor."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.errors import CompileFailed
from pt2hub_workers.inside.builds.compile.autotune import Tuning
from pt2hub_workers.inside.builds.compile.channels_last import store_channels_last
from pt2hub_workers.inside.builds.compile.fusion import FusionRecorder

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

COMPILERS = frozenset(
    {
        "g++",
        "gcc",
        "c++",
        "cc",
        "cc1plus",
        "clang",
        "clang++",
        "ld",
        "as",
        "nvcc",
        "ptxas",
        "fatbinary",
        "cicc",
    }
)
"""Programs that count as compiler processes."""


def compile_program(
    program: torch.export.ExportedProgram,
    options: Mapping[str, Any],
    package: Path,
    tuning: Tuning | None = None,
    fusion: FusionRecorder | None = None,
    *,
    folder: str = "",
) -> Tuning:
    """Compile a program into `package`, a complete `.pt2` file with the constants' blob.

    Args:
        folder: Name of the folder in Inductor's cache for the generated files. Where omitted, Inductor takes the digest of the
            graph's text, which has neither shapes nor dtypes: two such programs of one process would share their files.
    """
    import torch._inductor
    import torch._inductor.config
    import torch._inductor.package  # its parent does not load it, and aoti_compile_and_package needs it

    tuning = tuning or Tuning()
    fusion = fusion or FusionRecorder()
    files = torch._inductor.config.patch({"aot_inductor.output_path": folder})  # noqa: SLF001  # torch's name
    with files, tuning.watch(), fusion.watch(), store_channels_last(options), _gradient_mode(options):
        try:
            torch._inductor.aoti_compile_and_package(  # noqa: SLF001  # documented, in spite of its name
                program, package_path=str(package), inductor_configs=dict(options)
            )
        except Exception as error:  # Inductor wraps all errors below it
            raise CompileFailed(
                f"AOTInductor failed: {type(error).__name__}: {' '.join(str(error).split())[:600]}",
                where="compile",
                hint="The build log has the full message and the compiler's output.",
            ) from error
    return tuning


def _gradient_mode(options: Mapping[str, Any]) -> contextlib.AbstractContextManager[Any]:
    """Disable gradients for `freezing`, which Inductor otherwise silently ignores (torch 2.13, `compile_fx`).

    For all other options they stay unchanged, because existing program keys refer to code that was compiled that way.
    """
    import torch

    return torch.no_grad() if options.get("freezing") else contextlib.nullcontext()


class CompilerCount:
    """Counts the compiler processes that this process starts, by Python's audit events.

    It sees every program that this process starts through subprocess or os, whatever CXX is, but not those that
    Inductor's own process pool starts, which a build with reused code does not create.
    """

    def __init__(self, extra: str | None) -> None:
        self.programs: list[str] = []
        self._names = COMPILERS | ({Path(extra.split()[0]).name} if extra else frozenset())
        sys.addaudithook(self._audit)

    def __len__(self) -> int:
        return len(self.programs)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen" or event in ("os.posix_spawn", "os.exec"):
            self._note(arguments[0], arguments[1])
        elif event == "os.system":
            self._note(None, str(arguments[0]).split())

    def _note(self, executable: Any, argv: Any) -> None:
        first = argv if isinstance(argv, str | bytes) else (argv or [executable])[0]
        words = str(first if not isinstance(first, bytes) else first.decode()).split()
        name = Path(words[0] if words else str(executable)).name
        if name in self._names or name.startswith(("g++-", "gcc-", "clang-")):
            self.programs.append(name)
