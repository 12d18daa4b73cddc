"""Entry of a worker's child process: imports torch, waits for one job, does it, ends.

`python -m pt2hub_workers.inside.child ROLE`, with the channel inherited. A child is used once and never
forked after torch ran an operator (facts/aoti.md, section 4).
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt2hub.errors import InternalError, Pt2hubError
from pt2hub_workers.inside.channel import Channel

if TYPE_CHECKING:
    from collections.abc import Callable


def main(role: str) -> None:
    """Prepares, reports readiness, does one job.

    Args:
        role: `build` or `gate`.
    """
    channel = Channel.inherited()
    work = _prepare_build() if role == "build" else _prepare_gate()
    channel.send("ready")
    message = channel.receive()
    try:
        channel.send("result", value=work(message, channel))
    except Pt2hubError as error:
        channel.log(traceback.format_exc(), "compiler")
        channel.send("error", error=error.as_dict())
    except MemoryError:
        channel.send("error", error=InternalError("the child ran out of memory", where=role).as_dict())
    except Exception as error:  # noqa: BLE001  # the last resort: whatever it is, the build must say it
        channel.log(traceback.format_exc(), "error")
        channel.send("error", error=InternalError(f"{type(error).__name__}: {error}", where=role).as_dict())


def _prepare_build() -> Callable[[dict[str, Any], Channel], dict[str, Any]]:
    from pt2hub_workers.inside.schemas import declare_torchvision

    declare_torchvision()
    import torch._inductor.package
    import torch.export
    import torchvision

    from pt2hub_workers.inside import build
    from pt2hub_workers.inside.compiling import CompilerCount

    del torch, torchvision

    def work(message: dict[str, Any], channel: Channel) -> dict[str, Any]:
        job = build.Job.read(message)
        build.isolate_caches(job.directory)
        return build.Build(job, channel, CompilerCount(os.environ.get("CXX"))).run()

    return work


def _prepare_gate() -> Callable[[dict[str, Any], Channel], dict[str, Any]]:
    from pt2hub_workers.inside import gate

    def work(message: dict[str, Any], channel: Channel) -> dict[str, Any]:
        os.environ["TMPDIR"] = str(Path(message["directory"]) / "tmp")
        return gate.check(message, channel)

    return work


if __name__ == "__main__":
    main(sys.argv[1])
