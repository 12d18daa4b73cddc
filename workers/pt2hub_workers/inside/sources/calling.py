"""The one call that makes a model, and what is said where it fails."""

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
    "A build has no network and sees no files of your machine: build the model without pretrained weights "
    "(`pretrained: false`, no `weights`), and upload them: `pt2hub publish --weights FILE_OR_NAME`."
)
_NETWORK = (URLError, socket.gaierror, ConnectionError, FileNotFoundError)
_LIBRARIES = ("requests", "urllib3", "httpx", "httpcore", "huggingface_hub", "aiohttp")
"""Beginnings of the names of those whose own errors mean the network."""


class Call(NamedTuple):
    """What is called.

    Attributes:
        function: A function or class.
        name: As the spec names it.
        where: The spec's field that does.
        root: Where its own files are, whose names are then said relative to it; None for an installed package.
        aside: What else may be meant where the arguments do not fit.
    """

    function: Callable[..., Any]
    name: str
    where: str
    root: Path | None = None
    aside: str = ""

    def make(self, kwargs: Mapping[str, Any], seed: int) -> Any:  # noqa: ANN401  # whatever it returns
        """Calls it under a seed.

        Raises:
            FactoryArguments: It does not take these arguments.
            FactoryFailed: It raised.
        """
        self._check_arguments(kwargs)
        torch.manual_seed(seed)
        try:
            return self.function(**kwargs)
        except Exception as error:
            if isinstance(error, TypeError) and "unexpected keyword argument" in str(error):
                raise self._unfit(error) from error  # it passed **kwargs on before anyone looked
            raise self.failed(error) from error

    def failed(self, error: Exception) -> FactoryFailed:
        """What it raised, as ours, with the line of its author."""
        line = origin(error, self.root) if self.root else ""
        return FactoryFailed(
            f"{self.name} raised {said(error)}{f' at {line}' if line else ''}",
            where=self.where,
            hint=NO_NETWORK if reaches_out(error) else "Call it with the same arguments in a Python shell.",
        )

    def _check_arguments(self, kwargs: Mapping[str, Any]) -> None:
        try:
            signature = inspect.signature(self.function)
        except ValueError:  # built in
            return
        try:
            signature.bind(**kwargs)
        except TypeError as error:
            raise self._unfit(error) from error

    def _unfit(self, error: TypeError) -> FactoryArguments:
        return FactoryArguments(
            f"{self.name} {error}",
            where="source.kwargs",
            hint=f"Its signature is {self.name.partition(':')[2]}{inspect.signature(self.function)}.{self.aside}",
        )


def said(error: BaseException) -> str:
    """An error's kind, and the beginning of what it says."""
    return ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])[:500]


def reaches_out(error: BaseException) -> bool:
    """Whether something was to be fetched, or read from a disk that is not there."""
    return any(
        isinstance(cause, _NETWORK) or type(cause).__module__.startswith(_LIBRARIES)
        for cause in _chain(error)
    )


def origin(error: BaseException, root: Path) -> str:
    """File, line and text of the innermost line of an author's own files; empty where there is none.

    Args:
        error: As it was caught.
        root: Where these files are.
    """
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
