"""The previous release's API, worker and client go on working while this one's schema is applied."""

from __future__ import annotations

import json
import subprocess
import tarfile
import tomllib
from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.tokens import SERVER
from pt2hub.server.config import ServerConfig
from pt2hub.server.container import open_container
from pt2hub.server.db import migrations
from support.plane import ROOT, TARGET, Plane, noop_spec

if TYPE_CHECKING:
    from pathlib import Path

PREVIOUS = tomllib.loads((ROOT / "migrations" / "previous_release.toml").read_text("utf-8"))


class PreviousPlane(Plane):
    """Processes of the previous release, over the schema that it makes."""

    def prepare(self) -> str:
        """Lets the previous release's own commands make the schema and a token."""
        self.run("admin", "migrate")
        self.run("admin", "worker-role", "--apply")
        return self.run("admin", "token", "--name", "plane", "--admin").strip()


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The previous release's code."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is not a checkout of git")
    shallow = ["git", "-C", str(ROOT), "rev-parse", "--is-shallow-repository"]
    if subprocess.run(shallow, capture_output=True, text=True, check=False).stdout.strip() == "true":
        pytest.skip("this clone is shallow, so it lacks the previous release: git fetch --unshallow")
    folder = tmp_path_factory.mktemp("previous")
    archive = folder / "previous.tar"
    command = ["git", "-C", str(ROOT), "archive", f"--output={archive}", PREVIOUS["commit"]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (
        f"This clone lacks the commit of the previous release, {PREVIOUS['commit']}: {done.stderr}"
        "Fetch it: git fetch origin COMMIT"
    )
    with tarfile.open(archive) as tar:
        tar.extractall(folder / "code", filter="data")
    return folder / "code"


def test_the_previous_release_is_the_one_that_the_schema_says(previous: Path) -> None:
    revisions = sorted(path.name[:4] for path in (previous / "migrations" / "versions").glob("0*.py"))
    assert PREVIOUS["revision"] == revisions[-1] == migrations.previous_revision()


def test_its_processes_work_on_the_newest_schema(previous: Path, tmp_path: Path) -> None:
    with PreviousPlane(tmp_path, root=previous) as plane:
        plane.start_worker()
        before = plane.submit("net", seed=1)
        assert plane.await_final(before) == "succeeded"

        migrations.upgrade(plane.database.url)

        build = plane.submit("net", seed=2)
        assert plane.await_final(build) == "succeeded"
        login = {"PT2HUB_TOKEN": plane.token}
        plane.run("alias", "set", "crash/net@1", "prod", "--reason", "first", **login)
        plane.run("alias", "set", "crash/net@2", "prod", "--reason", "second", **login)
        plane.run("yank", "crash/net@1", "--reason", "old", **login)
        plane.run("describe", "crash/net", "A net.", **login)
        plane.run("pull", "crash/net@prod", "--target", TARGET, **login)
        shown = json.loads(plane.run("show", "crash/net@prod", "--json", **login))
        assert (shown["number"], shown["builds"][0]["id"]) == (2, build)
        assert plane.outcomes(before) == plane.outcomes(build) == ["succeeded"]

        config = ServerConfig.from_environ(plane.environ)
        with open_container(config, database_url=plane.database.url) as newest:
            alias = newest.aliases.alias("crash/net", "prod")
            assert [move.reason for move in alias.history] == ["second", "first"]
            assert newest.journal.write() > 0  # what the previous release changes is in the journal as well
            version = newest.publish.submit(noop_spec("net", seed=3), by=SERVER)
        assert plane.await_final(version.builds[0].id) == "succeeded"
