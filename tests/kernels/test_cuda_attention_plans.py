"""Attention by cuDNN: graphs that the library itself takes for a described GPU, done by NumPy from what it was told.

With a driver that loads nothing, the library compiles its engines and says what workspace they want.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import host_libraries
from attention_engines import Row, answers
from cuda_devices import KINDS, new_device
from host_kernels import OverNumPy
from host_libraries import TYPES, attention, missing
from host_loader import HostLoader, missing_to_run
from kernel_case import garbage, run
from kernel_cases_attention import KEY, reference
from singa_lite import FeedForwardNet, device, layers, loss, optimizer
from singa_lite.kernels.built import of_specs
from singa_lite.kernels.cuda_kernels.libraries.cudnn_attention import Attention, AttentionStep
from singa_lite.kernels.cuda_kernels.libraries.cudnn_library import frontend
from singa_lite.kernels.cuda_kernels.routine import CudaKernel
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import specs_of

MISSING = missing() or missing_to_run()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"wants {MISSING}")

HALVES = [np.dtype(TYPES[name]) for name in ("HALF", "BFLOAT16") if name in TYPES]
#: (n, t, s, heads, kv_heads, size): one of each, more rows than keys and fewer, groups, one row, the largest size.
SIZES = [(2, 5, 7, 2, 2, 8), (3, 70, 50, 4, 2, 40), (1, 33, 33, 6, 1, 64), (2, 1, 9, 3, 3, 16), (2, 9, 4, 2, 1, 128)]
#: A rounding to 16 bits, as a share. Operands are normal numbers, and results may be off by four of the largest.
ROUNDING = {"float16": 2.0**-10, "bfloat16": 2.0**-7}


def kernels(made: Attention) -> OverNumPy:
    """The builders as a set without a fallback."""
    builders = {name: of_specs(name, build) for name, build in made.builders.items()}
    return OverNumPy("cudnn", {name: CudaKernel(build, HostLoader()) for name, build in builders.items()})


@pytest.fixture(scope="module")
def cudnn() -> OverNumPy:
    return kernels(attention())


class Problem:
    """Operands of attention in 16 bits, in the interface's order, and results of its formula in float64.

    Derivatives are those of sum(y * dy).
    """

    def __init__(self, sizes: tuple[int, ...], dtype: np.dtype, causal: bool) -> None:
        n, t, s, heads, kv_heads, size = sizes
        rng = np.random.default_rng(5)
        shapes = (n, t, heads, size), (n, s, kv_heads, size), (n, s, kv_heads, size), (n, t, heads, size)
        self.q, self.k, self.v, self.dy = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
        self.settings = {"causal": causal, "scale": 0.7 / np.sqrt(size)}
        wide = [a.astype(np.float64) for a in (self.q, self.k, self.v, self.dy)]
        self.exact = exact(*wide, causal, self.settings["scale"])

    def forward(self) -> list[Any]:
        n, t, heads, _ = self.q.shape
        results = [garbage(self.q.shape, self.q.dtype), garbage((n, heads, t), np.dtype(np.float32))]
        return [self.q, self.k, self.v, None, None, None, *results]

    def backward(self) -> list[Any]:
        y, lse = self.exact["y"].astype(self.q.dtype, "C"), self.exact["lse"].astype(np.float32, "C")
        results = [garbage(a.shape, a.dtype) for a in (self.q, self.k, self.v)]
        return [self.dy, self.q, self.k, self.v, None, None, None, y, lse, *results]

    def check(self, cudnn: OverNumPy, name: str, operands: list[Any]) -> None:
        run(cudnn, name, operands, self.settings)
        signature = SIGNATURES[name]
        for tensor, role, got in zip(signature.tensors, signature.roles, operands, strict=True):
            if role == "Write":
                wanted = self.exact[tensor]
                bound = 4 * ROUNDING[self.q.dtype.name] * max(1, np.abs(wanted).max())
                np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=0, atol=bound, err_msg=tensor)


def exact(q: Any, k: Any, v: Any, dy: Any, causal: bool, scale: float) -> dict[str, np.ndarray]:
    """All results, with all probabilities at once."""
    y, lse = reference(q, k, v, None, causal, scale)
    group = q.shape[2] // k.shape[2]
    keys, values = (np.repeat(a, group, axis=2) for a in (k, v))
    p = np.exp(scale * np.einsum("nthd,nshd->nhts", q, keys) - lse[..., None])
    if causal:
        p = np.tril(p)
    dp = np.einsum("nthd,nshd->nhts", dy, values)
    ds = scale * p * (dp - np.einsum("nthd,nthd->nht", dy, y)[..., None])
    of_heads = np.einsum("nhts,nthd->nshd", ds, q), np.einsum("nhts,nthd->nshd", p, dy)
    dk, dv = (a.reshape(*k.shape[:3], group, -1).sum(3) for a in of_heads)
    return {"y": y, "lse": lse, "dq": np.einsum("nhts,nshd->nthd", ds, keys), "dk": dk, "dv": dv}


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_equals_the_formula(cudnn, dtype, causal):
    for sizes in SIZES:
        problem = Problem(sizes, dtype, causal)
        problem.check(cudnn, "attention", problem.forward())
        problem.check(cudnn, "attention_derivative", problem.backward())


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_operands_may_be_parts_of_one_tensor(cudnn, dtype):
    """q, k and v as a layer's one product gives them, and their derivatives written into one."""
    problem = Problem((2, 9, 9, 2, 2, 24), dtype, causal=True)
    joined = np.stack([problem.q, problem.k, problem.v], axis=2)
    q, k, v = parts = [joined[:, :, i] for i in range(3)]
    forward, backward = problem.forward(), problem.backward()
    problem.check(cudnn, "attention", [q, k, v, *forward[3:]])
    results = garbage(joined.shape, dtype)
    problem.check(
        cudnn, "attention_derivative", [backward[0], *parts, *backward[4:9], *(results[:, :, i] for i in range(3))]
    )


