"""A build plane as real processes, each of which may be killed: PostgreSQL, the API, workers, and a client."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import psycopg

from pt2hub.client.client import Client
from pt2hub.client.config import ClientConfig
from pt2hub.server.config import ServerConfig
from pt2hub.server.container import open_container
from pt2hub.server.db import migrations, worker_role
from pt2hub.server.db.embedded import EmbeddedPostgres
from pt2hub.system.processes import Child, spawn, tail
from support.headers import PLACE
from support.ports import free_ports
from support.roles import REFUSED
from support.running import clean_environ

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pt2hub.wire.responses import BuildView

T = TypeVar("T")
PATIENCE = 60.0
"""Seconds until something that must happen counts as not happening; two busy cores are slow."""
READY_SECONDS = 300.0
"""The first real worker of a machine compiles PyTorch's headers before it is registered."""
TARGET = "torch0.0-cpu-x86_64"
"""What no-op workers build for."""
QUICK = {"PT2HUB_HEARTBEAT_SECONDS": "0.5", "PT2HUB_LOST_WORKER_SECONDS": "3"}
"""Faults are noticed five times sooner than by default."""
ROOT = Path(__file__).resolve().parents[2]
"""The checkout."""


@dataclass(eq=False)
class Member:
    """A process of the plane.

    Attributes:
        name: What it is called here.
        child: The process.
        stopped: Whether it was frozen by SIGSTOP.
    """

    name: str
    child: Child
    stopped: bool = False

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.child.pid

    @property
    def alive(self) -> bool:
        """Whether it has not ended; a frozen one lives."""
        return self.child.exit_code() is None

    @property
    def log(self) -> str:
        """What it wrote so far."""
        assert self.child.log is not None
        return self.child.log.read_text(errors="replace") if self.child.log.exists() else ""


def until(what: str, look: Callable[[], T], *, seconds: float = PATIENCE, every: float = 0.05) -> T:
    """Waits until a look finds something true, and returns it."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(every)
    return found


def descendants(pids: set[int]) -> set[int]:
    """Processes and everything below them."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it has just ended
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = set(pids)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


