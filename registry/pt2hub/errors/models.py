"""Errors of models and of where they come from: never retried."""

from __future__ import annotations

from pt2hub.errors.base import UsageError
from pt2hub.errors.usage import ExportFailed


class UnknownEntry(UsageError):
    """The entry point of uploaded code cannot be imported or is not there."""

    code = "unknown_entry"


class MissingRequirement(UsageError):
    """The worker lacks a package that uploaded code requires."""

    code = "missing_requirement"


class BadCodeArchive(UsageError):
    """The archive of source code is damaged, or holds what it must not."""

    code = "bad_code_archive"


class NotAModule(UsageError):
    """The source built something other than a torch.nn.Module."""

    code = "not_a_module"


class BadProgram(UsageError):
    """The file is no exported program that can be taken."""

    code = "bad_program"


class ProgramNewer(UsageError):
    """The program was exported by a newer torch than the target's."""

    code = "program_newer"


class UnsupportedTensor(UsageError):
    """A weight, buffer or example input is complex, sparse, quantised or of a subclass of Tensor."""

    code = "unsupported_tensor"


class InputMutated(UsageError):
    """The model writes to its inputs."""

    code = "input_mutated"


class HiddenState(UsageError):
    """What the model answers depends on earlier calls, by state that is not in its buffers."""

    code = "hidden_state"


class RandomOperators(UsageError):
    """The exported program draws random numbers that the spec does not accept."""

    code = "random_operators"


class UnusedInput(UsageError):
    """The exported program never reads an input that the model uses, or may use."""

    code = "unused_input"


class ProgramDiffers(ExportFailed):
    """The exported program computes something else than the model does."""

    code = "program_differs"


class DataDependent(ExportFailed):
    """The model's control flow depends on the values of tensors."""

    code = "data_dependent"


class WeightsUnavailable(UsageError):
    """The named weights cannot be fetched."""

    code = "weights_unavailable"
