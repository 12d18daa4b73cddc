"""`python -m pt2hub_workers`: a worker for this machine's target."""

import sys

from pt2hub_workers.main import main

if __name__ == "__main__":
    sys.exit(main())
