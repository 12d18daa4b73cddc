"""What the framework cannot know of the API is filled into its description."""

from __future__ import annotations

from typing import Any

from pt2hub.server.api.openapi import complete

ERROR = {"description": "An error"}


def described(operation: dict[str, Any] | None = None, **schemas: dict[str, Any]) -> dict[str, Any]:
    operation = {"responses": {"200": {}, "422": {}}} | (operation or {})
    document = {"paths": {"/a": {"get": operation}}, "components": {"schemas": schemas}}
    made = complete(document, error=ERROR)
    assert "default" not in operation["responses"], "the framework's own document is left as it is"
    return made


def test_every_route_may_answer_with_an_error_in_the_form_that_errors_have() -> None:
    assert described()["paths"]["/a"]["get"]["responses"] == {"200": {}, "default": ERROR}


def test_lines_of_a_docstring_are_text_again() -> None:
    made = described({"description": "<br/>One.<br/>Two."})
    assert made["paths"]["/a"]["get"]["description"] == "One. Two."


def test_attributes_of_a_docstring_describe_the_fields_in_the_words_of_json() -> None:
    text = (
        "A build.\n\nAttributes:\n    id: Its id.\n    note: Why it waits,\n        or None.\n    gone: Old."
    )
    fields: dict[str, Any] = {"id": {}, "note": {}, "other": {}}
    schema = described(Build={"description": text, "properties": fields})["components"]["schemas"]["Build"]
    assert schema["description"] == "A build."
    assert schema["properties"] == {
        "id": {"description": "Its id."},
        "note": {"description": "Why it waits, or null."},
        "other": {},
    }
