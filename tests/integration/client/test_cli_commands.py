"""The commands over a real server: exit codes, one JSON value for programs, text for people."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from pt2hub.domain.artifacts import AUTOTUNE_TYPE, Constants
from pt2hub.errors import NotFound
from support.artifacts import a_target
from support.packages import WEIGHTS
from support.registry import GPU, a_spec

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.domain.digests import Digest
    from pt2hub.wire.responses import VersionView
    from support.registry import Registry
    from support.shell import Shell

HERE = a_target().name
MODEL = "vision/resnet18"


def published(served: Registry, seed: int = 0) -> Digest:
    """A further version that is ready."""
    served.worker("w1")
    version = served.submit(source={"factory": "torchvision.models:resnet18", "seed": seed}, targets=[HERE])
    return served.published(version, code=f"code {seed}".encode(), key=f"key {seed}")


def failed(served: Registry, **changes: Any) -> VersionView:
    """A version whose only build failed."""
    served.worker("w1")
    version = served.submit(targets=[HERE], **changes)
    error = NotFound("no such weights", where="weights", hint="Upload them.")
    served.services.builds.fail(served.claim(version.builds[0].id), error)
    return version


# -- lists -----------------------------------------------------------------------------------------------


def test_an_empty_registry_says_how_to_publish_first(shell: Shell) -> None:
    told = shell("models")
    assert (told.code, told.err) == (0, "")
    assert "pt2hub publish" in told.out
    assert shell.json("models") == (0, {"models": []})
    assert shell.json("builds") == (0, {"builds": [], "more": False})


def test_models_are_one_aligned_line_each_in_a_pipe(shell: Shell, served: Registry) -> None:
    published(served)
    failed(served, source={"factory": "torchvision.models:resnet18", "seed": 1})
    assert shell("alias", "set", f"{MODEL}@1", "prod", "--reason", "first").code == 0
    told = shell("models")
    headings, row = told.lines
    assert headings == ["MODEL", "VERSIONS", "NEWEST", "READY", "ALIASES", "CREATED"]
    assert row[:5] == [MODEL, "2", "2", "1", "prod=1"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", " ".join(row[5:]))
    assert "\x1b" not in told.out
    assert MODEL in shell("models", "resnet").out
    assert "No model has 'bert' in its name" in shell("models", "bert").out
    code, document = shell.json("models")
    assert (code, document["models"][0]["aliases"]) == (0, {"prod": 1})


def test_versions_are_listed_newest_first_and_the_limit_says_that_there_are_more(
    shell: Shell, served: Registry
) -> None:
    for seed in range(3):
        published(served, seed)
    served.submit(source={"factory": "torchvision.models:resnet18", "seed": 9}, targets=[HERE, GPU])
    told = shell("versions", MODEL)
    assert [line[:2] for line in told.lines[1:]] == [
        ["4", "pending"],
        ["3", "ready"],
        ["2", "ready"],
        ["1", "ready"],
    ]
    assert f"{HERE} queued, {GPU} queued" in told.out
    code, document = shell.json("versions", MODEL, "--limit", "2")
    assert (code, [item["number"] for item in document["versions"]], document["more"]) == (0, [4, 3], True)
    assert "raise --limit" in shell("versions", MODEL, "--limit", "2").out
    assert "raise --limit" not in told.out


def test_builds_are_listed_chosen_and_shown(shell: Shell, served: Registry) -> None:
    published(served)
    broken = failed(served, source={"factory": "torchvision.models:resnet18", "seed": 1}).builds[0]
    told = shell("builds")
    assert [line[1] for line in told.lines[1:]] == [f"{MODEL}@2", f"{MODEL}@1"]
    assert "not_found" in told.out
    assert broken.id in told.out
    for args in (["--state", "failed"], [f"{MODEL}@2"]):
        assert [item["id"] for item in shell.json("builds", *args)[1]["builds"]] == [broken.id]
    assert len(shell.json("builds", MODEL)[1]["builds"]) == 2
    assert shell.json("builds", "--target", GPU)[1]["builds"] == []
    assert "Upload them." in shell("builds", broken.id).out
    assert shell("builds", broken.id, "--state", "failed").code == 2
    assert shell("builds", "--state", "lost").code == 2


# -- aliases ---------------------------------------------------------------------------------------------


def test_an_alias_is_set_moved_shown_rolled_back_and_removed(shell: Shell, served: Registry) -> None:
    published(served)
    published(served, 1)
    assert "has no aliases" in shell("alias", "ls", MODEL).out
    told = shell("alias", "set", f"{MODEL}@1", "prod", "--reason", "first release")
    assert (told.code, told.out.splitlines()[0]) == (0, f"{MODEL}@prod: nothing -> 1")
    assert shell("alias", "set", f"{MODEL}@2", "prod", "--reason", "second").out.startswith(
        f"{MODEL}@prod: 1 -> 2"
    )
    assert shell("alias", "set", f"{MODEL}@prod", "canary", "--reason", "as prod").out.startswith(
        f"{MODEL}@canary: nothing -> 2"
    )
    back = shell("alias", "rollback", MODEL, "prod", "--reason", "latency rose")
    assert back.out.startswith(f"{MODEL}@prod: 2 -> 1")
    assert [line[:2] for line in shell("alias", "ls", MODEL).lines[1:]] == [["canary", "2"], ["prod", "1"]]
    code, view = shell.json("alias", "log", MODEL, "prod")
    moves = [(move["before"], move["after"], move["reason"]) for move in view["history"]]
    assert (code, moves) == (0, [(2, 1, "latency rose"), (1, 2, "second"), (None, 1, "first release")])
    gone = shell("alias", "rm", MODEL, "prod", "--reason", "moved to canary")
    assert gone.out.startswith(f"{MODEL}@prod: 1 -> nothing")
    told = shell("alias", "log", MODEL, "prod")
    assert "it was removed" in told.out
    assert "first release" in told.out


def test_an_alias_moves_only_from_where_it_is_expected(shell: Shell, served: Registry) -> None:
    published(served)
    published(served, 1)
    move = ("alias", "set", f"{MODEL}@2", "prod", "--reason", "mine", "--expect")
    assert shell(*move, "none").code == 0
    told = shell("alias", "set", f"{MODEL}@1", "prod", "--reason", "late", "--expect", "none")
    assert told.code == 1
    assert "mine" in told.err, "the move that won is shown"
    assert f"pt2hub alias log {MODEL} prod" in told.err
    assert "--expect 2" in told.err
    assert "[alias_moved]" in told.err
    code, document = shell.json("alias", "set", f"{MODEL}@1", "prod", "--reason", "late", "--expect", "1")
    assert (code, document["error"]["code"]) == (1, "alias_moved")
    assert document["error"]["context"]["winner"]["number"] == 2


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["set", f"{MODEL}@1", "prod"], "--reason"),
        (["set", f"{MODEL}@1", "prod", "--reason", " "], "--reason"),
        (["set", f"{MODEL}@1", "--reason", "why"], "NAME"),
        (["set", MODEL, "prod", "--reason", "why"], "The version is required"),
        (["set", f"{MODEL}@1", "prod", "--reason", "why", "--expect", "now"], "--expect must be"),
        (["rm", MODEL, "prod", "--reason", "why", "--expect", "none"], "--expect none is only for"),
        (["rollback", MODEL, "prod", "--reason", "why", "--timeout", "3"], "--timeout requires --wait"),
    ],
)
def test_half_an_alias_command_is_wrong_usage(shell: Shell, args: list[str], words: str) -> None:
    told = shell("alias", *args)
    assert (told.code, told.out) == (2, "")
    assert words in told.err


def test_an_alias_that_is_a_number_is_refused_with_what_to_write(shell: Shell, served: Registry) -> None:
    published(served)
    told = shell("alias", "set", f"{MODEL}@1", "2", "--reason", "why")
    assert (told.code, told.out) == (1, "")
    assert "numbers are versions" in told.err


def test_rollbacks_go_further_back_until_there_is_nothing_before(shell: Shell, served: Registry) -> None:
    for number in (1, 2, 3):
        published(served, number)
        shell("alias", "set", f"{MODEL}@{number}", "prod", "--reason", "next")
    rollback = ("alias", "rollback", MODEL, "prod", "--reason", "why")
    assert shell(*rollback).out.startswith(f"{MODEL}@prod: 3 -> 2")
    assert shell(*rollback).out.startswith(f"{MODEL}@prod: 2 -> 1")
    told = shell(*rollback)
    assert told.code == 1
    assert "Cannot roll back" in told.err
    shell("alias", "rm", MODEL, "prod", "--reason", "by mistake")
    assert shell(*rollback).out.startswith(f"{MODEL}@prod: nothing -> 1")


# -- show ------------------------------------------------------------------------------------------------


def test_show_takes_every_reference_and_says_how_to_pull(shell: Shell, served: Registry) -> None:
    digest = published(served)
    shell("alias", "set", f"{MODEL}@1", "prod", "--reason", "first")
    for reference in (MODEL, f"{MODEL}@1", f"{MODEL}@prod", f"{MODEL}@{digest}", f"{MODEL}@{digest[:15]}"):
        told = shell("show", reference)
        assert told.code == 0, reference
        assert f"{HERE}  succeeded  runs here" in told.out
        assert f"artifact  {digest}\n" in told.out
        assert "weights   split from the code\n" in told.out
        assert "isolated  in a sandbox\n" in told.out
        assert "size      code " in told.out
        assert "inputs    x float32 [batch, 3, 4, 5]\n" in told.out
        assert "dims      batch 1 to 32\n" in told.out
        assert f"pull     pt2hub pull {MODEL}@1\n" in told.out
        assert "aliases  prod\n" in told.out
    code, document = shell.json("show", MODEL)
    assert (code, document["aliases"], document["compatibility"]) == (0, ["prod"], {HERE: "runs here"})
    assert document["pull"] == f"pt2hub pull {MODEL}@1"
    told_of = document["artifacts"][HERE]
    assert told_of["single_file_bytes"] > told_of["weights_bytes"] > 0
    assert [(item["name"], item["shape"]) for item in told_of["inputs"]] == [("x", ["batch", 3, 4, 5])]
    assert {name: told_of[name] for name in ("weights", "isolation", "profile")} == {
        "weights": "split", "isolation": "sandbox", "profile": None,
    }  # fmt: skip
    assert AUTOTUNE_TYPE in {item["type"] for item in told_of["referrers"]}
    assert "autotune" not in told_of


def test_show_prints_the_candidates_of_autotuning_as_the_compiler_does(
    shell: Shell, served: Registry
) -> None:
    served.worker("w1")
    served.published(served.submit(targets=[HERE]))
    assert (
        f"""{HERE}:
