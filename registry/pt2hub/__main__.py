"""`python -m pt2hub`: the command line without installation."""

import sys


def main() -> None:
    """Runs the command line; Ctrl-C ends it quietly while it is still being imported."""
    try:
        from pt2hub.cli.main import main as run
    except KeyboardInterrupt:
        sys.exit(130)  # 128 and SIGINT, as shells count
    run()


if __name__ == "__main__":
    main()
