"""Ways out of a sandbox: small programs that try one each, and what there is around them to reach.

Each prints `ESCAPED` or, after `STOPPED`, what stopped it. They are run without a sandbox first, where they must
succeed: a sandbox that never started, or a probe that cannot work at all, would pass otherwise.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub_workers.sandbox import Limits, SandboxSettings, open_launcher
from pt2hub_workers.sandbox.workspaces import Workspaces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub_workers.sandbox import Launcher, Started
    from pt2hub_workers.sandbox.workspaces import Workspace

WIDE = Limits(memory_bytes=8 << 30, disk_bytes=64 << 30, tmp_bytes=64 << 20, processes=4000)
NARROW = Limits(memory_bytes=2 << 30, disk_bytes=1 << 30, tmp_bytes=64 << 20, processes=100)
SECRET = "pt2hub-secret-that-no-build-may-read"
METADATA = ("169.254.169.254", 80)
_HEAD = """
import ctypes, json, os, signal, socket, stat, struct, subprocess, sys, time
around = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    number = {"clone": {"x86_64": 56, "aarch64": 220}, "keyctl": {"x86_64": 250, "aarch64": 219},
              "ioctl": {"x86_64": 16, "aarch64": 29}, "ptrace": {"x86_64": 101, "aarch64": 117},
              "semget": {"x86_64": 64, "aarch64": 190}, "msgget": {"x86_64": 68, "aarch64": 186},
              "io_setup": {"x86_64": 206, "aarch64": 0}, "vmsplice": {"x86_64": 278, "aarch64": 75},
              "tee": {"x86_64": 276, "aarch64": 77}, "memfd_secret": {"x86_64": 447, "aarch64": 447},
              "landlock_create_ruleset": {"x86_64": 444, "aarch64": 444}, "bpf": {"x86_64": 321, "aarch64": 280},
              "seccomp": {"x86_64": 317, "aarch64": 277}, "userfaultfd": {"x86_64": 323, "aarch64": 282},
              "io_uring_setup": {"x86_64": 425, "aarch64": 425}, "perf_event_open": {"x86_64": 298, "aarch64": 241},
              "close_range": {"x86_64": 436, "aarch64": 436}}[name][os.uname().machine]
    libc.syscall.restype = ctypes.c_long
    done = libc.syscall(ctypes.c_long(number), *(ctypes.c_ulong(a) if isinstance(a, int) else a for a in arguments))
    if done == -1:
        raise OSError(ctypes.get_errno(), name)
    return done
def finds(path):
    with open(path, "rb") as file:
        return file.read()
def tries():
"""
_TAIL = """
try:
    found = tries()
except Exception as error:
    print("STOPPED", type(error).__name__, error)
else:
    print("ESCAPED" if found else "STOPPED there is nothing", found)
