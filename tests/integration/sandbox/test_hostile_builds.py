"""What processes may do in which users' code runs, and what becomes of it: at both levels of isolation, without torch."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import safetensors.numpy

from pt2hub.errors import (
    ArtifactCrashed,
    ArtifactWrong,
    InternalError,
    LimitExceeded,
    OutputRefused,
    Pt2hubError,
    UsageError,
)
from pt2hub_workers.builds.build_verification import Listener, Verification, VerificationRun
from pt2hub_workers.builds.log_limit import MAX_LOG_BYTES, LogLimit
from pt2hub_workers.children.child import MAX_ERROR, Child, ChildDied, ChildHung
from pt2hub_workers.children.mailbox import MAX_LINE, MAX_WAITING
from pt2hub_workers.operations.cancellation import CancellationToken
from pt2hub_workers.sandbox.workspaces import Workspaces
from support.scripted import CHANNEL, JOB, ScriptedChild, sends
from support.workbench import child_environ, launcher_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pt2hub_workers.sandbox import Isolation, Launcher

SECONDS = 30.0
DONE = sends(b'{"event": "result", "value": "done"}')
WAIT = "time.sleep(60)"
Start = Any


@pytest.fixture(params=["process", "sandbox"])
def level(request: pytest.FixtureRequest) -> Isolation:
    found: Isolation = request.param
    return found


@pytest.fixture
def start(level: Isolation, tmp_path: Path) -> Iterator[Callable[..., ScriptedChild]]:
    """Starts a child that runs statements, with limits as the settings name them."""
    made: list[ScriptedChild] = []

    def begin(statements: str, **limits: Any) -> ScriptedChild:
        launcher = launcher_of(level, dict(os.environ), **limits)
        made.append(ScriptedChild.of(launcher, tmp_path / "rooms", statements))
        return made[-1]

    yield begin
    for child in made:
        child.child.close()
    assert list((tmp_path / "rooms").iterdir()) == []


def _died(child: ScriptedChild) -> ChildDied:
    with pytest.raises(ChildDied) as caught:
        child.work(CancellationToken(), seconds=SECONDS)
    assert not child.child.alive
    return caught.value


def _refused(child: ScriptedChild, kind: type[Pt2hubError]) -> Pt2hubError:
    with pytest.raises(kind) as caught:
        child.work(CancellationToken(), seconds=SECONDS)
    assert not child.child.alive
    return caught.value


def _resident() -> int:
    """Bytes of memory that this process uses."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_one_that_exits_0_at_import_has_built_nothing(start: Start) -> None:
    died = _died(start("os._exit(0)"))

    assert (died.by_itself, died.from_outside) == (True, False)
    assert str(died) == "exited with code 0 (step: start)"


def test_one_that_stops_itself_is_ended_long_before_its_time_is_over(start: Start) -> None:
    began = time.monotonic()
    died = _died(start("os.kill(os.getpid(), signal.SIGSTOP); time.sleep(60)"))

    assert (died.by_itself, died.from_outside) == (True, False)
    assert "stopped itself and was killed" in str(died)
    assert time.monotonic() - began < SECONDS / 2


def test_a_success_that_it_prints_is_a_line_of_the_log_and_nothing_more(start: Start) -> None:
    report = json.dumps({"event": "result", "value": {"result": "passed"}})
    printed: list[str] = []
    child = start(f"{JOB}; print({report!r}, flush=True); os.write(2, {report!r}.encode())")

    with pytest.raises(ChildDied):
        child.work(CancellationToken(), seconds=SECONDS, on_output=printed.append)

    assert printed == [report, report]


def test_one_that_is_killed_from_outside_is_nobodys_fault(start: Start) -> None:
    begun = sends(b'{"event": "progress", "text": "begun"}')
    child = start(f"{JOB}; {begun}; {WAIT}")

    with pytest.raises(ChildDied) as caught:
        child.work(CancellationToken(), seconds=SECONDS, on_event=lambda _: os.kill(child.child.pid, 9))

    assert caught.value.from_outside


def test_200_mb_of_output_fill_neither_the_memory_nor_the_log(start: Start) -> None:
    child = start(f"{JOB}\nfor _ in range(200): os.write(1, (b'x' * 999 + b'\\n') * 1000)\n{DONE}; {WAIT}")
    lines, lock = LogLimit(str), threading.Lock()
    before, most = _resident(), [0]

    def keep(line: str) -> None:
        with lock:
            lines.add(line, at=0.0, step="export", level="output")
            most[0] = max(most[0], _resident()) if len(lines) % 1000 == 0 else most[0]

    assert child.work(CancellationToken(), seconds=4 * SECONDS, on_output=keep) == "done"

    lines.close()
    size = 0
    while batch := lines.batch():
        size += sum(len(line.text) for line in batch)
        lines.forget(len(batch))
    assert 1 << 20 < size <= MAX_LOG_BYTES
    assert most[0] - before < 100 << 20


