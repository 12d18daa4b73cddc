from __future__ import annotations

import json

import pytest
from flask import Flask
from werkzeug.exceptions import default_exceptions

from pt2hub import errors
from pt2hub.cli.output import complain
from pt2hub.server.api import problems
from pt2hub.wire.problems import from_dict

EVERY = list(errors.walk())


def test_every_code_is_unique() -> None:
    codes = [cls.code for cls in EVERY]
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("cls", EVERY, ids=lambda cls: cls.__name__)
def test_every_error_has_a_code_a_doc_line_and_a_status(cls: type[errors.Pt2hubError]) -> None:
    assert "code" in vars(cls)
    assert (cls.__doc__ or "").strip().splitlines()[0].endswith(".")
    assert 400 <= problems.status_of(cls) < 600
    if cls is not errors.Pt2hubError:
        kind = {"usage": 400, "transient": 503, "fatal": 500}[cls.kind]
        assert cls in problems.STATUS or problems.status_of(cls) in {kind, 422}


@pytest.mark.parametrize("cls", EVERY, ids=lambda cls: cls.__name__)
def test_a_problem_document_becomes_the_same_error_again(cls: type[errors.Pt2hubError]) -> None:
    error = cls(
        "It broke.",
        where="inputs[0]",
        hint="Mend it.",
        details=(errors.Detail("inputs[0].shape", "too long", given="17", allowed="16"),),
        context={"limit": 16},
    )
    response = problems.problem(error)
    assert response.content_type == "application/problem+json"
    document = json.loads(response.get_data())
    assert document["status"] == response.status_code
    again = from_dict(document)
    assert type(again) is cls
    assert str(again) == str(error)
    assert again.context == error.context


def test_an_error_at_another_place_is_the_same_one_otherwise() -> None:
    newer = from_dict(
        {"code": "label_frozen", "kind": "usage", "message": "No.", "hint": "Ask.", "context": {"a": 1}}
    )
    newer.__cause__ = cause = KeyError("x")
    newer.add_note("seen twice")
    vars(newer)["attempts"] = 3
    moved = newer.replace(where="--label a=b")
    assert (moved.code, moved.hint, moved.context, moved.__cause__) == (
        "label_frozen",
        "Ask.",
        {"a": 1},
        cause,
    )
    assert (moved.__notes__, vars(moved)["attempts"]) == (["seen twice"], 3)
    assert (str(moved), newer.where) == ("--label a=b: No.\n  Ask.", None)
    moved.context["b"] = 2
    assert newer.context == {"a": 1}
    assert newer.replace(message="Not yet.").args == ("Not yet.",)


@pytest.mark.parametrize("cls", EVERY, ids=lambda cls: cls.__name__)
def test_every_class_of_errors_can_be_moved(cls: type[errors.Pt2hubError]) -> None:
    assert type(cls("No.", where="here").replace(where=None)) is cls


def test_the_command_line_names_a_code_that_only_the_server_knows(capsys: pytest.CaptureFixture[str]) -> None:
    complain(from_dict({"code": "label_frozen", "kind": "usage", "message": "No.", "where": "document"}))
    assert capsys.readouterr().err == "pt2hub: No.\n  [label_frozen]\n"


def app() -> Flask:
    made = Flask("test")
    problems.register(made)

    @made.get("/broken")
    def broken() -> str:
        raise ZeroDivisionError("secret detail")

    @made.get("/ours")
    def ours() -> str:
        raise errors.DatabaseUnavailable("No answer.", where="database")

    return made


def test_an_unforeseen_error_tells_a_number_and_no_inside() -> None:
    response = app().test_client().get("/broken")
    assert response.status_code == 500
    document = json.loads(response.get_data())
    assert document["code"] == "internal"
    assert document["context"]["id"] in document["detail"]
    assert "secret" not in response.get_data(as_text=True)


def test_an_error_that_passes_says_when_to_try_again() -> None:
    response = app().test_client().get("/ours")
    assert response.status_code == 503
    assert int(response.headers["Retry-After"]) > 0


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [("GET", "/nowhere", 404, "not_found"), ("POST", "/ours", 405, "usage")],
)
def test_errors_of_http_itself_are_problem_documents(method: str, path: str, status: int, code: str) -> None:
    response = app().test_client().open(path, method=method)
    assert (response.status_code, response.content_type) == (status, "application/problem+json")
    assert json.loads(response.get_data())["code"] == code
    if status == 405:
        assert "GET" in response.headers["Allow"]


def test_every_http_error_of_werkzeug_has_a_document() -> None:
    assert len(default_exceptions) > 20
    for cls in default_exceptions.values():  # and not every subclass: other tests' libraries have theirs
        assert problems._of_http(cls()).content_type == "application/problem+json"
