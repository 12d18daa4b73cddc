"""Time from a submission's first byte to the worker's claim of the build, with an idle worker.

Each submission is a build that ends at once in a refusal (a factory that torchvision lacks), so that the worker
is idle again. The client's clock and the database's are the same machine's.
"""

from __future__ import annotations

import datetime as dt
import time

from common import report, rounds, say, served, summary
from pt2hub.cli.operations import demo


def main() -> None:
    """Run and prints."""
    count = rounds(__doc__, 30)
    starts: list[float] = []
    with served() as (_, client, _folder):
        for number in range(count + 1):
            spec = {
                **demo.SPEC,
                "model": f"bench/n{number}",
                "source": {"factory": "torchvision.models:nothing"},
            }
            time.sleep(0.5)
            sent = time.time()
            version = client.publish(spec)
            build = client.versions.follow(version).builds[0]
            begun = dt.datetime.fromisoformat(str(build.started_at)).timestamp()
            if number:  # the first opens connections
                starts.append((begun - sent) * 1000)
                say(f"{starts[-1]:7.1f} ms")
    report("submit_to_start", milliseconds=summary(starts))


if __name__ == "__main__":
    main()
