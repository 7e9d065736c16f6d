"""compile(loss_scale=): steps that overflow change nothing, and the scale follows them, in float16 too."""

from __future__ import annotations

import warnings
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

import skips
from budget_nets import on_cpu
from nets import bits, state_of
from singa_lite import FeedForwardNet, GraphError, device, layers, loss, optimizer, tensor
from singa_lite.errors import PrecisionWarning

pytestmark = pytest.mark.filterwarnings("ignore:input of layer .* holds NaN or infinity:RuntimeWarning")
OPTIMIZERS = {
    "momentum": lambda: optimizer.SGD(0.1, 0.9, weight_decay=0.01),
    "adamw": lambda: optimizer.AdamW(0.01),
    "rms_prop": lambda: optimizer.RMSProp(0.01),
    "ada_grad": lambda: optimizer.AdaGrad(0.05),
}


def net_of(name: str = "momentum", kernels: str = "numpy", norm: bool = True, **compiling: Any) -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=on_cpu(kernels), seed=2)
    net.add(layers.Conv2D("conv", 4, 3, input_sample_shape=(2, 5, 6)))
    if norm:
        net.add(layers.BatchNormalization("norm"))
    net.add(layers.Activation("tanh", "tanh"))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("scores", 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrecisionWarning)
        net.compile(OPTIMIZERS[name](), **compiling)
    return net


