from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pt2hub.client.client import Client
from pt2hub.client.config import ClientConfig
from pt2hub.errors import Forbidden, NotFound, PolicyChanged, PromotionCheckFailed
from support.gated import latency, version
from support.registry import V4

if TYPE_CHECKING:
    from pathlib import Path

    from support.registry import Registry
    from support.shell import Shell

MODEL = "vision/resnet18"
POLICY = """\
checks:
  - alias: prod
    metric: latency_p50
    max_worse: 0.05
metrics:
  latency_p50: {min_effect: 0.03}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A policy as people write it."""
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return path


def test_a_policy_is_shown_and_set_from_a_file(shell: Shell, served: Registry, file: Path) -> None:
    served.submit()
    told = shell("policy", MODEL)
    assert told.out.startswith(f"{MODEL} has no policy")
    assert f"pt2hub policy {MODEL} --set" in told.out
    told = shell("policy", MODEL, "--set", str(file), "--expect", "0")
    assert told.out.startswith(f"The policy of {MODEL} is now at revision 1 (by client, ")
    assert ["prod", "latency_p50", "every", "every", "5", "%", "is", "refused"] in told.lines
    assert ["latency_p50", "-", "3", "%", "-"] in told.lines
    again = shell("policy", MODEL, "--set", str(file))
    assert again.out == told.out.replace("is now at", "is unchanged at")
    shown = shell("policy", MODEL)
    assert shown.out == told.out.replace("is now at", "is at")
    code, view = shell.json("policy", MODEL)
    assert (code, view["revision"], view["document"]["checks"][0]["alias"]) == (0, 1, "prod")
    file.write_text(json.dumps({"checks": []}))
    lost = shell("policy", MODEL, "--set", str(file), "--expect", "0")
    assert (lost.code, "[policy_changed]" in lost.err, 'token "client"' in lost.err) == (
        1,
        True,
        True,
    )
    assert "It has no checks" in shell("policy", MODEL, "--set", str(file)).out


def test_what_is_wrong_with_a_policys_file_is_said_by_line(
    shell: Shell, served: Registry, file: Path
) -> None:
    served.submit()
    file.write_text(POLICY.replace("0.05", "5%"))
    told = shell("policy", MODEL, "--set", str(file))
    assert (told.code, told.out) == (1, "")
    assert f"{file}, line 4, column 5: checks[0].max_worse: must be a number" in told.err
    assert "0.05 is 5 %" in told.err
    file.write_text(POLICY.replace("latency_p50", "latency_p5"))
    told = shell("policy", MODEL, "--set", str(file))
    assert "[unknown_metric]" in told.err
    assert "line 3, column 5: unknown metric" in told.err
    file.write_text("")
    assert "Write checks: and metrics: at the top level" in shell("policy", MODEL, "--set", str(file)).err
    file.write_text("checks: [")
    assert f"{file}: document, line 1" in shell("policy", MODEL, "--set", str(file)).err
    assert "[not_found]" in shell("policy", MODEL, "--set", str(file.parent / "none.yaml")).err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["policy", MODEL, "--expect", "1"], "--expect requires --set"),
        (["alias", "rm", MODEL, "prod", "--force", "--reason", "x"], "No such option '--force'"),
    ],
)
def test_half_a_command_is_wrong_usage(shell: Shell, args: list[str], words: str) -> None:
    told = shell(*args)
    assert (told.code, words in " ".join(told.err.split())) == (2, True)


