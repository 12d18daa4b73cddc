"""The directories that builds run in."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from pt2hub_workers.workspace import workspace

if TYPE_CHECKING:
    from pathlib import Path


def test_a_slot_is_empty_at_the_start_gone_at_the_end_and_its_path_always_the_same(tmp_path: Path) -> None:
    with workspace(tmp_path) as first, workspace(tmp_path) as beside:
        (first / "out" / "model").touch()
        assert first != beside
    with workspace(tmp_path) as again:
        assert again == first
        assert sorted(path.name for path in again.rglob("*")) == ["cache", "in", "out", "tmp"]
    assert {path.suffix for path in tmp_path.iterdir()} == {".lock"}


def test_a_compiler_that_outlived_its_build_is_not_in_the_way_of_the_next_one(tmp_path: Path) -> None:
    ended = threading.Event()

    def write_on(folder: int) -> None:
        number = 0
        while not ended.is_set():
            try:
                os.close(os.open(str(number), os.O_CREAT | os.O_WRONLY, dir_fd=folder))
            except FileNotFoundError:  # it was removed, with everything in it
                return
            number += 1

    with workspace(tmp_path) as slot:
        folder = os.open(slot / "tmp", os.O_RDONLY)
        writers = [threading.Thread(target=write_on, args=(folder,)) for _ in range(2)]
        for writer in writers:
            writer.start()
    try:
        with workspace(tmp_path) as following:
            assert following == slot
            assert list((following / "tmp").iterdir()) == []
    finally:
        ended.set()
        for writer in writers:
            writer.join()
        os.close(folder)
    with workspace(tmp_path):
        assert {path.name for path in tmp_path.iterdir()} == {"0", "0.lock"}
