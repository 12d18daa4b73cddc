"""Lines of the model's own code at which an export failed, from the traceback and from torch's own report.

The report (`draft_export`) is made only after a failure and only for the explanation: its graph is unsound.
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

from pt2hub.domain.publishing.paths import parse
from pt2hub_workers.inside.builds.export import source_positions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from pt2hub.domain.publishing.spec import Spec

MAX_REPORT_S = 60
"""Time limit of the report: it runs the model once more, on real values."""

_MAX_LOCALS = 8
_MAX_TEXT = 120
_SOURCE = re.compile(r"L\['(?P<root>\w+)'\](?P<rest>.*)\.size\(\)\[(?P<axis>\d+)\]")
_SIZE = re.compile(r"(?P<root>\w+)(?P<rest>(?:\[[^\]]+\])*)\.size\(\)\[(?P<axis>\d+)\]")
_SHAPE = re.compile(r"Tensor\(shape: torch\.Size\(\[(.*?)\]\).*")
_NOISY = ("torch.export._draft_export", "torch.fx.experimental.symbolic_shapes", "torch._guards")


@dataclass(frozen=True, slots=True)
class ExportCall:
    """A failed call of torch.export: module, arguments and dynamic shapes."""

    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    shapes: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the model's own source.

    Attributes:
        kind: The kind of failure in torch's report, such as `DATA_DEPENDENT_ERROR`; empty if the report lacks the line.
        expression: What torch could not work out there, or had to assume.
    """

    file: str
    line: int
    code: str
    locals: Mapping[str, str] = field(default_factory=dict)
    kind: str = ""
    expression: str = ""

    def __str__(self) -> str:
        """Return file, line, code and local values as one line of text."""
        values = ", ".join(f"{name} = {value}" for name, value in self.locals.items())
        return f"{self.file}:{self.line}: {self.code}" + (f" ({values})" if values else "")


class DimensionNames:
    """Translation of torch's size symbols into the spec's dimension names."""

    def __init__(self, spec: Spec) -> None:
        self._sizes = {
            (root, "".join(f"[{step.key!r}]" for step in steps)): item.shape
            for item in spec.inputs
            for root, steps in [parse(item.name)]
        }

    def replace_symbols(self, text: str, symbols: Mapping[str, str | None]) -> str:
        """Replace each symbol that stands for a dimension of the spec by the dimension's name."""
        for symbol, source in symbols.items():
            if name := self._name(source or ""):
                text = re.sub(rf"\b{re.escape(symbol)}\b", name, text)
        return text

    def format_guard(self, text: str) -> str:
        """Replace each argument size in a program's guard by the name of its dimension in the spec."""
        return _SIZE.sub(lambda found: self._dimension(found) or found[0], text)

    def _name(self, source: str) -> str | None:
        return self._dimension(_SOURCE.fullmatch(source))

    def _dimension(self, found: re.Match[str] | None) -> str | None:
        shape = self._sizes.get((found["root"], found["rest"]), []) if found else []
        size = shape[int(found["axis"])] if found and int(found["axis"]) < len(shape) else None
        return size if isinstance(size, str) else None


def find_raising_line(error: Exception, names: DimensionNames) -> SourceLine | None:
    """Return the innermost line of the model's own code in an error's traceback."""
    found, trace = None, error.__traceback__
    while trace is not None:
        if source_positions.is_models(trace.tb_frame.f_code.co_filename):
            found = trace
        trace = trace.tb_next
    if found is not None:
        return _frame(found, names)
    stack = (
        getattr(error, "real_stack", None) or []
    )  # TorchDynamo's: it interprets the code instead of running it
    own = [item for item in stack if source_positions.is_models(item.filename)]
    return (
        SourceLine(
            source_positions.display_path(own[-1].filename), own[-1].lineno or 0, (own[-1].line or "").strip()
        )
        if own
        else None
    )


def _frame(trace: TracebackType, names: DimensionNames) -> SourceLine:
    file, line = trace.tb_frame.f_code.co_filename, trace.tb_lineno
    code = linecache.getline(file, line).strip()
    here = trace.tb_frame.f_locals
    values = {
        name: _value(here[name], names)
        for name in dict.fromkeys(re.findall(r"[A-Za-z_]\w*", code))
        if name in here and not isinstance(here[name], torch.nn.Module) and not callable(here[name])
    }
    return SourceLine(
        source_positions.display_path(file), line, code[:_MAX_TEXT], dict(list(values.items())[:_MAX_LOCALS])
    )


def _value(value: object, names: DimensionNames) -> str:
    if not isinstance(value, torch.Tensor):
        with contextlib.suppress(Exception):  # a repr of the model's own
            return names.replace_symbols(repr(value), _symbols(value))[:_MAX_TEXT]
        return type(value).__name__
    shape = ", ".join(names.replace_symbols(str(size), _symbols(size)) for size in value.shape)
    return f"{str(value.dtype).removeprefix('torch.')}[{shape}]"


def _symbols(size: object) -> dict[str, str | None]:
    """Return the symbols in a traced size, each with the input that it is read from."""
    if not isinstance(size, torch.SymInt):
        return {}
    with contextlib.suppress(AttributeError):  # torch's own bookkeeping, which changes
        sources = size.node.shape_env.var_to_sources
        return {
            str(symbol): found[0].name for symbol, found in sources.items() if isinstance(found[0].name, str)
        }
    return {}


def draft_report(attempt: ExportCall) -> Any:
    """Return torch's report on the failure; None if it fails or takes too long."""
    report = None
    with contextlib.suppress(Exception), _quiet(), _time_limit(MAX_REPORT_S):
        program = torch.export.draft_export(
            attempt.module, attempt.args, attempt.kwargs, dynamic_shapes=attempt.shapes
        )
        report = program._report  # type: ignore[attr-defined]  # noqa: SLF001  # as its documentation has it
        del program
        gc.collect()  # torch leaves its trace's file to the collector, which warns
    return report


def read_report(report: Any, names: DimensionNames) -> Iterator[SourceLine]:
    """Yield the lines of the model's own code that torch's report names."""
    # torch numbers file names once per process: a second report lacks those that an earlier one contained.
    files = {number: file for file, number in structured.INTERN_TABLE.items()} | report.str_to_filename
    for failure in report.failures:
        data = failure.data
        stack = [(files.get(item["filename"], ""), item) for item in data.get("user_stack") or []]
        own = [(file, item) for file, item in stack if file and source_positions.is_models(file)]
        if own:
            file, item = own[-1]
            frame = data.get("frame_locals") or {}
            symbols = {**data.get("symbol_to_sources", {}), **(frame.get("symbols") or {})}
            values = {
                name: names.replace_symbols(_SHAPE.sub(r"tensor[\1]", str(value[0])), symbols)
                for name, value in list((frame.get("locals") or {}).items())[:_MAX_LOCALS]
                if value and value[0] is not None
            }
            kind, expression = (
                failure.failure_type.name,
                names.replace_symbols(str(data.get("expr", "")), symbols),
            )
            yield SourceLine(
                source_positions.display_path(file),
                item["line"],
                item["loc"][:_MAX_TEXT],
                values,
                kind,
                expression,
            )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the report's warnings out of the log, and set the user name that it requires."""
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
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the block after some seconds; outside the main thread there is no limit."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # repeatedly: torch may catch the first
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
