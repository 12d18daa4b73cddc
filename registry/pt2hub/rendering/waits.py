"""Formatting of wait reasons, which the API sends as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub.domain.terminal import plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pt2hub.wire.responses import BuildView, WaitReason


@dataclass(frozen=True, slots=True)
class Piece:
    """A fragment of text, and the time that follows it.

    Attributes:
        time: ISO 8601, or nothing.
        is_past: Whether how long ago that is says more than when.
    """

    text: str
    time: str = ""
    is_past: bool = False


def format_note(build: BuildView) -> str:
    """Return why a build waits or who cancelled it; empty for other builds."""
    return build.cancellation or (format_wait(build.wait) if build.wait else "")


def is_lonely(build: BuildView) -> bool:
    """Return whether a build waits because no live worker offers its target."""
    return build.wait is not None and build.wait.code != "next_attempt"


def compose_note(build: BuildView) -> list[Piece]:
    """Return the same as fragments."""
    if build.cancellation:
        return [Piece(plain(build.cancellation))]
    return list(compose_wait(build.wait)) if build.wait else []


def format_wait(reason: WaitReason) -> str:
    """Return why a build waits: `no worker ever offered this target`."""
    return "".join(
        f"{piece.text}{'at ' if piece.is_past else ''}{piece.time}" for piece in compose_wait(reason)
    )


def compose_wait(reason: WaitReason) -> Iterator[Piece]:
    """Return the fragments of a reason, so that pages can show times in the reader's zone."""
    if reason.code == "never_offered":
        known = f"; workers know {', '.join(reason.suggestions)}" if reason.suggestions else ""
        yield Piece(f"no worker ever offered this target{known}")
    elif reason.code == "no_live_worker":
        yield Piece("no live worker offers this target")
        if reason.last_seen:
            yield Piece("; last heartbeat ", reason.last_seen, is_past=True)
    elif reason.code == "next_attempt":
        after = f", after attempt {reason.attempt} ended with {reason.error}" if reason.error else ""
        yield Piece("waits until ", reason.until or "")
        yield Piece(f" for its next attempt{after}")
    else:  # of a newer server
        yield Piece(reason.code.replace("_", " "))
