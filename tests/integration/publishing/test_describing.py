"""What a model is, in words: set by the API, the command line and a page, and no part of any version."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

from pt2hub.domain.tokens import SERVER

if TYPE_CHECKING:
    import pytest
    from flask.testing import FlaskClient

    from pt2hub.client.client import Client
    from support.registry import Registry
    from support.shell import Shell

MODEL = "vision/resnet18"
ADDRESS = f"/api/v1/models/{MODEL}"
HERE = {"Sec-Fetch-Site": "same-origin"}
TEXT = 'Sorts <b>pictures</b> & "more".\n\nAsk: #vision \U0001f600'


def test_a_description_keeps_its_lines_and_changes_no_version(
    api: FlaskClient, bearer: dict[str, str], registry: Registry
) -> None:
    before = registry.submit()
    answer = api.patch(ADDRESS, json={"description": f" {TEXT} ".replace("\n", "\r\n")}, headers=bearer)
    assert (answer.status_code, answer.get_json()["description"]) == (200, TEXT)
    assert api.get(ADDRESS).get_json() == answer.get_json()
    again = registry.submit()
    assert (again.number, again.identity) == (before.number, before.identity)
    assert api.patch(ADDRESS, json={"description": ""}, headers=bearer).get_json()["description"] == ""
    assert api.patch(ADDRESS, json={"description": "x" * 2000}, headers=bearer).status_code == 200


REFUSED: list[tuple[str, dict[str, object], int]] = [
    (ADDRESS, {"description": "x" * 2001}, 422),
    (ADDRESS, {"description": "a\x1b[31m"}, 422),
    (ADDRESS, {"description": "a\u202eb"}, 422),
    (ADDRESS, {"description": "a\0"}, 422),
    (ADDRESS, {"description": "\ud800"}, 422),
    (ADDRESS, {"description": None}, 422),
    (ADDRESS, {"description": "a", "name": "vision/other"}, 422),
    (ADDRESS, {}, 422),
    (ADDRESS, {"description": "x" * 40_000}, 413),
    (f"{ADDRESS}0", {"description": "a"}, 404),
    ("/api/v1/models/Vision/x", {"description": "a"}, 422),
]


def test_what_is_no_description_changes_nothing_and_is_explained(
    api: FlaskClient, bearer: dict[str, str], registry: Registry
) -> None:
    registry.submit()
    registry.services.catalog.describe(MODEL, TEXT, by=SERVER)
    for address, document, status in REFUSED:
        answer = api.patch(address, json=document, headers=bearer)
        assert (answer.status_code, bool(answer.get_json(force=True)["detail"])) == (status, True), document
    assert registry.services.catalog.model(MODEL).description == TEXT


def test_a_model_is_described_from_a_shell_and_from_python(
    shell: Shell, client: Client, served: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.submit()
    assert f'pt2hub describe {MODEL} "' in shell("describe", MODEL).out
    told = shell("describe", MODEL, "Sorts\n  pictures")
    assert told.out == f"The description of {MODEL} is now:\n  Sorts\n    pictures\n"
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(TEXT.encode())))
    assert shell.json("describe", MODEL, "-")[1]["description"] == TEXT
    assert shell("describe", MODEL).out.startswith(f"{MODEL}:\n  Sorts <b>pictures</b>")
    assert client.models.describe(MODEL, "From Python").description == "From Python"
    assert "no longer has a description" in shell("describe", MODEL, "").out
    wrong = shell("describe", f"{MODEL}0", "x")
    assert (wrong.code, f"Did you mean {MODEL}?" in wrong.err) == (1, True)


def test_a_model_is_described_from_its_page_and_nothing_typed_is_lost(
    web: FlaskClient, signed_in: FlaskClient, served: Registry
) -> None:
    served.submit()
    page, form = f"/models/{MODEL}", f"/models/{MODEL}/description"
    wrong = signed_in.post(form, data={"description": "</textarea>\x07"}, headers=HERE)
    assert wrong.status_code == 422
    assert "&lt;/textarea&gt;\x07" in wrong.text
    sent = {"description": TEXT.replace("\n", "\r\n")}
    done = signed_in.post(form, data=sent, headers=HERE)
    assert (done.status_code, done.headers["Location"]) == (303, page)
    shown = signed_in.get(page)
    assert "<b>pictures" not in shown.text
    assert 'class="description">Sorts &lt;b&gt;pictures&lt;/b&gt;' in shown.text
    assert signed_in.post(form, headers=HERE).status_code == 303  # the field is missing
    assert served.services.catalog.model(MODEL).description == TEXT
    missing = signed_in.post(f"/models/{MODEL}0/description", data=sent, headers=HERE)
    assert (missing.status_code, missing.mimetype) == (404, "text/html")
    web.delete_cookie("pt2hub_session")
    assert form not in web.get(page).text
