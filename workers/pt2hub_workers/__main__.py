"""Entry point of `python -m pt2hub_workers`, which `pt2hub worker` starts."""

import gc
import sys

from pt2hub.client.artifacts.imports import collector_paused
from pt2hub.system.interrupts import hold

if __name__ == "__main__":
    hold()  # imports take a second: signals are held until `main` installs its handlers
    with collector_paused():
        from pt2hub_workers.main import main
    gc.freeze()  # neither later collections nor the exit search what imports left

    sys.exit(main(sys.argv[1:]))
