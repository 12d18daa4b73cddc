"""The worker's runner over real services, with real children."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.server.blobs.memory import MemoryStorage
from pt2hub.server.container import Container, compose
from pt2hub.server.db import engine as engines
from pt2hub.server.db.queue import BuildQueue
from pt2hub_workers.attempt import Tools
from pt2hub_workers.children import Pool
from pt2hub_workers.machine import probe_machine
from pt2hub_workers.runner import BuildRunner
from support.registry import SILENCE, Registry
from support.workbench import FACTORIES, child_environ, tiny_spec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pt2hub.wire.shapes import BuildView

pytestmark = pytest.mark.compiles


class Shop(Registry):
    """The services and one worker, run build by build."""

    def __init__(self, services: Container, url: str, scratch: Path) -> None:
        super().__init__(services, url)
        environ = child_environ()
        machine, self.pool = probe_machine(environ), Pool(environ)
        tools = Tools(services, machine, self.pool, (FACTORIES,), 120.0, threading.Event())
        self.runner = BuildRunner(tools, worker_id="w1", scratch=scratch)
        services.workers.register(
            worker_id="w1",
            target=machine.target,
            toolchain=machine.toolchain,
            environment=machine.environment,
            packages=machine.packages,
        )

    def build(self, **fields: Any) -> BuildView:
        """Publishes a tiny model and runs its build."""
        self.services.workers.heartbeat("w1")
        version = self.services.publish.submit(tiny_spec(**fields))
        self.runner.run(version.builds[0].id)
        return self.services.builds.view(version.builds[0].id)

    def log(self, build: BuildView) -> str:
        """A build's log as text."""
        return "\n".join(line.text for line in self.services.builds.logs(build.id))


@pytest.fixture
def shop(migrated_url: str, tmp_path: Path) -> Iterator[Shop]:
    engine = engines.create(migrated_url)
    services = compose(
        engines.Sessions(engine),
        BuildQueue(migrated_url),
        MemoryStorage(),
        silence=SILENCE,
        factories=(FACTORIES,),
    )
    made = Shop(services, migrated_url, tmp_path)
    yield made
    made.pool.close()
    engine.dispose()


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
