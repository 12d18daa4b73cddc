"""The sizes and inputs of an artifact as rows of text."""

from __future__ import annotations

import re
from typing import Any

from pt2hub.domain.artifacts import Dim, TensorInput
from pt2hub.domain.codec import encode
from pt2hub.domain.digests import digest_bytes
from pt2hub.rendering.signatures import signature_rows
from pt2hub.wire.artifacts import ArtifactView
from support.artifacts import a_signature

DIGEST = digest_bytes(b"")


def view(**config: Any) -> ArtifactView:
    return ArtifactView(
        digest=DIGEST, model="team/net", number=7, target="torch2.13-cu130-sm90", device="cuda", arch="sm90", build="b1",
        attempt=1, created_at="2026-11-22T10:00:00Z", program_key=DIGEST, code=DIGEST, code_bytes=1 << 10, weights=DIGEST,
        weights_bytes=93 << 20, single_file=DIGEST, single_file_bytes=94 << 20, config_digest=DIGEST, torch="2.13.0",
        python="3.12", compiler="g++", libc="glibc", pt2hub="0.2", config=config,
    )  # fmt: skip


def test_sizes_inputs_dimensions_and_fixed_arguments_are_listed() -> None:
    signature = a_signature(
        inputs=(
            TensorInput("ids", ("batch", "length"), "int64"),
            TensorInput("image", (1, 3, 8, 8), "float16", "channels_last"),
        ),
        dims={"batch": Dim(1, 32), "length": Dim(8, 512, 8)},
        fixed={"use_cache": False},
    )
    assert signature_rows(view(signature=encode(signature))) == (
        ("size", "code 1 KiB, weights 93 MiB, model.pt2 94 MiB"),
        ("inputs", "ids int64 [batch, length]"),
        ("", "image float16 [1, 3, 8, 8] channels_last"),
        ("dims", "batch 1 to 32, length 8 to 512 in steps of 8"),
        ("fixed", "use_cache=false"),
    )


def test_many_inputs_are_shortened_and_an_unknown_signature_is_left_out() -> None:
    many = a_signature(inputs=tuple(TensorInput(f"x{n}", (n,), "float32") for n in range(20)), dims={})
    rows = signature_rows(view(signature=encode(many)))
    assert (len(rows), rows[-1]) == (10, ("", "12 more"))
    for config in ({}, {"signature": {"colour": "blue"}}):
        assert [name for name, _ in signature_rows(view(**config))] == ["size"]


def test_a_long_fixed_value_is_cut() -> None:
    fixed = {"ids": list(range(10_000)), "text": "x" * 78, "longer": "x" * 79}
    (*_, (_, row)) = signature_rows(view(signature=encode(a_signature(fixed=fixed))))
    ids, text, longer = (part.partition("=")[2] for part in re.split(r", (?=[a-z])", row))
    assert (len(ids), ids[:9], ids[-3:]) == (80, "[0, 1, 2,", "...")
    assert text == f'"{"x" * 78}"'
    assert longer == f'"{"x" * 76}...'
