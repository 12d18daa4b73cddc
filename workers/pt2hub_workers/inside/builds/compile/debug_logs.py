"""Records torch's own logs of a compile in files, one for each kind that the spec asks for.

Only the loggers are configured: no option of the compiler changes, so the code is the same to the byte. Torch's own
`set_logs` would write the logs into the build's log.
"""

from __future__ import annotations

import importlib
import logging
import re
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from pt2hub.domain.debug_logs import MAX_LOG_BYTES, cut_note
from pt2hub.rendering.quantities import format_bytes
from pt2hub_workers.inside.operations import files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_log = logging.getLogger(__name__)
_ARTIFACTS: Mapping[str, tuple[str, ...]] = {
    "output_code": ("output_code",),
    "fusion": ("fusion",),
    # The scheduler's own log has types and loops only; its nodes are in another one.
    "schedule": ("schedule", "ir_post_fusion"),
    "graph": ("post_grad_graphs",),
}
"""Torch's names of the logs, as in `TORCH_LOGS`, by kind."""
_WRITERS = (
    "torch._inductor.codegen.cpp",
    "torch._inductor.codegen.triton",
    "torch._inductor.compile_fx",
)
"""Modules that write the logs, with those that they import; their loggers exist once they are imported."""


class DebugLogs:
    """The logs of one compile, by kind."""

    def __init__(self) -> None:
        self._files: dict[str, _LogFile] = {}

    @contextmanager
    def record(self, kinds: Sequence[str], directory: Path) -> Iterator[None]:
        """Record logs within the block.

        Args:
            directory: The workspace.
        """
        shorten = _PathShortener(directory)
        with ExitStack() as stack:
            for kind in kinds:
                path = directory / files.DEBUG_LOGS[kind]
                self._files[kind] = stack.enter_context(_recorded(kind, path, shorten))
            yield

    def begin_part(self, name: str) -> None:
        """Write into every log that a part of the program is compiled next."""
        for file in self._files.values():
            file.write(f"===== pt2hub: {name} =====")

    @property
    def sizes(self) -> dict[str, int]:
        """Number of logged bytes of each kind, including those that were cut."""
        return {kind: file.size for kind, file in self._files.items()}

    def __str__(self) -> str:
        sizes = ", ".join(f"{kind} {format_bytes(size)}" for kind, size in self.sizes.items())
        return f"debug logs: {sizes}"


@contextmanager
def _recorded(kind: str, path: Path, shorten: _PathShortener) -> Iterator[_LogFile]:
    """Send the logs of a kind to a file, and to nowhere else, within the block."""
    loggers = _loggers(_ARTIFACTS[kind])
    before = [(logger, logger.level, logger.propagate) for logger in loggers]
    handler = _LogFile(path, shorten)
    for logger in loggers:
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        logger.addHandler(handler)
    try:
        yield handler
    finally:
        for logger, level, propagate in before:
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate
        handler.close()


def _loggers(names: Sequence[str]) -> list[logging.Logger]:
    """Return the loggers that write some of torch's logs; one for each module that has the log."""
    from torch._logging import _internal

    for module in _WRITERS:
        importlib.import_module(module)

    ends = tuple(f".__{name}" for name in names)
    return [
        logging.getLogger(name)
        for name in sorted(_internal.log_registry.artifact_log_qnames)
        if name.endswith(ends)
    ]


class _PathShortener:
    """Shortens absolute paths: below the workspace and where modules are imported from."""

    def __init__(self, workspace: Path) -> None:
        folders = {
            str(workspace),
            *(folder for folder in sys.path if folder.startswith("/") and len(folder) > 1),
        }
        longest_first = sorted((folder.rstrip("/") for folder in folders), key=len, reverse=True)
        self._pattern = re.compile("|".join(f"{re.escape(folder)}/" for folder in longest_first))

    def __call__(self, text: str) -> str:
        return self._pattern.sub("", text)


class _LogFile(logging.Handler):
    """Writes messages into a file up to a maximum size, and counts the rest."""

    def __init__(self, path: Path, shorten: _PathShortener) -> None:
        super().__init__()
        self._file = path.open("wb")
        self._shorten = shorten
        self._left = MAX_LOG_BYTES
        self._left_out = 0

    @property
    def size(self) -> int:
        """Number of logged bytes, including those that were cut."""
        return MAX_LOG_BYTES - self._left + self._left_out

    def emit(self, record: logging.LogRecord) -> None:
        """Write a message; one that cannot be formatted is named, and does not end the compile."""
        try:
            text = self._shorten(record.getMessage())
        except Exception as error:  # noqa: BLE001  # torch formats its objects here, and a log must not end a build
            text = f"[pt2hub: {type(error).__name__} while formatting a message of {record.name}]"
        self.write(text)

    def write(self, text: str) -> None:
        """Write a line, or as much of it as fits."""
        data = f"{text}\n".encode(errors="replace")
        self._file.write(data[: self._left])
        self._left_out += max(0, len(data) - self._left)
        self._left -= min(self._left, len(data))

    def close(self) -> None:
        """Close the file, with a last line about what was cut."""
        if not self._file.closed:
            self._file.write(b"\n" + cut_note(self._left_out).encode() if self._left_out else b"")
            self._file.close()
        super().close()