@dataclass
class Plane:
    """The processes, and a test's handles on them. Use it from the main thread: children end with their starter.

    Attributes:
        folder: Everything lies in it; the processes are known by it.
        settings: Variables of every process.
        template: Data of a PostgreSQL with our schema, to begin with; a new one where there is none.
        root: The checkout whose code the processes run.
        accepted: Builds that the server said it took.
        workers: Every worker that was started, also those that are gone.
    """

    folder: Path
    settings: dict[str, str] = field(default_factory=lambda: dict(QUICK))
    template: Path | None = None
    accepted: list[str] = field(default_factory=list)
    root: Path = ROOT
    workers: list[Member] = field(default_factory=list)
    api: Member | None = None
    client: Client = field(init=False)

    def __post_init__(self) -> None:
        """Prepares folders and settings; nothing runs yet."""
        self.database = EmbeddedPostgres(self.folder / "pg")  # durable: what was committed survives a kill
        self.storage = self.folder / "blobs"
        (self._port,) = free_ports(1)
        self._started = 0
        for name in ("blobs", "tmp", "home"):
            (self.folder / name).mkdir()

    @property
    def url(self) -> str:
        """The API's address, the same after each start."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def environ(self) -> dict[str, str]:
        """The environment of every process."""
        return {
            **clean_environ(self.folder / "home"),
            "PYTHONPATH": os.pathsep.join(str(self.root / name) for name in ("registry", "workers", "tests")),
            "TMPDIR": str(self.folder / "tmp"),
            "PT2HUB_STORAGE": str(self.storage),
            "PT2HUB_SCRATCH": str(self.folder / "tmp"),
            "PT2HUB_HEADERS": str(PLACE),
            "PT2HUB_BUILD_ENV": f"PLANE={self.folder}",  # nothing else that a sandbox's processes see names it
            "PT2HUB_DATABASE_URL": self.database.url,
            "PT2HUB_FACTORIES": "support.tiny_models",
            "PT2HUB_TOOLCHAIN": "noop",
            "PT2HUB_URL": self.url,
            **self.settings,
        }

    def __enter__(self) -> Self:
        """Starts PostgreSQL and the API."""
        if self.template:
            shutil.copytree(self.template, self.folder / "pg" / "data")
            (self.folder / "pg").chmod(0o700)
        self.database.start()
        self.token = self.prepare()
        self.client = Client(ClientConfig(home=self.folder / "client", url=self.url, token=self.token))
        try:
            self.start_api()
        except BaseException:
            self.close()
            raise
        return self

    def prepare(self) -> str:
        """Makes the schema and the workers' role; returns a token."""
        migrations.upgrade(self.database.url)
        worker_role.ensure(self.database.url)
        config = ServerConfig.from_environ(self.environ)
        with open_container(config, database_url=self.database.url) as container:
            return container.access.create_token("plane")

    def __exit__(self, *_: object) -> None:
        """Ends everything that still runs."""
        self.close()

    def close(self) -> None:
        """Ends everything that still runs."""
        self.client.close()
        for member in (*self.workers, *([self.api] if self.api else [])):
            self.kill(member)
            member.child.stop()
        self.database.stop()

    def start_api(self) -> None:
        """Starts the API where it was before, and waits until it answers."""
        self.api = self._start("api", [sys.executable, "-m", "pt2hub", "api", "--port", str(self._port)])
        until("the API answers", self.answers)

    def renew(self) -> None:
        """Ends every worker, and starts the API if it does not run: the next test finds a plane at rest."""
        for member in self.workers:
            self.kill(member)
            member.child.stop()
        refused = [member.log for member in self.workers if REFUSED in member.log]
        self.workers.clear()
        assert not refused, refused
        if not self.answers():
            self.start_api()

    def run(self, *arguments: str, **environ: str) -> str:
        """Runs a command of pt2hub to its end; returns what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "pt2hub", *arguments],
            env={**self.environ, **environ},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def start_worker(self, *, wait: bool = True, slow: str = "", **environ: str) -> Member:
        """Starts a worker.

        Args:
            wait: Whether to wait until it is registered.
            slow: Where it takes its time, for `support.slow_worker`; else it is the plain worker.
            environ: Further variables.
        """
        module = "support.slow_worker" if slow or "PT2HUB_DEAF" in environ else "pt2hub_workers"
        added = {"PT2HUB_DATABASE_URL": self.database.worker_url, **environ, "PT2HUB_SLOW_STEPS": slow}
        member = self._start(f"worker-{self._started}", [sys.executable, "-m", module], **added)
        self.workers.append(member)
        if wait:
            self.await_worker(member)
        return member

    def await_worker(self, member: Member) -> str:
        """Waits until a worker is registered; returns its id."""

        def registered() -> str | None:
            assert member.alive, f"{member.name} ended: {tail(self.folder / f'{member.name}.log')}"
            return self.id_of(member)

        return str(until(f"{member.name} is registered", registered, seconds=READY_SECONDS))

    def id_of(self, member: Member) -> str | None:
        """The id of a worker's row; it holds the process id."""
        rows = self.sql(
            "SELECT id FROM workers WHERE id LIKE %s ORDER BY started_at DESC", f"%-{member.pid}-%"
        )
        return str(rows[0][0]) if rows else None

    def _start(self, name: str, argv: list[str], **environ: str) -> Member:
        self._started += 1
        log = self.folder / f"{name}.log"
        child = spawn(
            argv,
            log=log,
            environ={**self.environ, **environ},
            at_parents_death=signal.SIGKILL,
            signals_held=True,
        )
        return Member(name, child)

    def kill(self, member: Member) -> None:
        """`kill -9` of one process; what it started must end by itself."""
        if member.alive:
            member.child.send(signal.SIGKILL)
            assert member.child.wait(PATIENCE) is not None

    def kill_pid(self, pid: int) -> None:
        """`kill -9` of a process that one of ours started."""
        assert pid in self.living()
        os.kill(pid, signal.SIGKILL)

    def kill_api(self) -> None:
        """`kill -9` of the API's supervisor and of all its processes at once, as a machine that dies does."""
        assert self.api is not None
        for pid in descendants({self.api.pid}):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.api.child.stop()

    def kill_database(self) -> None:
        """`kill -9` of PostgreSQL's first process; its sessions notice and end."""
        assert self.database.exit_code() is None
        os.kill(self._postmaster(), signal.SIGKILL)
        until("PostgreSQL is dead", lambda: self.database.exit_code() is not None)

    def start_database(self) -> None:
        """Starts PostgreSQL again: it recovers what was committed."""
        self.database.restart()

    def freeze(self, member: Member) -> None:
        """SIGSTOP: the process lives and does nothing."""
        member.stopped = True
        member.child.send(signal.SIGSTOP)

    def thaw(self, member: Member) -> None:
        """SIGCONT: it goes on as if no time had passed."""
        member.child.send(signal.SIGCONT)
        member.stopped = False

    def end(self, member: Member, *, seconds: float = PATIENCE) -> int:
        """SIGTERM: an orderly end. Returns the exit code."""
        member.child.send(signal.SIGTERM)
        code = member.child.wait(seconds)
        assert code is not None, f"{member.name} did not end within {seconds:g} s"
        return code

    def answers(self) -> bool:
        """Whether the API says that it is ready."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def submit(self, name: str, **fields: Any) -> str:
        """Publishes a model nobody has published before; returns its build's id."""
        version = self.client.publish(noop_spec(name, **fields))
        build = str(version.builds[0].id)
        self.accepted.append(build)
        return build

    def build(self, build: str) -> BuildView:
        """A build, as the API shows it."""
        return self.client.builds.get(build)

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Runs SQL behind everybody's back."""
        with psycopg.connect(self.database.url, autocommit=True) as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    def standing(self, build: str) -> tuple[str, int, str | None]:
        """State, attempt and worker of a build, from the table."""
        rows = self.sql("SELECT state, attempt, worker_id FROM builds WHERE id = %s", build)
        state, attempt, worker = rows[0]
        return str(state), int(attempt), worker

    def holder(self, build: str) -> Member:
        """The worker that runs a build."""
        _, _, worker = self.standing(build)
        return next(member for member in self.workers if f"-{member.pid}-" in str(worker))

    def await_step(self, build: str, step: str, *, attempt: int = 1, seconds: float = PATIENCE) -> None:
        """Waits until an attempt is at a step."""

        def there() -> bool:
            assert self.standing(build)[0] in ("queued", "running"), f"build {build} is over before {step}"
            return bool(
                self.sql(
                    "SELECT 1 FROM build_steps WHERE (build_id, attempt, name, state) = (%s, %s, %s, 'running')",
                    *(build, attempt, step),
                )
            )

        until(f"attempt {attempt} of {build} is at {step}", there, seconds=seconds)

    def await_attempt(self, build: str, attempt: int, *, seconds: float = PATIENCE) -> None:
        """Waits until an attempt of a build was begun."""
        until(f"attempt {attempt} of {build}", lambda: self.standing(build)[1] >= attempt, seconds=seconds)

    def await_final(self, build: str, *, seconds: float = PATIENCE) -> str:
        """Waits until a build is over; returns its state."""
        final = ("succeeded", "failed", "cancelled")
        until(f"build {build} is over", lambda: self.standing(build)[0] in final, seconds=seconds)
        return self.standing(build)[0]

    def outcomes(self, build: str) -> list[str]:
        """How each attempt of a build ended."""
        rows = self.sql("SELECT outcome FROM build_attempts WHERE build_id = %s ORDER BY attempt", build)
        return [row[0] for row in rows]

    def began(self, build: str, attempt: int) -> float:
        """When an attempt was claimed, in seconds since the epoch: one machine, one clock."""
        rows = self.sql(
            "SELECT extract(epoch FROM started_at) FROM build_attempts WHERE build_id = %s AND attempt = %s",
            *(build, attempt),
        )
        return float(rows[0][0])

    def below(self, member: Member) -> set[int]:
        """What a process of ours started, and itself."""
        return descendants({member.pid})

    def living(self) -> set[int]:
        """Every process that should be there: those that run, and what they started."""
        members = {
            member.pid for member in (*self.workers, *([self.api] if self.api else [])) if member.alive
        }
        return descendants(members | ({self._postmaster()} if self.database.exit_code() is None else set()))

    def _postmaster(self) -> int:
        return int((self.folder / "pg" / "data" / "postmaster.pid").read_text().split()[0])


@contextmanager
def used_in_turns(plane: Plane) -> Iterator[Plane]:
    """Lends a plane that several tests share to one of them; its workers end afterwards."""
    try:
        yield plane
    finally:
        plane.renew()


def database_template(folder: Path) -> Path:
    """Makes the data of a PostgreSQL with our schema, for planes to begin with: copying it is quick."""
    with EmbeddedPostgres(folder / "pg") as database:
        migrations.upgrade(database.url)
    return folder / "pg" / "data"


def noop_spec(name: str, *, seed: int = 3, **fields: Any) -> dict[str, Any]:
    """A spec for the no-op toolchain, which reads little of it; equal seeds share their code."""
    return {
        "model": f"crash/{name}",
        "source": {"factory": "support.tiny_models:Mlp", "seed": seed},
        "inputs": [{"name": "x", "shape": ["batch", 8], "generate": {"normal": {}}}],
        "dims": {"batch": {"min": 1, "max": 16, "example": 2}},
        "measure": {"torch_compile": False, "processes": 1},
        "targets": [TARGET],
        **fields,
    }
