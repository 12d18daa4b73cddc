"""Errors of models and their sources; never retried."""

from __future__ import annotations

from pt2hub.errors.base import UsageError
from pt2hub.errors.usage import ExportFailed


class UnknownEntry(UsageError):
    """The entry point of the uploaded code was not found or cannot be imported."""

    code = "unknown_entry"


class MissingRequirement(UsageError):
    """A package that the uploaded code requires is not installed on the worker."""

    code = "missing_requirement"


class BadCodeArchive(UsageError):
    """The code archive is damaged or contains files that are not allowed."""

    code = "bad_code_archive"


class NotAModule(UsageError):
    """The source did not return a torch.nn.Module."""

    code = "not_a_module"


class BadProgram(UsageError):
    """The file is not a valid exported program."""

    code = "bad_program"


class ProgramNewer(UsageError):
    """The program was exported with a newer torch than the target's."""

    code = "program_newer"


class ModelNotCopyable(UsageError):
    """An attribute of the model cannot be copied; a target in another dtype needs a copy of the model."""

    code = "model_not_copyable"


class UnsupportedTensor(UsageError):
    """A weight, buffer or example input is complex, sparse, quantized or a Tensor subclass."""

    code = "unsupported_tensor"


class InputMutated(UsageError):
    """The model modifies its inputs."""

    code = "input_mutated"


class HiddenState(UsageError):
    """The model's output depends on earlier calls through state outside its buffers."""

    code = "hidden_state"


class RandomOperators(UsageError):
    """The exported program draws random numbers, and the spec does not accept that."""

    code = "random_operators"


class UnusedInput(UsageError):
    """The exported program ignores an input that the model uses or may use."""

    code = "unused_input"


class ProgramDiffers(ExportFailed):
    """The exported program does not compute the same as the model."""

    code = "program_differs"


class DataDependent(ExportFailed):
    """The model's control flow depends on tensor values."""

    code = "data_dependent"


class KernelNotTraced(ExportFailed):
    """torch.export cannot trace a plain call of a Triton kernel."""

    code = "kernel_not_traced"


class KernelFailed(UsageError):
    """Triton cannot compile a kernel of the model, or the GPU cannot run it."""

    code = "kernel_failed"


class OpaqueOperator(UsageError):
    """The compiled code would call an operator that only the model's own code registers."""

    code = "opaque_operator"


class WeightsUnavailable(UsageError):
    """The weights cannot be downloaded."""

    code = "weights_unavailable"
