"""Wall time of whole commands: `pt2hub --help`, and `pt2hub models` against a server on this machine."""

from __future__ import annotations

import subprocess
import sys
import time

from common import report, rounds, say, served, summary

COMMANDS = {"help": ["--help"], "version": ["--version"], "models": ["models"]}


def main() -> None:
    """Run and prints."""
    count = rounds(__doc__, 20)
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with served() as (trial, _, _folder):
        for number in range(count + 1):
            for name, arguments in COMMANDS.items():
                began = time.monotonic()
                subprocess.run(
                    [sys.executable, "-m", "pt2hub", *arguments],
                    env=trial.environ,
                    check=True,
                    capture_output=True,
                )
                if number:  # the first writes byte code
                    seconds[name].append((time.monotonic() - began) * 1000)
    for name, values in seconds.items():
        say(f"{name:8} {summary(values)}")
    report("cli_start", milliseconds={name: summary(values) for name, values in seconds.items()})


if __name__ == "__main__":
    main()