"""


@dataclass(frozen=True)
class Escape:
    """A way out.

    Attributes:
        body: Statements of a function that returns something true where it got out.
        needs: Why it may fail where nothing confines it; empty where it must work everywhere.
    """

    body: str
    needs: str = ""

    @property
    def program(self) -> str:
        """The whole program."""
        lines = "\n".join(f"    {line}" for line in self.body.strip().splitlines())
        return f"{_HEAD}{lines}\n{_TAIL}"


ROOT = "only root can do it at all"
ESCAPES = {
    "read /etc/shadow": Escape("return finds('/etc/shadow')", ROOT),
    "read another job's room": Escape("return finds(around['other'])"),
    "read a secret in the home": Escape("return finds(around['home'] + '/.aws/credentials')"),
    "read the checkout": Escape("return os.listdir(around['checkout'] + '/tests')"),
    "read the worker's environment": Escape(
        "return around['secret'].encode() in finds(f\"/proc/{around['worker']}/environ\")"
    ),
    "signal the worker": Escape("os.kill(around['worker'], 0)\nreturn True"),
    "read the worker's shared memory": Escape("return finds(around['shared'])"),
    "connect to the loopback": Escape(
        "return socket.create_connection(('127.0.0.1', around['port']), timeout=5).recv(9)"
    ),
    "connect to an abstract socket": Escape(
        "with socket.socket(socket.AF_UNIX) as peer:\n"
        "    peer.settimeout(5)\n"
        "    peer.connect('\\0' + around['abstract'])\n"
        "    return peer.recv(9)"
    ),
    "reach the hypervisor by vsock": Escape(
        "with socket.socket(40, socket.SOCK_STREAM) as peer:\n    return peer.fileno() > 0",
        "the kernel has no vsock",
    ),
    "fork without end": Escape(
        "children = []\n"
        "try:\n"
        "    for _ in range(300):\n"
        "        pid = os.fork()\n"
        "        if pid == 0:\n"
        "            time.sleep(20)\n"
        "            os._exit(0)\n"
        "        children.append(pid)\n"
        "    time.sleep(4)\n"  # without control groups a watcher looks once a second
        "finally:\n"
        "    for pid in children:\n"
        "        os.kill(pid, signal.SIGKILL)\n"
        "return True"
    ),
    "make a file of 10 GB": Escape(
        "with open(around['out'] + '/large', 'wb') as file:\n    file.truncate(10_000_000_000)\nreturn True"
    ),
    "become root": Escape(
        "os.setresuid(0, 0, 0)\nreturn os.geteuid() == 0 and finds('/proc/self/uid_map').split() == [b'0', b'0', b'4294967295']",
        ROOT,
    ),
    "trace a process": Escape(
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    time.sleep(20)\n"
        "    os._exit(0)\n"
        "try:\n"
        "    return call('ptrace', 16, pid, 0, 0) == 0\n"
        "finally:\n"
        "    os.kill(pid, signal.SIGKILL)",
        "the container that the tests run in denies ptrace",
    ),
    "walk through /proc/1/root": Escape(
        "for pid in sorted(map(int, filter(str.isdigit, os.listdir('/proc')))):\n"
        "    try:\n"
        "        return finds(f\"/proc/{pid}/root{around['other']}\")\n"
        "    except OSError as error:\n"
        "        said = error\n"
        "raise said"
    ),
    "write what the kernel reads": Escape(
        "for top in ('/proc', '/sys'):\n"
        "    for folder, names, files in os.walk(top):\n"
        "        if folder == '/proc':\n"
        "            own = {*filter(str.isdigit, names), 'self', 'thread-self', 'net'}\n"
        "            names[:] = sorted(set(names) - own, key=lambda name: name != 'sys')\n"
        "        for path in (os.path.join(folder, file) for file in files):\n"
        "            if os.access(path, os.W_OK) and os.path.isfile(path) and not os.path.islink(path):\n"
        "                return path",
        ROOT,
    ),
    "open a disk": Escape(
        "nodes = [entry.path for entry in os.scandir('/dev') if stat.S_ISBLK(entry.stat(follow_symlinks=False).st_mode)]\n"
        "return os.open(nodes[0], os.O_RDONLY)",
        "it takes root and a disk",
    ),
    "make a device node": Escape(
        "path = around['out'] + '/node'\n"
        "os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))\n"
        "os.unlink(path)\n"
        "return True",
        ROOT,
    ),
    "make a user namespace": Escape(
        "if libc.unshare(0x10000000):\n    raise OSError(ctypes.get_errno(), 'unshare')\nreturn True"
    ),
    "make a user namespace by clone": Escape(
        "pid = call('clone', 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)\n"
        "if pid == 0:\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
        "return True"
    ),
    "mount a filesystem": Escape(
        "if libc.unshare(0x10020000) or libc.mount(b'none', around['out'].encode(), b'tmpfs', 0, None):\n"
        "    raise OSError(ctypes.get_errno(), 'mount')\n"
        "return True"
    ),
    "use the kernel's keys": Escape(
        "return call('keyctl', 0, 0xFFFFFFFC, 1, 0, 0)", "the container that the tests run in denies keyctl"
    ),
    "hold memory in a shared segment": Escape(
        "made = libc.shmget(0, 4096, 0o1600)\n"
        "if made == -1:\n"
        "    raise OSError(ctypes.get_errno(), 'shmget')\n"
        "return libc.shmctl(made, 0, None) == 0"
    ),
    "hold memory in semaphores": Escape(
        "made = call('semget', 0, 32000, 0o1600)\nreturn libc.semctl(made, 0, 0, 0) == 0"
    ),
    "hold memory in a message queue": Escape(
        "made = call('msgget', 0, 0o1600)\nreturn libc.msgctl(made, 0, None) == 0"
    ),
    "hold memory in a POSIX message queue": Escape(
        "name = b'/pt2hub-test-%d' % os.getpid()\n"
        "if libc.mq_open(name, os.O_CREAT | os.O_RDWR, 0o600, None) == -1:\n"
        "    raise OSError(ctypes.get_errno(), 'mq_open')\n"
        "return libc.mq_unlink(name) == 0",
        "our own limit (RLIMIT_MSGQUEUE) forbids it at either level",
    ),
    "hold memory in a memory file": Escape("return os.memfd_create('held')"),
    "hold memory in a secret memory file": Escape("return call('memfd_secret', 0)", "the kernel has none"),
    "hold memory that is shared and has no name": Escape("import mmap\nreturn len(mmap.mmap(-1, 4096))"),
    "hold memory of /dev/zero": Escape(
        "import mmap\nreturn len(mmap.mmap(os.open('/dev/zero', os.O_RDWR), 4096))"
    ),
    "hold huge pages": Escape(
        "import mmap\nreturn len(mmap.mmap(-1, 2 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000))",
        "this machine has no huge pages",
    ),
    "hold memory in pipes": Escape(
        "class Part(ctypes.Structure):\n"
        "    _fields_ = [('base', ctypes.c_char_p), ('size', ctypes.c_size_t)]\n"
        "return call('vmsplice', os.pipe()[1], ctypes.byref(Part(b'x' * 4096, 4096)), 1, 0)"
    ),
    "copy what a pipe holds": Escape(
        "ours, theirs = os.pipe(), os.pipe()\nos.write(ours[1], b'x')\nreturn call('tee', ours[0], theirs[1], 1, 0)"
    ),
    "enlarge a socket's buffers": Escape(
        "with socket.socket(socket.AF_UNIX) as held:\n"
        "    before = held.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)\n"
        "    held.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * before)\n"
        "    return held.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) > before"
    ),
    "hold memory in requests to files": Escape(
        "ring = ctypes.c_ulong(0)\nreturn call('io_setup', 128, ctypes.byref(ring)) == 0",
        "the container that the tests run in denies io_setup",
    ),
    "hold memory in a ring of requests": Escape(
        "return call('io_uring_setup', 8, ctypes.byref(ctypes.create_string_buffer(120)))",
        "the container that the tests run in denies io_uring",
    ),
    "hold memory in rules of files": Escape(
        "handled = ctypes.byref(ctypes.c_ulong(1))\nreturn call('landlock_create_ruleset', handled, 8, 0)",
        "the kernel has no Landlock",
    ),
    "hold memory in filters": Escape(
        "libc.prctl(38, 1, 0, 0, 0)\n"
        "class Filter(ctypes.Structure):\n"
        "    _fields_ = [('size', ctypes.c_ushort), ('code', ctypes.c_char_p)]\n"
        "allow = Filter(1, b'\\x06\\0\\0\\0\\0\\0\\xff\\x7f')\n"
        "said = libc.prctl(22, 2, ctypes.byref(allow), 0, 0)\n"
        "return said == 0 or call('seccomp', 1, 0, ctypes.byref(allow)) == 0",
    ),
    "hold memory in maps of BPF": Escape(
        "return call('bpf', 0, ctypes.byref(ctypes.create_string_buffer(b'\\2\\0\\0\\0\\4\\0\\0\\0\\4\\0\\0\\0\\1', 120)), 120)",
        "only root can do it at all",
    ),
    "hold memory in counters": Escape(
        "attributes = struct.pack('IIQ', 1, 112, 0) + bytes(96)\n"
        "return call('perf_event_open', ctypes.c_char_p(attributes), 0, 0xFFFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF, 0)",
        "the machine counts nothing, or for root only",
    ),
    "handle page faults": Escape(
        "return call('userfaultfd', 1)", "the container that the tests run in denies userfaultfd"
    ),
    "hide a thread's descriptors": Escape("call('close_range', 1000, 1000, 2)\nreturn True"),
    "type into a terminal": Escape(
        "import fcntl, pty, termios\n"
        "ours, theirs = pty.openpty()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    os.setsid()\n"
        "    fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)\n"
        "    said = 0\n"
        "    for request in (termios.TIOCSTI, termios.TIOCSTI | 1 << 32):\n"
        "        try:\n"
        "            call('ioctl', theirs, request, ctypes.byref(ctypes.c_char(b'x')))\n"
        "            os._exit(0)\n"
        "        except OSError as error:\n"
        "            said = error.errno\n"
        "    os._exit(said)\n"
        "if code := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):\n"
        "    raise OSError(code, 'TIOCSTI')\n"
        "return True",
        "the kernel takes TIOCSTI from nobody (sysctl dev.tty.legacy_tiocsti)",
    ),
    "plant a module in the worker's Python": Escape(
        "path = around['checkout'] + '/workers/pt2hub_workers/inside/planted'\n"
        "open(path, 'w').close()\n"
        "os.unlink(path)\n"
        "return True"
    ),
}
DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            with open(sys.argv[1] + "/beat", "a") as file:
                file.write("x")
            time.sleep(0.01)
    os._exit(0)
time.sleep(60)
"""
"""Leaves the group and the session, and beats."""


