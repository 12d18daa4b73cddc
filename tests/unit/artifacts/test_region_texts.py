"""Regions as text, and the differences between the program keys of two artifacts' regions."""

from __future__ import annotations

from typing import Any

from pt2hub.domain.artifacts import ProgramKey, Region
from pt2hub.domain.differences.fields import MAX_FIELDS
from pt2hub.domain.differences.program_keys import KeyDifferences
from pt2hub.domain.differences.regions import add_regions
from pt2hub.domain.digests import digest_bytes, digest_json
from pt2hub.rendering.regions import MAX_REGIONS, region_lines
from pt2hub.wire.artifacts import RegionView
from support.artifacts import a_region

LAYERS = tuple(f"encoder.layer.{number}" for number in range(12))
LAYER = digest_bytes(b"code")
DIFFERENT = KeyDifferences(False, ("The exported graph differs.",))
FIELDS: dict[str, Any] = {"schema": 2, "graph": digest_bytes(b"graph"), "options": {"a": 1}, "threads": 4}


def lines(*regions: Region) -> tuple[str, ...]:
    return region_lines([RegionView.of(region) for region in regions])


def part(*modules: str, fields: dict[str, Any] | None = None, **changes: Any) -> Region:
    given = FIELDS | {"part": modules} if fields is None else fields
    return a_region(ProgramKey(digest_json(given), given), *modules, **changes)


def test_a_region_says_what_it_is_and_where_its_code_is_from() -> None:
    assert lines(
        part(*LAYERS),
        part("pooler", "head"),
        part("embeddings"),
        part(*LAYERS[:3], code_reused_from=LAYER),
        part(),
        part(calls=11, code_reused_from=LAYER),
        part(),
    ) == (
        "12 calls of encoder.layer.0 ... encoder.layer.11, compiled once",
        "2 calls of pooler, head, compiled once",
        "1 call of embeddings, compiled",
        f"3 calls of encoder.layer.0 ... encoder.layer.2, reused from {LAYER[:19]}",
        "3 parts around them: 2 compiled, 1 reused",
    )
    assert lines() == ()


def test_names_of_modules_are_shown_without_control_characters_and_many_regions_are_counted() -> None:
    assert lines(part("a\x1b[31m\nb")) == ("1 call of a[31m b, compiled",)
    found = lines(*(part(f"layer{number}") for number in range(MAX_REGIONS + 5)))
    assert len(found) == MAX_REGIONS + 1
    assert found[-1] == "5 more"


def test_each_part_with_a_new_key_is_compared_with_the_one_that_it_replaces() -> None:
    before = (part(*LAYERS[:6], fields=FIELDS), part("head"), part(fields=FIELDS | {"part": ()}))
    other = FIELDS | {"options": {"a": 2}, "threads": 8}
    after = (part("head"), part(*LAYERS, fields=other), part(fields=FIELDS | {"part": (1,)}))
    found = add_regions(DIFFERENT, before, after)
    assert found.reasons == (
        "The exported graph differs.",
        "1 of the second's 3 parts has a key of the first.",
        "encoder.layer.0 ... encoder.layer.11: Compiler options differ: a 1, then 2.",
        "encoder.layer.0 ... encoder.layer.11: The number of threads differs: 4, then 8.",
        "A part between regions: The field part differs: [], then [1].",
    )
    assert [(item.path, item.before, item.after) for item in found.fields] == [
        ("regions.encoder.layer.0 ... encoder.layer.11.options.a", 1, 2),
        ("regions.encoder.layer.0 ... encoder.layer.11.threads", 4, 8),
        ("regions.A part between regions.part", (), (1,)),
    ]


def test_parts_of_differently_named_models_are_compared_in_their_order() -> None:
    before, after = part("bert.layer", fields=FIELDS), part("roberta.layer", fields=FIELDS | {"threads": 8})
    found = add_regions(DIFFERENT, (part(), before), (after,))
    assert found.reasons[1:] == (
        "0 of the second's 1 parts have a key of the first.",
        "roberta.layer: The number of threads differs: 4, then 8.",
    )


def test_artifacts_with_one_key_or_one_compiled_as_a_whole_are_not_compared_by_parts() -> None:
    same = KeyDifferences(True, ("The program keys are the same.",))
    assert add_regions(same, (part("a"),), (part("b"),)) == same
    assert add_regions(DIFFERENT, (), ()) == DIFFERENT
    assert add_regions(DIFFERENT, (), (part("a"),)) == DIFFERENT
    assert add_regions(DIFFERENT, (part("a"),), ()) == DIFFERENT


def test_many_differing_parts_are_bounded() -> None:
    many = {f"field{number}": number for number in range(30)}
    before = [part(f"layer{number}", fields={"layer": number}) for number in range(20)]
    after = [part(f"layer{number}", fields=many | {"layer": -number - 1}) for number in range(20)]
    found = add_regions(DIFFERENT, before, after)
    assert (len(found.fields), found.left_out) == (MAX_FIELDS, 20 * 31 - MAX_FIELDS)
    assert len(found.reasons) < 10
    assert found.reasons[-1].endswith(" more.")
    (long,) = add_regions(DIFFERENT, (part("x" * 9_000),), (part("x" * 9_000, fields={}),)).reasons[2:3]
    assert len(long) < 500
