"""How often a verdict is wrong: equal artifacts, and planted slowdowns, over fresh processes as workers time them.

One model is built several times for real through `pt2hub up`, each time for another team, so that a compiler runs each
time. A comparison is what a worker does: waves of fresh processes, which import torch together and then run one by one,
load two builds in alternating order and time them in alternating blocks (`pt2hub_workers.inside.performance.timer`), until
`compare_paired` is not undecided any more or three waves are over. In the same blocks the second build is timed twice more
with a slowdown planted into it: each call is followed by idling for 10 or 5 % of its own time. Only this benchmark can do
that. Some comparisons run beside a process that burns one core of their lane; lanes are disjoint sets of cores, so that
larger machines do several at a time.

It prints a table after every tenth comparison and at the end, there with one JSON line, also after Ctrl-C and when
`--minutes` are over. With `--out` each comparison is kept as it ends, and counted when the same file is given again; with
`--home` the builds are kept, and made only once. `--draws` makes thousands of comparisons more by drawing from the
processes that ran: what a hundred comparisons are too few to show.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import queue
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from common import report, say
from pt2hub.analysis.comparison import compare_paired
from pt2hub.cli.operations import demo
from pt2hub.cli.operations.temporary_server import TemporaryServer
from pt2hub.domain.codec import encode
from pt2hub.domain.performance.metrics import default_threshold
from pt2hub.system.processes import die_with_parent
from pt2hub_workers.children.pool import PATIENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pt2hub.domain.performance.metrics import ComparisonResult

SPEC: dict[str, Any] = {
    "source": {"factory": "torchvision.models:squeezenet1_1", "seed": 0},
    "inputs": [{"name": "x", "shape": ["batch", 3, 160, 160], "generate": {"normal": {}}}],
    "dims": {"batch": {"min": 1, "max": 16, "example": 2}},
    "checks": {"accept": ["no_power"]},  # equal artifacts: what they compute does not matter here
    "measure": {"torch_compile": False, "processes": 1},
    "targets": ["auto"],
}
Subject: TypeAlias = dict[str, Any]
"""A pulled build: its config and the files of its two layers."""
SHAPE = (2, 3, 160, 160)
PLANTED = {"equal": 0.0, "slower_10": 0.10, "slower_5": 0.05}
WAVES = 3
"""As workers do: K processes, and twice K more at most."""
PROCESS_SECONDS = 300.0
SHOWN_EACH = 10
BURNER = (
    "import os, time\nparent = os.getppid()\nwhile os.getppid() == parent:\n    for _ in range(10**6): pass"
)
"""Ends by itself when its parent is gone."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One comparison.

    Attributes:
        condition: `quiet` or `burner`.
        outcomes: Outcome, or `too_noisy`, by what was planted.
        ratios: One of each process, by what was planted.
        processes: How many it took until the last of the three verdicts.
        seconds: Of them all.
    """

    condition: str
    outcomes: dict[str, str]
    ratios: dict[str, list[float]]
    processes: int
    seconds: float


@dataclass(slots=True)
class Bench:
    """What the lanes share.

    Attributes:
        options: Of the command line.
        environ: Of the processes.
        builds: What is compared, in pairs.
        todo: Conditions of the comparisons that are to be made.
        done: Those that were made.
        stop: Set when no further process may start.
    """

    options: argparse.Namespace
    environ: dict[str, str]
    builds: list[Subject]
    todo: queue.SimpleQueue[str] = field(default_factory=queue.SimpleQueue)
    done: list[Outcome] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def keep(self, outcome: Outcome) -> None:
        """Count a comparison, and write it down."""
        with self.lock:
            self.done.append(outcome)
            if self.options.out:
                with self.options.out.open("a") as file:
                    file.write(json.dumps(asdict(outcome)) + "\n")
            if len(self.done) % SHOWN_EACH == 0:
                table(self.done)
        say(f"{len(self.done):4} {outcome.condition:6} {outcome.processes:2} processes {outcome.outcomes}")


def main() -> None:
    """Run and prints."""
    if sys.argv[1:2] == ["process"]:
        print(json.dumps(time_in_process(json.loads(sys.argv[2]))))
        return
    options = _options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what is done is counted then, too
    end = time.monotonic() + 60 * options.minutes
    earlier = _earlier(options.out)
    with ExitStack() as stack:
        home = options.home or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="pt2hub-regressions-"))
        )
        trial = TemporaryServer(home, **_worker(options))
        bench = Bench(options, trial.environ, built(trial, home / "builds.json", options.builds))
        for condition in _conditions(options, earlier):
            bench.todo.put(condition)
        bench.done += earlier
        try:
            compare(bench, end)
        except KeyboardInterrupt:
            say("interrupted: what is done is counted")
    show(bench.done, options)


def built(trial: TemporaryServer, kept: Path, count: int) -> list[Subject]:
    """Return the builds, as they were kept or made now.

    Args:
        trial: Where they are made.
        kept: The file that names them.
        count: How many are needed.
    """
    if kept.exists():
        builds: list[Subject] = json.loads(kept.read_text())
        if len(builds) >= count:
            return builds[:count]
    began = time.monotonic()
    builds = build(trial, count)
    kept.write_text(json.dumps(builds))
    say(f"{len(builds)} builds after {time.monotonic() - began:.0f} s")
    return builds


def build(trial: TemporaryServer, count: int) -> list[Subject]:
    """Build the model for several teams, and pulls the results; the server is over afterwards."""
    with trial.server() as client:
        for number in range(count):
            demo.publish(client, {**SPEC, "model": f"team{number}/model"}, say)
        pulled = [client.pull(f"team{number}/model@1") for number in range(count)]
    return [
        {"config": encode(local.config), "code": str(local.code), "weights": str(local.weights)}
        for local in pulled
    ]


def compare(bench: Bench, end: float) -> None:
    """Make the comparisons in lanes until all are made or the time is over."""
    threads = [threading.Thread(target=_lane, args=(bench, cores)) for cores in _lanes(bench.options)]
    for thread in threads:
        thread.start()
    try:
        while any(thread.is_alive() for thread in threads):
            time.sleep(0.5)
            if time.monotonic() > end and not bench.stop.is_set():
                say("the time is over: what is done is counted")
                bench.stop.set()
    finally:
        bench.stop.set()
        for thread in threads:
            thread.join()


def _lane(bench: Bench, cores: Sequence[int]) -> None:
    chance = random.Random(cores[0])
    while not bench.stop.is_set():
        try:
            condition = bench.todo.get_nowait()
        except queue.Empty:
            return
        with _beside(condition, cores):
            outcome = _comparison(bench, cores, condition, chance.sample(bench.builds, 2))
        if outcome:
            bench.keep(outcome)


def _comparison(bench: Bench, cores: Sequence[int], condition: str, pair: list[Subject]) -> Outcome | None:
    """Wave of processes, as a worker runs them; None where it was stopped before the end."""
    began = time.monotonic()
    ratios: dict[str, list[float]] = {planted: [] for planted in PLANTED}
    judged: dict[str, ComparisonResult] = {}
    for _ in range(WAVES):
        with _waiting(bench, cores, pair) as processes:
            for process in processes:
                if bench.stop.is_set():
                    return None
                for planted, ratio in _timed(process).items():
                    ratios[planted].append(ratio)
        # Each of the three is a comparison of its own, which ends when it is decided.
        for planted, values in ratios.items():
            if planted not in judged or judged[planted].reason == "too_noisy":
                judged[planted] = compare_paired(values, default_threshold("latency_p50"))
        if all(judgement.reason != "too_noisy" for judgement in judged.values()):
            break
    outcomes: dict[str, str] = {
        planted: judgement.reason or judgement.outcome for planted, judgement in judged.items()
    }
    seconds = round(time.monotonic() - began, 1)
    return Outcome(condition, outcomes, ratios, len(ratios["equal"]), seconds)


@contextmanager
def _waiting(
    bench: Bench, cores: Sequence[int], pair: list[Subject]
) -> Iterator[list[subprocess.Popen[str]]]:
    """Yield the processes of a wave, which have imported what they need; they are over after the block."""
    job = {"pair": pair, "seconds": bench.options.seconds, "cores": list(cores)}
    with ExitStack() as stack:
        processes = []
        for number in range(bench.options.processes):
            process = subprocess.Popen(
                [sys.executable, __file__, "process", json.dumps({**job, "first": number % 2})],
                env=PATIENT | bench.environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,  # Ctrl-C ends the comparison, not a process in the middle of it
                preexec_fn=die_with_parent(),  # noqa: PLW1509  # one system call through an already loaded library
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            processes.append(process)
        for process in processes:
            if process.stdout is None or not process.stdout.readline():
                raise RuntimeError("a process ended before it began")
        yield processes


def _timed(process: subprocess.Popen[str]) -> dict[str, float]:
    """Have a process that waits do its work."""
    told, _ = process.communicate("go\n", timeout=PROCESS_SECONDS)
    if process.returncode:
        raise RuntimeError(f"a process ended with code {process.returncode}")
    answer: dict[str, float] = json.loads(told.splitlines()[-1])
    return answer


def time_in_process(job: dict[str, Any]) -> dict[str, float]:
    """Return one fresh process: the second build's median over the first one's, by what was planted.

    Args:
        job: `pair`, the two builds; `first`, which of them is loaded and timed first; `seconds` of each subject; `cores`.
    """
    os.sched_setaffinity(0, job["cores"])
    import torch

    from pt2hub.client.artifacts.loader import load_artifact
    from pt2hub.client.artifacts.local import LocalArtifact
    from pt2hub.domain.artifacts import ArtifactConfig
    from pt2hub.domain.codec import decode
    from pt2hub_workers.inside.performance.timer import ProcessorClock, time_alternating

    print("ready", flush=True)
    sys.stdin.readline()
    loaded = {}
    for place in (job["first"], 1 - job["first"]):
        item = job["pair"][place]
        config = decode(ArtifactConfig, item["config"])
        files = LocalArtifact.from_files(config, Path(item["code"]), Path(item["weights"]))
        loaded[place] = load_artifact(files)
    tensor = torch.randn(SHAPE)
    calls = {"before": _call(loaded[0], tensor, 0.0)}
    calls |= {planted: _call(loaded[1], tensor, share) for planted, share in PLANTED.items()}
    names = list(calls) if job["first"] == 0 else list(calls)[::-1]
    with torch.inference_mode():
        timed = time_alternating([calls[name] for name in names], ProcessorClock(), seconds=job["seconds"])
    medians = {name: item.quantile(0.5) for name, item in zip(names, timed, strict=True)}
    return {planted: medians[planted] / medians["before"] for planted in PLANTED}


def _call(model: Callable[..., object], tensor: Any, share: float) -> Callable[[], object]:
    def stretched() -> None:
        began = time.perf_counter()
        model(tensor)
        end = began + (time.perf_counter() - began) * (1 + share)
        while time.perf_counter() < end:
            pass

    return stretched if share else lambda: model(tensor)


@contextmanager
def _beside(condition: str, cores: Sequence[int]) -> Iterator[None]:
    """Burn one core of a lane while the block runs."""
    if condition == "quiet":
        yield
        return
    burner = subprocess.Popen(
        [sys.executable, "-c", BURNER],
        start_new_session=True,
        preexec_fn=die_with_parent(),  # noqa: PLW1509  # one system call through a loaded library
    )
    try:
        os.sched_setaffinity(burner.pid, cores)
        yield
    finally:
        burner.kill()
        burner.wait()


def show(done: Sequence[Outcome], options: argparse.Namespace) -> None:
    """Print the table and the JSON line."""
    report(
        "regressions",
        processes=options.processes,
        seconds_of_an_implementation=options.seconds,
        lanes=options.lanes,
        builds=options.builds,
        figures=table(done),
        **({"drawn": _figures(drawn(done, options))} if options.draws and done else {}),
    )


def drawn(done: Sequence[Outcome], options: argparse.Namespace) -> list[Outcome]:
    """Comparison drawn with replacement from the real processes of those that were made, judged wave by wave."""
    dice, threshold = random.Random(0), default_threshold("latency_p50")
    rows = [row for one in done for row in zip(*(one.ratios[name] for name in PLANTED), strict=True)]
    found = []
    for _ in range(options.draws):
        chosen = [dice.choice(rows) for _ in range(WAVES * options.processes)]
        ratios = {name: [row[at] for row in chosen] for at, name in enumerate(PLANTED)}
        outcomes: dict[str, str] = {}
        taken = size = 0
        for name, values in ratios.items():
            for wave in range(1, WAVES + 1):
                size = wave * options.processes
                judgement = compare_paired(values[:size], threshold)
                outcomes[name] = judgement.reason or judgement.outcome
                if outcomes[name] != "too_noisy":
                    break
            taken = max(taken, size)
        found.append(Outcome("drawn", outcomes, ratios, taken, 0.0))
    return found


def table(done: Sequence[Outcome]) -> dict[str, dict[str, float | int | None]]:
    """Print what is known so far; the same by condition."""
    groups = {name: [o for o in done if o.condition == name] for name in ("quiet", "burner")}
    figures = {name: _figures(found) for name, found in {**groups, "all": list(done)}.items() if found}
    rows = list(next(iter(figures.values()), {}))
    say(f"{'':32}" + "".join(f"{name:>10}" for name in figures))
    for row in rows:
        say(f"{row:32}" + "".join(f"{figures[name][row]!s:>10}" for name in figures))
    return figures


def _figures(done: Sequence[Outcome]) -> dict[str, float | int | None]:
    """Return the counts, and shares of the comparisons that were not too noisy."""
    outcomes = {planted: Counter(outcome.outcomes[planted] for outcome in done) for planted in PLANTED}
    equal = outcomes["equal"]
    figures: dict[str, float | int | None] = {
        "comparisons of equal artifacts": len(done),
        "false alarms": equal["worse"] + equal["better"],
        "same": equal["same"],
    }
    for planted, counts in outcomes.items():
        figures[f"{planted}: too noisy"] = counts["too_noisy"]
    for planted in ("slower_10", "slower_5"):
        counts = outcomes[planted]
        judged = len(done) - counts["too_noisy"]
        figures[f"{planted}: judged"] = judged
        figures[f"{planted}: found"] = counts["worse"]
        figures[f"{planted}: found, %"] = round(100 * counts["worse"] / judged, 1) if judged else None
        figures[f"{planted}: really, %"] = round(
            100 * statistics.median(_really(o, planted) for o in done), 1
        )
    logs = [statistics.stdev(map(math.log, outcome.ratios["equal"])) for outcome in done]
    figures["spread of a process, median %"] = round(100 * statistics.median(logs), 2)
    figures["spread of a process, largest %"] = round(100 * max(logs), 1)
    figures["processes, mean"] = round(statistics.fmean(outcome.processes for outcome in done), 1)
    figures["seconds a comparison"] = round(statistics.fmean(outcome.seconds for outcome in done), 1)
    return figures


def _really(outcome: Outcome, planted: str) -> float:
    """By how much the second build was slowed down, as a share: what follows a call takes part in its cost."""
    pairs = zip(outcome.ratios[planted], outcome.ratios["equal"], strict=True)
    return math.expm1(statistics.fmean(math.log(slower / equal) for slower, equal in pairs))


def _conditions(options: argparse.Namespace, earlier: Sequence[Outcome]) -> list[str]:
    """Of the comparisons that are missing, evenly mixed."""
    count = options.comparisons
    share = options.burner_share
    wanted = ["burner" if int((at + 1) * share) > int(at * share) else "quiet" for at in range(count)]
    for outcome in earlier:
        if outcome.condition in wanted:
            wanted.remove(outcome.condition)
    return wanted


def _earlier(path: Path | None) -> list[Outcome]:
    if path is None or not path.exists():
        return []
    return [Outcome(**json.loads(line)) for line in path.read_text().splitlines()]


def _lanes(options: argparse.Namespace) -> list[list[int]]:
    """Disjoint sets of cores, as many in each."""
    cores = sorted(os.sched_getaffinity(0))
    size = len(cores) // options.lanes
    if not size:
        raise SystemExit(f"{options.lanes} lanes do not fit on {len(cores)} cores")
    return [cores[at * size : (at + 1) * size] for at in range(options.lanes)]


def _worker(options: argparse.Namespace) -> dict[str, str]:
    return {"PT2HUB_WORKER_TARGET": options.target} if options.target else {}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--comparisons", type=int, default=100, help="of equal artifacts (default 100)")
    add("--burner-share", type=float, default=0.2, help="how many of them beside a burner (default 0.2)")
    add("--lanes", type=int, default=1, help="comparisons at a time, on disjoint cores (default 1)")
    add("--builds", type=int, default=2, help="real builds of the model (default 2)")
    add("--processes", type=int, default=5, help="of one wave (default 5)")
    add(
        "--seconds",
        type=float,
        default=0.3,
        help="of each subject in one process (default 0.3; workers: 0.5)",
    )
    add("--minutes", type=float, default=math.inf, help="ends then, builds included")
    add("--home", type=Path, help="keeps the builds there, and takes them from there the next time")
    add("--out", type=Path, help="keeps each comparison as a line of JSON, and goes on from there")
    add("--draws", type=int, default=0, help="comparisons drawn again from the processes of those made")
    add("--target", help="what the worker builds for, such as torch2.11-cpu-x86_64_v4 on a GPU machine")
    return parser.parse_args()


if __name__ == "__main__":
    main()