@pytest.mark.parametrize("name", ["attention", "attention_derivative"])
def test_results_over_operands_have_equal_bits(cudnn, name):
    """The library is handed temporaries, which the stand-in insists on."""
    problem = Problem((2, 9, 9, 2, 2, 24), HALVES[0], causal=True)
    signature = SIGNATURES[name]
    build = problem.forward if name == "attention" else problem.backward
    apart = build()
    run(cudnn, name, apart, problem.settings)
    for result, operands in signature.overwrites.items():
        for operand in operands:
            shared = [None if a is None else a.copy() for a in build()]
            at, over = map(signature.tensors.index, (result, operand))
            shared[at] = shared[over]
            run(cudnn, name, shared, problem.settings)
            for wanted, got, role in zip(apart, shared, signature.roles, strict=True):
                if role == "Write":
                    np.testing.assert_array_equal(got, wanted, err_msg=f"{result} over {operand}")


def test_leaves_what_the_library_is_not_asked_for(cudnn):
    problem = Problem((2, 9, 9, 2, 2, 24), HALVES[0], causal=True)
    dropout = {**problem.settings, "p": 0.5}
    for name, operands in (("attention", problem.forward()), ("attention_derivative", problem.backward())):
        place = SIGNATURES[name].tensors.index
        assert cudnn[name].supports(specs_of(operands), problem.settings)

        def served(settings: Any = problem.settings, name: str = name, operands: Any = operands, **others: Any) -> bool:
            changed = [others.get(tensor, a) for tensor, a in zip(SIGNATURES[name].tensors, operands, strict=True)]
            return bool(cudnn[name].supports(specs_of(changed), settings))

        q, lse, gaps = problem.q, operands[place("lse")], np.zeros((2, 9, 2, 28), problem.q.dtype)
        assert not served(mask=np.ones((2, 9), q.dtype))
        assert not served(first=np.zeros((2, 9), np.int32))
        assert not served(dropout, key=KEY)
        assert not served(lse=lse.astype(q.dtype))
        assert not served(lse=np.asfortranarray(lse))
        assert not served(q=np.asfortranarray(q))
        assert not served(k=np.broadcast_to(problem.k[:, :, :1], problem.k.shape))
        assert not served(v=gaps[..., :24]), "rows that are not at multiples of 16 bytes"
        assert not served(v=problem.v.astype(np.float32))
        for dtype in (np.float32, np.float64):
            assert not served(**{tensor: a.astype(dtype) for tensor, a in operands_of(name, operands).items()})
        for size in (20, 136):
            assert not served(
                **{tensor: np.zeros((*a.shape[:3], size), a.dtype) for tensor, a in operands_of(name, operands).items()}
            )


def operands_of(name: str, operands: list[Any]) -> dict[str, np.ndarray]:
    """Those of 16 bits by name."""
    named = zip(SIGNATURES[name].tensors, operands, strict=True)
    return {tensor: a for tensor, a in named if a is not None and a.dtype in HALVES}


def test_operands_at_odd_addresses_are_an_error(cudnn):
    """The library plans them as any others, for loads of 16 bytes."""
    problem = Problem((2, 9, 9, 2, 2, 24), HALVES[0], causal=True)
    operands = problem.forward()
    memory = np.zeros(problem.q.nbytes + 32, np.uint8)
    operands[0] = np.ndarray(problem.q.shape, problem.q.dtype, memory, -memory.ctypes.data % 16 + 8)
    with pytest.raises(LookupError, match="multiples of 16 bytes"):
        run(cudnn, "attention", operands, problem.settings)


def test_a_plan_that_the_library_has_not_is_no_call():
    made = attention()
    made.planner.graph = refused  # type: ignore[method-assign]
    problem = Problem((2, 9, 9, 2, 2, 24), HALVES[0], causal=True)
    for name, operands in (("attention", problem.forward()), ("attention_derivative", problem.backward())):
        assert not kernels(made)[name].supports(specs_of(operands), problem.settings)


def refused(*graph: Any) -> None:
    raise frontend().cudnnGraphNotSupportedError("no engine")


def test_a_deterministic_device_asks_for_equal_bits():
    told = []
    for deterministic in (True, False):
        made = attention(deterministic=deterministic)
        problem = Problem((2, 9, 9, 2, 2, 24), HALVES[0], causal=True)
        problem.check(kernels(made), "attention_derivative", problem.backward())
        told.append(made.planner.executor.told[-1]["use_deterministic_algorithm"])
    assert told == [True, False]


