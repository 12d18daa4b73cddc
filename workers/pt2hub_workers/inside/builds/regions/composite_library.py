"""The composite library: `composite.cpp`, compiled while the regions are."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from pt2hub.errors import CompileFailed

if TYPE_CHECKING:
    from typing import Self

SOURCE = Path(__file__).with_name("composite.cpp")
_FLAGS = ("-O2", "-std=c++17", "-shared", "-fPIC", "-fvisibility=hidden")
_TIMEOUT_S = 300


class CompositeCompiler:
    """A compiler process of the composite library, which is the same for every model: its plan is a file beside it.

    It uses no instructions beyond the processor's base level.
    """

    def __init__(self, out: Path) -> None:
        self._out = out
        libraries = Path(torch.__file__).with_name("lib")
        compiler = (os.environ.get("CXX") or "g++").split()
        # A relative name: the path would be part of the library.
        self._command = (
            *compiler,
            *_FLAGS,
            SOURCE.name,
            "-o",
            str(out),
            f"-L{libraries}",
            "-ltorch_cpu",
            "-ldl",
        )
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, cwd=SOURCE.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        if self._process and self._process.poll() is None:
            self._process.kill()
        if self._process:
            self._process.communicate()

    def finish(self) -> bytes:
        """Wait for the compiler; return the library.

        Raises:
            CompileFailed: The compiler failed.
        """
        if self._process is None:
            raise RuntimeError("the compiler was not started")
        printed, _ = self._process.communicate(timeout=_TIMEOUT_S)
        if self._process.returncode:
            raise CompileFailed(
                f"the composite library does not compile: {' '.join(printed.split())[:400]}",
                where="compile",
                hint="The worker's C++ compiler must be the one that PyTorch's generated code is compiled with.",
            )
        return self._out.read_bytes()
