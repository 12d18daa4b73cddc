"""A state machine over publish, republish, yank, alias, delete, pull and the steps of collections, against a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pt2hub.domain.digests import Digest, digest_bytes
from pt2hub.domain.tokens import Actor
from pt2hub.errors import BlobGone, DigestRefused, StillNeeded
from pt2hub.server.blobs.keys import StorageKey
from pt2hub.server.db.stores.blobs.garbage import Garbage
from pt2hub.server.services.blobs.collection import BlobCollection
from pt2hub.server.services.blobs.documents import named_by, read_manifest

if TYPE_CHECKING:
    from pt2hub.domain.builds import Claim
    from pt2hub.domain.publications import Publication
    from support.registry import Registry

MODEL = "vision/resnet18"
ADMIN = Actor("root", admin=True)
WEIGHTS = [
    b"weights %d, which several versions share, longer than an empty document is" % n for n in range(3)
]
CODE = [b"code %d" % n for n in range(3)]
ALIASES = ("prod", "canary")
_TABLES = (
    "models, targets, environments, workers, blobs, blob_leases, blob_references, tombstones, collections"
)
_places = st.integers(0, 7)


@dataclass
class RunningCollection:
    """A collection between two of its steps."""

    batches: Iterator[list[Garbage]]
    batch: list[Garbage] | None = None
    removed: bool = False


@dataclass
class ModelAlias:
    """What the model says about an alias.

    Attributes:
        numbers: The versions that it was on, without those that it left by going back; the last is where it is.
    """

    numbers: list[int] = field(default_factory=list)

    @property
    def number(self) -> int | None:
        """The version that it is on."""
        return self.numbers[-1] if self.numbers else None

    @property
    def needed(self) -> list[int]:
        """The versions that it is on and would roll back to."""
        return self.numbers[-2:]

    def move(self, number: int) -> None:
        """Move it on, or back."""
        if number in self.numbers:
            del self.numbers[self.numbers.index(number) :]
        self.numbers.append(number)


class CollectorMachine(RuleBasedStateMachine):
    """What may happen to blobs, in any order.

    Attributes:
        registry: The services; emptied before each run.
    """

    registry: Registry

    @initialize()
    def begin(self) -> None:
        """Begin with nothing."""
        self.registry.sql(f"TRUNCATE {_TABLES} CASCADE")
        storage = self.registry.services.storage
        for kind in ("blobs", "manifests", "tombstones"):
            storage.remove(list(storage.keys(kind)))  # type: ignore[arg-type]
        self.versions: dict[int, Digest] = {}
        self.aliases = {name: ModelAlias() for name in ALIASES}
        self.yanked: set[int] = set()
        self.refused: set[Digest] = set()
        self.waiting: list[tuple[Claim, Publication, int]] = []
        self.collections: list[RunningCollection] = []
        self.seed = 0

    @rule(weights=st.sampled_from(WEIGHTS), code=st.sampled_from(CODE))
    def store_publication(self, weights: bytes, code: bytes) -> None:
        """A worker stores everything of an artifact, and has not published it yet."""
        self.seed += 1
        source = {"factory": "torchvision.models:resnet18", "seed": self.seed}
        view = self.registry.submit(source=source)
        claim = self.registry.claim(view.builds[0].id)
        publication = self._store(claim, code, weights)
        if publication is not None:
            self.waiting.append((claim, publication, view.number))

    @rule(weights=st.sampled_from(WEIGHTS), code=st.sampled_from(CODE))
    def publish_at_once(self, weights: bytes, code: bytes) -> None:
        """A worker stores an artifact and publishes it."""
        before = len(self.waiting)
        self.store_publication(weights, code)
        if len(self.waiting) > before:
            self.publish(before)

    @precondition(lambda self: self.waiting)
    @rule(place=_places)
    def publish(self, place: int) -> None:
        """A worker publishes what it stored; where its lease was over and it was collected, it stores it again."""
        claim, publication, number = self.waiting.pop(place % len(self.waiting))
        builds = self.registry.services.builds
        try:
            builds.publish(claim, publication)
        except BlobGone:
            again = self._store(claim, *self._parts(publication))
            if again is None:
                return
            publication = again
            builds.publish(claim, publication)
        self.versions[number] = publication.manifest.digest

    @rule(data=st.sampled_from([b"upload 1", b"upload 2"]))
    def upload(self, data: bytes) -> None:
        """A client uploads bytes that nothing will refer to."""
        self.registry.blob(data)

    @rule()
    def expire_leases(self) -> None:
        """Six hours pass."""
        self.registry.sql("UPDATE blob_leases SET pending_until = now() - interval '1 second'")

    @precondition(lambda self: self.versions)
    @rule(place=_places, alias=st.sampled_from(ALIASES))
    def move(self, place: int, alias: str) -> None:
        """An alias moves."""
        number = self._choose(place)
        known = self.aliases[alias]
        if number in self.yanked or known.number == number:
            return
        self.registry.services.aliases.move(
            MODEL, alias, number, expected=known.number, reason="release", by=ADMIN
        )
        known.move(number)

    @rule(alias=st.sampled_from(ALIASES))
    def remove_alias(self, alias: str) -> None:
        """An alias is removed."""
        known = self.aliases[alias]
        if known.number is not None:
            self.registry.services.aliases.remove(
                MODEL, alias, expected=known.number, reason="unused", by=ADMIN
            )
            self.aliases[alias] = ModelAlias()

    @precondition(lambda self: self.versions)
    @rule(place=_places)
    def yank(self, place: int) -> None:
        """A version is yanked, unless an alias is on it."""
        number = self._choose(place)
        if number not in self.yanked and all(alias.number != number for alias in self.aliases.values()):
            self.registry.services.yanks.yank(MODEL, number, reason="wrong", by=ADMIN)
            self.yanked.add(number)

    @precondition(lambda self: self.versions)
    @rule(place=_places)
    def delete(self, place: int) -> None:
        """A version is deleted exactly if nothing needs it."""
        number = self._choose(place)
        needed = any(number in alias.needed for alias in self.aliases.values())
        try:
            self.registry.services.deletion.version(MODEL, number, by=ADMIN, reason="old")
        except StillNeeded:
            assert needed
            return
        assert not needed
        self._forget(number)

    @precondition(lambda self: self.versions)
    @rule(place=_places)
    def delete_by_force(self, place: int) -> None:
        """A version is deleted by force; what others share stays."""
        number = self._choose(place)
        view = self.registry.services.forced_deletion.delete(
            MODEL, number, by=ADMIN, reason="leak", keep_shared=True
        )
        storage = self.registry.services.storage
        for digest in view.refused:
            assert storage.size(StorageKey.blob(Digest(digest))) is None
            self.refused.add(Digest(digest))
        for alias in self.aliases.values():
            if alias.number == number:
                alias.numbers.clear()
        self._forget(number)

    @precondition(lambda self: self.versions)
    @rule(place=_places)
    def pull(self, place: int) -> None:
        """A client pulls a version."""
        number = self._choose(place)
        found = self.registry.services.resolve.resolve(f"{MODEL}@{number}")
        assert [item.digest for item in found.artifacts] == [self.versions[number]]

    @precondition(lambda self: len(self.collections) < 3)
    @rule()
    def mark(self) -> None:
        """A collection marks what nothing needs: its first step."""
        steps = self._steps()
        for _ in steps.mark():
            pass
        self.collections.append(RunningCollection(steps.marked()))

    @precondition(lambda self: self.collections)
    @rule(place=_places)
    def advance(self, place: int) -> None:
        """A collection makes its next step: removes the objects of a batch, or finishes its rows."""
        running = self.collections[place % len(self.collections)]
        if running.batch is None:
            running.batch = next(running.batches, None)
            running.removed = False
            if running.batch is None:
                self.collections.remove(running)
        elif not running.removed:
            self._steps().remove(running.batch)
            running.removed = True
        else:
            self._steps().finish(running.batch)
            running.batch = None

    @precondition(lambda self: self.collections)
    @rule(place=_places)
    def crash(self, place: int) -> None:
        """The process of a collection dies."""
        self.collections.pop(place % len(self.collections))

    @rule()
    def sweep(self) -> None:
        """A collection lists the storage."""
        for _ in self._steps().sweep():
            pass

    @rule(place=_places)
    def write_late(self, place: int) -> None:
        """A writer that outlived its lease writes the generation that it had been given."""
        rows = self.registry.sql("SELECT digest, generation FROM blobs WHERE kind = 'blobs' ORDER BY digest")
        known = {digest_bytes(data): data for data in (*WEIGHTS, *CODE)}
        rows = [row for row in rows if row[0] in known]
        if rows:
            digest, generation = rows[place % len(rows)]
            self.registry.services.storage.write(
                StorageKey.blob(Digest(digest)).at(generation), [known[digest]]
            )

    @precondition(lambda self: self.versions)
    @rule()
    def collect(self) -> None:
        """A collection runs through all its steps."""
        self.registry.services.collector.collect(grace=timedelta())

    @invariant()
    def every_published_blob_is_readable(self) -> None:
        """The promise of the collector."""
        storage = self.registry.services.storage
        for number, manifest in getattr(self, "versions", {}).items():
            for key in named_by(read_manifest(storage, manifest)):
                data = b"".join(storage.read(key))
                assert digest_bytes(data) == key.digest, (number, key)

    def teardown(self) -> None:
        """After quiescing, nothing is left that nothing needs."""
        if not hasattr(self, "versions"):
            return
        for claim, _, _ in self.waiting:
            self.registry.services.builds.cancel(claim.build, ADMIN)
        self.expire_leases()
        self.registry.services.collector.collect(grace=timedelta())
        needed = {
            (kind, digest) for kind, digest in self.registry.sql("SELECT kind, digest FROM blob_references")
        }
        storage = self.registry.services.storage
        objects = [key for kind in ("blobs", "manifests") for key in storage.keys(kind)]  # type: ignore[arg-type]
        assert sorted((key.kind, key.digest) for key in objects) == sorted(needed)
        self.every_published_blob_is_readable()

    def _store(self, claim: Claim, code: bytes, weights: bytes) -> Publication | None:
        """Store an artifact; where a forced deletion refuses its bytes, as the model knows, the build fails."""
        try:
            return self.registry.publication(claim, code=code, weights_data=weights, key=str(claim.number))
        except DigestRefused as error:
            self._check_refused(error)
            self.registry.services.builds.fail(claim, error)
            return None

    def _check_refused(self, error: DigestRefused) -> None:
        assert error.context["digest"] in self.refused

    def _parts(self, publication: Publication) -> tuple[bytes, bytes]:
        """Return the code and the weights of an artifact."""
        config = publication.config
        code = next(each for each in CODE if digest_bytes(each) == config.single_file.members[1].digest)
        return code, next(each for each in WEIGHTS if digest_bytes(each) == config.version.weights)

    def _choose(self, place: int) -> int:
        return sorted(self.versions)[place % len(self.versions)]

    def _forget(self, number: int) -> None:
        del self.versions[number]
        self.yanked.discard(number)

    def _steps(self) -> BlobCollection:
        services = self.registry.services
        return BlobCollection(services.collector._sessions, services.storage, grace=timedelta())
