"""Whose code two artifacts run, and why there is nothing to compare of their kernels, in sentences."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pt2hub.domain.artifacts import KEY_SCHEMA
from pt2hub.domain.digests import Digest, digest_bytes
from pt2hub.server.db.stores.codes import Code
from pt2hub.server.services.codes import said_of

FIRST, SECOND = digest_bytes(b"first"), digest_bytes(b"second")
ONE = Code(
    artifact=FIRST,
    model="vision/resnet18",
    number=1,
    target="torch2.13-cpu-x86_64_v3",
    digest=Digest("sha256:code"),
    program_key=Digest("sha256:key"),
    key_schema=KEY_SCHEMA,
    calls_others=False,
    is_named=True,
    reused=False,
    chosen=True,
    options={"max_autotune": True},
    origin=FIRST,
    compiled_for="vision/resnet18@1",
    tuned=FIRST,
)
REUSING = replace(ONE, artifact=SECOND, number=2, reused=True)
OTHER = replace(
    ONE,
    artifact=SECOND,
    number=3,
    digest=Digest("sha256:other"),
    program_key=Digest("sha256:other key"),
    origin=SECOND,
    compiled_for="vision/resnet18@3",
    tuned=SECOND,
)


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (
            ONE,
            REUSING,
            "Version 2 reuses the code that was compiled for version 1, so that no kernel can differ.",
        ),
        (
            REUSING,
            ONE,
            "Version 2 reuses the code that was compiled for version 1, so that no kernel can differ.",
        ),
        (
            REUSING,
            replace(REUSING, number=5),
            "Both reuse the same code that was compiled for version 1, so that no kernel can differ.",
        ),
        (
            REUSING,
            OTHER,
            (
                "The code was compiled anew: version 3 runs what was compiled for it, version 2 reuses what was compiled for "
                "version 1."
            ),
        ),
        (
            OTHER,
            replace(REUSING, compiled_for="vision/resnet34@7"),
            (
                "The two run different code: version 2 reuses what was compiled for vision/resnet34@7, version 3 runs what was "
                "compiled for it."
            ),
        ),
        (
            ONE,
            replace(OTHER, number=1, target="torch2.13-cpu-x86_64_v4", program_key=ONE.program_key),
            (
                "The code was compiled anew, from the same program with the same settings: version 1 for "
                "torch2.13-cpu-x86_64_v4 runs what was compiled for it, version 1 for torch2.13-cpu-x86_64_v3 runs what was "
                "compiled for it."
            ),
        ),
    ],
)
def test_it_is_said_whose_code_is_reused_and_what_was_compiled_anew(
    before: Code, after: Code, text: str
) -> None:
    found = said_of(before, after)
    assert (found.same, found.said, found.tuning) == (before.digest == after.digest, text, "")


@pytest.mark.parametrize(
    ("before", "after", "end"),
    [
        (
            ONE,
            replace(REUSING, key_schema=KEY_SCHEMA - 1),
            f", by a program key of schema {KEY_SCHEMA - 1}, which does not name the kernels of operators that are not torch's own.",
        ),
        (
            replace(ONE, calls_others=True),
            replace(ONE, number=2, calls_others=True, program_key=Digest("sha256:other")),
            ", which calls operators by name that are not torch's own and may differ.",
        ),
        (
            replace(ONE, is_named=False),
            replace(ONE, number=2, is_named=False),
            ", by a program key that does not name all that it calls.",
        ),
        (
            replace(ONE, calls_others=True),
            replace(REUSING, calls_others=True),
            ", so that no kernel can differ.",
        ),
    ],
)
def test_that_no_kernel_can_differ_is_said_where_the_key_names_all_kernels(
    before: Code, after: Code, end: str
) -> None:
    assert said_of(before, after).said.endswith(end)


@pytest.mark.parametrize(
    ("after", "text"),
    [
        (
            replace(OTHER, tuned=None, options={}),
            "Nothing was tuned for version 3, since max_autotune is not in compile.options.",
        ),
        (
            replace(OTHER, tuned=None, chosen=False),
            "Nothing was tuned for version 3: the compiler had nothing to choose between.",
        ),
        (
            replace(OTHER, tuned=None, reused=True),
            (
                "The times of version 3 are not kept: its code is reused from version 3, beside which no table of autotuning "
                "is stored."
            ),
        ),
        (
            replace(OTHER, tuned=None, reused=True, origin=None, compiled_for=""),
            "The times of version 3 are not kept: its code is reused, and what it was compiled for is gone.",
        ),
    ],
)
def test_where_there_is_no_table_it_is_said_why(after: Code, text: str) -> None:
    assert said_of(ONE, after).tuning == text
    untuned = replace(ONE, tuned=None, options={})
    both = said_of(untuned, replace(OTHER, tuned=None, options={})).tuning
    assert both == "Nothing was tuned for either, since max_autotune is not in compile.options."
