"""docs/reference/errors.md."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import pt2hub
import pt2hub_workers
from pt2hub import errors
from pt2hub.server.api.problems import status_of
from reference_generator import markdown as md

_INTRO = """
Every error of pt2hub is a class of `pt2hub.errors` with a stable code; `except pt2hub.errors.Pt2hubError`, the base
of all, catches each. A code that exists keeps its meaning; a client
that meets a code of a newer server takes it as an error of its kind.

Here is what each means and who raises it. What to do about it: [When a build fails](../how-to/when-a-build-fails.md).

* **In Python** the client raises the class, also for errors of the server. `message`, `where`, `hint`, `details` and
  `context` are attributes; `str(error)` has all but the last.
* **Over HTTP** an error is a problem document (RFC 9457, `application/problem+json`) with the same fields:
  [Problem](api.md#problem). A status is given below where the server answers with the error.
* **On the command line** the sentence goes to standard error with the code in brackets; with `--json` it is the one
  JSON value on standard output, under `error`.
* **A failed build** has its error in the field `error` of a [BuildView](api.md#buildview), with the same fields.

*Build* below is the process of a worker that runs a model's code, *worker* the one that looks after it.
"""

_KINDS = {
    "usage": "The caller, the spec or the model is at fault. Never tried again by itself.",
    "transient": "Storage, network or a worker failed. The worker tries a build again, up to five times; a client "
    "may try again after `Retry-After`.",
    "fatal": "A defect of pt2hub, the compiler or a worker. Never tried again by itself; worth a report.",
}
_ROOMS = {
    "pt2hub.cli": ("command line",),
    "pt2hub.client": ("client",),
    "pt2hub.extras": ("client", "command line"),
    "pt2hub.archive.code": ("client", "server", "build"),
    "pt2hub.archive.exported_programs": ("client", "server", "build"),
    "pt2hub.archive": ("client", "build"),
    "pt2hub.domain.publishing.inputs": ("server",),
    "pt2hub.domain.publishing.spec": ("server",),
    "pt2hub.domain": ("client", "server"),
    "pt2hub.system.egress": ("server",),
    "pt2hub.wire": ("client", "server"),
    "pt2hub.server": ("server",),
    "pt2hub_workers.inside": ("build",),
    "pt2hub_workers": ("worker",),
}
"""Who runs the code of a room; the first that fits."""
_STARTING = ("up", "home", "config", "admin", "serve", "blobs.opening")
_STARTING_DB = ("db.embedded", "db.engine", "db.migrating", "db.queue_schema")
_OF_WORKERS = ("services.isolation",)
_SILENT = tuple(f"pt2hub.server.{room}" for room in (*_STARTING, *_STARTING_DB, *_OF_WORKERS))
"""Server code that runs before the API or next to it: its errors go to the command line and have no status."""
_ONE_SIDE = {"ClientTooOld": ["server"], "ServerTooOld": ["client"]}
"""Who raises what stands in a module that both sides run."""
_CUSTOM = "PydanticCustomError"
_ROOTS = (errors.Pt2hubError, errors.UsageError, errors.TransientError, errors.FatalError)


def page() -> str:
    """Return the page."""
    parts = [_kind(kind, meaning) for kind, meaning in _KINDS.items()]
    return md.document("Errors", _INTRO, *parts)


def _kind(kind: str, meaning: str) -> str:
    found = [cls for cls in errors.walk() if cls.kind == kind and cls is not errors.Pt2hubError]
    rows = [
        (md.code(cls.code), _class(cls), _status(cls), _meaning(cls), ", ".join(raisers(cls)))
        for cls in sorted(found, key=lambda cls: cls.code)
    ]
    head = ("code", "class", "status", "meaning", "raised by")
    return "\n\n".join((md.heading(2, f"Kind {kind}"), meaning, md.table(head, rows)))


def _class(cls: type[errors.Pt2hubError]) -> str:
    (base, *_) = cls.__bases__
    return md.code(cls.__name__ if base in _ROOTS else f"{cls.__name__}({base.__name__})")


def _meaning(cls: type[errors.Pt2hubError]) -> str:
    return (cls.__doc__ or "").strip().splitlines()[0]


def _status(cls: type[errors.Pt2hubError]) -> str:
    rooms = {room for room in _mentions()[cls.__name__] if not room.startswith(_SILENT)}
    raised = any("server" in _parties(room) for room in rooms) and _ONE_SIDE.get(cls.__name__) != ["client"]
    return str(int(status_of(cls))) if raised or cls in _ROOTS else ""


def raisers(cls: type[errors.Pt2hubError]) -> list[str]:
    """Return which parts of pt2hub raise an error."""
    found = {party for module in _mentions()[cls.__name__] for party in _parties(module)}
    return _ONE_SIDE.get(cls.__name__) or sorted(found)


def _parties(module: str) -> tuple[str, ...]:
    return next((parties for room, parties in _ROOMS.items() if f"{module}.".startswith(f"{room}.")), ())


@cache
def _mentions() -> dict[str, set[str]]:
    """Return the modules that make an error, by the name of its class."""
    found: dict[str, set[str]] = defaultdict(set)
    for package in (pt2hub, pt2hub_workers):
        folder = Path(str(package.__file__)).parent
        for path in folder.rglob("*.py"):
            module = ".".join(path.relative_to(folder.parent).with_suffix("").parts)
            for name in _made_in(ast.parse(path.read_text())):
                found[name].add(module)
    return found


def _made_in(tree: ast.Module) -> set[str]:
    """Return the names of the classes that a module makes errors of."""
    codes = {cls.code: cls.__name__ for cls in errors.walk()}
    names = set()
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        called = _last(call.func)
        names |= {called} & set(codes.values())
        if called == _CUSTOM and isinstance(
            call.args[0], ast.Constant
        ):  # becomes ours in services.spec_errors
            names |= {codes[str(call.args[0].value)]}
    return names


def _last(node: ast.expr) -> str:
    """Return the last part of a dotted name."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
