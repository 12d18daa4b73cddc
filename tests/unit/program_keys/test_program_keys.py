"""What shapes code is in the program key, one change at a time; and what does not shape code is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from support.program_keys import keys_of

if TYPE_CHECKING:
    from support.program_keys import Named

NET = """
import torch

FACTOR = 2.0

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(4, 4)
        self.norm = torch.nn.BatchNorm1d(4, momentum=0.1)
        self.dropout = torch.nn.Dropout(0.1)
        self.register_buffer("offset", torch.zeros(4))

    def forward(self, x):
        hidden = self.norm(self.linear(x))
        return act(self.dropout(hidden)) + torch.tensor([1.0, 2.0, 3.0, 4.0]) + self.offset

def act(x):
    return torch.nn.functional.silu(x) * FACTOR

def build():
    return Net().eval().requires_grad_(False)

DIMS = lambda: ({0: torch.export.Dim("batch", min=2, max=64)},)
"""
"""A model without any operator but torch's."""

_OPERATOR = NET.replace("def act(x):", "def _unused(x):")
TRITON_OP = (
    _OPERATOR
    + """
LIMIT = 50.0

def helper(x):
    return x * FACTOR

@torch.library.triton_op("mine::act", mutates_args=())
def act(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > LIMIT, 0.0, helper(x))
"""
)
CUSTOM_OP = (
    _OPERATOR
    + """
@torch.library.custom_op("mine::act", mutates_args=())
def act(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@act.register_fake
def _(x):
    return torch.empty_like(x)
"""
)
_LIBRARY = (
    _OPERATOR
    + """
library = torch.library.Library("mine", "FRAGMENT")
library.define("act(Tensor x) -> Tensor")
library.impl("act", lambda x: x * 2.0, "{}")
act = torch.ops.mine.act
"""
)
IMPLICIT = _LIBRARY.replace("{}", "CompositeImplicitAutograd")
EXPLICIT = _LIBRARY.replace("{}", "CompositeExplicitAutograd")
FUNCTIONAL = (
    _OPERATOR
    + """
torch.library.define("mine::act", "(Tensor x) -> Tensor")
torch.library.impl("mine::act", "CompositeExplicitAutograd")(lambda x: x * 2.0)
act = torch.ops.mine.act
"""
)
COND = NET.replace(
    "return torch.nn.functional.silu(x) * FACTOR",
    "return torch.cond(x.sum() > 0, lambda x: x + 1.0, lambda x: x - 1.0, (x,))",
)
WHILE = NET.replace(
    "return torch.nn.functional.silu(x) * FACTOR",
    "return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y + 1.0), (torch.tensor(0), x))[1]",
).replace("import torch\n", "import torch\nfrom torch._higher_order_ops.while_loop import while_loop\n")
AUTOGRAD = (
    _OPERATOR
    + """
class Act(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2.0

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2.0

act = Act.apply
"""
)
FLEX = """
import torch
from torch.nn.attention.flex_attention import flex_attention

def score(score, batch, head, query, key):
    return score + (query - key) * 2

class Net(torch.nn.Module):
    def forward(self, q):
        return flex_attention(q, q, q, score_mod=score, kernel_options={"BLOCK_M": 32})

def build():
    return Net().eval()

EXAMPLE = lambda: (torch.ones(1, 2, 128, 16),)
"""
ATEN = (
    NET
    + """
library = torch.library.Library("aten", "IMPL")
library.impl("silu", lambda x: x * 2.0, "CPU")
"""
)
ATEN_FUNCTIONAL = (
    NET
    + """
torch.library.impl("aten::silu", "CPU")(lambda x: x * 2.0)
"""
)
ATEN_FAKE = (
    NET
    + """
torch.library.impl("aten::poisson", "Meta")(lambda x, generator=None: torch.empty_like(x))
"""
)
DECOMPOSITION = (
    NET
    + """
import torch._inductor.decomposition
torch._inductor.decomposition.decompositions[torch.ops.aten.silu.default] = lambda x: x * 2.0
"""
)
PY_IMPL = (
    NET
    + """
torch.ops.aten.silu.default.py_impl(torch._C.DispatchKey.CompositeImplicitAutograd)(lambda x: x * 2.0)
"""
)
LOWERING = (
    NET
    + """
import torch._inductor.lowering
torch._inductor.lowering.lowerings[torch.ops.aten.silu.default] = lambda x: 2.0
"""
)
PATCH = (
    NET
    + """
import torch._inductor.utils
torch._inductor.utils.ceildiv = lambda a, b: 2.0
"""
)
METHOD = (
    NET
    + """
import torch._inductor.ir
torch._inductor.ir.Loops.get_stride = lambda self: 2.0
"""
)
CONSTANT = (
    NET
    + """
import torch._inductor.utils
torch._inductor.utils.GPU_ALIGN_BYTES = 32
"""
)
PATTERN = (
    NET
    + """
from torch._inductor.pattern_matcher import Arg, CallFunction, register_graph_pattern
from torch._inductor.fx_passes import post_grad
register_graph_pattern(CallFunction(torch.ops.aten.silu.default, Arg()), pass_dict=post_grad.pass_patterns[1])(
    lambda match, x: 2.0
)
"""
)
PASS = (
    NET
    + """
import torch._inductor.config
def mine(graph):
    return 2.0
torch._inductor.config.post_grad_custom_post_pass = mine
"""
)
PATCHES = {
    "kernel of ATen": ATEN,
    "kernel of ATen, functional": ATEN_FUNCTIONAL,
    "fake kernel of ATen": ATEN_FAKE,
    "decomposition": DECOMPOSITION,
    "lowering": LOWERING,
    "function of Inductor": PATCH,
    "method of Inductor": METHOD,
    "constant of Inductor": CONSTANT,
    "pattern": PATTERN,
    "custom pass": PASS,
}
"""Sources that put something of their own into torch."""
LIBRARIES = (CUSTOM_OP, EXPLICIT, FUNCTIONAL)


