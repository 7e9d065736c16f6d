"""`compile(precision="tf32")`: which calls round their factors, what stays, and where it is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuda_devices import new_device
from host_convolutions import missing as missing_cudnn
from host_products import HostMultiplier
from singa_lite import FeedForwardNet, device, layers, loss, optimizer, tensor
from singa_lite.device import Device
from singa_lite.errors import DeviceError
from singa_lite.kernels.cuda_kernels.cudnn_plan import Planner

RNG = np.random.default_rng(22)
X = RNG.standard_normal((5, 3, 9, 7)).astype(np.float32)
Y = RNG.integers(0, 4, 5)


def net_of(on: Device, **options: Any) -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=on, seed=4)
    net.add(layers.Conv2D("conv", 8, 3, input_sample_shape=(3, 9, 7)))
    net.add(layers.BatchNormalization("bn"))
    net.add(layers.Activation("relu"))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("dense", 4))
    net.compile(optimizer.SGD(lr=0.02, momentum=0.9), **options)
    return net


def losses(net: FeedForwardNet, steps: int = 3) -> list[float]:
    return [float(net.train_one_batch(X, Y)[0]) for _ in range(steps)]


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


def test_the_libraries_are_told_for_this_net_alone(asked):
    on = new_device("stand-in with libraries")
    libraries = ["cuBLASLt", *([] if missing_cudnn() else ["cuDNN"])]
    plain, rounding = net_of(on), net_of(on, precision="tf32")
    wanted = losses(plain)
    assert asked == {(library, False) for library in libraries}
    asked.clear()
    np.testing.assert_allclose(losses(rounding), wanted, rtol=1e-5)  # NumPy rounds nothing
    assert {library for library, tf32 in asked if tf32} == set(libraries)
    asked.clear()
    rounding.evaluate(X, Y)
    assert ("cuBLASLt", True) in asked
    asked.clear()
    plain.evaluate(X, Y)
    assert ("cuBLASLt", True) not in asked


def test_parameters_state_and_activations_stay_in_float32():
    plain, rounding = (net_of(device.abstract("cuda"), precision=p) for p in ("float32", "tf32"))
    assert plain.plan_batch(5).total_bytes == rounding.plan_batch(5).total_bytes


@pytest.mark.parametrize("on", [device.new_cpu(kernels="numpy"), device.abstract("cuda", libraries=False)], ids=str)
def test_what_rounds_nothing_is_refused(on):
    with pytest.raises(DeviceError, match=f"precision='tf32'.*'{on.kernels.name}'"):
        net_of(on, precision="tf32")


def test_a_compiled_net_that_moves_to_a_cpu_says_so_and_keeps_its_parameters():
    net = net_of(new_device("stand-in with libraries"), precision="tf32")
    losses(net, 1)
    net.to_device(device.new_cpu(kernels="numpy"))
    before = [tensor.to_numpy(value).copy() for value in net.param_values()]
    with pytest.raises(DeviceError, match="precision='tf32'"):
        net.train_one_batch(X, Y)
    for old, value in zip(before, net.param_values(), strict=True):
        np.testing.assert_array_equal(tensor.to_numpy(value), old)


@pytest.mark.parametrize(
    ("options", "culprit"), [({"graph": False}, "graph"), ({"float32_layers": ["conv"]}, "float32_layers")]
)
def test_options_that_do_not_go_with_it(options, culprit):
    with pytest.raises(ValueError, match=culprit):
        net_of(device.abstract("cuda"), precision="tf32", **options)


def test_a_net_in_another_dtype():
    net = FeedForwardNet(loss.SquaredError(), device=device.abstract("cuda"), dtype="float64")
    net.add(layers.Dense("dense", 4, input_sample_shape=(3,)))
    with pytest.raises(ValueError, match="dense"):
        net.compile(optimizer.SGD(lr=0.1), precision="tf32")
