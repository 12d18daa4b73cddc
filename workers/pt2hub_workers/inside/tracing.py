"""The lines of the model's own code that a failed export is about, from its traceback and from torch's own report.

The report (`draft_export`) is asked for after a failure and for the explanation alone: its graph is unsound.
"""

from __future__ import annotations

import contextlib
import gc
import io
import linecache
import logging
import os
import re
import signal
import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch._logging import structured

from pt2hub.domain.paths import parse
from pt2hub_workers.inside import places

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from pt2hub.domain.specs import Spec

SECONDS = 60
"""What the report may take: the model is run once more, on real values."""

_LOCALS = 8
_TEXT = 120
_SOURCE = re.compile(r"L\['(?P<root>\w+)'\](?P<rest>.*)\.size\(\)\[(?P<axis>\d+)\]")
_SIZE = re.compile(r"(?P<root>\w+)(?P<rest>(?:\[[^\]]+\])*)\.size\(\)\[(?P<axis>\d+)\]")
_SHAPE = re.compile(r"Tensor\(shape: torch\.Size\(\[(.*?)\]\).*")
_NOISY = ("torch.export._draft_export", "torch.fx.experimental.symbolic_shapes", "torch._guards")


@dataclass(frozen=True, slots=True)
class Attempt:
    """What was exported, and how.

    Attributes:
        module: The model.
        args: Its arguments by position.
        kwargs: Those by name.
        shapes: The dynamic dimensions, as torch.export takes them.
    """

    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    shapes: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the model's own source.

    Attributes:
        file: Its path inside the archive or package.
        line: Number of the line.
        code: The line.
        locals: Values of the names in it, as text.
        kind: What torch's report says of it, such as `DATA_DEPENDENT_ERROR`; empty where it says nothing.
        expression: What torch could not work out there, or had to assume.
    """

    file: str
    line: int
    code: str
    locals: Mapping[str, str] = field(default_factory=dict)
    kind: str = ""
    expression: str = ""

    def __str__(self) -> str:
        """The place in one line."""
        values = ", ".join(f"{name} = {value}" for name, value in self.locals.items())
        return f"{self.file}:{self.line}: {self.code}" + (f" ({values})" if values else "")


class Names:
    """torch's symbols for sizes, in the spec's words."""

    def __init__(self, spec: Spec) -> None:
        self._sizes = {
            (root, "".join(f"[{step.key!r}]" for step in steps)): item.shape
            for item in spec.inputs
            for root, steps in [parse(item.name)]
        }

    def replaced(self, text: str, symbols: Mapping[str, str | None]) -> str:
        """A text with a spec's dimension for each symbol that is one."""
        for symbol, source in symbols.items():
            if name := self._name(source or ""):
                text = re.sub(rf"\b{re.escape(symbol)}\b", name, text)
        return text

    def guard(self, text: str) -> str:
        """A program's guard with a spec's dimension for each size of an argument that is one."""
        return _SIZE.sub(lambda found: self._dimension(found) or found[0], text)

    def _name(self, source: str) -> str | None:
        return self._dimension(_SOURCE.fullmatch(source))

    def _dimension(self, found: re.Match[str] | None) -> str | None:
        shape = self._sizes.get((found["root"], found["rest"]), []) if found else []
        size = shape[int(found["axis"])] if found and int(found["axis"]) < len(shape) else None
        return size if isinstance(size, str) else None


def raised_at(error: Exception, names: Names) -> Place | None:
    """The innermost line of the model's own code that an error came through."""
    found, trace = None, error.__traceback__
    while trace is not None:
        if places.is_models(trace.tb_frame.f_code.co_filename):
            found = trace
        trace = trace.tb_next
    if found is not None:
        return _frame(found, names)
    stack = getattr(error, "real_stack", None) or []  # TorchDynamo's: it reads the code and does not run it
    own = [item for item in stack if places.is_models(item.filename)]
    return (
        Place(places.shown(own[-1].filename), own[-1].lineno or 0, (own[-1].line or "").strip())
        if own
        else None
    )


def _frame(trace: TracebackType, names: Names) -> Place:
    file, line = trace.tb_frame.f_code.co_filename, trace.tb_lineno
    code = linecache.getline(file, line).strip()
    here = trace.tb_frame.f_locals
    values = {
        name: _value(here[name], names)
        for name in dict.fromkeys(re.findall(r"[A-Za-z_]\w*", code))
        if name in here and not isinstance(here[name], torch.nn.Module) and not callable(here[name])
    }
    return Place(places.shown(file), line, code[:_TEXT], dict(list(values.items())[:_LOCALS]))


def _value(value: object, names: Names) -> str:
    if not isinstance(value, torch.Tensor):
        with contextlib.suppress(Exception):  # a repr of the model's own
            return names.replaced(repr(value), _symbols(value))[:_TEXT]
        return type(value).__name__
    shape = ", ".join(names.replaced(str(size), _symbols(size)) for size in value.shape)
    return f"{str(value.dtype).removeprefix('torch.')}[{shape}]"


def _symbols(size: object) -> dict[str, str | None]:
    """Symbols in a traced size, each with the input that it is read from."""
    if not isinstance(size, torch.SymInt):
        return {}
    with contextlib.suppress(AttributeError):  # torch's own bookkeeping, which changes
        sources = size.node.shape_env.var_to_sources
        return {
            str(symbol): found[0].name for symbol, found in sources.items() if isinstance(found[0].name, str)
        }
    return {}


def draft(attempt: Attempt) -> Any:  # noqa: ANN401  # torch's report
    """The report of torch on the failure, None where there is none in time."""
    report = None
    with contextlib.suppress(Exception), _quiet(), _limited(SECONDS):
        program = torch.export.draft_export(
            attempt.module, attempt.args, attempt.kwargs, dynamic_shapes=attempt.shapes
        )
        report = program._report  # type: ignore[attr-defined]  # noqa: SLF001  # as its documentation has it
        del program
        gc.collect()  # torch leaves its trace's file to the collector, which warns
    return report


def reported(report: Any, names: Names) -> Iterator[Place]:  # noqa: ANN401  # torch's report
    """The lines of the model's own code that a report names."""
    # torch numbers file names once a process: a second report lacks those that an earlier one was told of.
    files = {number: file for file, number in structured.INTERN_TABLE.items()} | report.str_to_filename
    for failure in report.failures:
        data = failure.data
        stack = [(files.get(item["filename"], ""), item) for item in data.get("user_stack") or []]
        own = [(file, item) for file, item in stack if file and places.is_models(file)]
        if own:
            file, item = own[-1]
            frame = data.get("frame_locals") or {}
            symbols = {**data.get("symbol_to_sources", {}), **(frame.get("symbols") or {})}
            values = {
                name: names.replaced(_SHAPE.sub(r"tensor[\1]", str(value[0])), symbols)
                for name, value in list((frame.get("locals") or {}).items())[:_LOCALS]
                if value and value[0] is not None
            }
            kind, expression = failure.failure_type.name, names.replaced(str(data.get("expr", "")), symbols)
            yield Place(places.shown(file), item["line"], item["loc"][:_TEXT], values, kind, expression)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps the report's own warnings out of the log, and gives it the user name that it asks for."""
    loggers = [logging.getLogger(name) for name in _NOISY]
    levels = [logger.level for logger in loggers]
    missing = "USER" not in os.environ
    if missing:  # a sandbox has no users, and torch names a folder after them
        os.environ["USER"] = "pt2hub"
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if missing:
            del os.environ["USER"]


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raises TimeoutError in the block after some seconds; in a thread other than the main one it has no limit."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # again and again: torch may catch the first
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
