"""The worker's runner over real services, with real children."""

from __future__ import annotations

import importlib.metadata
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.server.blobs.memory import MemoryStorage
from pt2hub.server.container import Container, compose
from pt2hub.server.db import engine as engines
from pt2hub.server.db.queue import BuildQueue
from pt2hub_workers.attempt import Tools
from pt2hub_workers.device import Device
from pt2hub_workers.overseer import Overseer
from pt2hub_workers.runner import BuildRunner
from support.headers import ready
from support.registry import SILENCE, Registry, a_registration
from support.workbench import FACTORIES, child_environ, tiny_spec, toolchain_in
from support.working import members

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pt2hub.wire.shapes import BuildView
    from pt2hub_workers.sandbox import Level

pytestmark = pytest.mark.compiles


class Shop(Registry):
    """The services and one worker, run build by build."""

    def __init__(
        self, services: Container, url: str, scratch: Path, target: str = "auto", level: Level = "process"
    ) -> None:
        super().__init__(services, url)
        self.toolchain = toolchain_in(scratch / "rooms", target=target, level=level)
        ready(self.toolchain, child_environ(), scratch)
        machine = self.toolchain.machine()
        tools = Tools(
            services, machine, self.toolchain, Device(scratch / "device"), (FACTORIES,), gate_seconds=120.0
        )
        said = a_registration("w1", machine.target.name, packages=machine.packages)
        self.overseer = Overseer(services, said, database_url=url, every=1.0, on_refused=print)
        self.runner = BuildRunner(tools, self.overseer)
        self.overseer.start()

    def build(self, **fields: Any) -> BuildView:
        """Publishes a tiny model and runs its build."""
        version = self.services.publish.submit(tiny_spec(**fields))
        self.runner.run(version.builds[0].id)
        return self.services.builds.view(version.builds[0].id)

    def close(self) -> None:
        """Ends the worker."""
        self.overseer.stop()
        self.toolchain.close()

    def log(self, build: BuildView) -> str:
        """A build's log as text."""
        return "\n".join(line.text for line in self.services.logs.lines(build.id)[1])


@pytest.fixture
def shop_of(migrated_url: str, tmp_path: Path) -> Iterator[Callable[..., Shop]]:
    engine = engines.create(migrated_url)
    services = compose(
        engines.Sessions(engine),
        BuildQueue(migrated_url),
        MemoryStorage(),
        silence=SILENCE,
        factories=(FACTORIES,),
    )
    made: list[Shop] = []

    def make(target: str = "auto", level: Level = "process") -> Shop:
        made.append(Shop(services, migrated_url, tmp_path, target, level))
        return made[-1]

    yield make
    for shop in made:
        shop.close()
    engine.dispose()


@pytest.fixture
def shop(shop_of: Callable[..., Shop]) -> Shop:
    return shop_of()


def test_code_that_was_stored_under_a_wrong_key_is_caught_and_compiled_anew(shop: Shop) -> None:
    right = shop.build()
    other = shop.build(source={"factory": f"{FACTORIES}:Flipped", "seed": 3})
    keys = dict(shop.sql("SELECT digest, program_key FROM artifacts"))
    assert len(set(keys.values())) == 2
    # What a field missing from the key would do: another program's code under this program's key.
    shop.sql("UPDATE artifacts SET program_key = 'none' WHERE digest = %s", right.artifact)
    shop.sql(
        "UPDATE artifacts SET program_key = %s WHERE digest = %s", keys[str(right.artifact)], other.artifact
    )

    retrained = shop.build(source={"factory": f"{FACTORIES}:Mlp", "seed": 4})

    assert retrained.state == "succeeded", retrained.error
    assert "failed the gate, compiling instead" in shop.log(retrained)
    assert retrained.artifact is not None
    provenance = shop.services.resolve.artifact(retrained.artifact).provenance
    assert provenance["code_reused_from"] is None
    assert provenance["compiler_processes"] != []


def test_a_build_in_the_sandbox_reuses_code_fails_as_any_and_says_how_it_was_confined(
    shop_of: Callable[..., Shop], tmp_path: Path
) -> None:
    shop = shop_of(level="sandbox")

    first = shop.build()
    retrained = shop.build(source={"factory": f"{FACTORIES}:Mlp", "seed": 4})
    failed = shop.build(source={"factory": f"{FACTORIES}:NotANumber", "seed": 4})
    ended = shop.build(source={"factory": f"{FACTORIES}:leaving", "seed": 4})

    assert first.state == "succeeded", first.error
    assert retrained.state == "succeeded", retrained.error
    assert first.artifact is not None
    assert retrained.artifact is not None
    for digest, reused in ((first.artifact, False), (retrained.artifact, True)):
        provenance = shop.services.resolve.artifact(digest).provenance
        assert provenance["isolation"] == "sandbox"
        assert provenance["isolation_profile"] == shop.toolchain.isolation_profile
        assert (provenance["code_reused_from"] is not None) is reused
    assert failed.error is not None
    assert failed.error["code"] == "nan_output"
    assert ended.error is not None
    assert (ended.error["code"], ended.error["where"]) == ("export_failed", "export")
    assert "exited with code 0 during export" in ended.error["message"]
    shop.close()
    assert list((tmp_path / "rooms").iterdir()) == []


def test_an_overtaken_build_ends_without_a_trace_of_the_late_worker(shop: Shop) -> None:
    version = shop.services.publish.submit(tiny_spec())
    build = version.builds[0].id
    worker = threading.Thread(target=shop.runner.run, args=(build,))
    worker.start()
    while not shop.services.builds.view(build).steps:
        pass
    shop.sql(
        "UPDATE builds SET attempt = attempt + 1, worker_id = NULL, state = 'queued' WHERE id = %s", build
    )
    worker.join()

    view = shop.services.builds.view(build)
    assert (view.state, view.artifact, view.error) == ("queued", None, None)
    assert shop.sql("SELECT count(*) FROM artifacts") == [(0,)]


def test_a_build_for_a_lower_cpu_level_needs_no_more_than_that_level(shop_of: Callable[..., Shop]) -> None:
    release = ".".join(importlib.metadata.version("torch").split(".")[:2])
    shop = shop_of(f"torch{release}-cpu-x86_64_v2")

    built = shop.build()

    assert built.state == "succeeded", built.error
    assert built.target.endswith("-x86_64_v2")
    assert built.artifact is not None
    native = shop.services.resolve.artifact(built.artifact).config["native"]
    assert native["cpu_level"] == "x86_64_v2"
    assert not [flag for flag in native["cpu_flags"] if flag.startswith(("avx", "fma", "bmi"))]


def test_a_child_that_someone_kills_is_a_passing_fault_and_costs_a_pause(shop: Shop, tmp_path: Path) -> None:
    note = tmp_path / "note"
    source = {"factory": f"{FACTORIES}:sleeping", "kwargs": {"note": str(note)}, "seed": 1}
    build = shop.services.publish.submit(tiny_spec(source=source)).builds[0].id
    worker = threading.Thread(target=shop.runner.run, args=(build,))
    worker.start()
    while not (note.exists() and len(note.read_text().split()) == 2):
        time.sleep(0.02)
    child, program = map(int, note.read_text().split())
    os.kill(child, signal.SIGKILL)
    worker.join()

    view = shop.services.builds.view(build)
    (attempt,) = view.attempts
    assert (view.state, view.failures, attempt.outcome, attempt.code) == (
        "queued",
        1,
        "retried",
        "worker_lost",
    )
    assert view.not_before is not None
    assert program not in members(child)
    assert "killed from outside by SIGKILL" in shop.log(view)
