"""`pt2hub spec`, `publish --dry-run` and `wait` over a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pt2hub.errors import NotFound
from support.artifacts import a_target
from support.registry import GPU

if TYPE_CHECKING:
    from pathlib import Path

    from support.registry import Registry
    from support.shell import Shell

HERE = a_target().name


def test_a_started_spec_passes_the_check_and_is_not_replaced(
    shell: Shell, served: Registry, tmp_path: Path
) -> None:
    served.worker("w1")
    file = tmp_path / "resnet18.yaml"
    assert f"pt2hub spec check {file}" in shell("spec", "init", str(file)).out
    told = shell("spec", "check", str(file))
    assert (told.code, "would become team/resnet18@1, the first of a new model" in told.out) == (0, True)
    assert "would be queued" in told.out
    before = file.read_text()
    again = shell("spec", "init", str(file))
    assert (again.code, "[conflict]" in again.err) == (1, True)
    assert file.read_text() == before
    assert shell("spec", "init", str(tmp_path / "none" / "a.yaml")).code == 1


def test_a_started_spec_of_code_is_checked_with_its_folder(
    shell: Shell, served: Registry, tmp_path: Path
) -> None:
    served.worker("w1")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "net.py").write_text("def build(): ...\n")
    file = tmp_path / "net.yaml"
    assert shell("spec", "init", str(file), "--source", "code").code == 0
    assert shell("spec", "check", str(file), "--code", str(tmp_path / "src")).code == 0
    lacking = shell("spec", "check", str(file))
    assert (lacking.code, "source" in lacking.err) == (1, True)


def test_a_dry_run_publishes_nothing_and_says_what_there_is(
    shell: Shell, served: Registry, tmp_path: Path
) -> None:
    served.worker("w1")
    file = tmp_path / "resnet18.yaml"
    shell("spec", "init", str(file))
    file.write_text(file.read_text().replace("[auto]", f"[{HERE}, {GPU}]"))
    code, document = shell.json("publish", str(file), "--dry-run")
    assert (code, document["created"], document["number"]) == (0, True, 1)
    assert [item["target"] for item in document["targets"]] == [HERE, GPU]
    assert shell.json("models")[1]["models"] == []
    assert "no worker is ready for it" in shell("publish", str(file), "--dry-run").out
    assert shell("publish", str(file)).code == 0
    told = shell("publish", str(file), "--dry-run")
    assert "is already published as team/resnet18@1" in told.out
    assert "has one: queued" in told.out
    assert f"To publish it: pt2hub publish {file}" in shell("spec", "check", str(file)).out


def test_a_dry_run_says_what_becomes_of_the_labels(shell: Shell, served: Registry, tmp_path: Path) -> None:
    served.worker("w1")
    file = str(tmp_path / "resnet18.yaml")
    shell("spec", "init", file)
    told = shell("publish", file, "--dry-run", "--label", "licence=MIT", "--label", "owner=ada")
    assert "Label owner of team/resnet18@1 would be set to ada." in told.out
    assert "Did you mean license?" in told.out
    assert "To publish it, repeat the command without --dry-run." in told.out
    sha = "a" * 40
    assert shell("publish", file, "--label", "owner=ada", "--label", f"git.sha={sha}").code == 0
    wanted = ("--label", "owner=eve", "--label", f"git.sha={'b' * 40}")
    told = shell("publish", file, "--dry-run", *wanted)
    assert "Label owner of team/resnet18@1 would change from ada to eve." in told.out
    assert f"Label git.sha of team/resnet18@1 would stay {sha}" in told.out.replace("\n", " ")
    told = shell("publish", file, "--label", "git_branch=main")
    assert "Label git_branch has no documented meaning. Did you mean git.branch?" in told.err


def test_a_wrong_spec_is_refused_with_file_line_and_column(
    shell: Shell, served: Registry, tmp_path: Path
) -> None:
    served.worker("w1")
    file = tmp_path / "resnet18.yaml"
    shell("spec", "init", str(file))
    file.write_text(file.read_text().replace("seed: 0", "sede: 0"))
    told = shell("publish", str(file), "--dry-run")
    assert (told.code, f"{file}, line " in told.err) == (1, True)


@pytest.mark.parametrize("command", [("publish",), ("publish", "--dry-run")])
def test_a_wrong_value_of_an_option_is_refused_with_the_option(
    shell: Shell, served: Registry, tmp_path: Path, command: tuple[str, ...]
) -> None:
    served.worker("w1")
    spec, odd = str(tmp_path / "resnet18.yaml"), tmp_path / "na:me.txt"
    shell("spec", "init", spec)
    odd.write_text("x")
    for option, value, named in (
        ("--label", "git.sha=main", "--label git.sha: Invalid value of label git.sha: 'main'"),
        ("--label", "owner=", "--label owner: The value of label owner is empty"),
        ("--label", "Owner=ada", "--label Owner: Invalid label key 'Owner'"),
        (
            "--derived-from",
            "other:team/gone@1",
            "--derived-from other:team/gone@1: Model team/gone not found",
        ),
        ("--derived-from", "made:team/gone@1", "--derived-from made:team/gone@1: Invalid derivation"),
        ("--file", str(odd), "--file na:me.txt: Invalid file name 'na:me.txt'"),
    ):
        told = shell(*command, spec, option, value)
        assert (told.code, told.err.startswith(f"pt2hub: {named}")) == (1, True), told.err
        assert spec not in told.err
    with (tmp_path / "resnet18.yaml").open("a") as file:
        file.write("labels: {git.branch: ''}\nderived_from: ['hf:x']\n")
    told = shell(*command, spec, "--label", "owner=ada")
    assert told.err.startswith(f"pt2hub: {spec}, line"), "the spec's own label"


def test_wait_ends_with_the_builds(shell: Shell, served: Registry) -> None:
    served.worker("w1")
    version = served.submit(targets=[HERE, GPU])
    late = shell("wait", "vision/resnet18@1", "--timeout", "0.2")
    assert (late.code, "[build_active]" in late.err) == (1, True)
    served.published(version)
    assert shell("wait", "vision/resnet18@1", "--target", HERE).code == 0
    code, document = shell.json("wait", "vision/resnet18@1", "--target", HERE)
    assert (code, [build["target"] for build in document["builds"]]) == (0, [HERE])
    assert shell("wait", "vision/resnet18", "--timeout", "0.2").code == 1
    unknown = shell("wait", "vision/resnet18@1", "--target", "torch2.13-cpu-x86_64_v9")
    assert (unknown.code, HERE in unknown.err) == (1, True)


def test_wait_fails_with_a_build(shell: Shell, served: Registry) -> None:
    served.worker("w1")
    version = served.submit(targets=[HERE])
    served.services.builds.fail(served.claim(version.builds[0].id), NotFound("no weights", where="weights"))
    code, document = shell.json("wait", "vision/resnet18@1")
    assert (code, document["error"]["code"]) == (1, "not_found")


@pytest.mark.parametrize("args", [("--target", HERE, "--until", "measured"), ("--until", "never")])
def test_wrong_combinations_are_wrong_usage(shell: Shell, args: tuple[str, ...]) -> None:
    assert shell("wait", "vision/resnet18@1", *args).code == 2