@dataclass(frozen=True)
class Change:
    """One change to a source."""

    name: str
    source: str
    old: str
    new: str

    @property
    def changed(self) -> str:
        assert self.old in self.source, self.name
        return self.source.replace(self.old, self.new)


def _added(name: str, text: str, source: str = NET) -> Change:
    return Change(name, source, "import torch\n", f"import torch\n{text}\n")


SHAPING = [
    Change("arithmetic of the model", NET, "* FACTOR", "+ FACTOR"),
    Change("a number in the graph", NET, "FACTOR = 2.0", "FACTOR = 3.0"),
    Change("a number that is none", NET, "FACTOR = 2.0", 'FACTOR = float("nan")'),
    Change("a literal tensor", NET, "[1.0, 2.0", "[1.5, 2.0"),
    Change("a dimension's range", NET, "max=64", "max=128"),
    Change("an example's size", NET + "EXAMPLE = lambda: (torch.ones(3, 4),)", "ones(3", "ones(5"),
    Change("a constant's dtype", NET, "zeros(4)", "zeros(4).double()"),
    Change("a constant's stride", NET, "zeros(4)", "zeros(8)[::2]"),
    Change("body of a triton_op", TRITON_OP, "torch.where(x > LIMIT, 0.0, helper(x))", "helper(x)"),
    Change("global of a triton_op", TRITON_OP, "LIMIT = 50.0", "LIMIT = 60.0"),
    Change("what a triton_op calls", TRITON_OP, "return x * FACTOR", "return x + FACTOR"),
    Change(
        "tags of an operator", CUSTOM_OP, "mutates_args=()", "mutates_args=(), tags=torch.Tag.flexible_layout"
    ),
    Change("body of a custom_op", CUSTOM_OP, "return x * 2", "return x * 3"),
    Change("body of an implicit operator", IMPLICIT, "x * 2.0", "x * 3.0"),
    Change("body of an explicit operator", EXPLICIT, "x * 2.0", "x * 3.0"),
    Change("body of a functional registration", FUNCTIONAL, "x * 2.0", "x * 3.0"),
    Change("branch of cond", COND, "x + 1.0", "x + 2.0"),
    Change("body of while_loop", WHILE, "y + 1.0", "y + 2.0"),
    Change("condition of while_loop", WHILE, "i < 3", "i < 4"),
    Change("forward of a custom autograd function", AUTOGRAD, "x * 2.0", "x * 3.0"),
    Change("score_mod of flex_attention", FLEX, "* 2", "* 3"),
    Change("kernel options of flex_attention", FLEX, '"BLOCK_M": 32', '"BLOCK_M": 64'),
    *(Change(f"{name}, added", source, source.removeprefix(NET), "") for name, source in PATCHES.items()),
    *(
        Change(f"{name}, another body", source, own, own.replace("2.0\n", "3.0\n"))
        for name, source in PATCHES.items()
        if "2.0\n" in (own := source.removeprefix(NET))  # NET has a number of its own
    ),
    _added("matmul precision", 'torch.set_float32_matmul_precision("medium")'),
    _added("precision of oneDNN's products", "torch.backends.mkldnn.matmul.fp32_precision = 'bf16'"),
    _added("precision of products on a GPU", "torch.backends.cuda.matmul.fp32_precision = 'tf32'"),
    _added("number of threads", "torch.set_num_threads(torch.get_num_threads() + 1)"),
    _added("deterministic algorithms", "torch.use_deterministic_algorithms(True)"),
    _added("attention back-end", "torch.backends.cuda.enable_math_sdp(False)"),
    _added("oneDNN", "torch.backends.mkldnn.enabled = False"),
    _added("reduced precision", "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False"),
    _added("Inductor's settings", "import torch._inductor.config as c; c.max_fusion_size += 1"),
    _added(
        "Inductor's settings that are not portable",
        "import torch._inductor.config as c; c.trace.enabled = True",
    ),
    _added("Inductor's private settings", "import torch._inductor.config as c; c._micro_pipeline_tp = True"),
    _added("Dynamo's settings", "import torch._dynamo.config as c; c.recompile_limit += 1"),
    _added("functorch's settings", "import torch._functorch.config as c; c.activation_memory_budget = 0.5"),
    *(
        _added(f"variable {name}", f"import os; os.environ['{name}'] = '1'")
        for name in (
            "TORCHINDUCTOR_FREEZING",
            "CPATH",
            "CXXFLAGS",
            "TRITON_INTERPRETER",
            "ATEN_CPU_CAPABILITY",
        )
    ),
]
HARMLESS = [
    Change("a comment", NET, "def act(x):", "# what it does\n\n\ndef act(x):"),
    Change("a docstring", NET, "def act(x):", 'def act(x):\n    "What it does."'),
    Change("a variable's name", NET, "hidden", "features"),
    Change("a function's name", NET, "act(", "activation("),
    Change("weights", NET, "manual_seed(0)", "manual_seed(1)"),
    Change("dropout in eval mode", NET, "Dropout(0.1)", "Dropout(0.5)"),
    Change("backward of a custom autograd function", AUTOGRAD, "gradient * 2.0", "gradient * 3.0"),
    Change("momentum in eval mode", NET, "momentum=0.1", "momentum=0.2"),
    _added("a function that nothing calls", "def unused():\n    return 1"),
    _added("a variable that nothing reads", "import os; os.environ['MINE'] = '1'"),
    Change(
        "a comment in a triton_op",
        TRITON_OP,
        "    return torch.where",
        "    # mended\n    return torch.where",
    ),
    Change("lines above a triton_op", TRITON_OP, "LIMIT =", "\n\n\nLIMIT ="),
    Change(
        "an operator that nothing calls",
        NET,
        "def act(x):",
        CUSTOM_OP.removeprefix(_OPERATOR).replace("act", "other") + "\ndef act(x):",
    ),
]