def batch(number: int, bad: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """9 samples; bad: of which one has an infinite pixel."""
    rng = np.random.default_rng(number)
    x, y = rng.standard_normal((9, 2, 5, 6), dtype=np.float32), rng.integers(0, 3, 9)
    if bad:
        x[7, 1, 2, 3] = np.inf
    return x, y


def lasting(net: FeedForwardNet) -> dict[str, bytes]:
    """All that a step may change but the scale, and the count of steps that have begun, by which schedules go."""
    return {name: value for name, value in state_of(net).items() if name != "step"}


def scaling(net: FeedForwardNet) -> tuple[float, int]:
    return float(net.loss_scale), int(tensor.to_numpy(net.skipped_steps))


@pytest.mark.parametrize(("kernels", "graph"), [("numpy", False), ("numpy", True), ("onednn", True)])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_overflow_skips_that_step_alone(kernels, graph, name):
    """Parameters, state, counts and running averages stay, to the bit; what follows is as if it had not been."""
    given = {"kernels": kernels, "graph": graph}
    net, plain = net_of(name, **given, loss_scale="dynamic"), net_of(name, **given)
    for number in range(4):
        before = lasting(net)
        net.train_one_batch(*batch(number, number == 2))
        if number == 2:
            assert lasting(net) == before
        else:
            plain.train_one_batch(*batch(number))
        assert scaling(net) == ((32768.0, 1) if number >= 2 else (65536.0, 0))
    assert lasting(net) == lasting(plain), "a scale that is a power of two changes no bit in float32"


@pytest.mark.parametrize(
    "options",
    [
        {"state_dtype": "bfloat16"},
        {"clip_global_norm": 0.2, "micro_batches": 4},
    ],
    ids=str,
)
def test_beside_other_options(options):
    norm = "micro_batches" not in options
    net, plain = (net_of(norm=norm, **options, **more) for more in ({"loss_scale": 512.0}, {}))
    for number in range(4):
        net.train_one_batch(*batch(number, number == 1))
        if number != 1:
            plain.train_one_batch(*batch(number))
    assert scaling(net) == (512.0, 1)
    if "clip_global_norm" in options:
        assert float(net.gradient_norm) == pytest.approx(float(plain.gradient_norm), rel=1e-6)
    for name, value in plain.parameters().items():
        np.testing.assert_allclose(tensor.to_numpy(net.parameters()[name]), tensor.to_numpy(value), atol=1e-6)


def test_a_group_with_one_bad_batch_is_skipped_as_a_whole():
    """As by GradScaler, which looks at the sums. Running averages go on with the batches that were good."""
    net = net_of("adamw", loss_scale="dynamic", accumulate=3)
    plain = net_of("adamw", accumulate=3)
    fresh = {name: bits(value) for name, value in net.parameters().items()}
    for number in range(3):
        net.train_one_batch(*batch(number, number == 1))
    assert {name: bits(value) for name, value in net.parameters().items()} == fresh
    assert scaling(net) == (32768.0, 1)
    assert all(np.isfinite(tensor.to_numpy(value)).all() for value in net.states().values())
    for number in range(3, 6):
        for each in (net, plain):
            each.train_one_batch(*batch(number))
    parameters = ({name: bits(value) for name, value in each.parameters().items()} for each in (net, plain))
    assert len({str(sorted(values.items())) for values in parameters}) == 1


@pytest.mark.peer
def test_scale_and_parameters_are_those_of_pytorch_s_grad_scaler():
    torch = skips.library("torch")
    net = net_of("adamw", norm=False, loss_scale="dynamic")
    net.trainer.scale.interval = 3  # type: ignore[union-attr]
    given = {name: torch.tensor(tensor.to_numpy(v), requires_grad=True) for name, v in net.parameters().items()}
    peer = torch.optim.AdamW(given.values(), 0.01)
    scaler = torch.amp.GradScaler("cpu", growth_interval=3)
    scales = []
    for number in range(12):
        x, y = batch(number, number in (2, 3, 9))
        net.train_one_batch(x, y)
        image = torch.nn.functional.conv2d(torch.tensor(x), given["conv/weight"], given["conv/bias"], padding=1)
        scores = torch.tanh(image).flatten(1) @ given["scores/weight"] + given["scores/bias"]
        peer.zero_grad()
        scaler.scale(torch.nn.functional.cross_entropy(scores, torch.tensor(y))).backward()
        scaler.step(peer)
        scaler.update()
        scales.append(scaler.get_scale())
        assert scaling(net)[0] == scales[-1]
        for name, value in given.items():
            mine = tensor.to_numpy(net.parameters()[name])
            np.testing.assert_allclose(mine, value.detach().numpy(), rtol=0, atol=2e-5)
    assert set(scales) == {65536.0, 32768.0, 16384.0} and scaling(net)[1] == 3


# ---- float16


def small(**compiling: Any) -> FeedForwardNet:
    """Derivatives of the first layer are about 2e-8, which is 0 in float16."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(kernels="numpy"), seed=3)
    net.add(layers.Dense("first", 7, input_sample_shape=(5,)))
    net.add(layers.Activation("tanh", "tanh"))
    net.add(layers.Dense("second", 6, weight_init=1e-3))
    net.add(layers.Activation("again", "tanh"))
    net.add(layers.Dense("scores", 3))
    last = net.parameters()["scores/weight"]
    last.copy_from_numpy(tensor.to_numpy(last) * np.float32(1e-4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrecisionWarning)
        net.compile(optimizer.SGD(1.0), **compiling)
    return net


def gradient_of_a_step(net: FeedForwardNet, name: str) -> np.ndarray:
    """Of plain SGD at rate 1, which it takes away from what was made 0 here."""
    value = net.parameters()[name]
    rng = np.random.default_rng(1)
    value.copy_from_numpy(np.zeros(value.shape, np.float32))
    net.train_one_batch(rng.standard_normal((11, 5), dtype=np.float32), rng.integers(0, 3, 11))
    return -tensor.to_numpy(value)


def test_in_float16_small_derivatives_are_there_with_a_scale():
    exact = gradient_of_a_step(small(), "first/bias")
    assert 0 < np.abs(exact).max() < 2.9e-8  # half the least number
    assert not gradient_of_a_step(small(precision="float16", loss_scale=1.0), "first/bias").any()
    scaled = gradient_of_a_step(small(precision="float16"), "first/bias")
    assert np.linalg.norm(scaled - exact) < 0.01 * np.linalg.norm(exact)


def test_in_float16_the_scale_falls_to_where_derivatives_fit():
    """The derivative of the scores, about 0.1, is multiplied by weights of 100."""
    net = net_of(norm=False, precision="float16")
    weight = net.parameters()["scores/weight"]
    weight.copy_from_numpy(tensor.to_numpy(weight) * np.float32(500))
    fresh = bits(weight)
    moved = []
    for number in range(8):
        net.train_one_batch(*batch(number))
        moved.append(bits(weight) != fresh)
    scale, skipped = scaling(net)
    assert 0 < skipped < 8 and scale == 65536.0 / 2**skipped
    assert moved == [number >= skipped for number in range(8)]


# ---- what is kept


def test_a_snapshot_has_the_scale(tmp_path):
    path = tmp_path / "net.npz"
    one, other, plain = net_of(loss_scale="dynamic"), net_of(loss_scale="dynamic", graph=False), net_of()
    for number in range(3):
        one.train_one_batch(*batch(number, number == 1))
    one.save(path)
    other.train_one_batch(*batch(5, True))
    other.load(path)
    assert state_of(other) == state_of(one) and scaling(other) == (32768.0, 1)
    plain.load(path)
    assert lasting(plain) == lasting(one)
    plain.save(path)
    one.load(path)
    assert scaling(one) == (65536.0, 0), "a file without begins anew"


def test_a_copy_and_a_net_that_moves_keep_their_scale():
    net = net_of(loss_scale="dynamic")
    net.train_one_batch(*batch(0, True))
    copied = deepcopy(net)
    copied.train_one_batch(*batch(1, True))
    assert scaling(copied) == (16384.0, 2) and scaling(net) == (32768.0, 1)
    net.to_device(device.new_cpu(kernels="numpy"))
    assert scaling(net) == (32768.0, 1)
    net.train_one_batch(*batch(1, True))
    assert state_of(net) == state_of(copied)


def test_without_a_scale_there_is_none_to_be_read():
    net = net_of()
    for name in ("loss_scale", "skipped_steps"):
        with pytest.raises(GraphError, match=name):
            getattr(net, name)
    assert net.loss_scaling is None
    net.compile(net.optimizer, loss_scale=8)
    assert scaling(net) == (8.0, 0) and net.loss_scaling == 8.0
    net.compile(net.optimizer, loss_scale="dynamic")
    assert net.loss_scaling == "dynamic"
