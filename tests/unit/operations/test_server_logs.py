"""Every line that a server's process writes is one JSON object, whoever wrote it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

PROGRAM = """
import logging, threading, warnings
import structlog
from pt2hub.system import logging_setup

logging_setup.configure()
structlog.contextvars.bind_contextvars(build="b1", attempt=2)
log = structlog.get_logger("pt2hub_workers.builds.attempt")
log.info("began", step="fetch", path=__import__("pathlib").Path("/x"))
log.debug("detail")
logging.getLogger("procrastinate.worker").info("noise")
logging.getLogger("procrastinate.worker").warning("job %s\\nhas two lines", 7)
logging.getLogger("gunicorn.error").error("cannot reach postgresql://u:hunter22@db/x")
warnings.warn("old thing", UserWarning, stacklevel=1)
thread = threading.Thread(target=lambda: [][0], name="heartbeat")
thread.start()
thread.join()
raise ValueError("Authorization: Bearer abcdefghijklmnop and " + "s3cr3t-of-this-process")
"""


def lines(**environ: str) -> list[dict[str, Any]]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PT2HUB_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=kept | {"PYTHONPATH": os.pathsep.join(sys.path)} | environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (1, "")
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_everything_is_one_object_a_line_with_what_is_known_of_the_build() -> None:
    told = lines(SOME_PASSWORD="s3cr3t-of-this-process")
    assert [line["event"].partition("\n")[0] for line in told] == [
        "began",
        "job 7",
        "cannot reach postgresql://u:[redacted]@db/x",
        "<string>:14: UserWarning: old thing",
        "a thread ends with an exception",
        "the process ends with an exception",
    ]
    first = told[0]
    assert (first["build"], first["attempt"], first["step"], first["level"]) == ("b1", 2, "fetch", "info")
    assert (first["logger"], first["path"]) == ("pt2hub_workers.builds.attempt", "/x")
    assert all({"timestamp", "level", "logger"} <= set(line) for line in told)
    assert told[1]["build"] == "b1", "what libraries log of a build names it too"
    assert "IndexError" in told[-2]["exception"]
    assert "ValueError" in told[-1]["exception"]
    assert "hunter22" not in str(told)
    assert "abcdefghijklmnop" not in str(told)
    assert "s3cr3t" not in str(told)


@pytest.mark.parametrize(
    ("level", "first", "noisy"),
    [("debug", "began", True), ("error", "cannot", False), ("odd", "began", False)],
)
def test_the_level_is_a_setting(level: str, first: str, noisy: bool) -> None:
    told = lines(PT2HUB_LOG_LEVEL=level)
    assert told[0]["event"].startswith(first)
    assert ("detail" in [line["event"] for line in told]) is noisy
    assert ("noise" in [line["event"] for line in told]) is noisy
