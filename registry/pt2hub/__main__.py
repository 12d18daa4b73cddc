"""`python -m pt2hub`: the CLI as a module."""

import atexit
import gc
import sys


def main() -> None:
    """Run the CLI; exit quietly on Ctrl-C during its import."""
    gc.set_threshold(
        50_000
    )  # imports leave no garbage: searching for it takes a quarter of a command of the server
    atexit.register(gc.freeze)  # nor is there any at the exit, which would search everything for 0.4 s
    try:
        from pt2hub.cli.main import main as run
    except KeyboardInterrupt:
        sys.exit(130)  # 128 and SIGINT, as shells count
    run()


if __name__ == "__main__":
    main()
