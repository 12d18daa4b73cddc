"""The fake registry and the real server answer the same requests of the real client alike."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pt2hub import errors
from pt2hub.client.artifacts.yanks import YankedVersionWarning
from pt2hub.client.client import Client
from pt2hub.client.config import ClientConfig
from pt2hub.client.lock.declarations import Project
from pt2hub.client.lock.locker import Upgrade
from pt2hub.testing import FakeRegistry
from support.artifacts import a_target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.registry import Registry

HERE = a_target().name
MODEL = "vision/resnet18"
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Side:
    """A registry, real or fake.

    Attributes:
        publish: Adds a version with an artifact for this machine.
        yank: Yanks a version of the model.
    """

    client: Client
    publish: Callable[[], object]
    yank: Callable[[int, str], object]


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with FakeRegistry() as registry:
        yield registry


@pytest.fixture(params=["real", "fake"])
def side(request: pytest.FixtureRequest) -> Side:
    if request.param == "fake":
        fake: FakeRegistry = request.getfixturevalue("fake")
        return Side(
            fake.client,
            lambda: fake.add_version(MODEL, targets=[HERE]),
            lambda number, reason: fake.yank(MODEL, number, reason=reason),
        )
    served: Registry = request.getfixturevalue("served")
    served.worker("w1")
    seeds = iter(range(100))

    def publish() -> None:
        seed = next(seeds)
        source = {"factory": "torchvision.models:resnet18", "seed": seed}
        version = served.submit(source=source, targets=[HERE])
        served.published(version, code=f"code {seed}".encode(), key=f"key {seed}")

    client: Client = request.getfixturevalue("client")
    return Side(client, publish, lambda number, reason: client.versions.yank(MODEL, number, reason=reason))


def test_references_resolve_to_what_was_published(side: Side) -> None:
    side.publish()
    side.publish()
    side.client.aliases.move(MODEL, "prod", 1, reason="first")
    digest = side.client.artifacts.resolve(f"{MODEL}@1").artifacts[0].digest
    found = {
        text: side.client.artifacts.resolve(f"{MODEL}{text}").number
        for text in ("", "@2", "@prod", f"@{digest}")
    }
    assert found == {"": 2, "@2": 2, "@prod": 1, f"@{digest}": 1}


def test_an_artifact_is_pulled_from_the_registry_and_then_from_the_cache(side: Side) -> None:
    side.publish()
    pulled = side.client.pull(f"{MODEL}@1", target=HERE)
    assert (pulled.config.version.model, pulled.config.version.number) == (MODEL, 1)
    assert pulled.code.is_file()
    assert pulled.manifest_digest == side.client.artifacts.resolve(MODEL).artifacts[0].digest
    assert side.client.pull(f"{MODEL}@{pulled.manifest_digest}", offline=True).code == pulled.code


def test_an_alias_moves_by_compare_and_set_and_keeps_its_history(side: Side) -> None:
    side.publish()
    side.publish()
    aliases = side.client.aliases
    aliases.move(MODEL, "prod", 1, reason="first", expected=None)
    moved = aliases.move(MODEL, "prod", 2, reason="second", expected=1)
    assert [(move.before, move.after) for move in moved.history] == [(1, 2), (None, 1)]
    assert aliases.move(MODEL, "prod", 2, reason="second", expected=1).last.sequence == 2
    with pytest.raises(errors.AliasMoved) as caught:
        aliases.move(MODEL, "prod", 1, reason="late", expected=1)
    assert caught.value.context["winner"]["number"] == 2
    assert [item.name for item in aliases.list(MODEL)] == ["prod"]
    assert aliases.remove(MODEL, "prod", reason="no longer", expected=2).number is None
    assert aliases.list(MODEL) == []
    assert aliases.get(MODEL, "prod").last.after is None


def test_a_yanked_version_is_passed_over_and_served_where_it_is_pinned(side: Side) -> None:
    side.publish()
    side.publish()
    side.client.aliases.move(MODEL, "prod", 1, reason="first")
    side.yank(2, "wrong labels")
    resolve = side.client.artifacts.resolve
    assert (resolve(MODEL).number, resolve(f"{MODEL}@2").number) == (1, 2)
    yank = resolve(f"{MODEL}@2").yanked
    assert yank is not None
    assert yank.reason == "wrong labels"
    with pytest.warns(YankedVersionWarning, match=f"{MODEL}@2 is yanked by .*: wrong labels"):
        side.client.pull(f"{MODEL}@2", target=HERE)
    with pytest.raises(errors.VersionYanked):
        side.client.aliases.move(MODEL, "prod", 2, reason="second", expected=1)
    with pytest.raises(errors.VersionYanked):
        side.yank(2, "another reason")
    with pytest.raises(errors.VersionInUse):
        side.yank(1, "wrong too")
    side.client.aliases.remove(MODEL, "prod", reason="none is left", expected=1)
    side.yank(1, "wrong too")
    with pytest.raises(errors.NotReady):
        resolve(MODEL)


def test_a_lock_is_made_and_pulled(side: Side, tmp_path: Path) -> None:
    side.publish()
    project = Project(tmp_path / "pt2hub.lock", None)
    side.client.locks.update(project, [f"{MODEL}@1"], upgrade=Upgrade())
    pulled = side.client.pull(f"{MODEL}@1", lock=project.lock, target=HERE)
    assert pulled.config.version.number == 1


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (lambda client: client.artifacts.resolve("team/none"), errors.NotFound),
        (lambda client: client.artifacts.resolve(f"{MODEL}@9"), errors.NotFound),
        (lambda client: client.artifacts.resolve(f"{MODEL}@none"), errors.NotFound),
        (lambda client: client.artifacts.resolve("none"), errors.InvalidInput),
        (lambda client: client.aliases.get(MODEL, "none"), errors.NotFound),
        (lambda client: client.aliases.get(MODEL, "7"), errors.InvalidInput),
        (lambda client: client.aliases.move(MODEL, "prod", 9, reason="x"), errors.NotFound),
        (lambda client: client.aliases.move(MODEL, "prod", 1, reason=" "), errors.InvalidInput),
        (lambda client: client.aliases.move(MODEL, "prod", 1, reason="x", expected=1), errors.NotFound),
        (lambda client: client.pull(f"{MODEL}@1", target="torch2.11-cu130-sm90"), errors.NotFound),
        (lambda client: client.pull(f"{MODEL}@1", target="none"), errors.UnknownTarget),
    ],
)
def test_errors_have_the_same_classes(
    side: Side, ask: Callable[[Client], object], error: type[errors.Pt2hubError]
) -> None:
    side.publish()
    with pytest.raises(errors.Pt2hubError) as caught:
        ask(side.client)
    assert type(caught.value) is error


def test_a_wrong_token_is_refused(side: Side, tmp_path: Path) -> None:
    side.publish()
    config = ClientConfig(home=tmp_path, url=side.client.config.url, token="pt2_wrong")
    with Client(config) as other, pytest.raises(errors.Unauthorized):
        other.aliases.move(MODEL, "prod", 1, reason="x", expected=None)
    assert side.client.whoami().admin


def test_while_it_is_away_what_was_known_is_used_and_it_comes_back(fake: FakeRegistry) -> None:
    fake.add_version(MODEL, targets=[HERE])
    pulled = fake.client.pull(MODEL, target=HERE)
    fake.go_away()
    with pytest.warns(UserWarning, match="last known"):
        assert fake.client.pull(MODEL, target=HERE).code == pulled.code
    with pytest.raises(errors.ServerUnreachable):
        fake.client.aliases.list(MODEL)
    fake.come_back()
    assert fake.client.aliases.list(MODEL) == []


def test_what_it_does_not_do_is_said(fake: FakeRegistry) -> None:
    with pytest.raises(errors.NotFound, match="does not answer GET /api/v1/models"):
        fake.client.models.list()


def test_the_command_line_uses_it_by_environment(fake: FakeRegistry) -> None:
    fake.add_version(MODEL, targets=[HERE])
    command = [
        sys.executable,
        "-m",
        "pt2hub",
        "alias",
        "set",
        f"{MODEL}@1",
        "prod",
        "--reason",
        "x",
        "--json",
    ]
    done = subprocess.run(command, env=os.environ | fake.environ, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["number"] == 1
    assert fake.client.aliases.get(MODEL, "prod").number == 1


def test_made_up_versions_have_files(fake: FakeRegistry) -> None:
    number = fake.add_version("team/files", targets=[HERE], files={"labels.txt": b"cat"})
    assert fake.client.pull(f"team/files@{number}", target=HERE).files["labels.txt"].read_bytes() == b"cat"
    with pytest.raises(errors.InvalidFileName):
        fake.add_version("team/files", targets=[HERE], files={"../x": b"cat"})


def test_a_bundle_of_it_is_taken_with_its_alias(fake: FakeRegistry, tmp_path: Path) -> None:
    fake.add_version(MODEL, targets=[HERE], code=b"other code")
    fake.client.aliases.move(MODEL, "prod", 1, reason="first")
    fake.client.exports.bundle([f"{MODEL}@prod"], tmp_path / "net.tar")
    with FakeRegistry() as other:
        assert other.add_bundle(tmp_path / "net.tar") == [f"{MODEL}@1"]
        assert other.client.pull(f"{MODEL}@prod", target=HERE).code.read_bytes() == b"other code"


def test_the_example_of_the_documentation_runs() -> None:
    page = (ROOT / "docs" / "how-to" / "test-your-program.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    subprocess.run([sys.executable, "-c", example], check=True)
