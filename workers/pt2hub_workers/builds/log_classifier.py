"""Log classifier: separates the compiler's noise from what the model's own code prints, line by line.

Noise stays in the full log and is left out of summaries, so a doubtful line counts as the model's own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

OUTPUT, NOISE = "output", "compiler"

_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'\s+File "(?P<path>[^"]+)"')
_CHAINED = re.compile(r"$|During handling of the above exception|The above exception was the direct cause")
_COMPILER = re.compile(r"/(torch|triton|torch_tensorrt)/|/torchinductor_|^torch/|/(pytorch|c10|aten)/")
_LIBRARY = re.compile(r"/(site|dist)-packages/|/lib/python3|^<frozen |^torch/")
_DEPRECATION = frozenset(
    {"DeprecationWarning", "FutureWarning", "PendingDeprecationWarning", "TracerWarning"}
)
_WARNING = re.compile(r"(?P<path>\S.*?):\d+: (?P<category>\w*Warning)(: |$)")
_WARNING_BODY = re.compile(r"\s+\S|\(Triggered internally ")


@dataclass(frozen=True, slots=True)
class _Head:
    """Start of a piece of noise, the lines after it that belong to it, and how many at most."""

    begins: re.Pattern[str]
    body: re.Pattern[str] | None = None
    most: int = 0


_HEADS = (
    # Prefix of every line of torch's loggers, in Python and in C++.
    _Head(re.compile(r"(\[rank\d+\]:)?\[?[VIWEFC]\d{4} \d\d:\d\d:\d\d\.\d{3,9} .*?\d\]")),
    _Head(re.compile(r"AUTOTUNE \w+\("), re.compile(r"(strides|dtypes): |\s+\S+ (inf|[\d.]+) ms "), 10_000),
    _Head(re.compile(r"(Single|Sub)Process AUTOTUNE benchmarking takes ")),
    _Head(re.compile(r"Autotune Choices Stats:$"), re.compile(r"\{"), 1),
    _Head(
        re.compile(r"(Runtime|CUDA compilation) error during autotuning"),
        re.compile(r"(?!Ignoring this choice)"),
        50,
    ),
    _Head(re.compile(r"\.?\s*Ignoring this choice\.?$")),
    _Head(
        re.compile(r"\S+\.(c|cc|cpp|h|hpp|cu|cuh|s|S):\d+(:\d+)?: (warning|note|error|fatal error): "),
        re.compile(r"\s+(\d+ )?\|"),
        200,
    ),
    _Head(re.compile(r"In file included from "), re.compile(r"\s+from \S+:\d+"), 200),
    _Head(re.compile(r"ptxas (info|warning)")),
)
_FIRST = frozenset("[VIWEFCASRp.") | frozenset(" \t")
"""First characters of heads that do not name a file: most lines are decided by their first character."""


class LogClassifier:
    """Level of each printed line. Lines that belong together get the level of the first."""

    def __init__(self) -> None:
        self._level = OUTPUT
        self._body: re.Pattern[str] | None = None
        self._left = 0
        self._held = False
        self._traced = False

    def feed(self, line: str) -> list[tuple[str, str]]:
        """Take the next line.

        Returns:
            Levels and lines decided so far: usually this line; none if the next line decides it.
        """
        if line.startswith(_TRACEBACK):
            before = self.flush()
            self._held = True
            return before
        if self._held:
            self._held, self._traced, self._body = False, True, None
            frame = _FRAME.match(line)
            self._level = NOISE if frame and _COMPILER.search(frame["path"]) else OUTPUT
            return [(self._level, _TRACEBACK), (self._level, line)]
        return [(self._level_of(line), line)]

    def flush(self) -> list[tuple[str, str]]:
        """Return the line that was waiting for the next one."""
        held, self._held = self._held, False
        return [(OUTPUT, _TRACEBACK)] if held else []

    def _level_of(self, line: str) -> str:
        if self._traced:
            self._traced = line[:1].isspace()
            if not self._traced:  # the exception itself; another one may be chained to it
                self._body, self._left = _CHAINED, 3
            return self._level
        if self._body and self._left and self._body.match(line):
            self._left -= 1
            return self._level
        self._body = None
        return self._begin(line)

    def _begin(self, line: str) -> str:
        if line[:1] in _FIRST or ": " in line or line.startswith("In "):
            for head in _HEADS:
                if head.begins.match(line):
                    return self._enter(NOISE, head.body, head.most)
            if "Warning" in line and (warning := _WARNING.match(line)):
                return self._enter(_classify_warning(warning), _WARNING_BODY, 1)
        return OUTPUT

    def _enter(self, level: str, body: re.Pattern[str] | None, most: int) -> str:
        self._level, self._body, self._left = level, body, most
        return level


def _classify_warning(warning: re.Match[str]) -> str:
    """Return the level of a warning: deprecations are always noise, other warnings only from libraries."""
    library = _LIBRARY.search(warning["path"]) or _COMPILER.search(warning["path"])
    return NOISE if library or warning["category"] in _DEPRECATION else OUTPUT
