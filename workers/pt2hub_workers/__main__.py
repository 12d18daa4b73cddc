"""`python -m pt2hub_workers`: a worker; `pt2hub worker` starts it."""

import sys

from pt2hub_workers.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
