"""Build hook: a wheel carries the migrations and the built pages; an editable install reads both from the checkout."""

from __future__ import annotations

import runpy
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PAGES = "pt2hub/server/pages"


class WheelHook(BuildHookInterface[Any]):
    """Adds `migrations/` and what `web/` makes to standard wheels only.

    An editable build would otherwise freeze a copy next to the checkout, and the two would drift apart.
    """

    _folder: Path | None = None

    def dependencies(self) -> list[str]:
        """Return the build's requirements in addition to hatchling: a Node where this machine has none."""
        needed: list[str] = self._web()["needs"]()
        return needed

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Run before each build."""
        if version != "standard":
            return
        # Not web/static: a server or a test may be reading it.
        self._folder = Path(tempfile.mkdtemp(prefix="pt2hub-pages-"))
        static = self._folder / "static"
        self._web()["build"](static)
        build_data["force_include"] |= {
            "migrations": "pt2hub/server/db/migrations",
            "web/templates": f"{_PAGES}/templates",
            str(static): f"{_PAGES}/static",
        }

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002  # hatchling's
        """Run after each build."""
        if self._folder:
            shutil.rmtree(self._folder)

    def _web(self) -> dict[str, Any]:
        return runpy.run_path(str(Path(self.root, "web", "build.py")))
