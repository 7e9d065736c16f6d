"""Parameters stored in bfloat16 (compile(parameter_dtype=, rounding=)): rounding, training, plans, snapshots."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import skips
from kernel_sets import sets_of_a_chain
from misuse import Row, assert_all_refused, row
from singa_lite import FeedForwardNet, autograd, device, layers, optimizer, tensor
from singa_lite.graph.budget_error import BudgetError
from singa_lite.kernels.kernel_set import KernelSet
from singa_lite.testing.kernel_call import run

ml_dtypes = skips.library("ml_dtypes")
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
ROUNDINGS = ("stochastic", "compensated")
STORED: dict[str, Any] = {"parameter_dtype": "bfloat16"}
SETS = pytest.mark.parametrize("kernels", sets_of_a_chain(), ids=lambda kernels: kernels.name)
BY_ROUNDING = pytest.mark.parametrize("rounding", ROUNDINGS)
pytestmark = pytest.mark.filterwarnings("ignore::singa_lite.errors.PrecisionWarning")


# ---- rounding


def count_of(updates: int, seed: int = 7, stream: int = 3) -> np.ndarray:
    return np.array([updates, seed, stream], np.int64)


def rounded(kernels: KernelSet, x: np.ndarray, updates: int, start: int = 0) -> np.ndarray:
    value = np.zeros_like(x, BFLOAT16)
    run(kernels, "round_by_chance", [x, count_of(updates), value], {"start": start})
    return value.astype(np.float32)


def neighbours(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of bfloat16 below and above, in magnitude."""
    bits = x.view(np.uint32) & np.uint32(0xFFFF0000)
    return bits.view(np.float32), (bits + np.uint32(0x10000)).view(np.float32)


@SETS
def test_the_mean_of_many_roundings_is_the_number(kernels):
    """Of 4000 draws the mean is off by the deviation of one over the root of 4000; 5 times that is never met."""
    x = np.random.default_rng(1).normal(size=57).astype("f")
    low, high = neighbours(x)
    draws = np.stack([rounded(kernels, x, updates) for updates in range(4000)])
    assert np.all((draws == low) | (draws == high)) and np.all(draws.min(0) != draws.max(0))
    share = (x - low).astype(float) / (high - low)
    deviation = np.sqrt(share * (1 - share) / len(draws))
    assert np.all(np.abs((draws == high).mean(0) - share) < 5 * deviation)
    assert not np.array_equal(draws[0], draws[1])


def odd_numbers() -> np.ndarray:
    rng = np.random.default_rng(2)
    x = (rng.normal(size=(61, 1043)) * 10.0 ** rng.integers(-44, 38, (61, 1043))).astype("f")
    x[0, :6] = [np.nan, np.inf, -np.inf, 0, -0.0, 3.4e38]
    return x


def results(kernels: KernelSet, x: np.ndarray) -> list[np.ndarray]:
    value, error, back = np.zeros(x.shape, BFLOAT16), np.zeros(x.shape, np.int8), np.zeros_like(x)
    run(kernels, "split_error", [x, value, error], {})
    run(kernels, "add_error", [value, error, back], {})
    return [rounded(kernels, x, 5), value.astype(np.float32), error, back]


@SETS
def test_all_sets_round_to_the_same_bits(kernels):
    x = odd_numbers()
    for given in (x, x.T, x[:, ::3]):
        for got, wanted in zip(results(kernels, given), results(sets_of_a_chain()[0], given), strict=True):
            np.testing.assert_array_equal(got.view(f"V{got.itemsize}"), wanted.view(f"V{wanted.itemsize}"))
    pieces = np.concatenate([rounded(kernels, x[:7], 5), rounded(kernels, x[7:], 5, 7 * x.shape[1])])
    np.testing.assert_array_equal(pieces, rounded(kernels, x, 5))


@SETS
def test_a_value_and_its_error_hold_24_bits(kernels):
    x = np.random.default_rng(3).normal(size=4001).astype("f")
    _, value, error, back = results(kernels, x)
    np.testing.assert_allclose(back, x, rtol=2.0**-16)
    last = np.exp2(np.floor(np.log2(np.abs(value).astype(float))) - 7)
    assert np.all(np.abs(value - x) <= (0.5 + 1 / 512) * last)
    last[(np.abs(np.frexp(value)[0]) == 0.5) & (error < 0)] /= 2  # below a power of two numbers are closer
    np.testing.assert_allclose(value + error * np.sign(value) * last / 256, back, rtol=1e-7)


