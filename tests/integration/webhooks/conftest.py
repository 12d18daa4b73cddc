"""A server that may send to the receiver."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pt2hub.server.config import ServerConfig
    from support.receiver import Receiver


@pytest.fixture
def config(config: ServerConfig, receiver: Receiver) -> ServerConfig:
    return replace(config, webhook_receivers=(("127.0.0.1", receiver.port),))
