"""Files of a spec, which are uploaded and named by digest in the spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pt2hub.client.publishing.attached_files import upload_files
from pt2hub.client.publishing.pretrained.names import is_name
from pt2hub.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from pt2hub.client.publishing.options import SpecOptions
    from pt2hub.client.publishing.pretrained.names import FetchedWeights
    from pt2hub.domain.digests import Digest

    Fetch: TypeAlias = "Callable[[str, Path], FetchedWeights]"
    Upload: TypeAlias = "Callable[[Path], Digest]"
    Document: TypeAlias = "dict[str, Any]"


CODE_HINT = "Pass the path of the folder that contains its modules."


@dataclass(frozen=True, slots=True)
class SpecFiles:
    """The files to upload for one version.

    Attributes:
        weights: A safetensors file, or the name of pretrained weights; before a program's own where both are given.
        code: A folder of Python source, for a spec whose source has an `entry`; beside a program, for its operators.
        saved: A file of `torch.export.save`; it becomes the source, and its weights the weights.
        program: The same without its weights, as `archive.programs.split_program` writes it.
        examples: A safetensors file with a tensor for each input that has neither `generate` nor `example`.
        attached: Files to attach, by name; see `SpecOptions`.
    """

    weights: Path | str | None = None
    code: Path | None = None
    saved: Path | None = None
    program: Path | None = None
    examples: Path | None = None
    attached: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, options: SpecOptions) -> Self:
        """Return the files among the options of a spec.

        Raises:
            InvalidInput: An option is not a path.
        """
        weights = options.get("weights")
        return cls(
            weights=weights
            if is_name(weights)
            else as_path(
                weights, "weights", "Save tensors with safetensors.torch.save_file and pass the file's path."
            ),
            code=as_path(options.get("code"), "code", CODE_HINT),
            saved=as_path(
                options.get("program"),
                "program",
                "Pass the path of a file from torch.export.save, or publish the exported program itself.",
            ),
            attached=options.get("files") or {},
        )

    def __bool__(self) -> bool:
        return any((self.weights, self.code, self.saved, self.program, self.examples, self.attached))

    def named_in(
        self, spec: Mapping[str, Any], upload: Upload, fetch: Fetch, *, folder: Path | None = None
    ) -> Document:
        """Return the spec with the digests of the uploaded files.

        Args:
            folder: The folder that paths in the spec are relative to; the current one if None.

        Raises:
            WeightsUnavailable: The named weights cannot be fetched.
            InvalidInput: The spec has another source already.
            BadProgram: The program cannot be taken apart.
            BadCodeArchive: The folder cannot be packed.
            NotFound: A file is not there.
            EmptyFile: A file to attach is empty.
        """
        from tempfile import TemporaryDirectory

        document = dict(spec)
        self._check_source(document.get("source"))
        upload_files(document, self.attached, folder or Path(), upload)
        with TemporaryDirectory(prefix="pt2hub-") as scratch:
            if self.saved:
                self._bring_saved(document, self.saved, Path(scratch), upload)
            if self.program:
                _bring_program(document, upload(self.program))
            if self.code:
                _bring_code(document, self.code, Path(scratch), upload)
            self._bring_weights(document, Path(scratch), upload, fetch)
            if self.examples:
                _bring_examples(document, upload(self.examples))
        return document

    def _check_source(self, source: Any) -> None:
        brought = {"code": self.code, "program": self.saved or self.program}
        kinds = [kind for kind, path in brought.items() if path]
        if "program" in kinds:  # code goes along with it
            kinds = ["program"]
            source = {kind: value for kind, value in (source or {}).items() if kind != "code"}
        if not isinstance(source, dict | None):
            raise InvalidInput("source must be an object", where="source", hint="Write its fields by name.")
        given = [kind for kind in ("factory", *brought) if kind in (source or {})]
        if kinds and (len(kinds) > 1 or {*given, *kinds} != {*kinds}):
            raise InvalidInput(
                f"Only one source is allowed, got {' and '.join(dict.fromkeys([*given, *kinds]))}",
                where="source",
                hint="Leave out all but one.",
            )

    def _bring_saved(self, document: Document, file: Path, scratch: Path, upload: Upload) -> None:
        from pt2hub.archive.exported_programs import split_program

        program, weights = scratch / "program.pt2", scratch / "weights.safetensors"
        split_program(file, program, weights)
        _bring_program(document, upload(program))
        if not self.weights:
            document["weights"] = upload(weights)

    def _bring_weights(self, document: Document, scratch: Path, upload: Upload, fetch: Fetch) -> None:
        wanted = self.weights or document.get("weights")
        if is_name(wanted):
            fetched = fetch(wanted, scratch)
            document |= {"weights": upload(fetched.path), "weights_from": fetched.pinned}
        elif self.weights:
            document["weights"] = upload(Path(self.weights))
            document.pop("weights_from", None)  # it named other weights


NOTHING = SpecFiles()
"""No files: the spec names all blobs itself."""


def as_path(value: object, name: str, hint: str) -> Path | None:
    """Return the option with this name as a path; None if omitted.

    Raises:
        InvalidInput: The option is not a path.
    """
    if not isinstance(value, str | Path | None):
        raise InvalidInput(f"{name} must be a path, got {type(value).__name__}", where=name, hint=hint)
    return Path(value) if value else None


def _bring_program(document: Document, digest: Digest) -> None:
    """Name a program as the source; a spec may name the modules of its operators."""
    given = document.get("source") or {}
    document["source"] = {
        "program": digest,
        **{key: given[key] for key in ("code", "operators") if key in given},
    }


def _bring_code(document: Document, folder: Path, scratch: Path, upload: Upload) -> None:
    from pt2hub.archive.code import pack_code

    packed = scratch / "code.zip"
    pack_code(folder, packed)
    document["source"] = {**(document.get("source") or {}), "code": upload(packed)}


def _bring_examples(document: Document, digest: Digest) -> None:
    document["inputs"] = [
        item if {"generate", "example"} & set(item) else {**item, "example": digest}
        for item in document["inputs"]
    ]
