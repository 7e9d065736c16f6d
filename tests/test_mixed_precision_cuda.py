"""`compile(precision=)` with the CUDA kernels, in 16 bits and in TF32: what is computed, how near, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import skips
from cuda_devices import KINDS, new_device
from host_libraries import HostMultiplier
from host_libraries import missing as missing_cudnn
from nets import state_of
from singa_lite import FeedForwardNet, autograd, device, layers, loss, optimizer, tensor
from singa_lite.device import Device
from singa_lite.device.host_fallback import HostFallback, by_way_of_host
from singa_lite.errors import DeviceError
from singa_lite.kernels.cuda_kernels.libraries.cudnn_plan import Planner
from singa_lite.kernels.kernel_set import specs_of
from singa_lite.kernels.numpy_kernels import NUMPY

RNG = np.random.default_rng(21)
X = RNG.standard_normal((6, 3, 9, 7)).astype(np.float32)
Y = RNG.integers(0, 4, 6)
HALVES = ("float16", "bfloat16")
#: Half the distance between neighbours, of numbers about 1.
ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


@pytest.fixture(params=HALVES)
def precision(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=KINDS)
def cuda(request: pytest.FixtureRequest) -> Device:
    skips.library("ml_dtypes")
    return new_device(request.param)


def net_of(on: Device, lr: float = 0.02, momentum: float = 0.9, **options: Any) -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=on, seed=4)
    net.add(layers.Conv2D("conv1", 8, 3, input_sample_shape=(3, 9, 7)))
    net.add(layers.Activation("silu1", "silu"))
    net.add(layers.Conv2D("conv2", 8, 3, groups=8))
    net.add(layers.BatchNormalization("bn"))
    net.add(layers.Activation("gelu", "gelu"))
    net.add(layers.AvgPooling2D("pool", 3, 2))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("dense", 4))
    net.compile(optimizer.SGD(lr=lr, momentum=momentum), **options)
    return net


def trained(net: FeedForwardNet, steps: int) -> list[float]:
    return [float(net.train_one_batch(X, Y)[0]) for _ in range(steps)]


def gradients_of_a_step(net: FeedForwardNet) -> dict[str, np.ndarray]:
    """Of plain SGD at rate 1, whose step they are."""
    before = [tensor.to_numpy(value).copy() for value in net.param_values()]
    net.train_one_batch(X, Y)
    moved = zip(net.param_names(), before, net.param_values(), strict=True)
    return {name: old - tensor.to_numpy(value) for name, old, value in moved}


def test_a_net_trains_as_in_float32_but_for_rounding(cuda, precision):
    exact, net = net_of(device.new_cpu(kernels="numpy")), net_of(cuda, precision=precision)
    losses = [trained(one, 5) for one in (exact, net)]
    assert losses[1][-1] < losses[1][0]
    np.testing.assert_allclose(*losses, rtol=0.02 if precision == "float16" else 0.12, atol=0.02)
    assert {value.dtype for value in net.param_values()} == {np.dtype(np.float32)}


def test_gradients_are_near_those_of_float32(cuda, precision):
    plain = {"lr": 1.0, "momentum": 0.0}
    wide = gradients_of_a_step(net_of(device.new_cpu(kernels="numpy"), **plain))
    narrow = gradients_of_a_step(net_of(cuda, precision=precision, **plain))
    shares = {
        name: float(np.linalg.norm(narrow[name] - gradient) / np.linalg.norm(gradient))
        for name, gradient in wide.items()
        if name != "conv2/bias"  # has none, before a normalisation
    }
    assert min(shares.values()) > 0 and max(shares.values()) < 8 * ROUNDING[precision], shares


def test_no_call_goes_by_way_of_the_host(cuda, precision):
    """So that a step is one CUDA graph."""
    net = net_of(cuda, precision=precision)
    trained(net, 1)
    instructions = net.training_graph._executable("recorded").placed.planned.instructions
    kernels = {i.kernel: cuda.kernels.choose(i.kernel, specs_of(i.operands), i.settings) for i in instructions}
    assert not [name for name, kernel in kernels.items() if isinstance(kernel, HostFallback)]
    narrow = {i.kernel for i in instructions if any(o is not None and o.dtype.name == precision for o in i.operands)}
    assert {"conv2d", "batch_norm_derivative", "conv2d_gradient"} <= narrow


def test_a_net_moves_to_a_cpu_and_trains_on(cuda, precision):
    net = net_of(cuda, precision=precision)
    first = trained(net, 1)
    net.to_device(device.new_cpu())
    assert trained(net, 1) < first


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # of the stand-in for a library
def test_a_step_that_overflows_changes_nothing_but_the_scale(cuda, precision):
    net, plain = (net_of(cuda, precision=precision, loss_scale=scale) for scale in ("dynamic", 65536.0))
    for number in range(4):
        x = X.copy()
        x[1, 0, 0, 0] = np.inf if number == 2 else 0
        net.train_one_batch(x, Y)
        if number != 2:
            plain.train_one_batch(x, Y)
        else:
            assert {**state_of(net), "step": 0} == {**state_of(plain), "step": 0}
            assert (float(net.loss_scale), int(tensor.to_numpy(net.skipped_steps))) == (32768.0, 1)
    shares = zip(net.param_values(), plain.param_values(), strict=True)
    for value, wanted in shares:
        np.testing.assert_allclose(tensor.to_numpy(value), tensor.to_numpy(wanted), atol=1e-4)


def test_what_is_done_on_the_host_mixes_dtypes_too(cuda, precision):
    """Calls that the set has no kernel for; a small one, whose values 16 bits hold."""
    half = np.dtype(skips.library("ml_dtypes").bfloat16 if precision == "bfloat16" else precision)
    x, weight = np.arange(6.0).reshape(2, 3).astype(half), np.arange(12.0).reshape(3, 4).astype(np.float32)
    tensors = [autograd.cast(tensor.from_numpy(x.astype("f4"), cuda), half), tensor.from_numpy(weight, cuda)]
    y = cuda.empty((2, 4), half)
    arrays = tuple(cuda.array(one) for one in (*tensors, y))
    reference = by_way_of_host(NUMPY, cuda.runtime)
    reference.prepare("linear", (*arrays[:2], None, arrays[2]), None, {})()
    assert (
        tensor.to_numpy(autograd.cast(y, "float32")).tolist() == (x.astype(np.float32) @ weight).astype(half).tolist()
    )


@pytest.mark.filterwarnings("ignore:this step cannot be one CUDA graph:UserWarning")  # attention is done on the host
def test_nets_over_ids_and_attention_train_so_too(cuda, precision):
    """Over what the set has kernels for and what it has not."""
    ids, targets = RNG.integers(0, 11, (5, 6)), RNG.integers(0, 4, (5, 6))

    def losses(on: Device, **options: Any) -> list[float]:
        net = FeedForwardNet(loss.SoftmaxCrossEntropy(-1), device=on, seed=3)
        net.add(layers.Embedding("words", 11, 8, input_sample_shape=(6,)))
        net.add(layers.LearnedPositions("positions"))
        net.add(layers.TransformerBlock("block", 2, causal=True))
        net.add(layers.RMSNormalization("norm"))
        net.add(layers.Dense("scores", 4))
        net.compile(optimizer.SGD(lr=0.1), **options)
        return [float(net.train_one_batch(ids, targets)[0]) for _ in range(4)]

    fits = {"loss_scale": 256.0} if precision == "float16" else {}  # of 65,536 the first step would be skipped
    wide, narrow = losses(device.new_cpu(kernels="numpy")), losses(cuda, precision=precision, **fits)
    assert narrow[-1] < 0.95 * narrow[0]
    np.testing.assert_allclose(narrow, wide, rtol=0.005 if precision == "float16" else 0.04)


# --- TF32: factors are rounded, all else stays in float32


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, bool]]:
    """(library, whether factors may be rounded) of all that is bound."""
    found = set[tuple[str, bool]]()
    bind, engines = HostMultiplier.bind, Planner.engines

    def products(self: Any, product: Any, *arguments: Any) -> Any:
        found.add(("cuBLASLt", product.tf32))
        return bind(self, product, *arguments)

    def convolutions(self: Any, *arguments: Any) -> Any:
        found.add(("cuDNN", self.knobs.allow_tf32))
        return engines(self, *arguments)

    monkeypatch.setattr(HostMultiplier, "bind", products)
    monkeypatch.setattr(Planner, "engines", convolutions)
    return found


def test_the_libraries_are_told_of_tf32_for_this_net_alone(asked):
    on = new_device("stand-in")
    libraries = ["cuBLASLt", *([] if missing_cudnn() else ["cuDNN"])]
    plain, rounding = net_of(on), net_of(on, precision="tf32")
    wanted = trained(plain, 3)
    assert asked == {(library, False) for library in libraries}
    asked.clear()
    np.testing.assert_allclose(trained(rounding, 3), wanted, rtol=1e-5)  # NumPy rounds nothing
    assert {library for library, tf32 in asked if tf32} == set(libraries)
    asked.clear()
    rounding.evaluate(X, Y)
    assert ("cuBLASLt", True) in asked
    asked.clear()
    plain.evaluate(X, Y)
    assert ("cuBLASLt", True) not in asked


def test_in_tf32_parameters_state_and_activations_stay_in_float32():
    plain, rounding = (net_of(device.abstract("cuda"), precision=p) for p in ("float32", "tf32"))
    assert plain.plan_batch(6).total_bytes == rounding.plan_batch(6).total_bytes


@pytest.mark.parametrize(
    "on", [device.new_cpu(kernels="numpy"), device.abstract("cuda", libraries=False)], ids=["cpu", "cuda"]
)
def test_tf32_where_nothing_rounds_is_refused(on):
    with pytest.raises(DeviceError, match=f"precision='tf32'.*'{on.kernels.name}'"):
        net_of(on, precision="tf32")


def test_a_net_in_tf32_that_moves_to_a_cpu_says_so_and_keeps_its_parameters():
    net = net_of(new_device("stand-in"), precision="tf32")
    trained(net, 1)
    net.to_device(device.new_cpu(kernels="numpy"))
    before = [tensor.to_numpy(value).copy() for value in net.param_values()]
    with pytest.raises(DeviceError, match="precision='tf32'"):
        net.train_one_batch(X, Y)
    for old, value in zip(before, net.param_values(), strict=True):
        np.testing.assert_array_equal(tensor.to_numpy(value), old)


@pytest.mark.parametrize(
    ("options", "culprit"), [({"graph": False}, "graph"), ({"float32_layers": ["conv1"]}, "float32_layers")]
)
def test_options_that_do_not_go_with_tf32(options, culprit):
    with pytest.raises(ValueError, match=culprit):
        net_of(device.abstract("cuda"), precision="tf32", **options)


def test_tf32_of_a_net_in_another_dtype_is_refused():
    net = FeedForwardNet(loss.SquaredError(), device=device.abstract("cuda"), dtype="float64")
    net.add(layers.Dense("dense", 4, input_sample_shape=(3,)))
    with pytest.raises(ValueError, match="dense"):
        net.compile(optimizer.SGD(lr=0.1), precision="tf32")