IMPERFECT = {
    "a higher-order operator": _OPERATOR
    + """
from torch._higher_order_ops.utils import autograd_not_implemented
class Mine(torch._ops.HigherOrderOperator):
    def __init__(self):
        super().__init__("mine")
    def __call__(self, x):
        return super().__call__(x)
act = Mine()
act.py_autograd_impl(autograd_not_implemented(act, deferred_error=True))
act.py_impl(torch._subclasses.FakeTensorMode)(lambda mode, x: x.clone())
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode, track_tensor_tree
@act.py_impl(ProxyTorchDispatchMode)
def traced(mode, x):
    node = mode.tracer.create_proxy("call_function", act, (mode.tracer.unwrap_proxy(x),), {})
    return track_tensor_tree(x.clone(), node, constant=None, tracer=mode.tracer)
act.py_functionalize_impl(lambda ctx, x: ctx.wrap_tensors(act(ctx.unwrap_tensors(x))))
""",
    "custom_op in place of triton_op": TRITON_OP.replace("library.triton_op", "library.custom_op")
    + "\nact.register_fake(lambda x: torch.empty_like(x))\n",
    "exec'd body": NET.replace(
        "def act(x):",
        """text = '''
@torch.library.triton_op("mine::act", mutates_args=())
def act(x: torch.Tensor) -> torch.Tensor:
    return x * 2.0
'''
import __future__
exec(compile(text, "<nowhere>", "exec", dont_inherit=True))
def _unused(x):""",
    ),
    "operator registered twice": TRITON_OP + TRITON_OP.removeprefix(_OPERATOR).replace("helper(x))", "x)"),
    "Python implementation of an operator of ATen": PY_IMPL,
    "a pass that is an object": PASS.replace(
        "def mine(graph):\n    return 2.0",
        "class Mine:\n    def __call__(self, graph):\n        return 2.0\nmine = Mine()",
    ),
    "a body that reads an object": TRITON_OP.replace(
        "LIMIT = 50.0", "class Limit: pass\nLIMIT = Limit()\nLIMIT.value = 50.0"
    ).replace("> LIMIT", "> LIMIT.value"),
}
"""Sources that are hard to name: for each, what must be said of it stands in its test."""


