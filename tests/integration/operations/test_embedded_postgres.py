from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psycopg
import pytest

from pt2hub.errors import DatabaseUnavailable, HomeInUse, HomeUnusable, NamespacesRefused
from pt2hub.server.db.embedded import EmbeddedPostgres

if TYPE_CHECKING:
    from pathlib import Path

PARENT = """
import sys, time
from pathlib import Path
from pt2hub.server.db.embedded import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]), durable=False)
print(server.start(), flush=True)
time.sleep(60)
"""


def start_in_a_child(directory: Path) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(directory)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert child.stdout is not None
    assert child.stdout.readline().startswith("postgresql://")
    return child


def running(directory: Path) -> bool:
    """Whether any process of a server on the directory lives."""
    path = directory / "data" / "postmaster.pid"
    try:
        pid = int(path.read_text().split()[0])
        state = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0]  # noqa: PTH123, SIM115  # /proc
    except (OSError, IndexError):
        return False
    return state != "Z"


def test_data_survives_a_restart(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path, durable=False)
    with psycopg.connect(server.start()) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    server.stop()
    assert not running(tmp_path)
    with psycopg.connect(server.start()) as connection:
        assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)
        assert connection.execute("SHOW server_encoding").fetchone() == ("UTF8",)
        assert connection.execute("SHOW listen_addresses").fetchone() == ("",)
    server.stop()


def test_fsync_is_on_unless_tests_turn_it_off(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path) as server, psycopg.connect(server.url) as connection:
        assert connection.execute("SHOW fsync").fetchone() == ("on",)
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)


def test_only_the_owner_reaches_data_and_socket_and_no_parents_mode_changes(tmp_path: Path) -> None:
    parents = [tmp_path / "a", tmp_path / "a" / "b"]
    for parent in parents:
        parent.mkdir(mode=0o700)
    before = [path.stat().st_mode for path in (tmp_path, *parents)]
    directory = parents[-1] / "db"
    with EmbeddedPostgres(directory, durable=False):
        for path in (directory, directory / "data", directory / "socket"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o700, path
        assert stat.S_IMODE((directory / "socket" / ".s.PGSQL.5432").stat().st_mode) == 0o700
    assert [path.stat().st_mode for path in (tmp_path, *parents)] == before


def test_kill_9_of_the_parent_leaves_no_server_and_the_next_start_works(tmp_path: Path) -> None:
    child = start_in_a_child(tmp_path)
    child.kill()
    child.communicate()
    with EmbeddedPostgres(tmp_path, durable=False) as server, psycopg.connect(server.url):
        pass  # it waited for its predecessor, else the lock had been refused
    assert not running(tmp_path)


def test_kill_9_of_the_server_itself_is_survived(tmp_path: Path) -> None:
    child = start_in_a_child(tmp_path)
    os.kill(int((tmp_path / "data" / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
    child.kill()
    child.communicate()
    with EmbeddedPostgres(tmp_path, durable=False) as server, psycopg.connect(server.url):
        pass


def test_a_stale_process_id_that_somebody_else_has_now_is_no_obstacle(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path, durable=False):
        pid_file = (tmp_path / "data" / "postmaster.pid").read_text()
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        lines = [str(stranger.pid), *pid_file.splitlines()[1:]]
        (tmp_path / "data" / "postmaster.pid").write_text("\n".join(lines) + "\n")
        with EmbeddedPostgres(tmp_path, durable=False) as server, psycopg.connect(server.url):
            pass
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_second_server_on_the_same_directory_is_refused_and_the_first_lives_on(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path, durable=False) as first:
        with pytest.raises(HomeInUse, match="Another server's database"):
            EmbeddedPostgres(tmp_path, durable=False, patience=0.2).start()
        with psycopg.connect(first.url) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_killed_initialisation_is_begun_again(tmp_path: Path) -> None:
    (tmp_path / "data.unfinished").mkdir()
    (tmp_path / "data.unfinished" / "PG_VERSION").write_text("16\n")
    with EmbeddedPostgres(tmp_path, durable=False) as server, psycopg.connect(server.url):
        pass
    assert not (tmp_path / "data.unfinished").exists()


def test_a_directory_with_spaces_quotes_and_other_letters_works(tmp_path: Path) -> None:
    directory = tmp_path / 'A  "b" é'
    with EmbeddedPostgres(directory, durable=False) as server, psycopg.connect(server.url):
        pass


def test_a_comma_in_the_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HomeUnusable, match="comma"):
        EmbeddedPostgres(tmp_path / "a,b").start()


def test_a_path_too_long_for_a_socket_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(HomeUnusable, match="too long"):
        EmbeddedPostgres(tmp_path / ("x" * 100)).start()
    assert not any(tmp_path.iterdir())


def test_a_directory_under_a_file_is_unusable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HomeUnusable, match="cannot be written"):
        EmbeddedPostgres(tmp_path / "file" / "db").start()


def test_broken_data_ends_with_the_log_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data" / "PG_VERSION").write_text("7\n")
    began = time.monotonic()
    with pytest.raises(DatabaseUnavailable, match="its log ends with") as caught:
        EmbeddedPostgres(tmp_path).start()
    assert "PT2HUB_DATABASE_URL" in str(caught.value)
    assert time.monotonic() - began < 10, "a server that ended is not waited for"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs a user namespace")
def test_root_without_user_namespaces_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = tmp_path / "bin"
    refusing.mkdir()
    (refusing / "unshare").write_text(
        "#!/bin/sh\necho 'unshare: unshare failed: Operation not permitted' >&2\nexit 1\n"
    )
    (refusing / "unshare").chmod(0o755)
    monkeypatch.setenv("PATH", str(refusing))
    with pytest.raises(NamespacesRefused, match="Operation not permitted") as caught:
        EmbeddedPostgres(tmp_path / "db").start()
    assert "PT2HUB_DATABASE_URL" in (caught.value.hint or "")
    assert not (tmp_path / "db").exists()
