"""Program keys of small sources, each in a process of its own: `python -m support.program_keys` reads and writes JSON.

A process that imports torch once forks for each source before any operator ran.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.workbench import child_environ

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class Named:
    """What the key says of a source.

    Attributes:
        digest: The key's.
        fields: The key's.
        lines: What the build's log says of operators.
        unchanged: Whether the program was the same after the key was made.
    """

    digest: str
    fields: dict[str, Any]
    lines: list[str]
    unchanged: bool

    @property
    def never(self) -> list[str]:
        """Why its code is never reused."""
        found: list[str] = self.fields.get("reuse", {}).get("never", [])
        return found


def keys_of(sources: Mapping[str, str], environ: Mapping[str, str] | None = None) -> dict[str, Named]:
    """The keys of sources, by name.

    Args:
        sources: Python with a function `build`, and perhaps `EXAMPLE`, `DIMS` and `STRICT`.
        environ: Further variables of the process.
    """
    done = subprocess.run(
        [sys.executable, "-m", "support.program_keys"],
        input=json.dumps(dict(sources)),
        env=_environ() | dict(environ or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert all(found.values()), f"{[name for name in found if not found[name]]}: {done.stderr[-8000:]}"
    return {name: Named(**value) for name, value in found.items()}


def _environ() -> dict[str, str]:
    """As that of all children, with what this process was given to import from."""
    environ = child_environ()
    return environ | {
        "PYTHONPATH": os.pathsep.join([environ["PYTHONPATH"], os.environ.get("PYTHONPATH", "")])
    }


def _name(source: str) -> dict[str, Any]:
    """The key of a source, in this process."""
    import torch

    from pt2hub.domain.artifacts import Signature, Toolchain
    from pt2hub.domain.targets import Target
    from pt2hub_workers.inside.builds.export.export import ExportResult
    from pt2hub_workers.inside.builds.key import settings, torch_patches
    from pt2hub_workers.inside.builds.key.loaded_code import digest_loaded_code
    from pt2hub_workers.inside.builds.key.operator_sources import identify_code
    from pt2hub_workers.inside.builds.key.program_graphs import ProgramGraph
    from pt2hub_workers.inside.builds.key.program_key import compute_program_key

    folder = Path(tempfile.mkdtemp())
    (folder / "the_model.py").write_text(source)
    sys.path.insert(0, str(folder))
    before = settings.compiler_configuration() | torch_patches.inductor_constants()
    import the_model  # type: ignore[import-not-found]  # written above

    model = the_model.build()
    example = getattr(the_model, "EXAMPLE", lambda: (torch.ones(3, 4),))()
    shapes = getattr(the_model, "DIMS", lambda: None)()
    strict = getattr(the_model, "STRICT", False)
    program = torch.export.export(model, example, dynamic_shapes=shapes, strict=strict)
    of_source = {"code": hashlib.sha256(source.encode()).hexdigest()}
    first = str(program), ProgramGraph(program).describe()
    identity = identify_code(program, lambda: digest_loaded_code(of_source, folder))
    now = settings.compiler_configuration() | torch_patches.inductor_constants()
    changed = settings.diff_settings(before, {name: now[name] for name in now.keys() & before.keys()})
    key = compute_program_key(
        ExportResult(program, Signature((), (), {}, "cpu", "", ""), frozenset()),
        identity,
        separate=list(program.state_dict),
        options={},
        settings={**settings.numeric_settings(), "changed": changed},
        toolchain=Toolchain("2", "3", "g++", "glibc", "1"),
        target=Target(torch="2.13", device="cpu", arch="x86_64_v3"),
    )
    same = (str(program), ProgramGraph(program).describe()) == first
    return {"digest": key.digest, "fields": key.fields, "lines": identity.lines, "unchanged": same}


def _in_child(source: str) -> dict[str, Any]:
    """As `_name`, in a fork of this process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            with os.fdopen(writing, "w") as out:
                json.dump(_name(source), out)
        except Exception:  # noqa: BLE001  # whatever a source does, the others are named
            with os.fdopen(os.dup(2), "w") as out:
                traceback.print_exc(file=out)
            os._exit(1)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    found: dict[str, Any] = json.loads(text or "{}")
    return found


def _main(sources: Iterable[tuple[str, str]]) -> None:
    import torch._inductor.lowering
    import torch._inductor.package
    import torch.export  # noqa: F401  # once for all children

    import pt2hub_workers.inside.builds.build  # noqa: F401  # likewise

    gc.collect()
    gc.freeze()  # a collection over torch's objects costs a child as much as the key itself
    gc.disable()
    print(json.dumps({name: _in_child(source) for name, source in sources}))


if __name__ == "__main__":
    _main(json.load(sys.stdin).items())
