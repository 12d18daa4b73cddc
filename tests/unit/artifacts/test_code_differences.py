"""Differences between exported graphs and between kernels, with bounded effort."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from itertools import pairwise

import pytest

from pt2hub.domain.differences.graphs import MAX_NODES_LISTED, compare_graphs
from pt2hub.domain.differences.kernels import MAX_KERNELS_LISTED, compare_kernels
from pt2hub.domain.differences.sequences import align
from pt2hub.domain.fusion import MAX_NODES, FusedKernel, GraphNode


def node(target: str, *shape: str, dtype: str = "float32", name: str = "") -> GraphNode:
    return GraphNode("call_function", name or target, f"aten.{target}.default", shape or None, dtype)


def _longest_common(before: str, after: str) -> int:
    """Length of the longest common subsequence, by the definition."""
    table = [[0] * (len(after) + 1) for _ in range(len(before) + 1)]
    for at, one in enumerate(before):
        for to, other in enumerate(after):
            longer = max(table[at][to + 1], table[at + 1][to])
            table[at + 1][to + 1] = table[at][to] + 1 if one == other else longer
    return table[-1][-1]


def test_an_alignment_is_the_shortest_and_keeps_the_order() -> None:
    draw = random.Random(1)
    for _ in range(2000):
        before, after = ("".join(draw.choices("abc", k=draw.randrange(12))) for _ in range(2))
        pairs = align(before, after, most=99)
        assert pairs is not None
        matched = [(at, to) for at, to in pairs if at is not None and to is not None]
        assert all(before[at] == after[to] for at, to in matched)
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(matched))
        assert len(matched) == _longest_common(before, after)
        assert len(pairs) == len(before) + len(after) - len(matched)
    assert align("abc", "xyz", most=5) is None
    assert align("abc", "xyz", most=6) is not None


def test_nodes_are_added_removed_or_changed() -> None:
    before = [node("linear", "s0", "8"), node("relu", "s0", "8"), node("linear", "s0", "4")]
    after = [
        node("linear", "s0", "8"),
        node("gelu", "s0", "8"),
        node("dropout", "s0", "8"),
        node("linear", "s0", "4", dtype="float16"),
    ]
    found = compare_graphs(before, after)
    assert found.summary == "2 nodes added, 1 removed, 1 changed"
    assert found.is_aligned
    assert [(item.change, (item.after or item.before).target) for item in found.nodes] == [  # type: ignore[union-attr]
        ("removed", "aten.relu.default"),
        ("added", "aten.gelu.default"),
        ("added", "aten.dropout.default"),
        ("changed", "aten.linear.default"),
    ]
    assert compare_graphs(before, before[:-1]).summary == "1 node removed"


def test_symbols_of_sizes_may_have_other_numbers_but_not_other_places() -> None:
    before = [node("a", "s0", "8"), node("b", "2*s0", "s1")]
    assert compare_graphs(before, [node("a", "s77", "8"), node("b", "2*s77", "s3")]).summary == ""
    assert (
        compare_graphs(before, [node("a", "s77", "8"), node("b", "2*s3", "s3")]).summary == "1 node changed"
    )


@pytest.mark.parametrize("hostile", [False, True])
def test_large_graphs_take_bounded_time(*, hostile: bool) -> None:
    draw = random.Random(2)
    before, after = ([node(draw.choice("ab"), "8") for _ in range(MAX_NODES)] for _ in range(2))
    if hostile:
        before, after = (
            [node("a", "8")] * MAX_NODES,
            [node("b", "8"), *[node("a", "8"), node("b", "8")] * 2499],
        )
    begin = time.process_time()
    found = compare_graphs(before, after)
    assert time.process_time() - begin < 5
    assert not found.is_aligned
    assert found.added - found.removed == len(after) - len(before)
    assert len(found.nodes) + found.left_out == found.added + found.removed + found.changed
    assert len(found.nodes) <= MAX_NODES_LISTED


def test_without_alignment_the_nth_node_is_matched_with_the_nth() -> None:
    before = [node(f"only{number}") for number in range(300)] + [node("same", "8")]
    after = [node("same", "16")] + [node(f"other{number}") for number in range(200)]
    found = compare_graphs(before, after)
    assert (found.is_aligned, found.added, found.removed, found.changed) == (False, 200, 300, 1)


def test_kernels_are_matched_without_their_number() -> None:
    fused = FusedKernel("triton_poi_fused_relu_0", 2, registers=16, shared_bytes=0, spills=0)
    mm = FusedKernel("extern_kernels.mm", 1)
    after = [
        FusedKernel("triton_poi_fused_gelu_0", 1),
        replace(fused, name="triton_poi_fused_relu_1", registers=32),
        mm,
        replace(fused, name="triton_poi_fused_relu_2"),
    ]
    found = compare_kernels([fused, mm], after)
    assert [(item.change, item.after.name if item.after else "") for item in found.kernels] == [
        ("changed", "triton_poi_fused_relu_1"),
        ("added", "triton_poi_fused_relu_2"),
        ("added", "triton_poi_fused_gelu_0"),
    ]
    assert (found.added, found.removed, found.changed) == (2, 0, 1)
    assert (found.before_calls, found.after_calls) == (3, 6)
    assert compare_kernels([mm], [replace(mm, calls=2)]).changed == 1
    assert compare_kernels(after, after).kernels == ()
    many = [FusedKernel(f"kernel{number}x", 1) for number in range(MAX_KERNELS_LISTED + 5)]
    assert compare_kernels(many, []).left_out == 5