@contextlib.contextmanager
def surroundings(folder: Path) -> Iterator[dict[str, Any]]:
    """What the probes reach for, all of it this test's own; paths and numbers by name."""
    other = folder / "scratch" / "build-of-another" / "in" / "weights"
    other.parent.mkdir(parents=True)
    home = folder / "home"
    (home / ".aws").mkdir(parents=True)
    for file in (other, home / ".aws" / "credentials"):
        file.write_text(SECRET)
    name = f"pt2hub-{os.getpid()}-{os.urandom(4).hex()}"
    worker = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], env={"AWS_SECRET_ACCESS_KEY": SECRET}
    )
    with (
        tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="pt2hub-test-") as shared,
        _serving(socket.AF_INET, ("127.0.0.1", 0)) as port,
        _serving(socket.AF_UNIX, f"\0{name}"),
    ):
        shared.write(SECRET.encode())
        shared.flush()
        try:
            yield {
                "other": str(other),
                "home": str(home),
                "checkout": str(Path(__file__).resolve().parents[2]),
                "secret": SECRET,
                "worker": worker.pid,
                "shared": shared.name,
                "port": port[1],
                "abstract": name,
            }
        finally:
            worker.kill()
            worker.wait()


def attempt(escape: Escape, launcher: Launcher, workspace: Workspace, around: dict[str, Any]) -> str:
    """Runs a probe; what it said in its last line."""
    known = json.dumps({**around, "out": workspace.seen(workspace.host / "out")})
    started = launcher.run(
        [sys.executable, "-c", escape.program, known], environ=environ(), workspace=workspace, name="escape"
    )
    said, code = hear(started)
    if exceeded := started.find_exceeded():  # it may be killed before it can say what stopped it
        return f"STOPPED {exceeded.text}"
    return said.splitlines()[-1] if said else f"ended with {code}, without a word"


