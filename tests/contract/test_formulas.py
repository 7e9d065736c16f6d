"""NumPy's kernels, to which all other sets are held, against formulas in plain NumPy (`kernel_formulas.py`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

import skips
from every_row import over_rows
from kernel_case import Tensors, garbage, run
from kernel_cases import CASES
from kernel_cases_quantized import FORMULAS as QUANTIZED
from kernel_formulas import ACTIVATIONS, FORMULAS, results
from op_cases import CASES as OPERATIONS
from singa_lite import device
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.interface.update import Hyper
from singa_lite.kernels.numpy_kernels import NUMPY
from test_ops import Prepared, by_tape
from test_update_values import SGD, UPDATES, arguments, every_update

#: Kernels whose values are worked out in another file.
ELSEWHERE = {
    **dict.fromkeys(("max_pool2d", "avg_pool2d"), "test_pooling_values.py"),
    **dict.fromkeys(("draw_key", "dropout", "uniform", "normal", "truncated_normal"), "test_random_values.py"),
    **dict.fromkeys(("in_top_k", "precision_at_k", "recall_at_k"), "test_loss_values.py"),
    "attention": "test_attention_values.py",
    **dict.fromkeys(("clip_factor", "unscale_factor", "next_loss_scale"), "test_update_values.py"),
    **dict.fromkeys(("lstm", "gru", "simple_rnn"), "layers/test_recurrent.py"),
}
KEYS = [key for key in CASES if key.split(":")[0] in FORMULAS]
#: Formulas of single numbers, and of all scores at once, take long over big cases, which kernels cut into pieces.
SLOW = {*ACTIVATIONS, *QUANTIZED, "log", "cached_attention"}
BIG = [key for key in KEYS if key.split(":")[0] not in SLOW]
#: One of each kind of pieces.
SOME_BIG = [
    "conv2d",
    "conv2d_derivative",
    "conv2d_gradient:grouped",
    "reduce_sum",
    "softmax",
    "batch_norm",
    "layer_norm",
]
SOME_BIG += ["embedding_gradient", "matmul_add", "adam", "softmax_cross_entropy:images", "lrn", "add:outer"]


def check(name: str, tensors: Tensors, settings: Mapping[str, Any]) -> None:
    """The results are the formula's to the roundings of sums of some ten thousand terms."""
    wanted = results(name, tensors, settings)
    run(NUMPY, name, tensors, settings)
    outputs = [(n, t) for n, r, t in zip(*_names(name), tensors, strict=True) if r != "Read"]
    for (label, got), right in zip(outputs, wanted, strict=True):
        if got is None or right is None:
            continue
        if got.dtype.kind == "f":
            atol = (2e-5 if got.dtype == np.float32 else 1e-12) * np.abs(right).max(initial=1e-3)
            np.testing.assert_allclose(got, right, rtol=0, atol=atol, err_msg=label)
        else:
            np.testing.assert_array_equal(got, right, err_msg=label)