# ---- updates


def net_of(kernels: str = "onednn", **options: Any) -> FeedForwardNet:
    net = FeedForwardNet("softmax_cross_entropy", "accuracy", device=device.new_cpu(kernels=kernels), seed=3)
    net.add(layers.Dense("hidden", 131, input_sample_shape=(64,), activation="relu"))
    net.add(layers.Dense("scores", 10))
    net.compile(options.pop("opt", None) or optimizer.AdamW(lr=0.01), **(STORED | options))
    return net


def conv_net(kernels: str = "onednn", **options: Any) -> FeedForwardNet:
    net = FeedForwardNet("softmax_cross_entropy", "accuracy", device=device.new_cpu(kernels=kernels), seed=5)
    net.add(layers.Conv2D("one", 8, 3, input_sample_shape=(1, 8, 8)))
    net.add(layers.BatchNormalization("norm"))
    net.add(layers.Activation("relu"))
    net.add(layers.Conv2D("two", 7, 3))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("scores", 10))
    net.compile(options.pop("opt", None) or optimizer.AdamW(lr=0.01), **(STORED | options))
    return net


def text_net(kernels: str = "onednn", **options: Any) -> FeedForwardNet:
    """A table of which the gradient is made by tiles, tied to the head."""
    net = FeedForwardNet("softmax_cross_entropy", "accuracy", device=device.new_cpu(kernels=kernels), seed=5)
    net.add(layers.Embedding("table", 9001, 131, input_sample_shape=(12,)))
    net.add(layers.LSTM("lstm", 131))
    net.add(layers.Dense("inner", 131))
    net.add(layers.Dense("scores", 9))
    net.compile(options.pop("opt", None) or optimizer.AdamW(lr=0.01), **(STORED | options))
    return net


