"""Dry runs of alias moves, on the command line, in Python and on the page that shows the same before a move."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pt2hub.client.client import Client
from pt2hub.client.config import ClientConfig
from support.pages import Page
from support.promoted import MODEL, PROVEN, move, protect, published

if TYPE_CHECKING:
    from pathlib import Path

    from flask.testing import FlaskClient

    from support.registry import Registry
    from support.shell import Shell

PAGE = f"/models/{MODEL}"
HERE = {"Sec-Fetch-Site": "same-origin"}


def read(client: FlaskClient, path: str, status: int = 200) -> Page:
    response = client.get(path)
    assert response.status_code == status, response.get_data(as_text=True)[:2000]
    return Page(response.get_data(as_text=True))


def test_a_dry_run_prints_every_check_and_fails_where_the_move_would(shell: Shell, served: Registry) -> None:
    published(served)
    published(served, verification={**PROVEN, "result": "no_power"})
    protect(served, promoters=["client"], verified=True, ready=True)
    move(served, 1, None, by="client")
    told = shell("alias", "set", f"{MODEL}@2", "prod", "--dry-run")
    assert (told.code, told.err) == (1, "")
    assert told.lines[0] == ["CHECK", "TARGET", "FOUND", "NEEDED", "RESULT"]
    rows = {line[0]: line[-1] for line in told.lines[1:-1]}
    assert rows == {"promoter": "passed", "ready": "passed", "verification": "fails"}
    assert told.out.splitlines()[-1] == (f"{MODEL}@prod would stay on 1: 1 of 3 checks refuse version 2.")
    assert "its verification has no power" in told.out
    code, document = shell.json("alias", "set", f"{MODEL}@2", "prod", "--dry-run")
    assert (code, document["allowed"], document["before"], document["after"]) == (1, False, 1, 2)
    assert served.services.aliases.alias(MODEL, "prod").number == 1
    assert "[promotion_check_failed]" in shell("alias", "set", f"{MODEL}@2", "prod", "--reason", "x").err
    new = shell("alias", "set", f"{MODEL}@1", "canary", "--dry-run")
    assert (new.code, new.out) == (0, f"{MODEL}@canary would move: nothing -> 1.\n")


def test_a_rollback_is_foretold_too(shell: Shell, served: Registry) -> None:
    for _ in range(2):
        published(served)
    protect(served, verified=True)
    move(served, 1, None)
    move(served, 2, 1)
    told = shell("alias", "rollback", MODEL, "prod", "--dry-run")
    assert (told.code, told.out.splitlines()[-1]) == (0, f"{MODEL}@prod would move: 2 -> 1.")
    assert served.services.aliases.alias(MODEL, "prod").number == 2
    for option in ("--force", "--wait"):
        assert shell("alias", "rollback", MODEL, "prod", "--dry-run", option).code == 2
    assert shell("alias", "rollback", MODEL, "prod").code == 2


def test_python_sees_the_checks_of_its_own_token(client: Client, served: Registry, tmp_path: Path) -> None:
    published(served)
    protect(served, promoters=["release"])
    refused = client.aliases.preview(MODEL, "prod", 1)
    assert not refused.allowed
    assert "would not be created: 1 of 1 checks refuse version 1" in str(refused)
    assert "promoter" in str(refused)
    token = served.services.access.create_token("release")
    with Client(ClientConfig(home=tmp_path / "r", url=client.config.url, token=token)) as release:
        assert release.aliases.preview(MODEL, "prod", 1).allowed
        assert release.aliases.move(MODEL, "prod", 1, reason="first").number == 1


def test_the_policy_shows_what_it_protects(shell: Shell, served: Registry) -> None:
    published(served)
    protect(
        served,
        promoters=["release-*"],
        ready=True,
        verified=True,
        min_age={"alias": "staging", "hours": 24},
        metrics={"accuracy": {"min": 0.76}},
    )
    told = shell("policy", MODEL)
    for line in (
        "prod promoters release-*",
        "prod minimum age 1 d 0 h on staging",
        "prod accuracy at least 0.76",
    ):
        assert line.split() in told.lines, told.out
    assert "aliases move to any version" not in told.out


def test_the_page_shows_the_same_table_before_a_move(
    web: FlaskClient, signed_in: FlaskClient, served: Registry
) -> None:
    published(served, verification={**PROVEN, "comparisons": []})
    published(served)
    protect(served, promoters=["tester"], verified=True)
    page = read(signed_in, f"{PAGE}/promotion?alias=prod&number=1&reason=as+typed")
    for said in (
        "Checks before prod",
        "refused",
        "compared nothing",
        "every artifact verified with power",
        "tester",
    ):
        assert said in page.text, page.text
    assert "as typed" in page.text
    page = read(signed_in, f"{PAGE}/promotion?alias=prod&number=2")
    assert "would move: nothing -> 2" in page.text
    assert "at least" not in page.text
    assert "Protected aliases" in read(signed_in, PAGE).text
    assert "Show checks" in read(signed_in, PAGE).text
    signed_in.post("/sign-out", headers=HERE)
    anonymous = read(web, f"{PAGE}/promotion?alias=prod&number=2")
    assert "nobody who is signed in" in anonymous.text
    assert "Sign in to move prod" in anonymous.text


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("alias=prod&number=", 422, "Version is required"),
        ("alias=prod&number=x", 422, "number"),
        ("alias=3&number=1", 422, "invalid alias"),
        ("alias=prod&number=9", 404, "not found"),
    ],
)
def test_wrong_input_comes_back_with_its_error(
    signed_in: FlaskClient, served: Registry, query: str, status: int, said: str
) -> None:
    published(served)
    assert said in read(signed_in, f"{PAGE}/promotion?{query}", status).text


def test_pages_yank_show_and_end_a_yank(signed_in: FlaskClient, served: Registry) -> None:
    for _ in range(2):
        published(served)
    version = f"{PAGE}/versions/2"
    assert "Yank version 2" in read(signed_in, version).text
    sent = signed_in.post(f"{version}/yank", data={"reason": "<b>wrong</b> labels"}, headers=HERE)
    assert sent.status_code == 303
    page = read(signed_in, sent.location)
    for said in ("Version yanked.", "<b>wrong</b> labels", "by tester", "End the yank"):
        assert said in page.text
    assert "Set an alias on version 2" not in page.text
    model = read(signed_in, PAGE).text
    assert "Version 2 is newer but yanked." in model
    assert "yanked" in model
    assert "yanked" in read(signed_in, f"{PAGE}/promotion?alias=prod&number=2", 409).text
    twice = signed_in.post(f"{version}/yank", data={"reason": "again"}, headers=HERE)
    assert twice.status_code == 409
    assert "already yanked" in twice.get_data(as_text=True)
    sent = signed_in.post(f"{version}/unyank", data={"reason": "right"}, headers=HERE)
    page = read(signed_in, sent.location)
    assert "The yank of the version has ended." in page.text
    assert "Yank ended" in page.text