def hear(started: Started) -> tuple[str, int | None]:
    """What a program prints until its end, and its exit code."""
    try:
        with started.output as output:
            said = output.read().decode(errors="replace").strip()
        return said, started.exit_code()
    finally:
        started.kill()


def environ() -> dict[str, str]:
    """The environment of the probes."""
    return {key: value for key, value in os.environ.items() if key in ("PATH", "HOME", "LANG")}


@contextlib.contextmanager
def _serving(family: socket.AddressFamily, address: object) -> Iterator[Any]:
    """A server that says its secret to whoever connects; where it listens."""
    with socket.socket(family) as server:
        server.bind(address)  # type: ignore[arg-type]  # of the family
        server.listen()
        threading.Thread(target=_answer, args=(server,), daemon=True).start()
        try:
            yield server.getsockname()
        finally:
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)  # ends the thread's wait


def _answer(server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            peer, _ = server.accept()
            with peer:
                peer.sendall(b"welcome")


def _own_metadata_server() -> Any:
    """In a network namespace of our own, where we are root: a cloud's metadata address, served."""
    up, running, set_flags, set_address = (
        0x1,
        0x40,
        0x8914,
        0x8916,
    )  # IFF_*, SIOCSIF* of linux/if.h, linux/sockios.h
    with socket.socket(socket.AF_INET) as control:
        fcntl.ioctl(control, set_flags, struct.pack("16sH14x", b"lo", up | running))
        local = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(METADATA[0]))
        fcntl.ioctl(control, set_address, struct.pack("16s16s", b"lo:0", local))
    return _serving(socket.AF_INET, METADATA)


def ask_for_metadata(folder: Path) -> dict[str, str]:
    """What a probe of the metadata address says at each level; called in a network namespace of our own."""
    escape = Escape(f"return socket.create_connection({METADATA!r}, timeout=5).recv(9)")
    said = {}
    with _own_metadata_server():
        for level in ("process", "sandbox"):
            launcher = open_launcher(SandboxSettings(level, WIDE), environ())
            workspace = Workspaces(folder, inside=launcher.inside).open()
            said[level] = attempt(escape, launcher, workspace, {})
            workspace.close()
    return said


if __name__ == "__main__":
    print(json.dumps(ask_for_metadata(Path(sys.argv[1]))))
