"""`python -m pt2hub`: the command line without installation."""

from pt2hub.cli.main import main

if __name__ == "__main__":
    main()
