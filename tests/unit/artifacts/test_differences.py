"""Differences between artifacts: fields, program keys and their reasons, sizes, numerics."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pt2hub.domain.artifacts import Constants, ProgramKey, TensorInput
from pt2hub.domain.differences.fields import MAX_FIELDS, FieldDifference, compare_fields, limit_fields
from pt2hub.domain.differences.numerics import MAX_ERRORS, compare_numerics
from pt2hub.domain.differences.program_keys import compare_keys, field_reasons
from pt2hub.domain.differences.sizes import SizeDifference, compare_sizes
from pt2hub.domain.digests import digest_bytes, digest_json
from support.artifacts import a_config, a_constant, a_signature

if TYPE_CHECKING:
    from pt2hub.domain.artifacts import ArtifactConfig

SOME, OTHER = digest_bytes(b"some"), digest_bytes(b"other")
FIELDS: dict[str, Any] = {
    "schema": 2,
    "graph": SOME,
    "operators": {},
    "signature": SOME,
    "constants": SOME,
    "literals": {},
    "options": {"max_autotune": False, "freezing": False},
    "threads": 4,
    "settings": {"sdpa": {"flash": True}},
    "target": "torch2.12-cpu-x86_64_v3",
    "toolchain": {"torch": "2.12.0+cpu", "triton": None, "compiler": "g++ 12"},
}


def keyed(fields: dict[str, Any], **changes: Any) -> ArtifactConfig:
    return a_config(key=ProgramKey(digest_json(fields), fields), **changes)


def reasons(**changes: Any) -> tuple[str, ...]:
    """Why a key with these changes is another one."""
    return compare_keys(keyed(FIELDS), keyed(FIELDS | changes)).reasons


def test_fields_are_added_removed_or_changed_at_any_depth() -> None:
    before = {"dims": {"batch": {"max": 8}}, "same": [1, 2], "old": 1, "flag": True, "sizes": [1, 2]}
    after = {
        "dims": {"batch": {"max": 16}},
        "same": [1, 2],
        "new": {"a": 1},
        "empty": {},
        "flag": 1,
        "sizes": [1, 3],
    }
    assert compare_fields(before, after) == [
        FieldDifference("dims.batch.max", "changed", 8, 16),
        FieldDifference("old", "removed", 1),
        FieldDifference("flag", "changed", True, 1),
        FieldDifference("sizes", "changed", [1, 2], [1, 3]),
        FieldDifference("new.a", "added", None, 1),
        FieldDifference("empty", "added", None, {}),
    ]
    assert compare_fields(before, before) == []


def test_objects_in_lists_are_matched_by_name_or_by_position() -> None:
    before = {"inputs": [{"name": "x", "dtype": "float32"}, {"name": "y"}], "steps": [{"a": 1}, {"a": 2}]}
    after = {
        "inputs": [{"name": "mask"}, {"name": "x", "dtype": "float16"}, {"name": "y"}],
        "steps": [{"a": 1}],
    }
    assert compare_fields(before, after) == [
        FieldDifference("inputs.x.dtype", "changed", "float32", "float16"),
        FieldDifference("inputs.mask.name", "added", None, "mask"),
        FieldDifference("steps.1.a", "removed", 2),
    ]


def test_long_values_are_cut_and_many_fields_are_counted() -> None:
    (found,) = compare_fields({"text": "a" * 10_000}, {"text": list(range(1000))})
    assert max(len(found.before), len(found.after)) < 500
    (named,) = compare_fields({"a" * 10_000: 1}, {})
    assert len(named.path) < 500
    many = {str(number): number for number in range(MAX_FIELDS + 7)}
    fields, left_out = limit_fields(compare_fields({}, many))
    assert (len(fields), left_out) == (MAX_FIELDS, 7)


def test_equal_keys_have_one_reason_and_no_fields() -> None:
    found = compare_keys(keyed(FIELDS), keyed(FIELDS))
    assert (found.same, found.reasons, found.fields) == (True, ("The program keys are the same.",), ())


def test_each_field_of_a_key_has_a_plain_reason() -> None:
    tools = FIELDS["toolchain"] | {"torch": "2.13.0+cpu", "triton": "3.7"}
    assert reasons(toolchain=tools) == (
        "The toolchain differs: torch 2.12.0+cpu, then 2.13.0+cpu; triton none, then 3.7.",
    )
    assert reasons(options={"max_autotune": True, "epilogue_fusion": False}) == (
        "Compiler options differ: max_autotune false, then true; freezing removed; epilogue_fusion added.",
    )
    assert reasons(graph=OTHER, threads=8) == (
        "The exported graph differs.",
        "The number of threads differs: 4, then 8.",
    )
    assert reasons(operators={"ops.act_2.default": SOME}) == (
        "The code of custom operators differs: ops.act_2.default added.",
    )
    assert reasons(literals={f"lifted{number}": SOME for number in range(6)}) == (
        "The values in the code differ: lifted0 added; lifted1 added; lifted2 added; lifted3 added; 2 more.",
    )
    assert reasons(baked=SOME) == (
        "Only the key of the second covers the weights that are baked into the code.",
    )
    assert reasons(regions=["layers.0", "layers.1"]) == (
        "Only the key of the second covers the modules that are regions.",
    )
    layers = [f"encoder.layer.{number}" for number in range(12)]
    assert list(field_reasons(compare_fields({"regions": layers[:6]}, {"regions": layers[1:]}), "")) == [
        "The modules that are regions differ: 6 added, 1 removed.",
    ]
    assert list(field_reasons(compare_fields({"regions": layers * 9}, {"regions": layers * 10}), "")) == [
        "The modules that are regions differ.",
    ]
    assert reasons(schema=1) == (
        "The keys have schemas 2 and 1: code with a key of an older schema than 2 is not reused.",
    )


def test_digests_of_signature_and_constants_are_resolved_by_the_configs() -> None:
    before = keyed(FIELDS, constants=Constants("", 0, (a_constant("head.weight", (10, 4)),)))
    wider = Constants("", 0, (a_constant("head.weight", (10, 8)),))
    signature = a_signature(inputs=(TensorInput("x", ("batch", 3, 4, 5), "float16"),))
    after = keyed(FIELDS | {"signature": OTHER, "constants": OTHER}, constants=wider, signature=signature)
    found = compare_keys(before, after)
    assert [item.path for item in found.fields] == [
        "signature.inputs.x.dtype",
        "constants.head.weight.shape",
        "constants.head.weight.stride",
    ]
    assert found.reasons == (
        "The call signature differs: inputs.x.dtype float32, then float16.",
        "The form of the constants differs: head.weight.shape [10, 4], then [10, 8]; head.weight.stride [4, 1], then [8, 1].",
    )
    deeper = replace(wider, table=(*wider.table, a_constant("tail.bias", (3,))))
    added = compare_keys(after, replace(after, key=before.key, constants=deeper))
    assert "The form of the constants differs: tail.bias added." in added.reasons
    (field,) = (item for item in added.fields if item.path.startswith("constants"))
    assert (field.path, field.change, field.after) == (
        "constants.tail.bias",
        "added",
        "float32[3], strides [1]",
    )
    baked = Constants("", 0, (), baked=True)  # lists no constants
    unlisted = compare_keys(replace(before, constants=baked), replace(after, constants=baked))
    assert ("constants", "changed") in [(item.path, item.change) for item in unlisted.fields]
    assert "The form of the constants differs." in unlisted.reasons


def test_code_that_is_never_reused_says_why_without_its_random_value() -> None:
    never = FIELDS | {"reuse": {"never": ["a lambda has no digest"], "nonce": "1"}}
    found = compare_keys(keyed(never), keyed(never | {"reuse": never["reuse"] | {"nonce": "2"}}))
    assert (found.same, found.fields) == (False, ())
    assert found.reasons == ("The code of both is never reused: a lambda has no digest.",)
    assert compare_keys(keyed(FIELDS), keyed(never)).reasons == (
        "The code of the second is never reused: a lambda has no digest.",
    )


def test_keys_without_recorded_fields_say_so() -> None:
    bare = replace(keyed(FIELDS), key=ProgramKey(OTHER, {}))
    found = compare_keys(bare, keyed(FIELDS))
    assert (found.same, found.fields) == (False, ())
    assert "before pt2hub kept them" in found.missing


def test_sizes_tell_equal_content_from_equal_size() -> None:
    one = {"code": SOME, "code_bytes": 10, "weights": SOME, "weights_bytes": 20}
    one |= {"single_file": SOME, "single_file_bytes": 30}
    other = one | {"weights": OTHER, "single_file": OTHER, "single_file_bytes": 31}
    assert compare_sizes(one, other) == (
        SizeDifference("code", 10, 10, same=True),
        SizeDifference("weights", 20, 20, same=False),
        SizeDifference("package", 30, 31, same=False),
    )


def _row(output: int, error: float, **changes: Any) -> dict[str, Any]:
    return {"point": "example", "output": output, "error": error, "allowed": 0.1, "signal": 1.0} | changes


def test_errors_are_matched_by_output_and_ordered_by_how_close_to_the_limit_they_are() -> None:
    before = {"result": "passed", "tolerance": 0.1, "relative_error": 0.02, "comparisons": [_row(0, 0.01)]}
    after = before | {"comparisons": [_row(0, 0.02), _row(1, 0.05), "no row"]}
    found = compare_numerics(before, after)
    assert [(item.what, item.before, item.after) for item in found.errors] == [
        ("output 1 at example inputs", None, 0.05),
        ("output 0 at example inputs", 0.01, 0.02),
    ]
    assert found.before is not None
    assert (found.before.tolerance, found.before.comparisons, found.missing) == (0.1, 1, "")

    many = before | {"comparisons": [_row(number, 0.01) for number in range(MAX_ERRORS + 3)]}
    assert compare_numerics(before, many).left_out == 3
    lacking = compare_numerics({}, before)
    assert lacking.before is None
    assert "of the first artifact" in lacking.missing
    assert "of either artifact" in compare_numerics({}, {"comparisons": "none"}).missing
