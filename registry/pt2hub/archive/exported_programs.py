"""Splitting of exported programs for upload, and their reassembly in the sandbox; no code of theirs runs here.

torch.export.load unpickles example inputs and some weights and evaluates text of the graph (docs/facts/trust.md#exported-programs).
So a program travels without any pickle and without weights, which are a blob of their own and may be exchanged;
what is left is text and raw numbers, the same bytes for the same program. The graph's expressions are still
evaluated by torch: only the sandbox loads it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pt2hub.archive.calls import ProgramCall, read_call
from pt2hub.archive.payloads import (
    SAVE_AGAIN,
    Payload,
    dump,
    make_contiguous,
    malformed_member,
    payload_chunks,
    payload_config,
    read_json,
    read_payloads,
)
from pt2hub.archive.safetensors_header import Form, TensorEntry, read_safetensors_header, safetensors_header
from pt2hub.archive.sources import open_file, open_source
from pt2hub.archive.torch_save_format import (
    CONSTANTS,
    CONSTANTS_CONFIG,
    FIXED,
    MODEL,
    SAMPLES,
    WEIGHTS,
    WEIGHTS_CONFIG,
    check_fixed,
    check_readable,
    check_saved,
    root_of,
    translate_errors,
)
from pt2hub.archive.weights_check import check_fit
from pt2hub.archive.zip import records
from pt2hub.archive.zip.encoder import ZipEncoder, write_pieces
from pt2hub.archive.zip.reader import Archive, open_archive
from pt2hub.archive.zip.validation import printable_name
from pt2hub.errors import BadProgram, CorruptArchive, WeightsMismatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pt2hub.archive.sources import ByteSource

_ROOT = "program/"
_LARGEST_GRAPH = 64 << 20
"""Bytes of the graph's JSON: a node with its stack trace takes 0.9 to 1.5 KB."""
_VERSION = re.compile(r"\d{1,4}\.\d{1,4}\S{0,60}|<=2\.4")
_TRACE_FILE = re.compile(r'File "(?:[^"\n]*/site-packages/|[^"\n]*[/\\])?([^"\n]+)"')
_OPERATOR = re.compile(r"torch\.ops\.(\w+)\.(\w+)(?:\.\w+)?")


@dataclass(frozen=True, slots=True)
class ProgramSummary:
    """Facts about a program, read from its file.

    Attributes:
        torch_version: The torch that exported it, such as `2.13.0+cpu`; `<=2.4` where it is too old to say.
        call: Its inputs, in order.
        operators: Those that are neither torch's own `aten` nor part of the export, `namespace::name`.
    """

    torch_version: str
    schema: tuple[int, int]
    weights: Mapping[str, Form]
    ties: tuple[tuple[str, ...], ...]
    call: ProgramCall
    nodes: int
    operators: tuple[str, ...]


class _Parts(NamedTuple):
    """A parsed program."""

    graph: dict[str, Any]
    weights: tuple[Payload, ...]
    constants: tuple[Payload, ...]
    summary: ProgramSummary


def split_program(source: Path, program: Path, weights: Path, *, where: str | None = None) -> ProgramSummary:
    """Split a file written by torch.export.save.

    Args:
        program: Where the program goes, without weights and example inputs; the same program gives the same bytes.
        weights: Where the weights go, as safetensors: each contiguous, a tied one once, under its last name.
        where: What errors call the file; its path where omitted.

    Raises:
        NotFound: The file does not exist or cannot be read.
        BadProgram: The file is not a saved program, is damaged, or contains pickles.
        UnsupportedTensor: A weight is complex or not dense.
    """
    with translate_errors(where or str(source)), ExitStack() as stack:
        check_readable(source)
        archive = stack.enter_context(open_archive(source))
        root = root_of(archive)
        check_saved(archive, root)
        parts = _read(archive, root)
        untied = _drop_ties(parts)
        header, order = safetensors_header(parts.summary.weights)
        tensors = (payload_chunks(source, archive, root + WEIGHTS, untied[name]) for name in order)
        write_pieces(weights, _chunks([header], *tensors))
        write_pieces(program, _program(source, archive, root, parts))
    return parts.summary


def check_program(source: Path | ByteSource) -> ProgramSummary:
    """Check a program that `split_program` wrote, without loading it.

    Raises:
        BadProgram: It is something else, or damaged.
    """
    with translate_errors(), open_file(source) as file:
        return _taken(Archive(file)).summary


