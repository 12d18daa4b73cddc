"""Hands of a toolchain that do most of their work as another one does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pt2hub_workers.toolchains import Hand

if TYPE_CHECKING:
    from pt2hub_workers.rooms import Room


@dataclass(frozen=True, slots=True)
class Beside:
    """Has the room and the life of another hand; the job is the subclass's own."""

    hand: Hand

    @property
    def room(self) -> Room:
        """Where it works."""
        return self.hand.room

    @property
    def alive(self) -> bool:
        """As the other."""
        return self.hand.alive

    def wait_warm(self, seconds: float) -> bool:
        """As the other."""
        return self.hand.wait_warm(seconds)

    def close(self) -> None:
        """Removes the room."""
        self.hand.close()