AUTOTUNE mm(2x512, 512x1000)
strides: [512, 1], [1, 512]
dtypes: float32
  cpp_gemm 0.1000 ms 100.0% block_m=8 <- chosen
  mkl 0.2000 ms 50.0%
  cpp_gemm_7 (cpp_gemm) failed: RuntimeError: out of registers block_m=64
3 candidates, 1 failed; precompiling 1.5 s, benchmarking 250 ms
"""
        in shell("show", MODEL, "--autotune").out
    )
    code, document = shell.json("show", MODEL, "--autotune")
    rows = document["artifacts"][HERE]["autotune"]
    assert (code, [row["milliseconds"] for row in rows]) == (0, [0.1, 0.2, None])
    served.sql("DELETE FROM autotune_choices")
    said = "no autotuning: neither compile.mode nor compile.options asks for it"
    assert f"{HERE}: {said}" in shell("show", MODEL, "--autotune").out
    recorded = """{"compile": {"mode": "max-autotune", "options": {"max_autotune": true}}}"""
    served.sql(f"UPDATE artifacts SET provenance = provenance || '{recorded}'")
    said = "no candidates were timed: the compiler had no alternatives to choose from"
    assert f"{HERE}: {said}" in shell("show", MODEL, "--autotune").out


def test_show_and_the_artifact_say_that_its_weights_are_baked(shell: Shell, served: Registry) -> None:
    served.worker("w1")
    version = served.submit(targets=[{"target": HERE, "weights": "baked"}])
    digest = served.published(version, constants=Constants("", 0, (), baked=True))

    assert "weights   baked into the code\n" in shell("show", f"{MODEL}@1").out
    view = served.services.resolve.artifact(digest)
    assert view.weights_form == "baked"
    assert "baked into the code" in str(view)


def test_show_says_where_the_weights_are_from(shell: Shell, served: Registry) -> None:
    weights, origin = served.blob(WEIGHTS).digest, "torchvision:ResNet18_Weights.IMAGENET1K_V1"
    served.submit(weights=weights, weights_from=origin, targets=[HERE])
    assert f"from     {origin}\n" in shell("show", f"{MODEL}@1").out


def test_what_is_not_there_is_answered_with_what_is(shell: Shell, served: Registry) -> None:
    published(served)
    for args in (["show", f"{MODEL}@9"], ["logs", f"{MODEL}@9"], ["builds", f"{MODEL}@beta"]):
        told = shell(*args)
        assert (told.code, told.out) == (1, "")
        assert len(told.err.splitlines()) >= 3, told.err
    assert "vision/resnet18" in shell("show", "vision/resnet81").err
    assert f"pt2hub show {MODEL}@1" in shell("versions", f"{MODEL}@1").err


def test_a_target_of_a_newer_server_is_shown_and_said_to_be_unknown(shell: Shell, served: Registry) -> None:
    published(served)
    served.sql(
        "INSERT INTO targets SELECT 'torch3.0-npu-v9', '3.0', 'npu', 'v9', cuda, os, machine FROM targets LIMIT 1"
    )
    served.sql("UPDATE builds SET target = 'torch3.0-npu-v9'")
    told = shell("show", f"{MODEL}@1")
    assert told.code == 0
    assert "torch3.0-npu-v9  succeeded  unknown target; upgrade pt2hub" in told.out
    assert "pt2hub pull" not in told.out, "this pt2hub could not"


# -- publish and logs ------------------------------------------------------------------------------------


def spec_file(folder: Path, **changes: Any) -> str:
    path = folder / "spec.json"
    path.write_text(json.dumps(a_spec(**changes), indent=1))
    return str(path)


def test_publish_without_wait_names_the_next_commands(shell: Shell, served: Registry, tmp_path: Path) -> None:
    served.worker("w1")
    told = shell("publish", spec_file(tmp_path))
    (build,) = served.services.publish.version(MODEL, 1).builds
    assert (told.code, told.err) == (0, "")
    assert f"pt2hub logs -f {build.id}" in told.out
    assert f"pt2hub show {MODEL}@1" in told.out
    assert "already published" in shell("publish", spec_file(tmp_path)).out


def test_publish_for_a_target_without_a_worker_says_how_to_get_one(
    shell: Shell, served: Registry, tmp_path: Path
) -> None:
    served.worker("w1")
    told = shell("publish", spec_file(tmp_path, targets=[GPU]))
    assert told.code == 0
    assert f"No worker is ready for {GPU}" in told.err
    assert "`pt2hub worker`" in told.err


@pytest.mark.parametrize(("state", "code"), [("failed", "not_found"), ("cancelled", "usage")])
def test_publish_wait_ends_with_1_unless_all_builds_succeeded(
    shell: Shell, served: Registry, tmp_path: Path, state: str, code: str
) -> None:
    failed(served)
    if state == "cancelled":
        served.sql("UPDATE builds SET state = 'cancelled', error = NULL")
    told = shell("publish", spec_file(tmp_path, targets=[HERE]), "--wait")
    assert told.code == 1
    assert f"{HERE}  {state}" in told.out
    ended, document = shell.json("publish", spec_file(tmp_path, targets=[HERE]), "--wait")
    assert (ended, document["error"]["code"], document["number"]) == (1, code, 1)


def test_a_wrong_field_is_named_with_file_line_and_column(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(
        f"model: {MODEL}\nsource: {{factory: 'torchvision.models:resnet18'}}\nlimits:\n  second: 99\n"
    )
    told = shell("publish", str(path))
    assert told.code == 1
    assert str(path) in told.err.splitlines()[0]
    assert "limits.second: line 4, column 3: " in told.err
    path.write_text("model: a/b\nmodel: c/d\n")
    told = shell("publish", str(path))
    assert told.err.startswith(f"pt2hub: {path}, line 2, column 1: ")
    code, document = shell.json("publish", str(path))
    assert (code, document["error"]["code"]) == (1, "invalid_input")


def test_logs_take_a_version_and_where_there_are_several_builds_a_target(
    shell: Shell, served: Registry
) -> None:
    version = failed(served)
    assert shell.json("logs", f"{MODEL}@1") == shell.json("logs", version.builds[0].id)
    served.submit(targets=[HERE, GPU])
    told = shell("logs", f"{MODEL}@1")
    assert told.code == 1
    assert "--target" in told.err
    assert GPU in told.err
    assert shell("logs", f"{MODEL}@1", "--target", GPU).code == 0