def _names(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return SIGNATURES[name].tensors, SIGNATURES[name].roles


def check_case(key: str, dtype: str, big: bool) -> None:
    tensors, settings = CASES[key].build(np.random.default_rng(7), np.dtype(dtype), big)
    check(key.split(":")[0], tensors, settings)


def test_small_cases_give_what_their_formulas_give():
    over_rows(check_case, ((f"{key} {dtype}", (key, dtype, False)) for key in KEYS for dtype in ("f8", "f4")))


@pytest.mark.parametrize("keys", [SOME_BIG, pytest.param(BIG, marks=pytest.mark.nightly)], ids=["some", "all"])
def test_big_cases_give_what_their_formulas_give(keys):
    over_rows(check_case, ((key, (key, "float32", True)) for key in keys))


def test_every_kernel_has_a_formula_or_a_derivative_by_differences():
    """`test_ops.py` holds the derivatives to central differences of what the operations compute."""
    operations: list[Any] = []
    with device.cpu().watch(operations.append):
        for prepared in map(Prepared, (key for key, case in OPERATIONS.items() if case.differentiable)):
            by_tape(prepared.forward, prepared.inputs)
    derived = {o.kernel for o in operations if o.kernel.endswith(("_derivative", "_gradient"))}
    assert not set(SIGNATURES) - set(FORMULAS) - derived - set(ELSEWHERE)
    assert not set(ELSEWHERE) & set(FORMULAS)


# ---- what the tables' numbers do not show


def test_gelu_keeps_its_digits_where_erf_has_lost_them():
    x = np.linspace(-9, 9, 301)
    y, slope = garbage(x.shape, x.dtype), garbage(x.shape, x.dtype)
    run(NUMPY, "gelu", [x, y], {})
    np.testing.assert_allclose(y, FORMULAS["gelu"](x), rtol=2e-14)
    run(NUMPY, "gelu_derivative", [np.ones_like(x), x, slope], {})
    density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    np.testing.assert_allclose(slope, FORMULAS["gelu"](x) / np.where(x == 0, 1, x) + x * density + (x == 0) / 2,
                               rtol=1e-13, atol=1e-15)  # fmt: skip


def test_cross_entropy_keeps_its_digits_near_a_hit():
    p, dx = np.array([[1e-7, 1 - 2.0**-24]], np.float32), garbage((1, 2), "f")
    run(NUMPY, "softmax_cross_entropy_derivative", [np.array([3.0], "f"), p, np.array([1]), dx], {})
    np.testing.assert_allclose(dx, [[3e-7, -3 * 2.0**-24]], rtol=1e-6)


def test_the_log_of_a_sum_of_powers_does_not_overflow():
    x, y = np.log([[1.0, 2, 5], [1e300, 1e300, 1e-300]]), garbage((2,), "d")
    x[1] += 700
    run(NUMPY, "log_sum_exp", [x, y], {})
    np.testing.assert_allclose(y, [np.log(8), 700 + np.log(2e300)], rtol=1e-14)


def test_a_copy_converts_and_turns():
    halves = np.full((2, 3), -1, np.int32)
    run(NUMPY, "copy", [np.array([1.5, -2.5, 0.0]), halves], {})
    np.testing.assert_array_equal(halves, [[1, -2, 0], [1, -2, 0]])
    x, turned = np.random.default_rng(1).standard_normal((3, 5, 7)), np.empty((7, 5, 3), np.float32)
    run(NUMPY, "copy", [x, turned.T], {})
    np.testing.assert_array_equal(turned, x.T.astype(np.float32))


def test_an_extreme_is_nan_where_one_element_is():
    x = np.array([[1.0, np.nan, np.inf], [2.0, 3.0, -np.inf]])
    for name, axis, wanted in (("reduce_max", 1, [np.nan, 3]), ("reduce_min", 0, [1, np.nan, -np.inf])):
        y = garbage((len(wanted),), x.dtype)
        run(NUMPY, name, [x, y], {"axes": (axis,)})
        np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64", "bool"])
def test_a_choice_keeps_every_bit_of_any_dtype_and_takes_nothing_of_the_other(dtype):
    random = np.random.default_rng(3)
    a, b = (random.integers(0, 256, (3, 40000 * np.dtype(dtype).itemsize), np.uint8).view(dtype) for _ in range(2))
    a, b = (given > 0 if dtype == "bool" else given for given in (a, b))
    condition, y = random.random((1, a.shape[1])) < 0.3, np.empty_like(a)
    run(NUMPY, "where", [condition, a, b, y], {})
    assert y.tobytes() == np.where(condition, a, b).tobytes()


def test_what_does_not_count_may_be_anything():
    x, weights, y = np.array([np.inf, np.nan, 3, -2]), np.array([0.0, 0, 2, 0.5]), garbage((4,), "d")
    run(NUMPY, "weigh", [x, weights, y], {})
    np.testing.assert_array_equal(y, [0, 0, 6, -1])
    ids, shares = garbage((2,), np.int64), garbage((2,), "d")
    run(NUMPY, "target_weights", [np.array([9, 9]), ids, shares], {"ignored": 9})
    assert [*ids, *shares] == [0, 0, 0, 0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_updates_by_rows_are_those_of_the_whole_gradient_to_the_bit_and_touch_no_other_row(dtype):
    rng, hyper = np.random.default_rng(3), SGD.__class__(**{**asdict(SGD), "momentum": 0.0})
    ids, dy = rng.integers(0, 7, (5, 11)), rng.standard_normal((5, 11, 6)).astype(dtype)
    whole, rows = (rng.standard_normal((8, 6)).astype(dtype),) * 2
    rows = whole.copy()
    rows[7] = np.nan  # no id; 0 times the rate would leave other bits
    gradient, rate = garbage((8, 6), dtype), np.array(0.3)
    run(NUMPY, "embedding_gradient", [ids, dy, gradient], {"first": 0, "padding": 2})
    run(NUMPY, "sgd", [gradient, rate, whole, None, np.array(0)], {"hyper": hyper})
    before = rows[7].tobytes()
    run(NUMPY, "sgd_rows", [ids, dy, rate, rows, np.array(0)], {"hyper": hyper, "padding": 2})
    np.testing.assert_array_equal(rows[:7], whole[:7])
    assert rows[7].tobytes() == before
    tiles = [garbage((stop - start, 6), dtype) for start, stop in ((0, 3), (3, 8))]
    for first, tile in zip((0, 3), tiles, strict=True):
        run(NUMPY, "embedding_gradient", [ids, dy, tile], {"first": first, "padding": 2})
    np.testing.assert_array_equal(np.concatenate(tiles), gradient)


ONES = np.ones((1, 5, 2))
REFUSED: dict[str, tuple[str, list[Any], str]] = {
    "embedding below": ("embedding", [np.array([0, -1]), np.ones((4, 2)), np.ones((2, 2))], r"received -1 at \[1\]"),
    "embedding above": ("embedding", [np.array([0, 4]), np.ones((4, 2)), np.ones((2, 2))], r"received 4 at \[1\]"),
    "read below": ("read_at", [ONES, np.array([-1]), np.ones((1, 2, 2))], "received -1"),
    "read behind": ("read_at", [ONES, np.array([4]), np.ones((1, 2, 2))], "received 4"),
    "write below": ("write_at", [np.ones((1, 2, 2)), np.array([-1]), ONES.copy()], "received -1"),
    "write behind": ("write_at", [np.ones((1, 2, 2)), np.array([4]), ONES.copy()], "received 4"),
}


@pytest.mark.parametrize(("name", "tensors", "said"), REFUSED.values(), ids=REFUSED)
def test_ids_and_places_that_are_not_there_are_refused(name, tensors, said):
    with pytest.raises(IndexError, match=said):
        run(NUMPY, name, tensors, {})


# ---- nothing at all

#: Tensors of batches without a sample, and settings; results that are sums of nothing are 0.
EMPTY: dict[str, tuple[list[tuple[int, ...]], dict[str, Any]]] = {
    "relu_derivative": ([(0, 5), (0, 5), (0, 5)], {}),
    "gelu": ([(0, 5), (0, 5)], {}),
    "softmax": ([(0, 5), (0, 5)], {"axis": 1}),
    "softmax:no class": ([(3, 0), (3, 0)], {"axis": 1}),
    "scale": ([(0, 5), (0, 5)], {"alpha": 2.0, "beta": 1.0}),
    "linear": ([(0, 5), (5, 3), (3,), (0, 3)], {}),
    "matmul": ([(3, 2, 0), (0, 4), (3, 2, 4)], {"transpose_a": False, "transpose_b": False}),
    "bias_gradient": ([(0, 3), (3,)], {"axis": 1}),
    "softmax_cross_entropy": ([(0, 5), (0, 5), (0,), (0, 5)], {}),
    "softmax_cross_entropy_derivative": ([(0,), (0, 5), (0, 5), (0, 5)], {}),
    "huber": ([(0, 5), (0, 5), (0,)], {"delta": 1.0}),
    "huber_derivative": ([(0,), (0, 5), (0, 5), (0, 5)], {"delta": 1.0}),
    "in_top_k": ([(0, 5), (0, 5), (0,)], {"k": 2}),
    "precision_at_k": ([(0, 5, 3), (0, 5, 3), (0,)], {"k": 2}),
}


@pytest.mark.parametrize("key", EMPTY)
def test_an_empty_batch_is_no_error_and_its_sums_are_0(key):
    shapes, settings = EMPTY[key]
    tensors = [garbage(shape, "d") for shape in shapes]
    run(NUMPY, key.split(":")[0], tensors, settings)
    assert not tensors[-1].any()


EMPTY_IMAGES = ("max_pool2d", "avg_pool2d", "batch_norm")


@pytest.mark.parametrize("key", [key for key in CASES if key.startswith(EMPTY_IMAGES)])
def test_an_empty_batch_of_images_changes_no_statistics_and_has_gradient_0(key):
    tensors, settings = CASES[key].build(np.random.default_rng(7), np.dtype("d"), False)
    name, n = key.split(":")[0], tensors[0].shape[0]
    labels = SIGNATURES[name].tensors
    is_of_samples = [t is not None and t.ndim > 1 and t.shape[0] == n
                     for label, t in zip(labels, tensors, strict=True)]  # fmt: skip
    given = [t[:0] if cut else t for t, cut in zip(tensors, is_of_samples, strict=True)]
    before = [None if t is None else t.copy() for t in given]
    run(NUMPY, name, given, settings)
    for label, role, t, old in zip(*_names(name), given, before, strict=True):
        if role == "Update" and t is not None:
            np.testing.assert_array_equal(t, old)
        if label in ("dgamma", "dbeta"):
            assert not t.any()


# ---- updates, over several steps

RATES = [0.1, 0.07, 0.02, 0.05]


def steps(name: str, states: int, settings: dict[str, Any], dtype: str) -> Any:
    """(gradient, rate, the formula's results, the call) of each of some updates from the first on."""
    call = [None if t is None else t.astype(dtype) if t.ndim else t for t in arguments(states, (5, 37, 101))]
    call[-1][...] = 0
    for t in call[3:-1]:
        if t is not None:
            t.fill(0)
    for number, rate in enumerate(RATES):
        call[0], call[1] = np.random.default_rng(number).standard_normal(call[0].shape).astype(dtype), np.array(rate)
        wanted = results(name, call, settings)
        run(NUMPY, name, call, settings)
        yield wanted, call


@every_update
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-12)])
def test_updates_give_what_their_formulas_give_step_by_step(name, states, settings, dtype, tolerance):
    for wanted, call in steps(name, states, settings, dtype):
        for got, right in zip(call[2:], wanted, strict=True):
            if got is not None:
                np.testing.assert_allclose(got, right, rtol=tolerance, atol=tolerance)