def test_200_mb_without_a_line_end_are_lines_as_well(start: Start) -> None:
    child = start(f"{JOB}\nfor _ in range(200): os.write(1, b'x' * 1_000_000)\n{DONE}; {WAIT}")
    longest = [0]

    def measure(line: str) -> None:
        longest[0] = max(longest[0], len(line))

    assert child.work(CancellationToken(), seconds=4 * SECONDS, on_output=measure) == "done"
    assert longest[0] <= 8192


def test_one_that_sends_without_end_waits_for_its_worker_whose_memory_stays(start: Start) -> None:
    line = """b'{"event": "log", "text": "' + b'x' * (1 << 20) + b'"}\\n'"""
    child = start(f"{JOB}\nwhile True: os.write({CHANNEL}, {line})")
    before, most, heard = _resident(), [0], [0]

    def listen(_: object) -> None:
        heard[0] += 1
        most[0] = max(most[0], _resident())
        time.sleep(0.05)

    with pytest.raises(ChildHung):
        child.work(CancellationToken(), seconds=3.0, on_event=listen)

    assert heard[0] > 5
    assert most[0] - before < MAX_WAITING + (60 << 20)


@pytest.mark.parametrize(
    "message",
    [
        *(b"[]", b"{}", b"null", b"{", b'{"event": 1}', b"\xff\xff", b"[" * 50_000),
        b'{"event": "result", "value": ' + b"[" * 99 + b"]" * 99 + b"}",
    ],
    ids=str,
)
def test_what_is_no_message_ends_the_build_as_its_own_fault(start: Start, message: bytes) -> None:
    error = _refused(start(f"{JOB}; {sends(message)}; {WAIT}"), OutputRefused)

    assert isinstance(error, UsageError)
    assert "invalid message on the channel to the worker" in error.message
    assert error.hint


def test_a_message_longer_than_any_is_cut_off(start: Start) -> None:
    statements = f"""
{JOB}
try:
    for _ in range({MAX_LINE >> 20} + 2): os.write({CHANNEL}, b"x" * (1 << 20))
finally: time.sleep(60)"""
    assert "on the channel to the worker" in _refused(start(statements), OutputRefused).message


@pytest.mark.parametrize("told", [None, [], 7, "passed", {}, {"code": {}}, {"kind": "usage", "details": 3}])
def test_an_error_that_is_none_is_still_an_error(start: Start, told: object) -> None:
    line = json.dumps({"event": "error", "error": told}).encode()

    assert _refused(start(f"{JOB}; {sends(line)}; {WAIT}"), Pt2hubError).as_dict()["code"]


def test_an_error_that_only_the_database_may_raise_is_not_believed(start: Start) -> None:
    line = b'{"event": "error", "error": {"code": "stale_attempt", "message": "go away"}}'

    assert type(_refused(start(f"{JOB}; {sends(line)}; {WAIT}"), Pt2hubError)) is InternalError


def test_an_endless_error_is_cut(start: Start) -> None:
    child = start(
        f"import json\n{JOB}\n"
        "error = {'code': 'export_failed', 'message': 'm' * 1000000, 'context': {'x': 'y' * 3000000}}\n"
        f"os.write({CHANNEL}, json.dumps({{'event': 'error', 'error': error}}).encode() + b'\\n') and None\n{WAIT}"
    )

    error = _refused(child, Pt2hubError)
    assert error.code == "export_failed"
    assert len(json.dumps(error.as_dict())) <= MAX_ERROR


def test_a_daemon_that_holds_its_output_and_its_channel_keeps_nobody_waiting(
    start: Start, level: Isolation
) -> None:
    marker = f"pt2hub-test-daemon-{os.getpid()}-{level}"
    child = start(
        f"{JOB}\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        f"        os.execv({sys.executable!r}, ['python', '-c', 'import time; time.sleep(20)', {marker!r}])\n"
        "    os._exit(0)\n"
        "os.wait(); time.sleep(0.3); print('last words', flush=True); os._exit(3)"
    )
    printed: list[str] = []
    began = time.monotonic()

    with pytest.raises(ChildDied):
        child.work(CancellationToken(), seconds=SECONDS, on_output=printed.append)

    assert time.monotonic() - began < SECONDS / 2
    assert printed == ["last words"]
    child.child.close()
    if level == "sandbox":  # without one, only a control group could know of it
        assert not [
            entry for entry in Path("/proc").iterdir() if entry.name.isdecimal() and marker in _command(entry)
        ]


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().decode(errors="replace")
    except OSError:  # it has ended
        return ""


