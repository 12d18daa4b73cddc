"""Artifact configs for tests: real shapes, made-up digests."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pt2hub.client.machine.host import this_host
from pt2hub.domain.artifacts import (
    CONFIG_SCHEMA,
    ArtifactConfig,
    Constant,
    Constants,
    Dim,
    Environment,
    NativeCode,
    ProgramKey,
    Region,
    Signature,
    SingleFile,
    TensorInput,
    Toolchain,
    VersionIdentity,
)
from pt2hub.domain.digests import digest_bytes
from pt2hub.domain.targets import parse_target

if TYPE_CHECKING:
    from pt2hub.domain.targets import Target

LEAF = '[1, {"type": null, "context": null, "children_spec": []}]'
"""torch's tree specification of one tensor."""
_WIDTH = {"float32": 4, "float16": 2, "bfloat16": 2, "int64": 8}


def a_target() -> Target:
    """The CPU target of this machine, so that verdicts say yes."""
    return parse_target(this_host().native_target() or "torch2.13-cpu-x86_64")


def a_signature(**changes: Any) -> Signature:
    """One image batch of 1 to 32."""
    signature = Signature(
        arguments=("x",),
        inputs=(TensorInput("x", ("batch", 3, 4, 5), "float32"),),
        dims={"batch": Dim(1, 32)},
        device="cpu",
        in_spec="",
        out_spec=LEAF,
    )
    return replace(signature, **changes)


def a_constant(fqn: str, shape: tuple[int, ...], **changes: Any) -> Constant:
    """A contiguous constant."""
    dtype = changes.get("dtype", "float32")
    stride = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    constant = Constant(fqn, shape, stride, dtype, 0, math.prod(shape) * _WIDTH[dtype])
    return replace(constant, **changes)


def a_config(*table: Constant, **changes: Any) -> ArtifactConfig:
    """A config with these constants."""
    target = changes.get("target") or a_target()
    some = digest_bytes(b"")
    config = ArtifactConfig(
        schema=CONFIG_SCHEMA,
        version=VersionIdentity("team/net", 1, some, {}, {}, some, some),
        target=target,
        toolchain=Toolchain(f"{target.torch}.0+cpu", "3.11", "g++ 12", "glibc 2.31", "0.1.0"),
        environment=Environment("a CPU", target.arch, 2, 1 << 30, f"{target.torch}.0+cpu"),
        signature=a_signature(),
        constants=Constants("model/data/aotinductor/model/model.wrapper_weights.blob", 0, table),
        native=NativeCode(target.arch if target.device == "cpu" else "x86_64", (), (), (), "2.31", ""),
        key=ProgramKey(some, {}),
        single_file=SingleFile(some, 0, ()),
        steps=(),
        verification={},
        provenance={},
    )
    return replace(config, **changes)


def a_region(key: str | ProgramKey, *modules: str, **changes: Any) -> Region:
    """A part of a model that is called once per module, with the constant `weight`."""
    region = Region(
        key=key if isinstance(key, ProgramKey) else ProgramKey(digest_bytes(key.encode()), {"graph": key}),
        members=("model/data/aotinductor/model/region.so",),
        constants=Constants("", 0, (a_constant("weight", (4,)),)),
        native=NativeCode("x86_64", (), (), (), "2.31", ""),
        modules=modules,
        calls=max(1, len(modules)),
    )
    return replace(region, **changes)