#: PyTorch's names.
PEERS = {"sgd": "SGD", "rms_prop": "RMSprop", "ada_grad": "Adagrad", "adam": "Adam"}
PEERS |= {"rho": "alpha", "epsilon": "eps"}


def peer_of(torch: Any, name: str, states: int, hyper: Hyper, parameter: Any) -> Any:
    """PyTorch's optimizer with these hyperparameters."""
    settings = {PEERS.get(key, key): value for key, value in asdict(hyper).items() if key != "lr_mult"}
    kind = PEERS[name] + ("W" if settings.pop("decoupled", False) else "")
    if name == "adam":
        settings["amsgrad"] = states == 3
        settings["betas"] = settings.pop("beta_1"), settings.pop("beta_2")
    return getattr(torch.optim, kind)([parameter], lr=1.0, **settings)


@pytest.mark.peer
@pytest.mark.parametrize("case", [case for case, (name, *_) in UPDATES.items() if name in PEERS])
def test_updates_equal_pytorch(case):
    name, states, hyper = UPDATES[case]
    settings = {"hyper": hyper}
    torch = skips.library("torch")
    parameter = torch.nn.Parameter(torch.tensor(arguments(states, (5, 37, 101))[2].astype(float)))
    optimizer = peer_of(torch, name, states, settings["hyper"], parameter)
    for _, call in steps(name, states, settings, "float64"):
        optimizer.param_groups[0]["lr"] = settings["hyper"].lr_mult * float(call[1])
        parameter.grad = torch.tensor(call[0])
        optimizer.step()
        np.testing.assert_allclose(call[2], parameter.detach().numpy(), rtol=1e-12, atol=1e-12)
