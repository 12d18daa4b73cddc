"""Build hook: a built wheel carries the migrations; an editable install reads them from the checkout."""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class MigrationsHook(BuildHookInterface[Any]):
    """Adds `migrations/` to standard wheels only.

    An editable build would otherwise freeze a copy beside the checkout, and the two would drift apart.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Runs before each build."""
        if version == "standard":
            build_data["force_include"]["migrations"] = "pt2hub/server/db/migrations"
