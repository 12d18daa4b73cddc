"""Checks of a call, because compiled code reads invalid input as garbage or out of bounds.

Everything that can be worked out once is worked out when the artifact is loaded; a call costs microseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import torch

from pt2hub.archive.strides import row_major
from pt2hub.client.artifacts.argument_tree import ArgumentTree
from pt2hub.domain.publishing.paths import nest, parse
from pt2hub.errors import BadCall

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pt2hub.domain.artifacts import Dim, Signature, TensorInput

_IMAGE_RANK = 4
"""channels_last is defined for four dimensions only; other inputs of such a target stay contiguous."""


class CallContract:
    """The valid arguments of an artifact.

    Args:
        signature: How the artifact is called.
        device: Where the inputs must lie.
    """

    def __init__(self, signature: Signature, *, model: str, device: torch.device) -> None:
        self._arguments = signature.arguments
        self._known = frozenset(signature.arguments)
        self._fixed = signature.fixed
        self._inputs = tuple(
            (SteppedCheck if _has_steps(item, signature) else InputCheck)(item, signature, model, device)
            for item in signature.inputs
        )

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        """Return the tensors of a call, checked, in the order the compiled code takes them.

        Raises:
            BadCall: The call does not fit the signature.
        """
        given = dict(zip(self._arguments, args, strict=False))
        if kwargs or len(args) > len(given):
            self._add_keywords(given, len(args), kwargs)
        sizes: dict[str, int] = {}
        tensors = [check.accept(given.pop(check.name, None), sizes) for check in self._inputs]
        if given:
            self._check_fixed(given)
        return tensors

    def _add_keywords(self, given: dict[str, Any], positional: int, kwargs: Mapping[str, Any]) -> None:
        if positional > len(self._arguments):
            raise BadCall(
                f"{positional} positional arguments, but there are only {len(self._arguments)}: {self._names()}",
                where="arguments",
            )
        for name, value in kwargs.items():
            if name not in self._known:
                raise BadCall(f"Unknown argument {name}; the arguments are {self._names()}", where=name)
            if name in given:
                raise BadCall("The argument is given twice, by position and by name", where=name)
            given[name] = value

    def _check_fixed(self, given: Mapping[str, Any]) -> None:
        for name, value in given.items():
            exported = self._fixed.get(name)
            if not _same(exported, value):
                raise BadCall(
                    f"The artifact was exported with {exported!r} here and ignores other values",
                    where=name,
                    hint=f"Given: {value!r}. Leave {name} out, or publish a version exported with that value.",
                )

    def _names(self) -> str:
        return ", ".join(self._arguments) or "none"


class NestedContract(CallContract):
    """The valid arguments of an artifact with nested arguments; a class of its own, so that flat calls stay fast."""

    def __init__(
        self, signature: Signature, nesting: ArgumentTree, *, model: str, device: torch.device
    ) -> None:
        super().__init__(signature, model=model, device=device)
        self._nesting = nesting
        self._known |= {*nesting.roots, *signature.fixed, *(item.name for item in signature.inputs)}

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        """Take nested arguments apart, then bind as `CallContract` does."""
        given = dict(zip(self._arguments, args, strict=False))
        if kwargs or len(args) > len(given):
            self._add_keywords(given, len(args), kwargs)
        return super().bind((), self._nesting.apart(given))


def contract_of(signature: Signature, *, model: str, device: torch.device) -> CallContract:
    """Return the contract of a signature; arguments as for `CallContract`."""
    nesting = ArgumentTree.of(signature)
    if nesting is None:
        return CallContract(signature, model=model, device=device)
    return NestedContract(signature, nesting, model=model, device=device)


def _same(exported: Any, given: Any) -> bool:
    """Return whether two values are equal and of one type: 1, 1.0 and True are exported as different code."""
    if isinstance(exported, list | tuple) and isinstance(given, list | tuple):
        return len(exported) == len(given) and all(map(_same, exported, given))
    if isinstance(exported, dict) and isinstance(given, dict):
        return exported.keys() == given.keys() and all(_same(exported[key], given[key]) for key in exported)
    return type(exported) is type(given) and bool(exported == given)


class InputCheck:
    """Checks of one tensor argument."""

    def __init__(self, item: TensorInput, signature: Signature, model: str, device: torch.device) -> None:
        self.name = item.name
        self._item = item
        self._model = model
        self._device = device
        self._dims = signature.dims
        self._dtype = dtype_named(item.dtype)
        self._rank = len(item.shape)
        self._static = tuple(
            (axis, size) for axis, size in enumerate(item.shape) if not isinstance(size, str)
        )
        self._dynamic = tuple(
            (axis, size, signature.dims[size].min, signature.dims[size].max)
            for axis, size in enumerate(item.shape)
            if isinstance(size, str)
        )
        last = item.memory_format == "channels_last" and self._rank == _IMAGE_RANK
        self._format = torch.channels_last if last else torch.contiguous_format

    def accept(self, value: Any, sizes: dict[str, int]) -> torch.Tensor:
        """Check a value.

        Returns:
            The same tensor, or a view of it that the compiled code reads rightly.

        Raises:
            BadCall: The value does not fit.
        """
        tensor = value if type(value) is torch.Tensor else self._plain(value)
        if tensor.dtype is not self._dtype:
            self._refuse(
                f"dtype {_short(tensor.dtype)}, the artifact takes {self._item.dtype}",
                f"Convert it: {self.name}.to(torch.{self._item.dtype}).",
            )
        if tensor.device != self._device:
            self._refuse(
                f"The tensor is on {tensor.device}, the artifact runs on {self._device}",
                f'Move it: {self.name}.to("{self._device}").',
            )
        self._check_shape(tensor.shape, sizes)
        return self._check_memory(tensor)

    def _plain(self, value: Any) -> torch.Tensor:
        if value is None:
            self._refuse("The argument is missing", f"It is a tensor of {self._expected_text()}.")
        if not isinstance(value, torch.Tensor):
            self._refuse(
                f"{type(value).__name__}, not a tensor",
                f"Pass a torch.Tensor of {self._expected_text()}.",
            )
        if type(value).__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl:  # noqa: SLF001  # the only mark of a tensor without plain memory
            self._refuse(
                f"{type(value).__name__} has no plain memory that compiled code could read",
                "Pass a plain torch.Tensor.",
            )
        return value

    def _check_shape(self, shape: torch.Size, sizes: dict[str, int]) -> None:
        if len(shape) != self._rank:
            self._refuse(
                f"{len(shape)} dimensions {tuple(shape)}, the artifact takes {self._expected_text()}"
            )
        for axis, size in self._static:
            if shape[axis] != size:
                self._refuse(
                    f"shape[{axis}] is {shape[axis]}, the artifact takes {self._expected_text()}",
                    "The size is fixed in the code; to vary it name the dimension in the spec "
                    f"(inputs and dims) of {self._model} and publish it again.",
                )
        for axis, name, low, high in self._dynamic:
            if not low <= shape[axis] <= high:
                self._out_of_range(axis, shape[axis])
            if sizes.setdefault(name, shape[axis]) != shape[axis]:
                self._refuse(
                    f"shape[{axis}] is {shape[axis]}, but {name} is {sizes[name]} elsewhere in this call",
                    f"Dimensions of the same name have the same size; the artifact takes {self._expected_text()}.",
                )

    def _out_of_range(self, axis: int, size: int) -> NoReturn:
        _, name, low, high = next(item for item in self._dynamic if item[0] == axis)
        above = size > high
        side = f"above the largest size {high}" if above else f"below the smallest size {low}"
        publish = (
            f"To publish a wider one set `dims: {{{name}: {{{'max' if above else 'min'}: {size}}}}}` "
            f"in the spec of {self._model}, then publish it again"
        )
        split = f"; or split the call into parts of {low} to {high}" if above else ""
        self._refuse(
            f"shape[{axis}] ({name}) is {size}, {side} the artifact was compiled for",
            f"{publish}{split}." if size else "Skip the call: no artifact takes an empty tensor here.",
        )

    def _check_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout is not torch.strided:
            self._refuse(f"{_short(tensor.layout)} storage", f"Pass {self.name}.to_dense().")
        if tensor.requires_grad and torch.is_grad_enabled():
            self._refuse(
                "The tensor requires a gradient, which compiled code does not compute",
                f"Call under torch.no_grad() or pass {self.name}.detach().",
            )
        if tensor.is_neg():  # the sign is a flag outside the memory, which compiled code does not see
            tensor = tensor.resolve_neg()
        if not tensor.is_contiguous(memory_format=self._format):
            self._refuse(
                f"Its memory layout (strides {tuple(tensor.stride())}) is not {self._item.memory_format}, "
                "which compiled code would read as garbage",
                f"Pass {self._contiguous()}.",
            )
        # Strides of dimensions of size 1 are arbitrary and count as contiguous; kernels choose layouts by them.
        if 1 in tensor.shape and tensor.stride() != (stride := self._strides(tensor.shape)):
            tensor = tensor.as_strided(tensor.shape, stride)
        return tensor

    def _contiguous(self) -> str:
        inner = "memory_format=torch.channels_last" if self._format is torch.channels_last else ""
        return f"{self.name}.contiguous({inner})"

    def _strides(self, shape: torch.Size) -> tuple[int, ...]:
        if self._format is torch.channels_last:
            _, channels, height, width = shape
            return (channels * height * width, 1, channels * width, channels)
        return row_major(shape)

    def _expected_text(self) -> str:
        dims = {name: f"{name} {format_range(self._dims[name])}" for _, name, _, _ in self._dynamic}
        shape = ", ".join(dims.get(str(size), str(size)) for size in self._item.shape)
        return f"({shape}) {self._item.dtype}"

    def _refuse(self, message: str, hint: str | None = None) -> NoReturn:
        raise BadCall(message, where=self.name, hint=hint)


class SteppedCheck(InputCheck):
    """Checks of a tensor whose sizes must be multiples; a class of its own, so that other calls stay fast."""

    def _check_shape(self, shape: torch.Size, sizes: dict[str, int]) -> None:
        super()._check_shape(shape, sizes)
        for axis, name, _, _ in self._dynamic:
            step = self._dims[name].multiple_of
            if shape[axis] % step:
                below, above = shape[axis] // step * step, -(-shape[axis] // step) * step
                self._refuse(
                    f"shape[{axis}] ({name}) is {shape[axis]}, not a multiple of {step}",
                    f"Pad it to {above} or cut it to {below}: the artifact takes {self._expected_text()}.",
                )


def _has_steps(item: TensorInput, signature: Signature) -> bool:
    return any(isinstance(size, str) and signature.dims[size].multiple_of > 1 for size in item.shape)


def call_with(signature: Signature, tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Return the arguments of a call, assembled from its tensors.

    Returns:
        Arguments by name, with the fixed values next to the tensors in lists, tuples and dicts.
    """
    roots = {parse(name)[0] for name in tensors}
    beside = {name: value for name, value in signature.fixed.items() if parse(name)[0] in roots}
    return nest({**tensors, **beside})


def format_range(dim: Dim) -> str:
    """Return a dimension's sizes as text: `1 to 32`, `8 to 64 by 8`."""
    return f"{dim.min} to {dim.max}" + (f" by {dim.multiple_of}" if dim.multiple_of > 1 else "")


def dtype_named(name: str) -> torch.dtype:
    """Return the torch dtype of a name such as `float32`.

    Raises:
        BadCall: torch has no such dtype.
    """
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise BadCall(f"This torch has no dtype {name!r}", hint="Load the artifact with the torch it names.")
    return found


def _short(value: torch.dtype | torch.layout) -> str:
    return str(value).removeprefix("torch.")
