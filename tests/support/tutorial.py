"""Works through a page of the documentation as its reader does, and compares what is printed with the page.

A page is read from top to bottom; the kind of a fence says what is done with it:

* `yaml`: saved under the last file name in backticks before it.
* `sh`: run in a terminal that keeps its directory and variables. The one that ends with `pt2hub up` gets a terminal
  of its own, where it stays.
* `python`: run in a fresh interpreter of the terminal's environment.
* `text`: what the program before it printed, standard error too; nothing was printed where none follows. A `text`
  that follows no program is what the server prints at Ctrl-C.

Digests, ids, times, sizes, targets and the like differ from run to run: both sides are made alike before they are
compared. Where a program of the page uses a digest that an output of the page shows, the one of this run is put in.
"""

from __future__ import annotations

import difflib
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from support.headers import PLACE

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAMS = ("sh", "python")
URL = "http://127.0.0.1:8400"
"""The server's address on the page; a run takes any free port."""
HOME = "/home/you"
"""The reader's home directory on the page."""
STEP_SECONDS = 300

_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"`(\w+\.\w+)`")
_SERVES = re.compile(r"serves (http://\S+)")
_NAME = re.compile(r"sha256:[0-9a-f]{6,64}|\b[0-9a-f]{64}\b|\b[0-9a-f]{16}\b")
"""What a later program may use: a digest, cut off or whole or as the name of a file, or the id of a build."""
_TOKEN = re.compile(r"\bpt2_\w+")
_ALIKE = tuple(
    (re.compile(pattern), word)
    for pattern, word in {
        r"(?m)^(\S+)-\d+-[0-9a-f]{8}\b(.*)  \1  ": r"<worker>\2  <host>  ",  # a worker's id begins with its host
        r"(?m)^  (time in|speed)  .*": r"  \1  <measured>",  # which kernels come first depends on the machine
        r"(?m)^((?:latency_p\d\d|throughput|first_inference|load_time|host_memory_peak|relative_error|\w+_time)"
        r"(?: batch \d+)?)  .*": r"\1  <measured>",  # a row of a comparison: even its verdict depends on the machine
        r"(?m)^For a better comparison: .*\n": "",  # only where a row was too noisy
        r"(?m)^  measured  .*": "  measured  <state>",  # the job may have begun already
        r"process \d+ of \d+": "process <number> of <number>",
        r"sha256:[0-9a-f]{6,64}|\b[0-9a-f]{64}\b": "<digest>",
        r"\b[0-9a-f]{16}\b": "<id>",
        r"\btorch\d+\.\d+-(cpu-\w+|cu\d+-sm\w+)": "<target>",
        r"\d{4}-\d\d-\d\d[T ][\d:.]+(Z|[+-]\d\d:\d\d)?|\b\d\d:\d\d:\d\d\b": "<time>",
        r"\b(\d+ min )?\d[\d.e-]* ?(µs|ms|s|[KMG]?i?B)\b": "<figure>",
        r"\b\d+(\.\d+|e-\d+)\S*": "<number>",
        r"\b\d+ threads": "<number> threads",
        r" {2,}": "  ",  # columns are as wide as what stands in them
    }.items()
)
_WAITED = re.compile(r" +waited [^\n]* for the device$", re.MULTILINE)
"""Another program on this machine may hold the device."""
_PASSING = re.compile(
    r"^(<target>  (queued|running|.* so far)|-- |For a better comparison: ).*\n", re.MULTILINE
)
"""Lines of progress that depend on when one looks, and advice that depends on how noisy the machine was."""


class Fence(NamedTuple):
    """A fenced part of a page: kind, content, where the content lies, and the text since the fence before."""

    kind: str
    text: str
    span: tuple[int, int]
    before: str


