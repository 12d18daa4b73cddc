"""`python -m pt2hub_workers`: a worker; `pt2hub worker` starts it."""

import signal
import sys

if __name__ == "__main__":
    # Imports take a second: who stops the worker during them gets no traceback. `Signals` takes over from here.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    from pt2hub_workers.main import main

    sys.exit(main(sys.argv[1:]))
