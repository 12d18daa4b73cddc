"""Whose code two artifacts run, and why there is nothing to compare of their kernels, in sentences."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pt2hub.domain.artifacts import KEY_SCHEMA
from pt2hub.domain.digests import Digest, digest_bytes
from pt2hub.server.db.stores.artifacts.code import ArtifactCode
from pt2hub.server.services.artifacts.code_comparison import describe_code

FIRST, SECOND = digest_bytes(b"first"), digest_bytes(b"second")
ONE = ArtifactCode(
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
    reused_parts=0,
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
            replace(OTHER, reused_parts=2),
            (
                "The two run different code: version 3 runs code with 2 parts of other artifacts, version 1 runs code that was "
                "compiled for it."
            ),
        ),
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
            "The code was recompiled: version 2 reuses code that was compiled for version 1.",
        ),
        (
            OTHER,
            replace(REUSING, compiled_for="vision/resnet34@7"),
            (
                "The two run different code: version 2 reuses code that was compiled for vision/resnet34@7, version 3 runs code that was "
                "compiled for it."
            ),
        ),
        (
            ONE,
            replace(OTHER, number=1, target="torch2.13-cpu-x86_64_v4", program_key=ONE.program_key),
            "The code was recompiled, from the same program with the same settings.",
        ),
    ],
)
def test_it_is_said_whose_code_is_reused_and_what_was_compiled_anew(
    before: ArtifactCode, after: ArtifactCode, text: str
) -> None:
    found = describe_code(before, after)
    assert (found.same, found.message, found.tuning) == (before.digest == after.digest, text, "")


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
            ", by a program key that does not name everything that it calls.",
        ),
        (
            replace(ONE, calls_others=True),
            replace(REUSING, calls_others=True),
            ", so that no kernel can differ.",
        ),
    ],
)
def test_that_no_kernel_can_differ_is_said_where_the_key_names_all_kernels(
    before: ArtifactCode, after: ArtifactCode, end: str
) -> None:
    assert describe_code(before, after).message.endswith(end)


@pytest.mark.parametrize(
    ("after", "text"),
    [
        (
            replace(OTHER, tuned=None, options={}),
            "No autotuning for version 3, since neither compile.mode nor compile.options asks for it.",
        ),
        (
            replace(OTHER, tuned=None, chosen=False),
            "No autotuning for version 3: the compiler had no alternatives to choose from.",
        ),
        (
            replace(OTHER, tuned=None, reused=True),
            (
                "The kernel times of version 3 are not stored: its code is reused from version 3, for which there is no autotune "
                "table."
            ),
        ),
        (
            replace(OTHER, tuned=None, reused=True, origin=None, compiled_for=""),
            "The kernel times of version 3 are not stored: its code is reused, and the artifact that it was compiled for is gone.",
        ),
    ],
)
def test_where_there_is_no_table_it_is_said_why(after: ArtifactCode, text: str) -> None:
    assert describe_code(ONE, after).tuning == text
    untuned = replace(ONE, tuned=None, options={})
    both = describe_code(untuned, replace(OTHER, tuned=None, options={})).tuning
    assert both == "No autotuning for either, since neither compile.mode nor compile.options asks for it."
