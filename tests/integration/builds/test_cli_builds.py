"""The commands that steer and watch builds, over a real server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.builds import BuildFilter, StepReport
from pt2hub.errors import ExportFailed, SchemaOlder, StorageUnavailable
from pt2hub.server.db import migrations
from support.registry import GPU, V4, a_spec

if TYPE_CHECKING:
    from pathlib import Path

    from support.registry import Registry
    from support.shell import Shell

MODEL = "vision/resnet18"


def queued(served: Registry, *targets: str, seed: int = 0) -> list[str]:
    """The builds of a further version."""
    source = {"factory": "torchvision.models:resnet18", "seed": seed}
    return [build.id for build in served.submit(source=source, targets=list(targets or (V4,))).builds]


def spec_file(folder: Path, **changes: Any) -> str:
    path = folder / "spec.json"
    path.write_text(json.dumps(a_spec(**changes)))
    return str(path)


# -- cancel and retry ----------------------------------------------------------------------------------------


def test_cancel_and_retry_say_what_they_did_and_what_comes_next(shell: Shell, served: Registry) -> None:
    (build,) = queued(served)
    told = shell("cancel", build)
    assert (told.code, told.err) == (0, "")
    assert told.out == (
        f"Build {build} of {MODEL}@1 for {V4} is cancelled. To queue it again: pt2hub retry {build}\n"
    )
    assert "cancelled by client" in shell("show", f"{MODEL}@1").out
    told = shell("retry", f"{MODEL}@1", "--priority", "5")
    assert f"Build {build} of {MODEL}@1 for {V4} is queued 1st: no worker ever offered" in told.out
    code, document = shell.json("cancel", build)
    assert (code, [item["state"] for item in document["builds"]]) == (0, ["cancelled"])


def test_a_version_with_several_builds_needs_a_target_or_all(shell: Shell, served: Registry) -> None:
    first, second = queued(served, V4, GPU)
    told = shell("cancel", f"{MODEL}@1")
    assert told.code == 1
    assert (
        f"Choose one with --target: {V4} (queued); {GPU} (queued). To select all of them, use --all."
        in told.err
    )
    assert shell.json("cancel", f"{MODEL}@1", "--target", GPU)[1]["builds"][0]["id"] == second
    assert [item["id"] for item in shell.json("cancel", f"{MODEL}@1", "--all")[1]["builds"]] == [first]
    told = shell("cancel", f"{MODEL}@1", "--all")
    assert (told.code, told.out) == (0, f"No build of {MODEL}@1 is queued or running: nothing to cancel.\n")
    assert len(shell.json("retry", f"{MODEL}@1", "--all")[1]["builds"]) == 2
    assert "nothing to retry" in shell("retry", f"{MODEL}@1", "--all").out


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["cancel", "nothing"], 1, "Build 'nothing' not found"),
        (["retry", "nothing"], 1, "Build 'nothing' not found"),
        (["cancel", "b1", "--target", V4], 2, "cannot be combined with a build's id"),
        (["cancel", f"{MODEL}@1", "--all", "--target", V4], 2, "cannot be combined"),
        (["retry", "b1", "--priority", "101"], 2, "-100<=x<=100"),
        (["publish", "spec.yaml", "--priority", "-101"], 2, "-100<=x<=100"),
    ],
)
def test_what_cannot_be_done_is_said_in_words(shell: Shell, args: list[str], code: int, words: str) -> None:
    told = shell(*args)
    assert told.code == code
    assert words in " ".join(told.err.replace("│", " ").split())


def test_conflicts_name_the_command_that_helps(shell: Shell, served: Registry) -> None:
    (build,) = queued(served)
    claim = served.claim(build)
    told = shell("retry", build)
    assert told.code == 1
    assert f"pt2hub cancel {build}" in told.err
    assert "[build_active]" in told.err
    served.services.builds.fail(claim, ExportFailed("no graph"))
    assert "[build_over]" in shell("cancel", build).err
    assert shell.json("cancel", build)[1]["error"]["code"] == "build_over"


# -- lists ---------------------------------------------------------------------------------------------------


def test_builds_show_their_place_and_what_is_not_as_usual(shell: Shell, served: Registry) -> None:
    (first,) = queued(served)
    served.submit(source={"factory": "torchvision.models:resnet18", "seed": 1}, priority=9)
    served.services.builds.hand_back(served.claim(first))
    rows = {row[1]: " ".join(row) for row in shell("builds").lines[1:]}
    assert f"{V4} queued 1st" in rows[f"{MODEL}@2"]
    assert rows[f"{MODEL}@2"].endswith("priority 9")
    assert f"{V4} queued 2nd" in rows[f"{MODEL}@1"]
    assert rows[f"{MODEL}@1"].endswith("attempt 2")
    assert "attempt 2, attempt 1 was handed back" in shell("builds", first).out
    shown = shell("show", f"{MODEL}@1").out
    assert f"{V4}  queued 2nd" in shown
    assert "attempt  2, attempt 1 was handed back" in shown


def test_a_build_shows_every_attempt(shell: Shell, served: Registry) -> None:
    (build,) = queued(served)
    served.services.builds.retry_later(served.claim(build), StorageUnavailable("no answer"))
    served.sql("UPDATE builds SET not_before = now()")
    served.claim(build, "w2")
    lines = shell("builds", build).lines
    assert ["attempt", "1", "retried", "storage_unavailable", "w1"] in lines
    assert ["attempt", "2", "running", "-", "w2"] in lines


def test_workers_and_targets_are_tables(shell: Shell, served: Registry) -> None:
    assert "To start one: pt2hub up" in shell("workers").out
    assert "To start a worker: pt2hub up" in shell("targets").out
    claim = served.claim(queued(served)[0])
    served.services.builds.report(claim, [StepReport("compile", "running", 0.0)], [])
    served.services.isolation.allow("process")
    served.worker("w2", GPU, concurrency=2, clock=0.0, isolation="process")
    served.services.workers.leave(served.worker("w3"))
    queued(served, GPU, seed=1)
    headings, *rows = shell("workers").lines
    assert headings[:6] == ["WORKER", "TARGET", "STATE", "DOING", "SLOTS", "ISOLATION"]
    rows_of = {row[0]: " ".join(row) for row in rows}
    assert set(rows_of) == {"w1", "w2"}
    assert f"{V4} busy {MODEL}@1 compile 1/1 sandbox 0.1.0 host" in rows_of["w1"]
    assert f"{GPU} idle - 0/2 process" in rows_of["w2"]
    assert rows_of["w2"].endswith(" y behind")
    assert "w3" in {row[0] for row in shell("workers", "--all").lines}
    assert len(shell.json("workers", "--all")[1]["workers"]) == 3
    targets = {row[0]: row[1:5] for row in shell("targets").lines[1:]}
    assert targets == {V4: ["1", "1", "1", "0"], GPU: ["1", "2", "0", "1"]}
    assert {item["name"] for item in shell.json("targets")[1]["targets"]} == {V4, GPU}


# -- publish -------------------------------------------------------------------------------------------------


def test_publish_with_a_priority_and_a_target_that_nobody_has(
    shell: Shell, served: Registry, tmp_path: Path
) -> None:
    served.worker("w1", V4)
    misspelt = f"{V4[:-1]}3"
    told = shell("publish", spec_file(tmp_path, targets=[misspelt]), "--priority", "50")
    assert told.code == 0
    build = served.services.catalog.builds(BuildFilter()).builds[0]
    assert f"{misspelt}  queued 1st" in told.out
    assert f"no worker ever offered this target; workers know {V4}" in told.out
    assert "priority  50" in told.out
    assert f"To cancel: pt2hub cancel {build.id}" in told.err


# -- the operator --------------------------------------------------------------------------------------------


@pytest.fixture
def operator(shell: Shell, served: Registry, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """The same commands on the server's machine."""
    monkeypatch.setenv("PT2HUB_DATABASE_URL", served.database_url)
    return shell


