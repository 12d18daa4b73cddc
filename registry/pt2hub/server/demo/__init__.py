"""A believable year of a made-up company's models, for demonstrations, screenshots and tests; nothing of it can be pulled.

`vision`, `language`, `speech` and `ranking` tell what the models are and what became of them; `plan` lays it out over the
year; `figures`, `kernels`, `logs` and `artifacts` say what was built and measured; `seeding` writes all of it.
"""

from __future__ import annotations

from pt2hub.server.demo.models import MARK, TEAM_PREFIX
from pt2hub.server.demo.seeding import Demo, seed

__all__ = ["MARK", "TEAM_PREFIX", "Demo", "seed"]
