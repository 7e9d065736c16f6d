"""CUDA kernels for parameters in bfloat16 give NumPy's bits, and nets with such parameters train in one CUDA graph."""

from __future__ import annotations

import numpy as np
import pytest
from test_cuda_values import of_the_host

import skips
from cuda_devices import KINDS, new_device
from host_kernels import cuda_on_host
from singa_lite import FeedForwardNet, device, layers, optimizer, tensor
from singa_lite.device import Device
from singa_lite.kernels.numpy_kernels import NUMPY
from singa_lite.testing.kernel_call import run

BFLOAT16 = np.dtype(skips.library("ml_dtypes").bfloat16)


def numbers(shape: tuple[int, ...]) -> np.ndarray:
    """Of all sizes, with some that are none."""
    x = np.random.default_rng(5).integers(0, 1 << 32, shape, np.uint32).view(np.float32)
    x.reshape(-1)[:6] = [np.nan, np.inf, -np.inf, 0.0, -0.0, 2.0**-149]
    return x


def values(shape: tuple[int, ...], order: str) -> np.ndarray:
    """Garbage in C order, in Fortran's, or with gaps."""
    held = np.full((*shape[:-1], 2 * shape[-1]), np.nan, BFLOAT16)
    return held[..., ::2] if order == "gaps" else np.full(shape, np.nan, BFLOAT16, order)  # type: ignore[call-overload]


@of_the_host
@pytest.mark.parametrize("order", ["C", "F", "gaps"])
@pytest.mark.parametrize("shape", [(13,), (5, 7), (3, 2, 1031)])
def test_rounding_by_chance_has_numpys_bits(shape, order):
    x, count = numbers(shape), np.array([3, 1 << 40, 9], np.int64)
    found, wanted = values(shape, order), values(shape, order)
    for kernels, value in ((cuda_on_host(), found), (NUMPY, wanted)):
        run(kernels, "round_by_chance", [x, count, value], {"start": (1 << 33) + 11})
    assert found.tobytes() == wanted.tobytes()


@of_the_host
def test_what_is_split_is_joined_again():
    x, alpha = numbers((37, 29)), -0.75
    value, error, y = np.zeros(x.shape, BFLOAT16), np.zeros(x.shape, np.int8), np.ones_like(x)
    wanted = value.copy(), error.copy()
    run(cuda_on_host(), "split_error", [x, value, error], {})
    run(NUMPY, "split_error", [x, *wanted], {})
    assert (value.tobytes(), error.tobytes()) == tuple(array.tobytes() for array in wanted)
    joined = np.empty_like(x), np.empty_like(x)
    for kernels, result in zip((cuda_on_host(), NUMPY), joined, strict=True):
        run(kernels, "add_error", [value, error, result], {})
    np.testing.assert_array_equal(joined[0].view(np.uint32), joined[1].view(np.uint32))
    sums = y, y.copy()
    for kernels, result in zip((cuda_on_host(), NUMPY), sums, strict=True):
        run(kernels, "add_stored", [value, error, result], {"alpha": alpha})
    np.testing.assert_array_equal(sums[0], sums[1])


def built(on: Device, rule: optimizer.Optimizer, **options: str) -> FeedForwardNet:
    """A net of two matrices in bfloat16 and of two vectors."""
    net = FeedForwardNet("softmax_cross_entropy", device=on, seed=3)
    net.add(layers.Dense("hidden", 33, activation="tanh", input_sample_shape=(7,)))
    net.add(layers.Dense("scores", 5))
    net.compile(rule, parameter_dtype="bfloat16", **options)
    return net


def losses(net: FeedForwardNet) -> list[float]:
    """Of some steps. A kernel that is done on the host gives a warning, which is an error in all tests."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(11, 7)).astype("f"), rng.integers(0, 5, 11)
    return [float(net.train_one_batch(x, y)[0]) for _ in range(5)]


RULES = {"SGD": lambda: optimizer.SGD(0.1, momentum=0.9), "AdamW": lambda: optimizer.AdamW(lr=0.01)}
ON_THE_HOST = {"Adafactor": lambda: optimizer.Adafactor(lr=0.01), "Muon": lambda: optimizer.Muon(0.02)}


@pytest.mark.filterwarnings("ignore::singa_lite.errors.PrecisionWarning")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("rounding", ["stochastic", "compensated"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_net_trains_as_on_a_cpu_in_one_graph(kind, rule, rounding, precision):
    """The chance of a number goes by its bits, so that another rounding of a sum makes weights differ by a bfloat16."""
    on = new_device(kind)
    found = losses(built(on, RULES[rule](), rounding=rounding, precision=precision))
    wanted = losses(built(device.new_cpu(kernels="numpy"), RULES[rule](), rounding=rounding, precision=precision))
    assert found[-1] < found[0]
    np.testing.assert_allclose(
        found, wanted, rtol=2.0**-15 if (rounding, precision) == ("compensated", "float32") else 2.0**-8
    )
    assert getattr(on.runtime.stream, "graph_launches", 4) == 4, "all steps but the first"


@pytest.mark.filterwarnings("ignore::singa_lite.errors.PrecisionWarning")
@pytest.mark.parametrize("rounding", ["stochastic", "compensated"])
@pytest.mark.parametrize("rule", ON_THE_HOST)
@pytest.mark.parametrize("kind", KINDS)
def test_an_update_on_the_host_rounds_as_well(kind, rule, rounding):
    with pytest.warns(UserWarning, match="CUDA graph|by way of the host"):
        found = losses(built(new_device(kind), ON_THE_HOST[rule](), rounding=rounding))
    wanted = losses(built(device.new_cpu(kernels="numpy"), ON_THE_HOST[rule](), rounding=rounding))
    np.testing.assert_allclose(found, wanted, rtol=2.0**-7)


@pytest.mark.filterwarnings("ignore::singa_lite.errors.PrecisionWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_a_net_moves_to_a_gpu_and_back_as_it_is_stored(kind):
    net = built(device.new_cpu(kernels="numpy"), optimizer.SGD(0.1))
    before = [tensor.to_numpy(value).tobytes() for value in net.param_values()]
    net.to_device(new_device(kind))
    assert losses(net)[-1] < losses(built(device.new_cpu(kernels="numpy"), optimizer.SGD(0.0)))[-1]
    net = built(device.new_cpu(kernels="numpy"), optimizer.SGD(0.1))
    net.to_device(new_device(kind))
    net.to_device(device.new_cpu())
    assert [tensor.to_numpy(value).tobytes() for value in net.param_values()] == before
