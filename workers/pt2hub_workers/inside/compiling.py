"""AOTInductor: from an exported program to the compiler's package."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.errors import CompileFailed
from pt2hub_workers.inside.tuning import Tuning

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
) -> Tuning:
    """Compiles a program into `package`, a whole `.pt2` with the constants' blob.

    Args:
        program: The exported program.
        options: Inductor's options, complete.
        package: Where the compiler's package is written.
        tuning: What autotuning may take; without end where it is left out.

    Returns:
        What autotuning did, if it ran.

    Raises:
        CompileFailed: The compiler failed.
    """
    import torch._inductor
    import torch._inductor.package  # not loaded by its parent; aoti_compile_and_package needs it

    tuning = tuning or Tuning()
    with tuning.watching(), _gradients(options):
        try:
            torch._inductor.aoti_compile_and_package(  # noqa: SLF001  # documented, in spite of its name
                program, package_path=str(package), inductor_configs=dict(options)
            )
        except Exception as error:  # Inductor wraps whatever went wrong below it
            raise CompileFailed(
                f"AOTInductor failed: {type(error).__name__}: {' '.join(str(error).split())[:600]}",
                where="compile",
                hint="The build's log has the whole message and the compiler's output.",
            ) from error
    return tuning


def _gradients(options: Mapping[str, Any]) -> contextlib.AbstractContextManager[Any]:
    """Where gradients are on, Inductor leaves `freezing` out without a word (torch 2.13, `compile_fx`).

    They stay as they are for everything else, since what a program's key promises was compiled so.
    """
    import torch

    return torch.no_grad() if options.get("freezing") else contextlib.nullcontext()


class CompilerCount:
    """Counts the compiler processes this process starts, by Python's own audit events.

    Every program that this process starts through subprocess or os is seen, whatever CXX names; not seen is
    what Inductor's own pool of processes starts, which no reused build sets up.
    """

    def __init__(self, extra: str | None) -> None:
        """Starts counting.

        Args:
            extra: The value of CXX, whose base name counts too.
        """
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

    def _note(self, executable: Any, argv: Any) -> None:  # noqa: ANN401  # str, bytes, path or list of them
        first = argv if isinstance(argv, str | bytes) else (argv or [executable])[0]
        words = str(first if not isinstance(first, bytes) else first.decode()).split()
        name = Path(words[0] if words else str(executable)).name
        if name in self._names or name.startswith(("g++-", "gcc-", "clang-")):
            self.programs.append(name)
