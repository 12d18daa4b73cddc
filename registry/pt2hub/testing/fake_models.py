"""Models, aliases and files of a fake registry, with the rules and error codes of the real server."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pt2hub.domain.names import Reference, parse_alias, parse_model_name
from pt2hub.errors import AliasMoved, InvalidInput, NotFound, NotReady, VersionInUse, VersionYanked
from pt2hub.wire.resolution import ArtifactRef, ResolvedReference, Yank
from pt2hub.wire.responses import AliasList, AliasMove, AliasView

if TYPE_CHECKING:
    from pt2hub.domain.digests import Digest

TOKEN_NAME = "fake"  # noqa: S105  # the name that moves are recorded under
_MAX_REASON_CHARS = 500


@dataclass
class FakeModel:
    """A model.

    Attributes:
        versions: Artifacts by the version's number.
        moves: Moves of each alias, oldest first.
        yanked: Yanks by the version's number.
    """

    versions: dict[int, list[ArtifactRef]] = field(default_factory=dict)
    moves: dict[str, list[AliasMove]] = field(default_factory=dict)
    yanked: dict[int, Yank] = field(default_factory=dict)


class FakeModels:
    """Everything that a fake registry holds; several threads may use it."""

    def __init__(self) -> None:
        self.blobs: dict[Digest, bytes] = {}
        self._models: dict[str, FakeModel] = {}
        self._lock = threading.RLock()

    def add_artifact(self, model: str, number: int, target: str, digest: Digest) -> None:
        """Add an artifact to a version; the version is new if it has none yet."""
        with self._lock:
            found = self._models.setdefault(parse_model_name(model), FakeModel())
            artifacts = found.versions.setdefault(number, [])
            kept = [item for item in artifacts if item.target != target]
            found.versions[number] = [*kept, ArtifactRef(target, digest, datetime.now(UTC).isoformat())]

    def next_number(self, model: str) -> int:
        """Return the number that a model's next version gets."""
        with self._lock:
            found = self._models.get(model)
            return max(found.versions, default=0) + 1 if found else 1

    def yank(self, model: str, number: int, reason: str) -> None:
        """Hide a version from names without a version and from alias moves.

        Raises:
            InvalidInput: The reason is invalid.
            NotFound: The model or version does not exist.
            VersionInUse: Aliases point to the version.
            VersionYanked: It is yanked already.
        """
        text = _check_reason(reason)
        with self._lock:
            found = self._model(model)
            if number not in found.versions:
                raise _no_version(model, number, found)
            if number in found.yanked:
                raise VersionYanked(f"{model}@{number} is already yanked", where="version")
            names = [name for name, moves in found.moves.items() if moves[-1].after == number]
            if names:
                raise VersionInUse(f"Cannot yank {model}@{number}: {', '.join(names)}", where="version")
            found.yanked[number] = Yank(text, TOKEN_NAME, datetime.now(UTC).isoformat())

    def resolve(self, text: str) -> ResolvedReference:
        """Return what a reference resolves to.

        Raises:
            InvalidInput: The text is not a reference.
            NotFound: The model, version or alias does not exist.
            NotReady: The reference names no version, and all are yanked.
        """
        reference = Reference.parse(text)
        with self._lock:
            found = self._model(reference.model, where="reference")
            number = self._number(found, reference)
            artifacts = found.versions[number]
            yank = found.yanked.get(number)
        return ResolvedReference(
            text, reference.model, number, tuple(artifacts), reference.alias, yanked=yank
        )

    def alias(self, model: str, name: str) -> AliasView:
        """Return an alias with its history.

        Raises:
            NotFound: The alias never existed.
        """
        with self._lock:
            moves = self._model(model).moves.get(parse_alias(name))
            if not moves:
                raise _no_alias(model, name)
            return AliasView(model, name, moves[-1].after, moves[-1], tuple(reversed(moves)))

    def aliases(self, model: str) -> AliasList:
        """Return the aliases of a model by name, without removed ones."""
        with self._lock:
            moves = self._model(model).moves
            found = [self.alias(model, name) for name in sorted(moves)]
        return AliasList(tuple(replace(item, history=()) for item in found if item.number))

    def move(
        self, model: str, name: str, number: int | None, *, expected: int | None, reason: str
    ) -> AliasView:
        """Move or remove an alias by compare-and-set.

        Args:
            number: The version, None to remove the alias.
            expected: The version that the alias must be on, None if it must not exist.

        Raises:
            AliasMoved: The alias is elsewhere.
            InvalidInput: The name or the reason is invalid.
            NotFound: The model, version or alias does not exist.
            VersionYanked: The version is yanked.
        """
        parse_alias(name)
        text = _check_reason(reason)
        with self._lock:
            found = self._model(model)
            if number is not None and number not in found.versions:
                raise _no_version(model, number, found)
            moves = found.moves.get(name, [])
            if not moves and expected is not None:
                raise _no_alias(model, name)
            now = moves[-1].after if moves else None
            if now != number or not moves:
                if now != expected:
                    raise _lost(model, name, moves[-1], expected)
                if number in found.yanked:
                    raise VersionYanked(
                        f"An alias cannot move to {model}@{number}: it is yanked", where="version"
                    )
                at = datetime.now(UTC).isoformat()
                made = AliasMove(len(moves) + 1, now, number, text, TOKEN_NAME, at)
                found.moves[name] = [*moves, made]
            elif expected not in {number, moves[-1].before}:
                raise _lost(model, name, moves[-1], expected)
            return self.alias(model, name)

    def _model(self, name: str, *, where: str = "model") -> FakeModel:
        found = self._models.get(parse_model_name(name))
        if found is None:
            hint = f"The fake registry has {', '.join(sorted(self._models)) or 'no model'}."
            raise NotFound(f"Model {name} not found", where=where, hint=hint)
        return found

    def _number(self, found: FakeModel, reference: Reference) -> int:
        model = reference.model
        if reference.number:
            if reference.number not in found.versions:
                raise _no_version(model, reference.number, found)
            return reference.number
        if reference.alias:
            moves = found.moves.get(reference.alias)
            if not moves or moves[-1].after is None:
                raise _no_alias(model, reference.alias)
            return moves[-1].after
        wanted = reference.digest_start
        for number in sorted(found.versions, reverse=True):
            is_hidden = number in found.yanked and not wanted
            if not is_hidden and any(item.digest.startswith(wanted) for item in found.versions[number]):
                return number
        if not wanted:
            raise NotReady(f"No version of {model} is ready that is not yanked", where="reference")
        raise NotFound(f"No artifact of {model} has the digest {wanted}", where="reference")


def _no_version(model: str, number: int, found: FakeModel) -> NotFound:
    hint = f"Its versions are {', '.join(map(str, sorted(found.versions)))}."
    return NotFound(f"Version {model}@{number} not found", where="version", hint=hint)


def _no_alias(model: str, name: str) -> NotFound:
    return NotFound(f"Alias {model}@{name} not found", where="alias")


def _lost(model: str, name: str, last: AliasMove, expected: int | None) -> AliasMoved:
    now = f"is on version {last.after}" if last.after else "was removed"
    winner = {"number": last.after, "by": last.by, "reason": last.reason, "at": last.at}
    return AliasMoved(
        f"{model}@{name} {now}, expected {expected or 'none'}",
        where="alias",
        context={"model": model, "alias": name, "expected": expected, "winner": winner},
    )


def _check_reason(reason: str) -> str:
    text = reason.strip()
    if not 1 <= len(text) <= _MAX_REASON_CHARS:
        raise InvalidInput("The reason is missing or too long", where="reason")
    return text
