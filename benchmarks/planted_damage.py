"""Flips and truncations planted in the storage and in clients' caches: how many reach a load.

A real server (`pt2hub up`, with the no-op toolchain) publishes one artifact. One half of the damage is planted in the
server's storage, where a client with an empty cache then pulls the artifact; it must fail, and after `pt2hub admin heal`
it must succeed. The other half is planted in a client's cache, in ways that leave size, times and the cache's own record
as they were; the client then pulls with `verify="always"`, which is all that a load does before it opens a file. A load
would take wrong bytes where a pull returns a file whose digest is not its own. The exit code says whether there was any.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from common import noop_spec, report, say, served
from pt2hub.client.blobs.folder import BlobFolder
from pt2hub.client.blobs.records import regular_stamp
from pt2hub.client.client import Client
from pt2hub.domain.artifacts import CODE_TYPE, WEIGHTS_TYPE
from pt2hub.domain.digests import Digest, digest_file, hex_of
from pt2hub.domain.storage import parse_object_path
from pt2hub.errors import Pt2hubError
from pt2hub.server import admin
from pt2hub.server.config import ServerConfig

if TYPE_CHECKING:
    from pathlib import Path

    from pt2hub.cli.operations.temporary_server import TemporaryServer
    from pt2hub.client.artifacts.local import LocalArtifact

_PARTS = ("manifest", "config", "code", "weights")
_SAY_EVERY = 100


class Planter:
    """Plants damage and looks whether anything of it is returned.

    Args:
        dice: Chooses what is damaged, how and where.
    """

    def __init__(self, trial: TemporaryServer, client: Client, folder: Path, dice: random.Random) -> None:
        self._client = client
        self._folder = folder
        self._dice = dice
        self._server = ServerConfig.from_environ(trial.environ)
        self._storage = trial.home / "server" / "blobs"
        version = client.publish(noop_spec("planted/model", seed=1)).wait()
        self._reference = f"{version.model}@{version.number}"
        self._intact = BlobFolder(folder / "intact")
        self._files = self._digests(self._pull(self._intact))
        self.tally: Counter[str] = Counter()

    def in_storage(self) -> None:
        """Damage a file in the storage, pull it with an empty cache, heal it, and pull again."""
        part, digest = self._choose()
        path = self._find(digest)
        how = self._damage(path)
        empty = BlobFolder(self._folder / "empty")
        outcome = self._outcome(empty)
        self._count("storage", part, how, outcome)
        if outcome == "intact":  # nobody looked at these bytes
            self.tally["storage: served"] += 1
        admin.heal(self._server, [digest], [self])
        shutil.rmtree(empty.root, ignore_errors=True)
        if self._outcome(empty) != "intact":
            self.tally["not healed"] += 1
        shutil.rmtree(empty.root, ignore_errors=True)

    def in_cache(self, verify: Any = "always") -> None:
        """Damage a file in a client's cache as a disk does, which tells nobody, and pull."""
        part, digest = self._choose()
        if verify == "stat" and part != "weights":
            part, digest = "weights", self._files["weights"]
        cache = BlobFolder(self._folder / "cache")
        shutil.rmtree(cache.root, ignore_errors=True)
        shutil.copytree(self._intact.root, cache.root)
        path = cache.path(digest)
        how = self._damage(path)
        if how == "flip":
            stamp = regular_stamp(path)
            assert stamp
            cache.record(path, stamp, synced=True)
        self._count(f"cache, verify={verify}", part, how, self._outcome(cache, verify))

    # As a source of `heal`.
    name = "intact"

    def fetch(self, digest: Digest, folder: Path, models: Any) -> Path:
        """See `HealSource.fetch`."""
        del folder, models
        return self._intact.path(digest)

    def _choose(self) -> tuple[str, Digest]:
        part = self._dice.choice(_PARTS)
        return part, self._files[part]

    def _damage(self, path: Path) -> str:
        """Flip a bit in place, or cut the end off; times stay as they were."""
        before, data = path.stat(), bytearray(path.read_bytes())
        how = self._dice.choice(("flip", "truncation"))
        at = self._dice.randrange(len(data))
        path.chmod(0o644)
        if how == "flip":
            data[at] ^= 1 << self._dice.randrange(8)
        else:
            del data[at:]
        with path.open("r+b") as file:
            file.write(data)
            file.truncate()
        path.chmod(before.st_mode & 0o777)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        return how

    def _outcome(self, cache: BlobFolder, verify: Any = "always") -> str:
        """Return the code of the error, or whether all that a load would open is intact."""
        try:
            found = self._digests(self._pull(cache, verify))
        except Pt2hubError as error:
            return error.code
        except (ValueError, KeyError) as error:
            return type(error).__name__
        return "intact" if found == self._files else "WRONG BYTES"

    def _pull(self, cache: BlobFolder, verify: Any = "always") -> LocalArtifact:
        config = replace(self._client.config, cache_folder=cache.root)
        with Client(config) as client:
            target = client.artifacts.resolve(self._reference).artifacts[0].target
            return client.pull(self._reference, target=target, verify=verify, progress=False)

    def _digests(self, local: LocalArtifact) -> dict[str, Digest]:
        """Return the digests of what the files hold, whatever they are named."""
        assert local.manifest_digest
        folder = local.code.parent
        manifest = folder / hex_of(local.manifest_digest)
        document = json.loads(manifest.read_bytes())
        layers = {layer["mediaType"]: layer["digest"] for layer in document["layers"]}
        assert layers[CODE_TYPE]
        assert layers[WEIGHTS_TYPE]
        return {
            "manifest": digest_file(manifest),
            "config": digest_file(folder / hex_of(document["config"]["digest"])),
            "code": digest_file(local.code),
            "weights": digest_file(local.weights),
        }

    def _find(self, digest: Digest) -> Path:
        """Return the object that readers find: of the highest generation, outside of the quarantine."""
        found = [
            (parsed[2], path)
            for path in self._storage.rglob(f"{hex_of(digest)}*")
            if (parsed := parse_object_path(path.relative_to(self._storage).as_posix()))
        ]
        return max(found)[1]

    def _count(self, where: str, part: str, how: str, outcome: str) -> None:
        self.tally[f"{where}: {outcome}"] += 1
        self.tally[f"{where}: planted in {part}"] += 1
        self.tally[f"{where}: {how}"] += 1


def main() -> int:
    """Run and print a tally."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--planted", type=int, default=1000, help="damaged files (default 1000)")
    parser.add_argument("--seed", type=int, help="of the dice, to do the same again")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    say(f"seed {seed}")
    with served(PT2HUB_TOOLCHAIN="noop") as (trial, client, folder):
        planter = Planter(trial, client, folder, random.Random(seed))
        for number in range(options.planted):
            planter.in_cache() if number % 2 else planter.in_storage()
            if (number + 1) % _SAY_EVERY == 0:
                say(f"{number + 1} planted")
        for _ in range(20):  # for comparison: what the quick check of a cache does not see
            planter.in_cache("stat")
        tally = planter.tally
    for name, count in sorted(tally.items()):
        say(f"{name:<45} {count:>5}")
    always = tally["cache, verify=always: WRONG BYTES"]
    wrong = tally["storage: WRONG BYTES"] + tally["storage: served"] + always + tally["not healed"]
    report(
        "planted_damage",
        seed=seed,
        planted=options.planted,
        uncaught=wrong,
        tally=dict(sorted(tally.items())),
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
