"""Slow clients against the server that runs in production: they cost no thread, and others are answered at once."""

from __future__ import annotations

import hashlib
import json
import os
import time
from typing import TYPE_CHECKING

import pytest

from pt2hub.domain.digests import digest_bytes
from support.api_process import ApiProcess, answer, running_api
from support.slow_clients import Request, healthz_seconds, slow_clients

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CLIENTS = 200
PROMPT_S = 0.1
LASTING_S = 8.0
WEIGHTS = os.urandom(1 << 20)
BLOB = f"/api/v1/blobs/{digest_bytes(WEIGHTS)}"
LENGTH = f"Content-Length: {len(WEIGHTS)}"
LARGE = bytes(4 << 20)


def headers(api: ApiProcess) -> Request:
    return Request(api.head("GET", "/api/v1/targets", token=False)[:-2] + b"X-Slow: ")


def documents(api: ApiProcess) -> Request:
    return Request(api.head("POST", "/api/v1/versions", "Content-Length: 5000") + b'{"model": "', b" ")


def uploads(api: ApiProcess) -> Request:
    return Request(api.head("PUT", BLOB, LENGTH))


def uploads_that_slow_down(api: ApiProcess) -> Request:
    return Request(api.head("PUT", BLOB, LENGTH) + WEIGHTS[: 200 << 10])


def chunked_uploads(api: ApiProcess) -> Request:
    return Request(api.head("PUT", BLOB, "Transfer-Encoding: chunked") + b"10000\r\n")


def uploads_that_ask_first(api: ApiProcess) -> Request:
    return Request(api.head("PUT", BLOB, LENGTH, "Expect: 100-continue"))


def anonymous_uploads(api: ApiProcess) -> Request:
    return Request(api.head("PUT", BLOB, LENGTH, token=False) + WEIGHTS[: 100 << 10])


SENDERS = [
    headers,
    documents,
    uploads,
    uploads_that_slow_down,
    chunked_uploads,
    uploads_that_ask_first,
    anonymous_uploads,
]


@pytest.mark.parametrize("kind", SENDERS, ids=lambda kind: kind.__name__)
def test_others_are_answered_at_once_while_two_hundred_clients_send_a_byte_a_second(
    own_api: ApiProcess, kind: Callable[[ApiProcess], Request]
) -> None:
    with slow_clients(own_api, [kind(own_api)] * CLIENTS):
        taken = healthz_seconds(own_api, lasting=LASTING_S)
    assert len(taken) >= LASTING_S / (2 * PROMPT_S)
    assert max(taken) < PROMPT_S, sorted(taken)[-5:]


def test_others_are_answered_at_once_while_two_hundred_clients_read_a_kilobyte_a_second(
    own_api: ApiProcess,
) -> None:
    path = stored(own_api, LARGE)
    slow = Request(own_api.head("GET", path), b"", reads=1000)
    with slow_clients(own_api, [slow] * CLIENTS):
        taken = healthz_seconds(own_api, lasting=LASTING_S)
    assert max(taken) < PROMPT_S, sorted(taken)[-5:]


def stored(api: ApiProcess, data: bytes) -> str:
    """Upload a blob; return its path."""
    path = f"/api/v1/blobs/{digest_bytes(data)}"
    with api.connect() as connection:
        connection.sendall(api.head("PUT", path, f"Content-Length: {len(data)}") + data)
        assert answer(connection)[0] == 201
    return path
