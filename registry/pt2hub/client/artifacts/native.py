"""Loading and calling of native code, with translated errors."""

from __future__ import annotations

import ctypes
import importlib
from typing import TYPE_CHECKING

import torch

from pt2hub.client.machine.libraries import operator_libraries
from pt2hub.errors import BadCall, CorruptArchive, Incompatible, InternalError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pt2hub.domain.artifacts import NativeCode

MODEL = "model"
"""Name of the model inside every package, as torch's own loader expects it."""


def open_code(
    path: Path, device: torch.device, *, single_threaded: bool, runners: int
) -> torch._C._aoti.AOTIModelPackageLoader:
    """Load the libraries of a code layer; only their constructors run.

    `torch._inductor.aoti_load_package` is not used: it compiles a test program with g++ first (12 s cold).

    Args:
        device: Where it runs.

    Raises:
        Incompatible: A library the code needs is missing or too old here.
        CorruptArchive: The code could not be loaded for another reason.
    """
    index = -1 if device.type == "cpu" else device.index
    try:
        return torch._C._aoti.AOTIModelPackageLoader(str(path), MODEL, single_threaded, runners, index)  # noqa: SLF001  # the loader underneath torch's own
    except RuntimeError as exc:
        raise _translate(str(exc), path) from exc


def check_symbols(symbols: Iterable[str], where: str) -> None:
    """Look up the functions of libtorch that the code calls.

    Raises:
        Incompatible: This torch lacks one.
    """
    libraries = ctypes.CDLL(torch._C.__file__)  # noqa: SLF001  # its dependencies are the libtorch in use
    missing = [name for name in symbols if not hasattr(libraries, name)]
    if missing:
        raise Incompatible(
            f"libtorch: needs {', '.join(missing[:5])}, which torch {torch.__version__} on this machine lacks",
            where=where,
            hint="Install the torch release that the artifact names.",
        )


def require_operators(native: NativeCode, where: str) -> None:
    """Import the packages that register the operators which the code calls by name, where they are not registered.

    Only installed packages that require torch are imported, whatever the artifact names.

    Raises:
        Incompatible: An operator is not registered afterwards.
    """
    libraries, failures = operator_libraries(), []
    for name in native.operator_namespaces:
        if name in libraries and not all(map(_is_registered, native.operators)):
            try:
                importlib.import_module(name)
            except Exception as exc:  # noqa: BLE001  # a broken installation may raise anything
                failures.append(f"importing {name} failed ({type(exc).__name__}: {exc!s:.200})")
    if missing := [name for name in native.operators if not _is_registered(name)]:
        why = f": {'; '.join(failures)}" if failures else ""
        raise Incompatible(
            f"operator libraries: needs {', '.join(missing[:5])}, which nothing registers in this process{why}",
            where=where,
            hint="Install the package that registers the operators, or load their library before the model.",
        )


def _is_registered(operator: str) -> bool:
    return bool(torch._C._jit_get_schemas_for_operator(operator))  # noqa: SLF001  # torch has no public name for it


def call_error(exc: RuntimeError, where: str) -> BadCall | InternalError:
    """Return the error of compiled code that failed despite valid arguments."""
    text = str(exc).strip()
    if (
        isinstance(exc, torch.OutOfMemoryError)
        or "allocate memory" in text
        or "out of memory" in text.lower()
    ):
        return BadCall(
            f"Not enough memory for this call: {text}",
            where=where,
            hint="Use a smaller batch, or free memory of other tensors and processes.",
        )
    cuda = isinstance(exc, torch.AcceleratorError) or "CUDA" in text
    restart = " This process cannot use the GPU after a CUDA error: start a new process." if cuda else ""
    return InternalError(
        f"The compiled code failed: {text}",
        where=where,
        hint="Compiled code may have written the cause to stderr. The usual cause is an index outside an embedding table; "
        f"otherwise please report it.{restart}",
    )


def _translate(text: str, path: Path) -> Incompatible | CorruptArchive:
    line = next((line for line in text.splitlines() if line.strip()), text)
    if "failed to map segment" in text:
        return Incompatible(
            f"The library could not be mapped: {line}",
            where=str(path),
            hint="torch unpacks it into TMPDIR: set TMPDIR to a directory that allows execution.",
        )
    if any(word in text for word in ("cannot open shared object", "undefined symbol", "version `")):
        return Incompatible(
            f"The code needs a library this machine lacks: {line}",
            where=str(path),
            hint="Compare `native.needed` of the artifact's config with the libraries of this machine.",
        )
    return CorruptArchive(
        f"The code layer could not be loaded: {line}",
        where=str(path),
        hint="If pulling it again does not help, publish the version again and report this.",
    )
