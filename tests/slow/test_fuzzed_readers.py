"""Readers of files from strangers, on files made up for a set time (`--fuzz-seconds`, per reader)."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import HealthCheck, given, seed, settings

from support.fuzzing import READERS, keep, read_within_bounds

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]
EXAMPLES = 200
"""Files between two looks at the clock."""


@pytest.mark.parametrize("name", READERS)
def test_a_reader_answers_every_file_with_a_value_or_an_error_of_pt2hub(
    name: str, pytestconfig: pytest.Config
) -> None:
    reader, until = READERS[name], time.monotonic() + pytestconfig.getoption("fuzz_seconds")
    first = int(time.time())
    smallest: list[bytes] = []

    for number in itertools.count(first):

        @seed(number)
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        )
        @given(data=reader.files)
        def read(data: bytes) -> None:
            smallest[:] = [data]
            read_within_bounds(reader, data)
            smallest.clear()

        try:
            read()
        except BaseException as error:
            error.add_note(f"Kept in {keep(name, smallest[0])}" if smallest else "")
            raise
        if time.monotonic() > until:
            print(f"{name}: {(number - first + 1) * EXAMPLES} files, from seed {first}")
            return