@pytest.fixture(scope="module")
def keys() -> dict[str, Named]:
    """Of every source above, by its text."""
    sources = {text for item in (*SHAPING, *HARMLESS) for text in (item.source, item.changed)}
    texts = sorted({*sources, *IMPERFECT.values()})
    return keys_of({text: text for text in texts}, {"PYTHONHASHSEED": "1"}, warm=True)


@pytest.mark.parametrize("change", SHAPING, ids=lambda item: item.name)
def test_what_shapes_code_is_another_key(keys: dict[str, Named], change: Change) -> None:
    before, after = keys[change.source], keys[change.changed]

    assert before.digest != after.digest
    for named in (before, after):
        assert named.never == []  # else a nonce is what differs
        assert named.unchanged


@pytest.mark.parametrize("change", HARMLESS, ids=lambda item: item.name)
def test_what_shapes_no_code_is_the_same_key(keys: dict[str, Named], change: Change) -> None:
    before, after = keys[change.source], keys[change.changed]

    assert before.fields == after.fields
    assert before.digest == after.digest


def test_an_operator_of_another_kind_is_another_key(keys: dict[str, Named]) -> None:
    other = keys[IMPERFECT["custom_op in place of triton_op"]]

    assert other.digest != keys[TRITON_OP].digest
    assert other.lines == [
        "operator mine.act.default: its body is not in the graph, the key contains all loaded code"
    ]


def test_an_operator_without_a_source_file_is_named_by_its_bytecode(keys: dict[str, Named]) -> None:
    named = keys[IMPERFECT["exec'd body"]]

    assert named.never == []
    assert named.lines == ["operator mine.act.default: the key contains its source and the graph of its body"]


def test_of_an_operator_that_is_registered_twice_the_key_names_the_one_that_runs(
    keys: dict[str, Named],
) -> None:
    named = keys[IMPERFECT["operator registered twice"]]

    assert named.never == []
    graph = "(decomposed graph)"
    assert named.fields["operators"][graph] != keys[TRITON_OP].fields["operators"][graph]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Python implementation of an operator of ATen", "the bodies of its operators cannot be traced"),
        ("a higher-order operator", "the graph calls mine, a higher-order operator of the_model"),
        ("a pass that is an object", "inductor.post_grad_custom_post_pass is a value of type the_model.Mine"),
    ],
)
def test_what_cannot_be_named_is_never_reused_and_says_why(
    keys: dict[str, Named], name: str, reason: str
) -> None:
    named = keys[IMPERFECT[name]]

    assert any(reason in item for item in named.never), named.never
    assert named.fields["reuse"]["nonce"]


def test_a_body_that_reads_an_object_is_covered_by_all_loaded_code(keys: dict[str, Named]) -> None:
    named = keys[IMPERFECT["a body that reads an object"]]

    assert named.never == []
    assert named.lines == [
        "operator mine.act.default: its body uses a value of type the_model.Limit, the key contains all loaded code"
    ]


def test_equal_programs_have_equal_keys_in_every_process(keys: dict[str, Named]) -> None:
    sources = {text: text for text in (NET, TRITON_OP, CUSTOM_OP, COND, FLEX, PATCH)}

    # As in a build: these keys are the first of their process.
    other = keys_of(sources, {"PYTHONHASHSEED": "2"})

    for text in sources:
        assert keys[text].fields == other[text].fields