@pytest.mark.parametrize(
    "leave",
    [
        "os.symlink('/etc/passwd', 'code.zip')",
        "os.symlink('../in/weights', 'code.zip')",
        "os.mkfifo('code.zip')",
        "os.mkdir('code.zip')",
        "import socket; s = socket.socket(socket.AF_UNIX); s.bind('code.zip')",
        "pass",
    ],
)
def test_what_it_leaves_in_its_output_is_a_plain_file_or_refused(start: Start, leave: str) -> None:
    place = "room['directory'] + '/out'"
    child = start(
        f"import json\nroom = json.loads(os.read({CHANNEL}, 9999))\nos.chdir({place}); {leave}\n{DONE}; {WAIT}"
    )
    job = {"directory": str(child.workspace.inside)}
    assert (
        child.child.work(job, on_event=print, on_output=print, seconds=SECONDS, token=CancellationToken())
        == "done"
    )

    with pytest.raises(OutputRefused):
        child.workspace.take("out/code.zip")


def test_what_it_is_given_it_cannot_change_in_a_sandbox_and_what_was_taken_it_cannot_see(
    start: Start, level: Isolation
) -> None:
    child = start(
        f"import json\nroom = json.loads(os.read({CHANNEL}, 9999))['directory']\n"
        "def tried(call):\n"
        "    try: return repr(call())\n"
        "    except OSError as error: return error.strerror\n"
        "found = [tried(lambda: open(room + '/in/weights', 'w')), tried(lambda: os.listdir(room + '/held')),\n"
        "         tried(lambda: open(room + '/in/weights').read())]\n"
        f"os.write({CHANNEL}, json.dumps({{'event': 'result', 'value': found}}).encode() + b'\\n')\n{WAIT}"
    )
    given = child.workspace.incoming("weights")
    given.write_text("kept")
    given.chmod(0o400 if level == "process" else 0o600)
    job = {"directory": str(child.workspace.inside)}

    wrote, listed, read = child.child.work(
        job, on_event=print, on_output=print, seconds=SECONDS, token=CancellationToken()
    )

    if level == "sandbox":
        assert wrote == "Read-only file system"
        assert listed == "No such file or directory"
        assert (read, given.read_text()) == ("'kept'", "kept")
    else:
        assert listed == "[]"


def test_one_that_fills_the_disk_is_told_so_and_by_whom_the_limit_can_be_raised(start: Start) -> None:
    child = start(
        f"import json\nroom = json.loads(os.read({CHANNEL}, 9999))\n"
        "number = 0\n"
        "while True:\n"
        "    number += 1\n"
        "    with open(f\"{room['directory']}/tmp/{number}\", 'wb') as file: file.write(b'x' * 1_000_000)\n"
        "    time.sleep(0.005)",
        PT2HUB_BUILD_DISK="32MiB",
    )
    job = {"directory": str(child.workspace.inside)}

    with pytest.raises(LimitExceeded, match="exceeded its disk limit") as caught:
        child.child.work(job, on_event=print, on_output=print, seconds=SECONDS, token=CancellationToken())

    assert "PT2HUB_BUILD_DISK" in (caught.value.hint or "")
    assert caught.value.context == {"what": "disk", "limit": 32 << 20}


def test_one_that_takes_all_memory_is_told_so_and_is_no_lost_worker(start: Start) -> None:
    child = start(
        f"{JOB}\nkept = []\nwhile True: kept.append(bytearray(os.urandom(1 << 20) * 8)); time.sleep(0.005)",
        PT2HUB_BUILD_MEMORY="256MiB",
        PT2HUB_BUILD_TMP="16MiB",
    )

    error = _refused(child, LimitExceeded)

    assert "memory" in error.message
    assert "PT2HUB_BUILD_MEMORY" in (error.hint or "")


class _Toolchain:
    """Gives a gate that runs statements, and a judge that is the product's."""

    def __init__(self, launcher: Launcher, scratch: Path, statements: str) -> None:
        self._launcher = launcher
        self._scratch = scratch
        self._statements = statements

    def take(self, role: str) -> Child:
        """One for a job."""
        if role == "artifact":
            return ScriptedChild.of(self._launcher, self._scratch, self._statements, "artifact").child
        workspace = Workspaces(self._scratch, inside=self._launcher.inside).open(role)
        return Child(role, self._launcher, environ=child_environ(), workspace=workspace)


GOOD = np.array([1.0, 2.0], dtype=np.float32)
RUNS = [
    {"point": "example.0", "threads": threads, "group": None, "number": 0, "call": call}
    for threads, call in ((2, 1), (2, 2), (1, 1), (8, 1))
]


