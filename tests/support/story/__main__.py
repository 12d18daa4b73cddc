"""`make seed-demo`: fills the server of `PT2HUB_HOME` (or `PT2HUB_DATABASE_URL`) with the story."""

from __future__ import annotations

import os

from pt2hub.server.admin import open_services
from pt2hub.server.config import ServerConfig
from support.story.plot import MODELS
from support.story.replay import seed

if __name__ == "__main__":
    with open_services(ServerConfig.from_environ(os.environ)) as services:
        artifacts = seed(services)
    print(f"{len(MODELS)} models, {artifacts} artifacts. See them: pt2hub open")