def batch(make: Callable[..., FeedForwardNet], step: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(step)
    if make is text_net:
        return rng.integers(0, 9001, (8, 12)), rng.integers(0, 9, 8)
    shape = (16, 64) if make is net_of else (16, 1, 8, 8)
    return rng.normal(size=shape).astype("f"), rng.integers(0, 10, 16)


def bits(net: FeedForwardNet) -> dict[str, bytes]:
    found = {name: tensor.to_numpy(t).tobytes() for name, t in net.parameters().items()}
    state = net.optimizer.state.items()
    return found | {f"{name} {slot}": tensor.to_numpy(t).tobytes() for name, s in state for slot, t in s.items()}


def train(make: Callable[..., FeedForwardNet], net: FeedForwardNet, first: int = 0, last: int = 3) -> FeedForwardNet:
    for step in range(first, last):
        net.train_one_batch(*batch(make, step))
    return net


@SETS
@BY_ROUNDING
def test_ten_thousand_tiny_updates_have_the_mean_of_exact_ones(kernels, rounding):
    """They differ, and are a fiftieth of half of the last place in the mean, which rounding to nearest drops."""
    value, g, last, steps = np.ones((19, 53), BFLOAT16), np.empty((19, 53), "f"), 2.0**-7, 10_000
    error = np.zeros(value.shape, np.int8) if rounding == "compensated" else None
    count = np.array(0) if rounding == "compensated" else count_of(0)
    hyper = optimizer.SGD.hyper(momentum=0.0, dampening=0.0, nesterov=False, weight_decay=0.0, lr_mult=1.0)
    settings, rate, total = {"hyper": hyper, "first": 0}, np.array(last / 200), np.zeros(g.shape)
    scratch = np.empty(kernels.scratch_bytes("sgd:bfloat16", (g, rate, value, None, count, error), settings), "u1")
    launch = kernels.prepare("sgd:bfloat16", (g, rate, value, None, count, error), scratch, settings)
    rng = np.random.default_rng(8)
    for _ in range(steps):
        np.subtract(2 * rng.standard_normal(g.shape, "f"), 1, out=g)
        launch()
        total += g
    left = 0 if error is None else error * last / 256
    off = value.astype(float) + left - (1 - float(rate) * total)
    # of a step: that of rounding to 256ths, or of chance at most the last place times the step's size, sqrt(5) * rate
    variance = (last / 256) ** 2 / 12 if rounding == "compensated" else last * np.sqrt(5) * float(rate)
    assert total.mean() * float(rate) < -0.38 and count.ravel()[0] == steps
    assert abs(off.mean()) < 5 * np.sqrt(steps * variance / off.size)


@pytest.mark.parametrize("make", [net_of, conv_net, text_net], ids=["dense", "convolution", "text"])
@pytest.mark.parametrize("kernels", ["numpy", "onednn"])
@BY_ROUNDING
def test_planned_unplanned_and_budgeted_steps_have_equal_bits(make, kernels, rounding):
    options = {"rounding": rounding, "state_dtype": "int8" if make is text_net else None}
    planned = make(kernels, **options)
    assert {t.dtype.name for t in planned.parameters().values() if t.ndim > 1} == {"bfloat16"}
    assert {t.dtype.name for t in planned.parameters().values() if t.ndim == 1} == {"float32"}
    wanted = bits(train(make, planned))
    assert bits(train(make, make(kernels, **options, graph=False))) == wanted
    plan = planned.plan_batch(len(batch(make, 0)[0]))
    for share in (0.95, 0.85):
        budgeted = make(kernels, **options, memory_budget=int(share * plan.total_bytes))
        try:
            assert bits(train(make, budgeted)) == wanted
        except BudgetError:
            assert share < 0.9 or make is not conv_net


def test_a_plan_counts_two_bytes_a_parameter():
    plans = {name: net_of(parameter_dtype=name).plan_batch(16) for name in ("float32", "bfloat16")}
    matrices = 64 * 131 + 131 * 10
    before, after = (plans[name].by_class["parameters"] for name in ("float32", "bfloat16"))
    assert before - after == 2 * matrices
    compensated = net_of(rounding="compensated").plan_batch(16).by_class["optimizer state"]
    stochastic = plans["bfloat16"].by_class["optimizer state"]
    assert compensated - stochastic == matrices - 2 * 16


def test_a_large_gradient_never_exists_whole():
    """The table's is 4.7 MB, of which a tile has 1 MiB."""
    plan = text_net(opt=optimizer.SGD(0.1)).plan_batch(8)
    assert plan.arena_bytes < 9001 * 131 * 4


def test_a_plan_on_an_abstract_device_is_that_of_a_real_one():
    net = FeedForwardNet("softmax_cross_entropy", device=device.abstract(), seed=3)
    net.add(layers.Dense("hidden", 131, input_sample_shape=(64,), activation="relu"))
    net.add(layers.Dense("scores", 10))
    net.compile(optimizer.AdamW(lr=0.01), **STORED)
    assert net.plan_batch(16).by_class["parameters"] == net_of().plan_batch(16).by_class["parameters"]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("kernels", ["numpy", "onednn"])
def test_products_read_stored_weights_as_they_are(precision, transposed, kernels):
    """y = x @ w and both derivatives are those of the widened weight: no activation in float32 is rounded."""
    rng, cpu = np.random.default_rng(4), device.new_cpu(kernels=kernels)
    w = rng.normal(size=(67, 45) if transposed else (45, 67)).astype(BFLOAT16)
    x = tensor.from_numpy(rng.normal(size=(150, 45)).astype("f"), cpu)
    x.stores_grad = True
    found = []
    for given in (w, w.astype("f")):
        weight = tensor.empty(w.shape, given.dtype, cpu)
        weight.device.copy_in(weight, given)
        weight.stores_grad = True
        y = autograd.linear(x, weight, transposed=transposed)
        gradients = {id(value): tensor.to_numpy(g) for value, g in autograd.backward(autograd.reduce_sum(y * y))}
        found.append([tensor.to_numpy(y), gradients[id(x)], gradients[id(weight)]])
    for got, wanted in zip(*found, strict=True):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


OPTIONS: dict[str, dict[str, Any]] = {
    "pieces": {"micro_batches": 2},
    "group": {"accumulate": 2},
    "clipped": {"clip_global_norm": 0.1},
    "16 bits": {"precision": "bfloat16", "state_dtype": "bfloat16"},
    "momentum": {"opt": lambda: optimizer.SGD(0.1, 0.9, weight_decay=0.01), "accumulate": 2},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
@BY_ROUNDING
def test_training_goes_as_in_float32(options, rounding):
    """Beside the options of `compile` that change what an update is given."""
    given = {name: value() if name == "opt" else value for name, value in options.items()}
    stored = train(net_of, net_of(rounding=rounding, **given), last=4)
    given = {name: value() if name == "opt" else value for name, value in options.items()}
    wide = train(net_of, net_of(parameter_dtype="float32", **given), last=4)
    for name, value in wide.parameters().items():
        got, wanted = tensor.to_numpy(stored.parameters()[name]).astype("f"), tensor.to_numpy(value)
        assert np.abs(got - wanted).mean() < 0.01 * np.abs(wanted).max() + 1e-3
    assert stored.predict(batch(net_of, 9)[0]).shape == (16, 10)


# ---- snapshots


@pytest.mark.parametrize("suffix", [".npz", ".h5", ".safetensors"])
@BY_ROUNDING
def test_a_run_goes_on_to_the_bit_from_a_file(tmp_path: Path, suffix, rounding):
    net = train(net_of, net_of(rounding=rounding))
    net.save(tmp_path / f"net{suffix}")
    other = net_of(rounding=rounding)
    other.load(tmp_path / f"net{suffix}")
    assert bits(other) == bits(net)
    assert bits(train(net_of, other, 3, 5)) == bits(train(net_of, copy.deepcopy(net), 3, 5))


@pytest.mark.parametrize("suffix", [".npz", ".h5", ".safetensors", ".weights.h5"])
def test_files_load_either_way(tmp_path: Path, suffix):
    """Widened as they are, or rounded to the nearest."""
    net, wide = net_of(), net_of(parameter_dtype="float32")
    net.save(tmp_path / f"narrow{suffix}", weights_only=True)
    wide.save(tmp_path / f"wide{suffix}", weights_only=True)
    values = {name: tensor.to_numpy(t) for name, t in wide.parameters().items()}
    net.load(tmp_path / f"wide{suffix}")
    for name, value in net.parameters().items():
        np.testing.assert_array_equal(tensor.to_numpy(value), values[name].astype(value.dtype))
    wide.load(tmp_path / f"narrow{suffix}")
    for name, value in wide.parameters().items():
        assert value.dtype == np.float32
        np.testing.assert_array_equal(tensor.to_numpy(value), tensor.to_numpy(net.parameters()[name]).astype("f"))


@pytest.mark.peer
def test_pytorch_reads_bfloat16(tmp_path: Path):
    torch_files = skips.library("safetensors.torch")
    net = net_of()
    net.save(tmp_path / "net.safetensors", weights_only=True)
    read = torch_files.load_file(tmp_path / "net.safetensors")
    assert str(read["hidden.weight"].dtype) == "torch.bfloat16" and str(read["hidden.bias"].dtype) == "torch.float32"
    wanted = tensor.to_numpy(net.parameters()["hidden/weight"]).astype("f")
    np.testing.assert_array_equal(read["hidden.weight"].float().numpy().T, wanted)


def test_compile_without_it_widens_again():
    net = net_of()
    values = {name: tensor.to_numpy(t).astype("f") for name, t in net.parameters().items()}
    net.compile(optimizer.SGD(0.1))
    assert all(np.array_equal(tensor.to_numpy(t), values[name]) for name, t in net.parameters().items())
    assert {t.dtype.name for t in net.parameters().values()} == {"float32"}


def wide_net() -> FeedForwardNet:
    return net_of(parameter_dtype="float32")


REFUSED: list[Row] = [
    row(lambda net: net.compile("adam", parameter_dtype="int8"), ValueError, "parameter_dtype", "int8", net=wide_net),
    row(
        lambda net: net.compile("adam", rounding="stochastic"), ValueError, "rounding", "parameter_dtype", net=wide_net
    ),
    row(lambda net: net.compile("adam", **STORED, rounding="up"), ValueError, "rounding", "up", net=wide_net),
    row(
        lambda net: net.compile(net.optimizer, **STORED),
        *(ValueError, "stochastic", "a new optimizer"),
        net=lambda: train(net_of, wide_net()),
    ),
]


def test_what_cannot_be_stored_so_is_refused():
    assert_all_refused(REFUSED)


def test_a_net_in_float64_is_refused():
    net = FeedForwardNet("mean_squared_error", dtype="float64")
    net.add(layers.Dense("d", 3, input_sample_shape=(2,)))
    with pytest.raises(ValueError, match="wanted a net in float32, received one in float64"):
        net.compile("adam", **STORED)
