"""What every build on a GPU machine must show."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pt2hub.client.client import Client
    from pt2hub.wire.shapes import BuildView

LEVEL = os.environ.get("PT2HUB_ISOLATION", "sandbox")
"""How the worker confines builds in this run."""


def check_confined(client: Client, build: BuildView) -> None:
    """Prints and checks where a build ran."""
    assert "cu" in build.target
    assert build.artifact is not None, build.error
    provenance = client.artifact(build.artifact).provenance
    print(json.dumps({key: provenance[key] for key in ("isolation", "isolation_profile")}))
    assert provenance["isolation"] == LEVEL
    assert (provenance["isolation_profile"] is None) == (LEVEL == "process")
