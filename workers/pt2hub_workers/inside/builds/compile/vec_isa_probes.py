"""Answers of Inductor's probes of the CPU's instruction sets: asked once by the worker, and known to its builds.

For each instruction set that the CPU has, Inductor compiles a small library and loads it in a new process, to learn
whether compiler and torch support the set. With torch 2.11 that process imports torch: ten probes took 56 of the 76 s in
which an operator was compiled for an H100 (measured 2026-11-24). The answer depends on the probe's source, its flags, the
compiler and torch, and they name the file that holds it.
"""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SUFFIX = ".probe"
"""Suffix of a file with an answer."""
_YES, _NO = "1", "0"


def keep_answers(folder: Path) -> None:
    """Write the answer of every probe of this process into a folder."""

    def ask(probe: Callable[..., bool], isa: Any, code: str) -> bool:
        answer = probe(isa, code)
        (folder / _file_name(isa, code)).write_text(_YES if answer else _NO)
        return answer

    _wrap_probes(ask)


def use_answers(folder: Path) -> None:
    """Take the answers that are in a folder; other probes of this process are made."""

    def ask(probe: Callable[..., bool], isa: Any, code: str) -> bool:
        try:
            return (folder / _file_name(isa, code)).read_text() == _YES
        except FileNotFoundError:
            return probe(isa, code)

    _wrap_probes(ask)


def compiler_version() -> str:
    """Return what the C++ compiler of this process says of its version; empty if there is none."""
    return _version(os.environ.get("CXX") or "g++")


@functools.cache
def _version(command: str) -> str:
    try:
        return subprocess.run(
            [command.split(maxsplit=1)[0], "--version"], capture_output=True, check=False, text=True
        ).stdout
    except OSError:
        return ""


def _wrap_probes(ask: Callable[..., bool]) -> None:
    from torch._inductor.cpu_vec_isa import VecISA

    probe = getattr(VecISA.check_build, "__wrapped__", VecISA.check_build)  # not around an earlier wrapping

    @functools.wraps(probe)
    def check_build(isa: Any, code: str) -> bool:
        return ask(probe, isa, code)

    VecISA.check_build = check_build  # type: ignore[method-assign, assignment]  # there is no setting for an answer


def _file_name(isa: Any, code: str) -> str:
    import torch

    parts = (
        torch.__version__,
        compiler_version(),
        os.environ.get("CXX") or "g++",
        isa.build_arch_flags(),
        code,
    )
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:32] + SUFFIX
