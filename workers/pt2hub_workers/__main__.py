"""`python -m pt2hub_workers`: a worker; `pt2hub worker` starts it."""

import sys

from pt2hub.server.interrupts import hold

if __name__ == "__main__":
    hold()  # imports take a second: a signal that comes meanwhile waits for `main`, which lets it through
    from pt2hub_workers.main import main

    sys.exit(main(sys.argv[1:]))