def join_program(program: Path, weights: Path, out: Path, *, device: str | None = None) -> None:
    """Join a program and its weights to a file for torch.export.load; only done in the sandbox.

    Args:
        program: As `split_program` wrote it.
        out: The file, which torch wants to end in `.pt2`.
        device: Where the graph computes, such as `cuda`; as it was exported where omitted. A graph names its device in
            every value and in operations that make tensors, and a torch without CUDA aborts when it meets one of CUDA,
            also in `torch.export.passes.move_to_device_pass` (seen with 2.13): so it is changed before loading.

    Raises:
        BadProgram: The program is something else, or damaged.
        WeightsMismatch: The weights are not its own.
    """
    with ExitStack() as stack:
        stack.enter_context(translate_errors())
        archive = stack.enter_context(open_archive(program))
        file = stack.enter_context(open_source(weights))
        parts = _taken(archive)
        found = _fitting(file, parts.summary)
        changed = {}
        if device is not None:
            changed[_ROOT + MODEL] = dump(_replace_device(parts.graph, device))
            changed[_ROOT + CONSTANTS_CONFIG] = payload_config(parts.constants, device)
        members = {item.member: found[item.name] for item in parts.weights if item.name in found}
        write_pieces(out, _join_members(archive, changed, file, members))


def _read(archive: Archive, root: str) -> _Parts:
    graph = read_json(archive, root + MODEL, most=_LARGEST_GRAPH)
    weights = read_payloads(archive, root + WEIGHTS_CONFIG)
    constants = read_payloads(archive, root + CONSTANTS_CONFIG)
    try:
        places = _read_by(graph)
        weights = tuple(item for item in weights if item.name in places)  # the rest would only be carried
        return _Parts(graph, weights, constants, _summary(graph, _groups(weights, places)))
    except (
        AttributeError,
        KeyError,
        IndexError,
        OverflowError,
        StopIteration,
        TypeError,
        ValueError,
        RecursionError,
    ) as error:
        raise malformed_member(MODEL) from error


def _taken(archive: Archive) -> _Parts:
    """Parse a split program; refuse missing or additional members and unexpected tensor layouts."""
    if any(entry.name.removeprefix(_ROOT) == entry.name for entry in archive.entries):
        root_of(archive)  # says what it is, where it can
        raise BadProgram(
            "the file still contains its weights, as torch.export.save wrote it",
            hint="`pt2hub publish --program FILE` splits it.",
        )
    parts = _read(archive, _ROOT)
    if parts.weights != make_contiguous(parts.weights, "weight_"):
        raise malformed_member(WEIGHTS_CONFIG)
    if parts.constants != make_contiguous(parts.constants, "tensor_"):
        raise malformed_member(CONSTANTS_CONFIG)
    sizes = {f"{CONSTANTS}{item.member}": item.size for item in parts.constants}
    sizes |= {SAMPLES: 0} | {name: len(contents[0]) for name, contents in FIXED.items()}
    for entry in archive.entries:
        name = entry.name.removeprefix(_ROOT)
        texts = (MODEL, WEIGHTS_CONFIG, CONSTANTS_CONFIG)
        # `split_program` compresses nothing: no small upload may become much to read.
        if entry.method != records.STORED or (name not in texts and sizes.pop(name, -1) != entry.size):
            raise BadProgram(f"{printable_name(name)} has unexpected content for a program", hint=SAVE_AGAIN)
    if sizes:
        raise BadProgram(f"the file lacks {printable_name(min(sizes))}", hint=SAVE_AGAIN)
    check_fixed(archive, _ROOT)
    return parts


def _summary(graph: Mapping[str, Any], groups: list[list[Payload]]) -> ProgramSummary:
    version = graph.get("torch_version", "<=2.4")
    schema = (graph["schema_version"]["major"], graph["schema_version"]["minor"])
    if not _VERSION.fullmatch(version) or not all(type(number) is int for number in schema):
        raise ValueError(version)
    ties = tuple(tuple(item.name for item in group) for group in groups if len(group) > 1)
    forms = {group[-1].name: Form(group[-1].dtype, group[-1].shape) for group in groups}
    nodes = graph["graph_module"]["graph"]["nodes"]
    return ProgramSummary(
        version, schema, forms, ties, read_call(graph), len(nodes), tuple(sorted(_operators(graph)))
    )


def _read_by(graph: Mapping[str, Any]) -> dict[str, int]:
    """Return the program's parameters and buffers with their positions in torch.export's order."""
    specs = graph["graph_module"]["signature"]["input_specs"]
    names = [item["parameter"]["parameter_name"] for item in specs if "parameter" in item]
    names += [item["buffer"]["buffer_name"] for item in specs if "buffer" in item]
    return {name: place for place, name in enumerate(names)}


