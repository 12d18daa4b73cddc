"""Memory that no process shows as its own, and files that no directory shows: planted in children that a watcher bounds.

What a sandboxed child may not have at all is tried in `test_sandbox_escapes.py`.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pt2hub_workers.sandbox import limits, watcher
from support.limited import LIMITS, MIB

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.limited import Bounded

ROOT_SEES = pytest.mark.skipif(
    os.getuid() != 0, reason="the kernel shows it to root only; the sandbox forbids it"
)
WAIT = "\ntime.sleep(30)"
MEMORY_FILES = f"""
held = []
for _ in range(20):
    held.append(os.memfd_create("held"))
    os.write(held[-1], b"x" * {10 * MIB})
"""
MAPPED_MEMORY_FILES = f"""
import mmap
{MEMORY_FILES}
parts = [mmap.mmap(each, 4096) for each in held]
os.closerange(3, 4096)
"""
DROPPED_PAGES = f"""
import mmap
held = mmap.mmap(-1, {200 * MIB})
for at in range(0, {200 * MIB}, {MIB}):
    held[at : at + {MIB}] = b"x" * {MIB}
    held.madvise(mmap.MADV_DONTNEED, at, {MIB})
"""
PAGE_TABLES = f"""
import mmap
size = {80 << 30}  # each 2 MiB of it takes a table of 4 KiB, and all read one page of zeros
held = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, prot=mmap.PROT_READ)
for at in range(0, size, {2 * MIB}):
    held[at]
"""
MAPPINGS = """
import ctypes, mmap
held = mmap.mmap(-1, 60_000 * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
begin = ctypes.addressof(ctypes.c_char.from_buffer(held))
protect = ctypes.CDLL(None).mprotect
protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
for number in range(0, 60_000, 2):
    assert protect(begin + number * 4096, 4096, mmap.PROT_READ) == 0
for _ in range(3):
    if os.fork() == 0:
        break
"""
PIPES = """
for _ in range(5):
    if os.fork() == 0:
        held = [os.pipe() for _ in range(2000)]
        break
"""
TERMINALS = """
held = [os.openpty() for _ in range(500)]
"""
READ_FROM_PROC = """
held = [os.open("/proc/self/status", os.O_RDONLY) for _ in range(2500)]
"""
SURVIVING_THREAD = f"""
import ctypes, threading
held = []
def hog():
    for _ in range(60):
        held.append(b"x" * {10 * MIB})
        time.sleep(0.02)
    time.sleep(30)
threading.Thread(target=hog).start()
ctypes.CDLL(None).syscall({{"x86_64": 60, "aarch64": 93}}[os.uname().machine], 0)  # the first thread ends
"""
NAMES = """
for folder in ("a", "b", "c", "d"):
    os.mkdir(f"/dev/shm/{folder}")
    for number in range(40_000):
        os.mknod(f"/dev/shm/{folder}/{number}")
"""
QUEUED_CONNECTIONS = """
import socket
server = socket.socket(socket.AF_UNIX)
server.bind("\\0server")
server.listen(1000)
for _ in range(500):
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect("\\0server")
        peer.setblocking(False)
        try:
            while True:
                peer.send(b"x" * 65536)
        except BlockingIOError:
            pass
"""
QUEUED_TCP_CONNECTIONS = """
import socket
server = socket.create_server(("127.0.0.1", 0), backlog=100)
for _ in range(50):
    with socket.create_connection(server.getsockname()) as peer:
        peer.setblocking(False)
        try:
            while True:
                peer.send(b"x" * 65536)
        except BlockingIOError:
            pass
"""
ZOMBIES = """
for _ in range(100):
    if os.fork() == 0:
        os._exit(0)
"""
LOCKS = """
import fcntl
held = [open(f"out/{name}", "w") for name in "ab"]
for file in held:
    for number in range(1500):
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 2 * number)
"""
IN_MESSAGES = f"""
import socket
ours, theirs = socket.socketpair()
for _ in range(5):
    with open("out/gone", "wb") as file:
        os.unlink("out/gone")
        file.write(b"x" * {10 * MIB})
        file.flush()
        socket.send_fds(ours, [b"x"], [file.fileno()])
"""

MANY_FILES = replace(LIMITS, open_files=4096)


@pytest.mark.parametrize(
    "statements",
    [
        pytest.param(MEMORY_FILES, id="memory files"),
        pytest.param(MAPPED_MEMORY_FILES, id="memory files, mapped in part", marks=ROOT_SEES),
        pytest.param(DROPPED_PAGES, id="shared memory whose pages were dropped", marks=ROOT_SEES),
        pytest.param(PAGE_TABLES, id="page tables"),
        pytest.param(MAPPINGS, id="mappings"),
        pytest.param(PIPES, id="pipes"),
        pytest.param(TERMINALS, id="terminals"),
        pytest.param(READ_FROM_PROC, id="files of /proc"),
        pytest.param(SURVIVING_THREAD, id="a process whose first thread has ended"),
    ],
)
def test_memory_that_no_process_shows_counts(bounded: Callable[..., Bounded], statements: str) -> None:
    exceeded = bounded(statements + WAIT, None, limits=MANY_FILES).end()

    assert exceeded is not None
    assert (exceeded.what, exceeded.limit) == ("memory", 128 * MIB)


@pytest.mark.parametrize(
    "statements",
    [
        pytest.param(NAMES, id="empty files in memory"),
        pytest.param(QUEUED_CONNECTIONS, id="connections that wait"),
        pytest.param(QUEUED_TCP_CONNECTIONS, id="TCP connections that wait"),
    ],
)
def test_memory_of_a_sandbox_that_no_process_has_open_counts(
    bounded: Callable[..., Bounded], bubblewrap: list[str], statements: str
) -> None:
    exceeded = bounded(statements + WAIT, None, bubblewrap).end()

    assert exceeded is not None
    assert exceeded.what == "memory"


def test_zombies_count_as_processes(bounded: Callable[..., Bounded]) -> None:
    exceeded = bounded(ZOMBIES + WAIT, None).end()

    assert exceeded is not None
    assert exceeded.what == "processes"


def test_file_locks_count_as_files(bounded: Callable[..., Bounded], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "MAX_ENTRIES", 2000)

    exceeded = bounded(LOCKS + WAIT, None).end()

    assert exceeded is not None
    assert exceeded.what == "disk"
    assert "file locks" in exceeded.text


def test_files_may_not_stay_in_messages_where_nobody_can_measure_them(
    bounded: Callable[..., Bounded], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MESSAGE_SECONDS", 0.6)

    exceeded = bounded(IN_MESSAGES + WAIT, None).end()

    assert exceeded is not None
    assert (exceeded.what, exceeded.limit) == ("disk", 24 * MIB)
    assert "unread messages" in exceeded.text
