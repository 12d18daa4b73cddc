"""Requests made up from the OpenAPI document by schemathesis: what it allows is not refused for its form, nothing fails."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import load_all_checks
from schemathesis.core.failures import FailureGroup
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi import checks as of_openapi

from pt2hub.domain.tokens import Scope
from pt2hub.errors import InvalidInput, ReceiverUnreachable
from pt2hub.server.api.app import create_app
from support.packages import WEIGHTS
from support.registry import Registry

if TYPE_CHECKING:
    from schemathesis import Case
    from schemathesis.core.transport import Response

    from pt2hub.server.config import ServerConfig
    from pt2hub.server.container import Container

POSITIVE, NEGATIVE = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
NEVER_ENDS = "GET /api/v1/builds/{id}/events"
STREAMS_CODE = "GET /api/v1/artifacts/{digest}/model.pt2"
"""The code of the artifact that tests publish is no zip."""
WITH_RULES_BETWEEN_FIELDS = {
    "POST /api/v1/versions",  # a schema of its own: /api/v1/spec.schema.json
    "POST /api/v1/versions/preview",
    "POST /api/v1/measurements",
    "POST /api/v1/evaluations",
    "PUT /api/v1/models/{team}/{name}/policy",
    "DELETE /api/v1/models/{team}/{name}",  # a reason is required unless nothing is to be deleted
    "DELETE /api/v1/models/{team}/{name}/versions/{number}",
    "DELETE /api/v1/builds/{id}",
}
RECEIVER = ReceiverUnreachable.code
"""The code of a webhook's address whose name nobody knows, as of made-up ones."""
IN_WORDS = {"after", "label", "name", "where"}
"""What the document says in words: cursors come from pages, names of tokens have visible characters only, conditions, and keys of labels that something has."""


@pytest.fixture
def published(container: Container, migrated_url: str) -> dict[str, Any]:
    """What there is to name in paths, after a publication."""
    registry = Registry(container, migrated_url)
    version = registry.submit()
    digest = registry.published(version, weights_data=WEIGHTS)
    return {
        "team": "vision",
        "name": "resnet18",
        "number": 1,
        "digest": digest,
        "build": version.builds[0].id,
    }


@pytest.mark.parametrize(
    ("mode", "scopes", "examples"),
    [
        pytest.param(POSITIVE, frozenset(Scope), 4, id="allowed requests with a token"),
        pytest.param(POSITIVE, None, 1, id="allowed requests without one"),
        pytest.param(NEGATIVE, frozenset(Scope), 1, id="other requests with a token"),
    ],
)
def test_requests_are_answered_as_the_document_says(
    container: Container,
    config: ServerConfig,
    published: dict[str, Any],
    mode: GenerationMode,
    scopes: frozenset[Scope] | None,
    examples: int,
) -> None:
    headers = (
        {}
        if scopes is None
        else {"Authorization": f"Bearer {container.access.create_token('t', scopes=scopes)}"}
    )
    schema = schemathesis.openapi.from_wsgi("/api/v1/openapi.json", create_app(container, config))
    schema.config.generation.update(allow_x00=False)  # no text of a document may have one
    wrong: list[str] = []
    answers: Counter[int] = Counter()

    for operation in (found.ok() for found in schema.get_all_operations()):

        @seed(21)
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode), there=st.booleans())
        def send(case: Case, there: bool) -> None:
            if there:
                aim(case, published)
            response = case.call(headers=headers)
            answers[response.status_code] += 1
            wrong.extend(problems(case, response, allowed=mode is POSITIVE))

        with contextlib.suppress(Unsatisfiable):  # every request is allowed
            send()

    assert not wrong, "\n".join(wrong)
    assert answers[200] >= 5 or mode is NEGATIVE, answers


def aim(case: Case, published: dict[str, Any]) -> None:
    """Put names of what there is in the place of made-up ones."""
    label = case.operation.label
    if label in {NEVER_ENDS, STREAMS_CODE}:
        return
    names = {**published, "id": published["build"]} if "/builds/" in label else published
    case.path_parameters.update({name: names[name] for name in case.path_parameters if name in names})


def problems(case: Case, response: Response, *, allowed: bool) -> list[str]:
    """What is wrong with an answer.

    Args:
        allowed: Whether the document allows the request.
    """
    checks = [
        schemathesis.checks.not_a_server_error,
        of_openapi.status_code_conformance,
        of_openapi.content_type_conformance,
        of_openapi.response_schema_conformance,
    ]
    found = []
    if response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR and RECEIVER in response.text:
        return []
    try:
        case.validate_response(response, checks=checks)
    except FailureGroup as failed:
        found = [f"{case.operation.label}: {each}" for each in failed.exceptions]
    told = refusal(response)
    if (
        allowed
        and told
        and case.operation.label not in WITH_RULES_BETWEEN_FIELDS
        and told["where"] not in IN_WORDS
    ):
        found.append(f"{case.operation.label} refused {case.as_curl_command()}: {json.dumps(told)[:500]}")
    return found


def refusal(response: Response) -> dict[str, Any] | None:
    """The error of a request that was refused for its form."""
    if response.status_code not in {400, 422}:
        return None
    told: dict[str, Any] = response.json()
    return told if told["code"] == InvalidInput.code else None


load_all_checks()