def test_an_operator_takes_a_build_from_its_worker(operator: Shell, served: Registry) -> None:
    (build,) = queued(served)
    served.claim(build)
    told = operator("admin", "requeue", build)
    assert (told.code, told.err) == (0, "")
    assert told.out == (
        f"Build {build} is queued again, behind others of its priority; attempt 1 has ended.\n"
    )
    code, document = operator.json("admin", "requeue", build)
    assert (code, document["error"]["code"]) == (1, "build_active")
    assert [item.outcome for item in served.services.builds.view(build).attempts] == ["handed_back"]
    assert operator.json("admin", "requeue", "nothing")[1]["error"]["code"] == "not_found"


def test_a_home_without_a_server_has_no_queues(operator: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PT2HUB_DATABASE_URL")
    for command in (("queue",), ("requeue", "b1")):
        code, document = operator.json("admin", *command)
        assert (code, document["error"]["message"]) == (
            1,
            "The home has no database: no server was ever started with it",
        )


def test_an_operator_inspects_the_queues(operator: Shell, served: Registry) -> None:
    assert "No targets yet" in operator("admin", "queue").out
    (build,) = queued(served)
    claim = served.claim(build)
    for _ in range(2):
        served.services.builds.hand_back(claim)
        claim = served.claim(build)
    queued(served, seed=1)
    told = operator("admin", "queue")
    assert told.lines[0] == [
        *("TARGET", "QUEUED", "OLDEST", "RUNNING", "SLOTS", "WORKERS", "LOST", "MEASURING")
    ]
    row = told.lines[1]
    assert (row[:2], row[-5:]) == ([V4, "1"], ["1", "1", "1", "0", "0"])
    assert [build, f"{MODEL}@1", V4, "running", "3", "0", "handed_back", "w1", "build"] in told.lines
    code, document = operator.json("admin", "queue")
    assert code == 0
    target = document["targets"][0]
    assert (target["queued"], target["running"], target["slots"], target["live_workers"]) == (1, 1, 1, 1)
    assert document["repeated"][0]["id"] == build


def test_only_migrate_changes_the_schema_of_a_deployment(
    operator: Shell, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PT2HUB_DATABASE_URL", database_url)
    told = operator("admin", "queue")
    assert told.code == 1
    assert "[schema_older]" in told.err
    assert "pt2hub admin migrate" in told.err
    with pytest.raises(SchemaOlder):
        migrations.require(database_url)
    told = operator("admin", "migrate")
    assert told.code == 0
    assert "from revision none" in told.out
    code, document = operator.json("admin", "migrate")
    assert (code, document["changed"]) == (0, False)
    assert document["before"] == document["after"]
    assert operator("admin", "queue").code == 0
