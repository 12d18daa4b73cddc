"""Modules that a live model's program needs to be loaded elsewhere: they register its operators or have its kernels."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any

from torch._library.custom_ops import OPDEFS

from pt2hub.client.publishing.live_models.kernel_calls import kernel_modules
from pt2hub.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from torch.export import ExportedProgram

_PYTHONS = "-packages"
"""Part of the folders with installed packages, which workers may have too."""


def find_modules(program: ExportedProgram, operators: Iterable[str], code: Path | None) -> list[str]:
    """Return the modules in the folder of code that a program needs.

    Args:
        operators: Names of the program's operators that are not torch's own.
        code: The folder that is published beside the program; None for none.

    Raises:
        InvalidInput: A module is part of the running program, or of neither the folder nor an installed package.
    """
    owners = {_body(name).__module__: name for name in operators if name in OPDEFS}
    owners |= {name: f"a kernel of {name}" for name in kernel_modules(program)}
    needed = {name: what for name, what in owners.items() if name.partition(".")[0] != "torch"}
    return [name for name, what in sorted(needed.items()) if _is_in(name, what, code)]


def _body(operator: str) -> Any:
    """Return the function that an operator was declared with; torch wraps the one of a `triton_op`."""
    function: Any = OPDEFS[operator]._init_fn  # noqa: SLF001  # torch has no public name for it
    if function.__module__ != "torch._library.triton":
        return function
    inner = (cell.cell_contents for cell in function.__closure__ or ())
    return next((item for item in inner if inspect.isfunction(item)), function)


def _is_in(module: str, what: str, code: Path | None) -> bool:
    if module == "__main__":
        raise InvalidInput(
            f"The program calls {what}, which is defined in the program that runs (__main__)",
            where="model",
            hint="Workers load it from a module: move it into a file of a folder, import it from there, and publish with "
            'code="folder".',
        )
    if code is None:
        return False
    path = code / module.replace(".", "/")
    if path.with_name(f"{path.name}.py").is_file() or (path / "__init__.py").is_file():
        return True
    if _PYTHONS in str(getattr(sys.modules.get(module), "__file__", None)):
        return False
    raise InvalidInput(
        f"The folder has no module {module}, which has {what}",
        where="code",
        hint=f"Name the folder that {module} is imported from.",
    )
