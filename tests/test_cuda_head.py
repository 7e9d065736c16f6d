"""The head of a language model on a GPU: tiles with an odd number of classes, whose rows are aligned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuda_devices import new_device
from singa_lite import FeedForwardNet, device, layers, loss, metric, optimizer, tensor
from singa_lite.compiler.ir.operation import Instruction
from singa_lite.device import Device
from singa_lite.kernels import cuda_kernels

IDS, TIME, BATCH, DIM = 67, 61, 5, 16
#: Options of a net: its head is the table, or a layer with a bias.
HEADS: dict[str, dict[str, Any]] = {
    "tied": {},
    "with bias": {"tied": False},
    "all options": {"ignore_index": 3, "label_smoothing": 0.2, "measured": metric.Accuracy(-1)},
}


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three tiles of rows for a batch."""
    monkeypatch.setattr(cuda_kernels, "TILE_BYTES", 64)


def net_of(on: Device, tied: bool = True, measured: Any = None, precision: str = "float32", **options: Any) -> Any:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(-1, **options), measured, device=on, seed=1)
    table = net.add(layers.Embedding("table", IDS, DIM, input_sample_shape=(TIME,)))
    net.add(layers.Activation("act", "tanh"))
    net.add(layers.TiedDense("head", table) if tied else layers.Dense("head", IDS))
    net.compile(optimizer.SGD(0.5, momentum=0.9), precision=precision)
    return net


def trained(net: FeedForwardNet) -> tuple[list[float], list[np.ndarray]]:
    """Losses of three steps, and the parameters behind them."""
    rng = np.random.default_rng(4)
    batches = [rng.integers(0, IDS, (2, BATCH, TIME)) for _ in range(3)]
    losses = [float(net.train_one_batch(x, y)[0]) for x, y in batches]
    return losses, [tensor.to_numpy(value) for value in net.param_values()]


def head_of(net: FeedForwardNet) -> list[Instruction]:
    """The planned calls with scores of a tile."""
    planned = net.plan_batch(BATCH).placed.planned.instructions
    return [i for i in planned if any(o is not None and _is_tile(o.shape) for o in i.operands)]


def _is_tile(shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 and shape[1] == IDS and BATCH * TIME // 4 < shape[0] < BATCH * TIME


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_tiles_with_aligned_rows_give_what_a_cpu_does(head: dict[str, Any]):
    net = net_of(new_device("stand-in"), **head)
    losses, values = trained(net)
    wanted_losses, wanted = trained(net_of(device.new_cpu(kernels="numpy"), **head))
    np.testing.assert_allclose(losses, wanted_losses, rtol=2e-5)
    for name, value, expected in zip(net.param_names(), values, wanted, strict=True):
        np.testing.assert_allclose(value, expected, rtol=2e-4, atol=2e-6, err_msg=name)
    tiles = [o for i in head_of(net) for o in i.operands if o is not None and _is_tile(o.shape)]
    assert len(tiles) >= 3 * 6
    assert all(o.strides[0] % 16 == 0 and o.strides[1] == o.dtype.itemsize for o in tiles)
    assert any(i.kernel == "matmul_add" for i in head_of(net))


def test_rows_lie_without_gaps_for_kernels_that_do_not_ask_for_them():
    assert device.new_cpu().kernels.row_bytes == 1