def test_a_refused_move_says_by_how_much_and_how_an_admin_forces_it(
    shell: Shell, served: Registry, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version(served, latency(10.0))
    version(served, latency(13.0))
    shell("policy", MODEL, "--set", str(file))
    made = shell("alias", "set", f"{MODEL}@1", "prod", "--reason", "first")
    assert "nothing to compare with" in made.out
    move = ("alias", "set", f"{MODEL}@2", "prod", "--reason", "mends a wrong result")
    told = shell(*move)
    assert told.code == 1
    assert f"latency_p50 on {V4} at batch 2 is 30 % worse in 2 than in 1 (13 ms, was 10 ms)" in told.err
    assert "[promotion_check_failed]" in told.err
    code, document = shell.json(*move)
    assert (code, document["error"]["context"]["refused"][0]["path"]) == (1, "checks[0]")
    with monkeypatch.context() as patch:
        patch.setenv("PT2HUB_TOKEN", served.services.access.create_token("ci"))
        for denied in (shell(*move, "--force"), shell("policy", MODEL, "--set", str(file))):
            assert (denied.code, "[forbidden]" in denied.err) == (1, True)
    forced = shell(*move, "--force")
    assert forced.code == 0
    assert "forced past: latency_p50" in forced.out
    history = shell("alias", "log", MODEL, "prod").out
    assert "Move 2 was forced past: latency_p50" in history
    assert "30 % worse" in history
    back = shell("alias", "rollback", MODEL, "prod", "--force", "--reason", "not needed")
    assert "better in 1 than in 2" in back.out


def test_python_reads_sets_and_forces_too(
    client: Client, served: Registry, file: Path, url: str, tmp_path: Path
) -> None:
    version(served, latency(10.0))
    version(served, latency(13.0))
    assert client.policies.get(MODEL).revision == 0
    made = client.policies.set(MODEL, file)
    assert "latency_p50" in str(made)
    assert "at most 5 % worse" in str(made)
    assert client.policies.set(MODEL, {"checks": made.document["checks"]}).revision == 2  # as it is now
    with pytest.raises(PolicyChanged):
        client.policies.set(MODEL, {}, revision=1)
    with pytest.raises(NotFound, match="Cannot read the policy"):
        client.policies.set(MODEL, tmp_path / "none.yaml")
    client.aliases.move(MODEL, "prod", 1, reason="first")
    with pytest.raises(PromotionCheckFailed):
        client.aliases.move(MODEL, "prod", 2, reason="next")
    token = served.services.access.create_token("ci")
    with Client(ClientConfig(home=tmp_path / "ci", url=url, token=token)) as plain, pytest.raises(Forbidden):
        plain.aliases.move(MODEL, "prod", 2, reason="next", force=True)
    assert client.aliases.move(MODEL, "prod", 2, reason="next", force=True).last.forced


@pytest.mark.parametrize(
    ("option", "value", "code"),
    [
        ("--expires", "999999999w", "invalid_input"),
        ("--expires", "0d", "invalid_input"),
        ("--expires", "soon", "bad_configuration"),
        ("--models", "Vision", "invalid_input"),
        ("--scope", "all", "usage"),
    ],
)
def test_a_token_with_a_wrong_grant_is_not_made(
    shell: Shell, served: Registry, monkeypatch: pytest.MonkeyPatch, option: str, value: str, code: str
) -> None:
    monkeypatch.setenv("PT2HUB_DATABASE_URL", served.database_url)
    before = served.services.access.tokens()
    told = shell("admin", "token", option, value)
    assert told.code != 0
    assert f"[{code}]" in told.err
    assert served.services.access.tokens() == before


def test_an_operator_makes_tokens_for_admins_and_sees_which_they_are(
    shell: Shell, served: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PT2HUB_DATABASE_URL", served.database_url)
    assert shell("admin", "token", "--name", "plain").code == 0
    code, made = shell.json("admin", "token", "--name", "root", "--admin")
    assert (code, made["name"], made["admin"]) == (0, "root", True)
    assert served.services.access.verify(made["token"]).admin
    told = shell("admin", "tokens")
    assert told.lines[0][:3] == ["ID", "NAME", "ALLOWS"]
    assert {(row[1], row[2]) for row in told.lines[1:]} == {
        ("client", "everything"),
        ("plain", "all"),
        ("root", "everything"),
    }
