"""AOTInductor: from an exported program to the compiler's package."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.errors import CompileFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
    program: torch.export.ExportedProgram, options: Mapping[str, Any], package: Path
) -> list[dict[str, Any]]:
    """Compiles a program into `package`, a whole `.pt2` with the constants' blob.

    Args:
        program: The exported program.
        options: Inductor's options, complete.
        package: Where the compiler's package is written.

    Returns:
        The autotune choices, if autotuning ran.

    Raises:
        CompileFailed: The compiler failed.
    """
    import torch._inductor
    import torch._inductor.package  # not loaded by its parent; aoti_compile_and_package needs it

    with recorded_autotuning() as choices:
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
    return choices


@contextmanager
def recorded_autotuning() -> Iterator[list[dict[str, Any]]]:
    """Collects what autotuning measured: one entry per candidate, best first, times in milliseconds."""
    from torch._inductor import select_algorithm

    choices: list[dict[str, Any]] = []

    def save(*arguments: Any) -> None:  # noqa: ANN401  # six of them in 2.11 and 2.13; naming five breaks the compile
        timings, name, nodes = arguments[:3]
        choices.extend(_entries(timings, str(name), nodes))

    select_algorithm.add_feedback_saver(save)
    try:
        yield choices
    finally:
        select_algorithm.clear_feedback_savers()


def _entries(timings: Mapping[Any, float], op: str, nodes: Any) -> list[dict[str, Any]]:  # noqa: ANN401  # Inductor's IR
    ranked = sorted(timings.items(), key=lambda item: float(item[1]))
    shapes = [[str(size) for size in node.get_size()] for node in nodes]
    dtypes = [str(node.get_dtype()).removeprefix("torch.") for node in nodes]
    return [
        {
            "op": op,
            "shapes": shapes,
            "dtypes": dtypes,
            "candidate": choice.name,
            "milliseconds": float(milliseconds),
            "rank": rank,
            "chosen": rank == 1,
        }
        for rank, (choice, milliseconds) in enumerate(ranked, start=1)
    ]


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
