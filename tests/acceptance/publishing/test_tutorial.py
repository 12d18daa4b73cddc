"""The tutorial is true: its programs run as they stand there, and print what it shows.

`PT2HUB_UPDATE_TUTORIAL=1` puts what they print into the page instead; read the difference before you keep it.
"""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.running import processes_of, wait_for_none
from support.tutorial import Script

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.compiles
TUTORIAL = Path(__file__).resolve().parents[3] / "docs" / "tutorial.md"


@pytest.fixture
def home() -> Iterator[Path]:
    """The reader's home directory, short enough for a socket below it; whatever is left running in it is ended."""
    with tempfile.TemporaryDirectory(prefix="you-", ignore_cleanup_errors=True) as name:
        yield Path(name)
        for pid in processes_of(Path(name)):
            os.kill(pid, signal.SIGKILL)


def test_the_tutorial_prints_what_it_shows_and_leaves_nothing(home: Path) -> None:
    rewrite = bool(os.environ.get("PT2HUB_UPDATE_TUTORIAL"))
    page = Script(TUTORIAL.read_text(), home, rewrite=rewrite).play()
    if rewrite:
        TUTORIAL.write_text(page)
    assert wait_for_none(home) == {}
    assert not (home / "tutorial").exists()
