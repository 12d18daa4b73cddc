"""Entry point of an API process: `python -m pt2hub.server.serve --fd 3`."""

import gc
import sys

if __name__ == "__main__":
    gc.disable()  # modules leave no garbage, and searching for it takes a quarter of their import
    from pt2hub.server.gunicorn_server import main

    gc.freeze()  # before the fork, which then copies less; and the exit searches nothing of it
    gc.enable()
    sys.exit(main())