def _writes(outputs: dict[str, list[float]]) -> str:
    """The statements of an artifact that writes these outputs; without a library, as a forger may."""
    data = safetensors.numpy.save(
        {name: np.array(values, dtype=np.float32) for name, values in outputs.items()},
        metadata={"found": json.dumps(dict.fromkeys(outputs, "float32"))},
    )
    return (
        f"import json\njob = json.loads(os.read({CHANNEL}, 1 << 20))\n"
        f"with open(job['found'], 'wb') as file: file.write({data!r})\n"
    )


def _tells(value: object) -> str:
    return sends(json.dumps({"event": "result", "value": value}).encode()) + f"; {WAIT}"


@pytest.fixture
def prove(level: Isolation, tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """Has an artifact judged whose process runs statements; right are the outputs `GOOD`."""
    for name in ("code", "weights", "inputs"):
        (tmp_path / name).write_text(name)
    allowance = {"output": 0, "signal": 1.0, "eager_error": 0.0, "allowed": 0.001}
    document = {
        "points": ["example.0"],
        "base": {"example.0": [allowance]},
        "groups": [],
        "dtypes": {"example.0": ["float32"]},
    }
    safetensors.numpy.save_file(
        {"golden/example.0/0": GOOD.astype(np.float64)},
        tmp_path / "expected",
        metadata={"expected": json.dumps(document)},
    )
    paths = {name: tmp_path / name for name in ("code", "weights", "inputs", "expected")}
    artifact = VerificationRun(config={"target": {"device": "cpu"}}, accept=[], **paths)

    def run(statements: str) -> dict[str, Any]:
        launcher = launcher_of(level, child_environ())
        toolchain: Any = _Toolchain(launcher, tmp_path / "rooms", statements)
        listener = Listener(progress=print, line=print, output=print)
        report = Verification(toolchain, seconds=SECONDS, token=CancellationToken(), listener=listener).run(
            artifact
        )
        assert list((tmp_path / "rooms").iterdir()) == []
        return report

    return run


def test_an_artifact_that_computes_what_it_should_passes(prove: Callable[[str], dict[str, Any]]) -> None:
    right = {f"{n}/0": [1.0, 2.0] for n in range(4)}

    report = prove(_writes(right) + _tells({"threads": 2, "runs": RUNS}))

    assert report["result"] == "passed"
    assert [row["threads"] for row in report["comparisons"]] == [2, 2, 1, 8]


@pytest.mark.parametrize(
    ("statements", "why"),
    [
        (
            _writes({f"{n}/0": [1.0, 3.0] for n in range(4)}) + _tells({"threads": 2, "runs": RUNS}),
            "is off by 1",
        ),
        (_writes({"0/0": [1.0, 2.0]}) + _tells({"threads": 2, "runs": RUNS}), "0 outputs at example.0"),
        (_writes({}) + _tells({"result": "passed", "comparisons": [], "no_power": []}), "does not say"),
        (_writes({}) + _tells({"threads": 2, "runs": RUNS[:1]}), "did not make the 4 required runs"),
        (f"{JOB}; " + _tells({"threads": 2, "runs": RUNS}), "broke the protocol"),
        (
            _writes({}) + "os.remove(job['found']); os.symlink('/etc/passwd', job['found']); " + _tells({}),
            "not a regular file",
        ),
        (
            f"{JOB}; " + sends(b'{"event": "ask", "question": "golden"}') + f"; {WAIT}",
            "unexpected message 'ask'",
        ),
        (f"{JOB}; " + sends(b"result: passed") + f"; {WAIT}", "invalid message on the channel"),
    ],
)
def test_an_artifact_that_forges_its_success_is_wrong(
    prove: Callable[[str], dict[str, Any]], statements: str, why: str
) -> None:
    with pytest.raises(ArtifactWrong, match=why):
        prove(statements)


def test_an_artifact_that_ends_its_process_by_whatever_means_crashed_it(
    prove: Callable[[str], dict[str, Any]],
) -> None:
    for statements in (f"{JOB}; os._exit(0)", f"{JOB}; os.abort()"):
        with pytest.raises(ArtifactCrashed):
            prove(statements)


def test_an_artifact_knows_no_outputs_that_it_could_copy(
    prove: Callable[[str], dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    looks = (
        f"import json\njob = json.loads(os.read({CHANNEL}, 1 << 20))\n"
        "files = [name for folder, _, names in os.walk(job['directory']) for name in names]\n"
        "said = {'event': 'progress', 'text': json.dumps([sorted(job), sorted(files)])}\n"
        f"os.write({CHANNEL}, json.dumps(said).encode() + b'\\n')\n"
    )
    with pytest.raises(ArtifactCrashed):
        prove(f"{looks}os._exit(0)")

    (said,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("[[")]
    asked, found = json.loads(said)
    assert asked == ["code", "config", "directory", "found", "inputs", "weights"]
    assert found == ["code.zip", "inputs.safetensors", "weights.safetensors"]