@pytest.mark.filterwarnings("ignore:.*by way of the host")  # what has no kernel yet
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_attention_of_a_net_in_16_bits_is_the_library_s(kind, precision):
    """The compiler keeps the log of the sums in float32, as the library has it."""
    x = np.random.default_rng(3).standard_normal((4, 6, 16)).astype(np.float32)
    losses = []
    for on, options in ((device.new_cpu(kernels="numpy"), {}), (new_device(kind), {"precision": precision})):
        net = FeedForwardNet(loss.SquaredError(), device=on, seed=4)
        net.add(layers.MultiHeadAttention("attention", 2, causal=True, kv_heads=1, input_sample_shape=(6, 16)))
        net.add(layers.Dense("dense", 3))
        net.compile(optimizer.SGD(lr=0.1), **options)
        losses.append([float(net.train_one_batch(x, x[..., :3])[0]) for _ in range(4)])
    np.testing.assert_allclose(*losses, rtol=0.02)
    instructions = net.training_graph._executable("recorded").placed.planned.instructions
    found = [i for i in instructions if i.kernel.startswith("attention")]
    assert [i.kernel for i in found] == ["attention", "attention_derivative"]
    for instruction in found:
        kernel = on.kernels.choose(instruction.kernel, specs_of(instruction.operands), instruction.settings).fast
        routine = kernel.attempt(specs_of(instruction.operands), instruction.settings)
        (step,) = routine.steps
        assert isinstance(step, AttentionStep)
        assert instruction.scratch_bytes == routine.temporary_bytes + step.scratch_bytes, "it is in the plan"


#: Bytes of workspace of an engine that keeps all scores, in the place of what stand-ins want.
SCORES = 1 << 18


@pytest.mark.filterwarnings("ignore:.*by way of the host")
@pytest.mark.parametrize(("classes", "level"), [(3, 0), (9000, 1)])
def test_a_workspace_of_all_scores_is_taken_where_the_plan_has_room(monkeypatch, classes, level):
    """Before a wide head, whose step is the peak; else the derivative goes by tiles, with the same losses."""
    monkeypatch.setattr(host_libraries, "OPEN", SCORES)
    x = np.random.default_rng(3).standard_normal((4, 6, 16)).astype(np.float32)
    ids = np.random.default_rng(4).integers(0, classes, (4, 6))
    losses = []
    for on, options in ((device.new_cpu(kernels="numpy"), {}), (new_device(KINDS[0]), {"precision": "bfloat16"})):
        net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=on, seed=4)
        net.add(layers.MultiHeadAttention("attention", 2, causal=True, kv_heads=1, input_sample_shape=(6, 16)))
        net.add(layers.Dense("dense", classes))
        net.compile(optimizer.SGD(lr=0.1), **options)
        losses.append([float(net.train_one_batch(x, ids)[0]) for _ in range(4)])
    np.testing.assert_allclose(*losses, rtol=0.02)
    placed = net.training_graph._executable("recorded").placed
    (call,) = [i for i in placed.planned.instructions if i.kernel == "attention_derivative"]
    thrifty, fast = on.kernels.scratch_levels(call.kernel, call.operands, call.settings)
    assert thrifty < SCORES < fast
    assert call.scratch_bytes == (thrifty, fast)[level]
    kernel = on.kernels.choose(call.kernel, specs_of(call.operands), call.settings)
    assert kernel.scratch_bytes(specs_of(call.operands), call.settings) == thrifty, "the peak does not grow for it"


#: GPT 124 M at 8 x 1,024.
GPT = (8, 1024, 1024, 12, 12, 64)


def test_engines_of_a_gpt_want_what_is_linear_in_its_lengths(tmp_path):
    """The scores would be 192 MiB; the engine for equal bits alone has them."""
    rows = [
        Row("attention", GPT, "BFLOAT16", True, True),
        Row("attention_derivative", GPT, "BFLOAT16", True, False),
        Row("attention_derivative", GPT, "BFLOAT16", True, True),
    ]
    forward, derivative, exact_one = answers(rows, tmp_path)
    assert forward.engine and forward.workspace <= 1 << 10
    n, t, _, heads, _, size = GPT
    assert derivative.engine and 0 <= derivative.workspace - 4 * n * t * heads * (size + 1) <= 1 << 10
    assert exact_one.engine and 0 <= exact_one.workspace - 2 * n * t * t * heads <= 1 << 20


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", ["HALF", "BFLOAT16"])
def test_the_library_has_engines_for_what_it_is_asked_for(tmp_path, dtype):
    """Equal bits or not: for these sizes all scores are less than what the workspace may be."""
    kinds = [("attention", True), ("attention_derivative", False), ("attention_derivative", True)]
    rows = [
        Row(name, sizes, dtype, causal, exact) for sizes in SIZES for causal in (False, True) for name, exact in kinds
    ]
    for row, answer in zip(rows, answers(rows, tmp_path), strict=True):
        assert answer.engine, row
