"""Parts of an artifact's page: bars, trees and colours hold against values that nobody checked."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import pytest

from pt2hub.domain.artifacts import Member, StepTiming
from pt2hub.domain.codec import decode
from pt2hub.domain.digests import digest_bytes
from pt2hub.domain.performance import autotune
from pt2hub.domain.performance.autotune import AutotuneChoice
from pt2hub.domain.verification_reports import VerificationReport
from pt2hub.errors import BadResponse
from pt2hub.rendering.quantities import format_bytes
from pt2hub.server.pages.artifacts import documents, file_tree
from pt2hub.server.pages.artifacts.source_highlights import highlight
from pt2hub.server.pages.artifacts.step_shares import share_steps

FLOODS = (
    "a ", "/*", "*/", '"', "'", "\\\n", "#if ", 'R"(', "::a", "a(", "<a>", "// \\\n", "\t", "a\n", "((", "{", "'''", '"""',
    "f'{", "0x", "1e", "@a", "\n\n", " \n", "a b ", "a\t(", "template<", "using a ", "namespace ", "/**/ ",
)  # fmt: skip


def choice(candidate: str, milliseconds: float, rank: int, op: str = "mm") -> AutotuneChoice:
    return AutotuneChoice(
        op, [["s0", 8], [8, 4]], ["float16", "float16"], candidate, milliseconds, rank, rank == 1
    )


def test_each_operation_has_its_candidates_and_how_far_they_are_from_the_best() -> None:
    found = autotune.operations(
        [
            choice("a", 0.5, 1),
            choice("b", 1.0, 2),
            choice("c", 0.2, 1),
            *(choice(str(n), n, n, "bmm") for n in range(1, 12)),
        ]
    )
    assert [(item.name, item.inputs, item.dtypes) for item in found] == [
        ("mm", "s0x8, 8x4", "float16"), ("mm", "s0x8, 8x4", "float16"), ("bmm", "s0x8, 8x4", "float16"),
    ]  # fmt: skip
    assert [(item.name, item.share, item.chosen) for item in found[0].candidates] == [
        ("a", 100, True),
        ("b", 50, False),
    ]
    assert len(found[2].candidates) == 11


def test_a_candidate_that_failed_has_a_reason_and_no_time_and_operations_that_are_alike_stay_two() -> None:
    rest: dict[str, Any] = {"template": "triton_mm", "parameters": {"BLOCK_M": 64, "num_warps": 4}}
    good = replace(choice("triton_mm_3", 0.5, 1), operation=1, strides=[["8", "1"], ["4", "1"]], **rest)
    bad = replace(good, candidate="triton_mm_4", milliseconds=None, rank=2, chosen=False, reason="too large")
    one, other = autotune.operations([good, bad, replace(good, operation=2, rank=3)])
    assert (one.strides, one.failed, other.failed) == ("[8, 1], [4, 1]", 1, 0)
    assert [(item.milliseconds, item.share, item.reason) for item in one.candidates] == [
        (0.5, 100, ""),
        (None, 0, "too large"),
    ]
    assert (one.candidates[0].kernel, one.candidates[0].parameters) == (
        "triton_mm",
        "BLOCK_M=64, num_warps=4",
    )
    assert autotune.parameters_text({"BLOCK_M": 64, "num_warps": 4}, {"BLOCK_M": 64}) == "num_warps=4"


def test_a_table_without_times_has_no_shares_to_fail_on() -> None:
    (one,) = autotune.operations([choice("a", 0.0, 1), choice("b", 0.0, 2)])
    assert [item.share for item in one.candidates] == [100, 100]


def test_steps_have_shares_of_the_whole_in_their_order() -> None:
    found = share_steps([StepTiming("fetch", 1.0), StepTiming("compile", 3.0)])
    assert [(item.name, item.seconds, item.share) for item in found] == [
        ("fetch", 1.0, 0.25),
        ("compile", 3.0, 0.75),
    ]
    assert share_steps([StepTiming("fetch", 0.0)]) == share_steps([]) == []


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf, 1e308])
def test_times_that_are_none_spoil_no_share(seconds: float) -> None:
    found = share_steps([StepTiming("a", seconds), StepTiming("b", seconds), StepTiming("c", 1.0)])
    assert all(0 <= item.share <= 1 for item in found)
    assert sum(item.share for item in found) == pytest.approx(1)


def test_whole_numbers_beyond_all_floats_are_no_figures_and_no_error() -> None:
    with pytest.raises(BadResponse, match="seconds is a number outside the range"):
        decode(StepTiming, {"name": "compile", "seconds": 10**400})
    rows = [{"error": 10**400, "allowed": 1}, {"error": 1, "allowed": 2, "point": "example." + "9" * 5000}]
    proof = VerificationReport.of({"relative_error": 10**400, "comparisons": rows})
    assert (proof.relative_error, proof.count) == (None, 2)
    assert format_bytes(10**400) == format_bytes(1e300)
    assert [item.what for item in proof.worst] == ["output 0 at example inputs"]


def test_folders_know_what_lies_below_them_and_chains_are_one() -> None:
    some = digest_bytes(b"")
    names = ("model/version", "model/data/aotinductor/model/a.so", "model/data/aotinductor/model/b.json")
    root = file_tree.tree(Member(name, 10, some) for name in names)
    (model,) = root.folders.values()
    assert (root.size, root.count, model.name, model.size) == (30, 3, "model", 30)
    assert [folder.name for folder in model.folders.values()] == ["data/aotinductor/model"]
    assert [name for name, _ in model.files] == ["version"]


def test_a_document_that_is_nested_without_end_is_no_error() -> None:
    value: object = 1
    for _ in range(900):
        value = [value]
    assert documents.sections({"deep": value})[0].text


def test_source_keeps_every_character_and_gains_only_classes() -> None:
    lines = [
        "#include <a>",
        "int f() { /* one",
        "two */ return 1 < 2; }",
        "",
        'const char* s = "<b>"; // end',
    ]
    marked = highlight("a.cpp", lines)
    assert len(marked) == len(lines)
    assert [line.striptags() for line in marked if line] == [" ".join(line.split()) for line in lines if line]
    assert '<span class="c">/* one</span>' in marked[1]
    assert '<span class="c">two */</span>' in marked[2]
    assert "<b>" not in "".join(marked)


def test_lines_that_begin_within_a_comment_have_its_colour() -> None:
    lines = ["def kernel(x):", "*/", "int f();"]
    assert highlight("a.cpp", lines, commented=True)[:2] == [
        f'<span class="c">{line}</span>' for line in lines[:2]
    ]
    assert '<span class="t">int</span>' in highlight("a.cpp", lines, commented=True)[2]
    assert len(highlight("a.py", lines, commented=True)) == 3


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("name", ["a.cpp", "a.py", "a.json"])
def test_no_text_takes_a_lexer_long(name: str) -> None:
    for flood in FLOODS:
        text = flood * (30_000 // len(flood))
        lines = [line[at : at + 1000] for line in text.split("\n") for at in range(0, len(line) or 1, 1000)]
        started = time.thread_time()
        assert len(highlight(name, lines[:500], seconds=0.01)) == len(lines[:500])
        assert time.thread_time() - started < 0.5, flood
