"""Answers to a build's question for code of the parts of its model, and what it may say about them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pt2hub.domain.artifacts import ProgramKey, Region, SingleFile
from pt2hub.domain.codec import encode
from pt2hub.domain.digests import DIGEST_PATTERN
from pt2hub_workers.builds.child_messages import MAX_COUNT, output_refused, read

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pt2hub.domain.digests import Digest
    from pt2hub.domain.publications import ReusableRegion
    from pt2hub_workers.builds.child_messages import MessageFields

MAX_PARTS = 256
"""Parts of one model."""
_MAX_NAME_CHARS = 300
_MAX_REASONS_CHARS = 2_000
"""Reasons why code is never reused, in one log line."""
_DIGEST = re.compile(DIGEST_PATTERN)


def explain_compile(key: ProgramKey, no_reuse: str = "") -> str:
    """Return why code with a key is compiled, as the end of a sentence.

    Args:
        no_reuse: Why this attempt must not reuse code; empty if it may.
    """
    if key.never_reused:
        reasons = "; ".join(key.never_reused)[:_MAX_REASONS_CHARS]
        return f"because code like this is never reused: {reasons}"
    return f"because {no_reuse or 'no code has this key yet'}."


class RegionAnswers:
    """Code of the parts of one build.

    Args:
        find: Returns reusable code by program key.
        fetch: Fetches a blob into the build's workspace under a name; returns its path as the build sees it.
        log: Adds a line to the build's log.
    """

    def __init__(
        self,
        find: Callable[[Sequence[Digest]], dict[Digest, ReusableRegion]],
        fetch: Callable[[Digest, str], str],
        log: Callable[[str], None],
    ) -> None:
        self._find = find
        self._fetch = fetch
        self._log = log
        self._layers: dict[Digest, str] = {}

    @property
    def layers(self) -> tuple[Digest, ...]:
        """Code layers that the build received."""
        return tuple(self._layers)

    def forget(self) -> None:
        """Start anew, for a build in another workspace."""
        self._layers.clear()

    def answer(self, message: dict[str, Any], *, no_reuse: str = "") -> dict[str, Any]:
        """Return path and description of the code for each part that has some, by program key.

        Args:
            no_reuse: Why this attempt must not reuse code; empty if it may.
        """
        keys, names = _read_keys(message.get("keys")), message.get("names")
        if names is None:
            names = [""] * len(keys)
        if not isinstance(names, list) or [type(name) for name in names] != [str] * len(keys):
            raise output_refused("the names of parts must be texts, one for each key")
        wanted = [key.digest for key in keys if not key.never_reused]
        found = self._find(wanted) if wanted and not no_reuse else {}
        for key, name in zip(keys, names, strict=True):
            self._log_part(key, " ".join(name.split())[:_MAX_NAME_CHARS], found.get(key.digest), no_reuse)
        return {digest: self._hand_out(item) for digest, item in found.items()}

    def check(self, fields: MessageFields, *, reused: Digest | None) -> None:
        """Refuse descriptions of parts that cannot be true.

        Args:
            reused: Code layer that was reused as a whole; the parts' own origins do not matter then.
        """
        regions = read(list[Region], fields.regions)
        if len(regions) > MAX_PARTS:
            raise output_refused(f"it names more than {MAX_PARTS} parts")
        origins = {None, *self._layers}
        files = {member.name for member in read(SingleFile, fields.single_file).members}
        for region in regions:
            _check_key(region.key)
            if reused is None and region.code_reused_from not in origins:
                raise output_refused("a part names a code layer that the build did not receive")
            if not set(region.members) <= files:
                raise output_refused("a part names a file that is not in the code layer")
            if not 0 < region.calls < MAX_COUNT or len(region.modules) > region.calls:
                raise output_refused("a part has an invalid number of calls")

    def _log_part(self, key: ProgramKey, name: str, found: ReusableRegion | None, no_reuse: str) -> None:
        of = f" of {name}" if name else ""
        if found:
            self._log(f"Program key {key.digest}{of}: reusing code {found.code.digest}.")
        else:
            self._log(f"Program key {key.digest}{of}: compiling, {explain_compile(key, no_reuse)}")

    def _hand_out(self, found: ReusableRegion) -> dict[str, Any]:
        layer = found.code.digest
        if layer not in self._layers:
            self._layers[layer] = self._fetch(layer, f"code-of-parts-{len(self._layers)}.zip")
        return {"code": self._layers[layer], "region": encode(found.region), "artifact": layer}


def _read_keys(value: Any) -> list[ProgramKey]:
    if not isinstance(value, list) or len(value) > MAX_PARTS:
        raise output_refused(f"the keys of parts must be a list of at most {MAX_PARTS}")
    keys = read(list[ProgramKey], value)
    for key in keys:
        _check_key(key)
    return keys


def _check_key(key: ProgramKey) -> None:
    if not _DIGEST.fullmatch(key.digest):
        raise output_refused("the program key of a part must be a digest")
