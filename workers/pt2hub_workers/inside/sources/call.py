"""The call of a factory or builder, and errors that explain its failure."""

from __future__ import annotations

import inspect
import socket
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.error import URLError

import torch

from pt2hub.errors import FactoryArguments, FactoryFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

NO_NETWORK = (
    "A build has no network and no access to files on your machine: build the model without pretrained weights "
    "(`pretrained: false`, no `weights`) and upload them with `pt2hub publish --weights FILE_OR_NAME`."
)
_NETWORK = (URLError, socket.gaierror, ConnectionError, FileNotFoundError)
_LIBRARIES = ("requests", "urllib3", "httpx", "httpcore", "huggingface_hub", "aiohttp")
"""Prefixes of modules with error types that indicate network access."""


class FactoryCall(NamedTuple):
    """A call of a factory or builder.

    Attributes:
        root: Folder of the author's files, for relative names in errors; None for an installed package.
        aside: Text added to the hint about wrong arguments.
    """

    function: Callable[..., Any]
    name: str
    where: str
    root: Path | None = None
    aside: str = ""

    def make(self, kwargs: Mapping[str, Any], seed: int) -> Any:
        """Call the function with a fixed seed."""
        self._check_arguments(kwargs)
        torch.manual_seed(seed)
        try:
            return self.function(**kwargs)
        except Exception as error:
            if isinstance(error, TypeError) and "unexpected keyword argument" in str(error):
                raise self._arguments_error(error) from error  # it passed **kwargs on without a check
            raise self.to_error(error) from error

    def to_error(self, error: Exception) -> FactoryFailed:
        """Convert an exception of the function, with the author's line."""
        line = find_own_line(error, self.root) if self.root else ""
        return FactoryFailed(
            f"{self.name} raised {error_text(error)}{f' at {line}' if line else ''}",
            where=self.where,
            hint=NO_NETWORK
            if needs_network(error)
            else "Reproduce the error with the same arguments in a Python shell.",
        )

    def _check_arguments(self, kwargs: Mapping[str, Any]) -> None:
        try:
            signature = inspect.signature(self.function)
        except ValueError:  # built in
            return
        try:
            signature.bind(**kwargs)
        except TypeError as error:
            raise self._arguments_error(error) from error

    def _arguments_error(self, error: TypeError) -> FactoryArguments:
        return FactoryArguments(
            f"invalid arguments for {self.name}: {error}",
            where="source.kwargs",
            hint=f"The signature is {self.name.partition(':')[2]}{inspect.signature(self.function)}.{self.aside}",
        )


def error_text(error: BaseException) -> str:
    """Return an error's type and the first line of its message."""
    return ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])[:500]


def needs_network(error: BaseException) -> bool:
    """Return whether an error indicates network access or a missing file."""
    return any(
        isinstance(cause, _NETWORK) or type(cause).__module__.startswith(_LIBRARIES)
        for cause in _chain(error)
    )


def find_own_line(error: BaseException, root: Path) -> str:
    """Return file, number and text of the innermost line in the author's own files; empty if there is none."""
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).is_relative_to(root):
        return _line(Path(error.filename), error.lineno, error.text, root)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(root)]
    return _line(Path(own[-1].filename), own[-1].lineno, own[-1].line, root) if own else ""


def _line(file: Path, number: int | None, text: str | None, root: Path) -> str:
    return f"{file.relative_to(root)}:{number} ({(text or '').strip()[:120]})"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
