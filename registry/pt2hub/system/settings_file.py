"""The client's settings file, `config.toml`."""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any

from pt2hub.errors import BadConfiguration, HomeUnusable
from pt2hub.places import make_folder


class SettingsFile:
    """A file with a server's address and a token, readable by its owner only."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Any]:
        """Return the settings; empty if there are none yet.

        Raises:
            BadConfiguration: The file cannot be read, or is not TOML.
        """
        try:
            return tomllib.loads(self.path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError, RecursionError) as exc:
            raise BadConfiguration(
                f"Cannot read the file: {exc}",
                where=str(self.path),
                hint="Correct or delete it; `pt2hub login` and `pt2hub up` write a new one.",
            ) from exc

    def write(self, **values: str | None) -> None:
        """Update some settings and keep the rest of the file.

        Args:
            **values: None removes a setting.

        Raises:
            BadConfiguration: The file is not TOML; it stays as it is.
            HomeUnusable: The file cannot be written.
        """
        text = self.path.read_text() if self.read() else ""
        for name, value in values.items():
            text = re.sub(rf"^{name}\s*=.*\n?", "", text, flags=re.MULTILINE)
            if value is not None:
                line = f"{name} = {json.dumps(value)}"  # a JSON string is a TOML string
                text = f"{line}\n{text}"  # first: below a [table] it would belong to the table
        try:
            self._replace(text)
        except OSError as exc:
            raise HomeUnusable(
                f"Cannot write the settings: {exc.strerror}.",
                where=str(self.path),
                hint="Correct the permissions, or set PT2HUB_HOME to a writable directory.",
            ) from exc

    def _replace(self, text: str) -> None:
        import tempfile  # reading, which every command does, is done without it

        folder = self.path.parent
        make_folder(folder)
        descriptor, name = tempfile.mkstemp(dir=folder, prefix=".config")  # mode 0600, whatever the umask
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(text)
            Path(name).replace(self.path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
