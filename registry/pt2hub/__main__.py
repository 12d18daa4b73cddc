"""`python -m pt2hub`: the CLI as a module."""

import sys


def main() -> None:
    """Run the CLI; exit quietly on Ctrl-C during its import."""
    try:
        from pt2hub.cli.main import main as run
    except KeyboardInterrupt:
        sys.exit(130)  # 128 and SIGINT, as shells count
    run()


if __name__ == "__main__":
    main()