@dataclass
class Script:
    """A page that is worked through.

    Attributes:
        page: Its text.
        folder: An empty folder that becomes the reader's home directory.
        rewrite: Take what is printed for right, and put it into the page.
    """

    page: str
    folder: Path
    rewrite: bool = False
    _url: str = URL
    _names: dict[str, str] = field(default_factory=dict)
    _texts: list[tuple[tuple[int, int], str]] = field(default_factory=list)

    def play(self) -> str:
        """Runs everything; the page as it should be.

        Raises:
            AssertionError: Something else was printed than the page shows.
        """
        (self.folder / ".venv").symlink_to(sys.prefix)
        terminal, server = Terminal(self.folder), Server(self.folder)
        try:
            for program, shown in pairs(fences(self.page)):
                self._step(program, shown, terminal, server)
        finally:
            server.stop()
        return self._rewritten()

    def _step(self, program: Fence | None, shown: Fence | None, terminal: Terminal, server: Server) -> None:
        if program is None:
            code, printed = 0, server.stop()
        elif program.kind == "yaml":
            terminal.save(_FILE.findall(program.before)[-1], program.text)
            return
        elif program.text.endswith("pt2hub up\n"):
            code, printed = 0, server.start(program.text)
            assert _SERVES.search(printed), printed
            self._url = _SERVES.findall(printed)[-1]
        else:
            code, printed = terminal.run(program.kind, self._of_this_run(program.text))
        printed = self._of_the_page(printed)
        about = f"{program.text if program else 'Ctrl-C'}\nended with {code} and printed\n\n{printed}"
        assert shown or not (printed or code), about
        if shown:
            if not self.rewrite:
                assert_alike(shown.text, printed, about)
            self._learn(shown, printed)

    def _learn(self, shown: Fence, printed: str) -> None:
        """Remembers which name of the page is which of this run."""
        old, new = _NAME.findall(shown.text), _NAME.findall(printed)
        self._texts.append((shown.span, printed))
        for there, here in zip(old, new, strict=not self.rewrite):
            known = self._names.setdefault(there, here)
            assert self.rewrite or known == here, f"{there} of the page is both {known} and {here}"

    def _of_this_run(self, text: str) -> str:
        return _NAME.sub(lambda match: self._name(match[0]), text).replace(URL, self._url)

    def _name(self, name: str) -> str:
        found = {here[: len(name)] for there, here in self._names.items() if there.startswith(name)}
        assert len(found) == 1, f"no output before it, or several, show {name}"
        return found.pop()

    def _of_the_page(self, printed: str) -> str:
        return _TOKEN.sub("pt2_...", printed.replace(self._url, URL).replace(str(self.folder), HOME))

    def _rewritten(self) -> str:
        page = self.page
        new = dict(self._texts)
        for fence in reversed(fences(page)):
            start, end = fence.span
            text = (
                _NAME.sub(lambda match: self._name(match[0]), fence.text) if fence.kind in PROGRAMS else None
            )
            page = page[:start] + new.get(fence.span, text or fence.text) + page[end:]
        return page


class Terminal:
    """Runs one program after the other; directory and variables stay."""

    def __init__(self, folder: Path) -> None:
        """Opens it in a folder, which is the home directory too."""
        self._folder = folder
        self._state = folder / ".terminal"
        self._state.write_text(f"cd {folder}\n")

    def run(self, kind: str, program: str) -> tuple[int, str]:
        """Exit code and output of a program."""
        file = self._folder / f".program.{kind}"
        file.write_text(program)
        done = subprocess.run(
            ["bash", "-c", self._script(f"source {file}" if kind == "sh" else f"python {file}")],
            env=environ(self._folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=STEP_SECONDS,
            check=False,
        )
        return done.returncode, done.stdout

    def save(self, name: str, text: str) -> None:
        """Saves a file where the terminal is."""
        code, printed = self.run("sh", f"cat > {name} <<'END'\n{text}END\n")
        assert (code, printed) == (0, "")

    def _script(self, command: str) -> str:
        keep = '{ export -p; printf "cd %q\\n" "$PWD"; } >' + str(self._state)
        return f"source {self._state}\ntrap '{keep}' EXIT\nset -e\n{command}\n"


class Server:
    """The terminal that runs `pt2hub up`."""

    def __init__(self, folder: Path) -> None:
        """Nothing runs yet."""
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    def start(self, program: str) -> str:
        """Runs it until it says how to stop; what it printed."""
        self._process = subprocess.Popen(
            ["bash", "-c", program],
            cwd=self._folder,
            env=environ(self._folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        return "".join(self._lines())

    def stop(self) -> str:
        """Presses Ctrl-C; what was printed then, and nothing where nothing runs."""
        process, self._process = self._process, None
        if process is None:
            return ""
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
        return process.communicate(timeout=STEP_SECONDS)[0]

    def _lines(self) -> Iterator[str]:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield line
            if "Ctrl-C" in line:
                return


def environ(folder: Path) -> dict[str, str]:
    """The environment of a reader whose home directory is the folder; only the port is not the page's."""
    foreign = ("PT2HUB_", "PYTHON", "VIRTUAL_ENV", "XDG_", "FORCE_COLOR")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    own = {
        "HOME": str(folder),
        "PT2HUB_PORT": "0",
        "PT2HUB_SCRATCH": str(folder),
        "PT2HUB_HEADERS": str(PLACE),
    }
    return kept | own


def fences(page: str) -> list[Fence]:
    """The fenced parts of a page, in order."""
    found, end = [], 0
    for match in _FENCE.finditer(page):
        found.append(Fence(match[1], match[2], match.span(2), page[end : match.start()]))
        end = match.end()
    return found


def pairs(found: list[Fence]) -> Iterator[tuple[Fence | None, Fence | None]]:
    """Each program or file with the output that follows it; an output alone where no program is before it."""
    for before, fence, after in zip([None, *found], found, [*found[1:], None], strict=False):
        if fence.kind != "text":
            yield fence, after if after and after.kind == "text" and fence.kind in PROGRAMS else None
        elif before is None or before.kind not in PROGRAMS:
            yield None, fence


def alike(text: str) -> str:
    """A text without what differs from run to run."""
    for pattern, word in _ALIKE:
        text = pattern.sub(word, text)
    return _WAITED.sub("", _PASSING.sub("", text))


def assert_alike(shown: str, printed: str, about: str) -> None:
    """Two outputs are the same but for what differs from run to run."""
    one, other = alike(shown).splitlines(), alike(printed).splitlines()
    difference = "\n".join(difflib.unified_diff(one, other, "the page", "this run", lineterm=""))
    assert not difference, f"{about}\n{difference}"
