"""Loading of artifacts, and calls of loaded models."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from pt2hub import archive
from pt2hub.client.artifacts import native
from pt2hub.client.artifacts.call_contract import contract_of, format_range
from pt2hub.client.artifacts.constants import ConstantStore
from pt2hub.client.artifacts.graph_options import wants_graphs
from pt2hub.client.artifacts.numerics import warn_of_settings
from pt2hub.client.artifacts.pulled_files import PulledFiles
from pt2hub.client.machine.host import check_host, refusal, title
from pt2hub.domain.compatibility.findings import Compatibility, finding
from pt2hub.errors import BadCall, CorruptArchive, ForkedProcess, WeightsMismatch
from pt2hub.renderable import Renderable, Sheet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pt2hub.client.artifacts.graphs import GraphCache
    from pt2hub.client.artifacts.local import LocalArtifact
    from pt2hub.client.artifacts.model_info import ModelInfo
    from pt2hub.domain.artifacts import ArtifactConfig, Signature

_LEAF = pytree.treespec_dumps(pytree.tree_structure(torch.tensor(0)))


def load_artifact(
    artifact: LocalArtifact,
    *,
    device: str | None = None,
    run_single_threaded: bool | None = None,
    num_runners: int = 1,
    cuda_graph: bool | None = None,
    max_cuda_graphs: int = 8,
) -> LoadedModel:
    """Load an artifact from local files; see `Connection.load` for the options.

    Args:
        device: Such as `cuda:1`; the artifact's own device where omitted.

    Returns:
        The model; call it like the module it was published from.

    Raises:
        Incompatible: The artifact does not run here; the failing axes are named.
        DigestMismatch: The code layer was changed.
        CorruptArchive: The code layer is damaged or does not belong to its config.
        WeightsMismatch: The weights file does not fit the code.
        CudaGraphUnavailable: The artifact or another option excludes CUDA graphs.
    """
    place = _place(artifact, device)
    cuda_graph = wants_graphs(
        artifact.config,
        cuda_graph,
        limit=max_cuda_graphs,
        runners=num_runners,
        single_threaded=run_single_threaded,
    )
    single_threaded = cuda_graph if run_single_threaded is None else run_single_threaded
    check_host(artifact.config, gpu_index=place.index or 0)
    artifact.check_code()
    archive.validate(artifact.code)
    store = ConstantStore(artifact, place)
    warn_of_settings(artifact.config)
    native.check_symbols(artifact.config.native.aoti_symbols, title(artifact.config))
    if artifact.config.native.operators:
        native.require_operators(artifact.config.native, title(artifact.config))
    opened = partial(
        native.open_code, artifact.code, place, single_threaded=single_threaded, runners=num_runners
    )
    runner = opened()
    if not artifact.config.constants.baked:  # what is frozen has names of the compiler's own
        _check_names(artifact, runner.get_constant_fqns(), store)
    graphs = _graphs(artifact.config, place, max_cuda_graphs) if cuda_graph else None
    model = LoadedModel(artifact.config, runner, store, place, opened, graphs)
    model.files = artifact.files
    return model


class LoadedModel(Renderable):
    """A loaded artifact; call it like the module it was published from.

    Attributes:
        device: Where it runs.
        mutated: Buffers the model writes to. They are copies of the stored ones and keep their state
            from call to call; `reset` takes them back.
        files: Paths of the attached files by name, all in one folder; empty if they were not pulled. A missing name
            raises a KeyError that says why.
    """

    files: Mapping[str, Path]

    def __init__(
        self,
        config: ArtifactConfig,
        runner: torch._C._aoti.AOTIModelPackageLoader,
        store: ConstantStore,
        device: torch.device,
        opened: Callable[[], torch._C._aoti.AOTIModelPackageLoader] | None = None,
        graphs: GraphCache | None = None,
    ) -> None:
        self.config = config
        self.device = device
        self.mutated = store.mutated
        self.files = PulledFiles()
        self._runner = runner
        self._store = store
        self._contract = contract_of(config.signature, model=config.version.model, device=device)
        self._out_spec = pytree.treespec_loads(config.signature.out_spec)
        self._single = config.signature.out_spec == _LEAF
        self._process = os.getpid()
        self._opened = opened
        self._graphs = graphs
        self._swapped = False
        self._constants: dict[str, torch.Tensor] = {}
        self._written: list[torch.Tensor] = []
        if not config.constants.baked:
            self._give(store.pristine())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model.

        Returns:
            What the model returns.

        Raises:
            BadCall: An argument does not fit the artifact's signature.
            ForkedProcess: The artifact was loaded before this process was forked.
            InternalError: The compiled code failed; torch's own words are in the message.
        """
        if os.getpid() != self._process:
            self._refuse_fork()
        tensors = self._contract.bind(args, kwargs)
        try:
            if self._graphs is None:
                outputs = self._runner.boxed_run(tensors)
            else:
                outputs = self._graphs.call(self._runner.boxed_run, tensors, self._written)
        except RuntimeError as exc:
            raise native.call_error(exc, title(self.config)) from exc
        return outputs[0] if self._single else pytree.tree_unflatten(outputs, self._out_spec)

    def _sheet(self) -> Sheet:
        version, signature = self.config.version, self.config.signature
        inputs = tuple(
            (item.name, f"({', '.join(_size(size, signature) for size in item.shape)})", item.dtype)
            for item in signature.inputs
        )
        given = ((name, value) for name, value in signature.fixed.items() if value is not None)
        fixed = tuple((name, repr(value), "fixed") for name, value in given)
        notes = [f"It writes to {', '.join(self.mutated)}."] if self.mutated else []
        notes += ["Its weights are baked into the code."] if self.config.constants.baked else []
        notes += [f"It replays CUDA graphs, {self._graphs.limit} at most."] if self._graphs else []
        name = f"{version.model}@{version.number} {self.config.target} on {self.device}"
        return Sheet(name, inputs + fixed, tuple(notes))

    @property
    def info(self) -> ModelInfo:
        """What is loaded, and the CUDA graphs that were captured."""
        from pt2hub.client.artifacts.model_info import ModelInfo

        version = self.config.version
        return ModelInfo(
            model=version.model,
            number=version.number,
            target=str(self.config.target),
            device=str(self.device),
            mutated=self.mutated,
            cuda_graphs=self._graphs.info() if self._graphs else None,
            files=tuple(self.files),
        )

    def constants(self) -> dict[str, torch.Tensor]:
        """Return the code's current tensors by name, without copying; empty if the weights are baked in."""
        return dict(self._constants)

    def swap_constants(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Replace the code's weights, for example with a retrained model's `state_dict()`.

        Tensors that have the right form are used in place and kept alive, not copied: later changes to them
        show in the results. Do not swap while another thread is inside a call.

        Raises:
            WeightsMismatch: A name is missing, a tensor does not fit, or the weights are baked into the code; nothing
                was changed.
            ForkedProcess: The artifact was loaded before this process was forked.
        """
        if self.config.constants.baked:
            raise WeightsMismatch(
                "The weights are baked into the compiled code, which takes no others",
                where=title(self.config),
                hint="Publish the other weights as a version of their own, or publish with weights: split, in compile "
                "or for this target.",
            )
        self._give(self._store.replace(tensors, self._constants))
        self._swapped = True

    def reset(self) -> None:
        """Restore the stored constants, including buffers that the model wrote to.

        Code with baked weights has constants that nobody else can give it: where it writes to them it is loaded
        again. Do not reset while another thread is inside a call.
        """
        if not self.config.constants.baked:
            stored = self._store.pristine()
            if self._graphs is None or self._swapped:
                self._give(stored)
                self._swapped = False
            else:  # in place: the graphs hold pointers to these tensors
                self._check_process()
                self._graphs.refill([(tensor, stored[name]) for name, tensor in self._constants.items()])
        elif self.mutated and self._opened:
            self._check_process()
            self._runner = self._opened()

    def _give(self, constants: dict[str, torch.Tensor]) -> None:
        self._check_process()
        if self._graphs is not None:
            self._graphs.clear()
        # use_inactive, check_full_update, user_managed: the code keeps bare pointers, so the tensors live here.
        self._runner.load_constants(constants, False, True, True)
        self._constants = constants
        self._written = [constants[name] for name in self.mutated if name in constants]

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            self._refuse_fork()

    def _refuse_fork(self) -> None:
        raise ForkedProcess(
            f"{self!r} was loaded in process {self._process}, and this is its forked child {os.getpid()}",
            where=self.config.version.model,
            hint="A call would hang, because a fork does not copy threads. Load the artifact after the fork, or "
            'start children with multiprocessing.get_context("spawn").',
        )


def _size(size: int | str, signature: Signature) -> str:
    if isinstance(size, int):
        return str(size)
    return f"{size} {format_range(signature.dims[size])}"


def _place(artifact: LocalArtifact, device: str | None) -> torch.device:
    kind = artifact.config.signature.device
    try:
        place = torch.device(device or kind)
    except RuntimeError as exc:
        raise BadCall(f"Unknown device {device!r}", where="device", hint='Write "cpu" or "cuda:0".') from exc
    if place.type != kind:
        other = finding("device", ok=False, needs=kind, has=f"{place.type}, as requested")
        raise refusal(
            Compatibility((other,)),
            where=title(artifact.config),
            hint="Leave the device out, or pull another target.",
        )
    if place.type != "cuda":
        return torch.device(place.type)
    if place.index is not None or not torch.cuda.is_available():
        return torch.device("cuda", place.index or 0)
    return torch.device("cuda", torch.cuda.current_device())


def _graphs(config: ArtifactConfig, place: torch.device, limit: int) -> GraphCache:
    from pt2hub.client.artifacts.cuda_graphs import CudaGraphBackend
    from pt2hub.client.artifacts.graph_options import draws_random
    from pt2hub.client.artifacts.graphs import GraphCache

    backend = CudaGraphBackend(place, draws_random=draws_random(config))
    names = [item.name for item in config.signature.inputs]
    return GraphCache(backend, names=names, limit=limit, where=title(config))


def _check_names(artifact: LocalArtifact, found: list[str], store: ConstantStore) -> None:
    table = set(store.table)
    if table != set(found):
        raise CorruptArchive(
            f"The code reads other constants than its config lists: {', '.join(sorted(table ^ set(found))[:5])}",
            where=title(artifact.config),
            hint="Config and code do not match; pull the artifact again.",
        )