def _groups(weights: tuple[Payload, ...], places: Mapping[str, int]) -> list[list[Payload]]:
    """Return the weights with tied names grouped, torch.export's own name last."""
    groups: dict[tuple[object, ...], list[Payload]] = {}
    for item in sorted(weights, key=lambda item: places[item.name]):
        groups.setdefault(item.memory, []).append(item)
    return list(groups.values())


def _drop_ties(parts: _Parts) -> dict[str, Payload]:
    return {item.name: item for item in parts.weights if item.name in parts.summary.weights}


def _operators(graph: object) -> set[str]:
    """Return the operators of the graph and its subgraphs that are registered by packages other than torch."""
    operators: set[str] = set()
    pending = [graph]
    while pending:  # no recursion: each step of a nested generator costs as much as it is deep
        value = pending.pop()
        if isinstance(value, dict):
            target = value.get("target")
            found = _OPERATOR.fullmatch(target) if isinstance(target, str) else None
            if found and found[1] not in _OWN_OPERATORS:
                operators.add(f"{found[1]}::{found[2]}")
            pending += value.values()
        elif isinstance(value, list):
            pending += value
    return operators


_OWN_OPERATORS = frozenset({"aten", "prims", "prim", "higher_order", "_c10d_functional", "export"})


def _program(source: Path, archive: Archive, root: str, parts: _Parts) -> Iterator[bytes]:
    encoder = ZipEncoder()
    constants = make_contiguous(parts.constants, "tensor_")
    texts = {name: contents[0] for name, contents in FIXED.items()} | {SAMPLES: b""}
    texts[MODEL] = dump(_without_paths(parts.graph))
    texts[WEIGHTS_CONFIG] = payload_config(make_contiguous(parts.weights, "weight_"))
    texts[CONSTANTS_CONFIG] = payload_config(constants)
    for name, data in sorted(texts.items()):
        yield from encoder.whole(_ROOT + name, data)
    members = {new.member: old for new, old in zip(constants, parts.constants, strict=True)}
    for member, item in members.items():
        chunks = payload_chunks(source, archive, root + CONSTANTS, item)
        yield from encoder.member(f"{_ROOT}{CONSTANTS}{member}", item.size, chunks)
    yield from encoder.end()


def _without_paths(value: object) -> object:
    """Return the graph with stack traces that name files without the exporting machine's folders."""
    if isinstance(value, dict):
        return {
            key: _TRACE_FILE.sub(r'File "\1"', item)
            if key == "stack_trace" and isinstance(item, str)
            else _without_paths(item)
            for key, item in value.items()
        }
    return [_without_paths(item) for item in value] if isinstance(value, list) else value


def _fitting(file: ByteSource, summary: ProgramSummary) -> dict[str, TensorEntry]:
    """Return the weights file's tensors; they must match the program's."""
    try:
        found = read_safetensors_header(file)
    except CorruptArchive as error:
        raise WeightsMismatch(error.message, where="weights", hint=error.hint) from error
    own = dict(summary.weights) | {
        name: summary.weights[group[-1]] for group in summary.ties for name in group
    }
    given = {name: Form(entry.dtype, entry.shape) for name, entry in found.items()}
    check_fit(own, given, ties=summary.ties)
    return found


def _join_members(
    archive: Archive, changed: Mapping[str, bytes], file: ByteSource, members: Mapping[str, TensorEntry]
) -> Iterator[bytes]:
    encoder = ZipEncoder()
    for entry in archive.entries:
        if entry.name in changed:
            yield from encoder.whole(entry.name, changed[entry.name])
        else:
            yield from encoder.member(entry.name, entry.size, archive.chunks(entry), crc=entry.crc)
    for member, tensor in members.items():
        chunks = file.read(tensor.begin, tensor.end)
        yield from encoder.member(f"{_ROOT}{WEIGHTS}{member}", tensor.end - tensor.begin, chunks)
    yield from encoder.end()


def _replace_device(value: object, device: str) -> object:
    """Return the graph with every device replaced."""
    if isinstance(value, dict):
        if value.keys() == {"type", "index"} and isinstance(value["type"], str):
            return value if value["type"] == "meta" else {"type": device, "index": None}
        return {key: _replace_device(item, device) for key, item in value.items()}
    return [_replace_device(item, device) for item in value] if isinstance(value, list) else value


def _chunks(*parts: Iterable[bytes]) -> Iterator[bytes]:
    for part in parts:
        yield from part


__all__ = ["ProgramSummary", "check_program", "join_program", "split_program"]
