"""Products with quantised weights by CUDA's kernels: of several tiles, and in the captured step of a net."""

from __future__ import annotations

import numpy as np
import pytest
from test_cuda_values import near_float64, of_the_host

from cuda_devices import KINDS, new_device
from every_row import over_rows
from host_kernels import cuda_on_host, cuda_with_libraries_on_host
from kernel_cases import CASES
from kernel_cases_gpu import FURTHER
from singa_lite import FeedForwardNet, device, layers, loss, optimizer
from singa_lite.device import Device
from singa_lite.kernels import cuda_kernels
from singa_lite.kernels.interface.quantized import FORMATS

PRODUCTS = ("quantized_linear", "quantized_linear_derivative")
#: Bytes of a tile: 32 numbers in float16 of all rows of the further cases, and less, so that products are added up.
TILES = {"some columns": 32 * 67 * 2, "some rows": 32 * 67 * 2 - 1}


@of_the_host
@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("new_set", [cuda_on_host, cuda_with_libraries_on_host])
def test_products_of_several_tiles(new_set, tile, dtype, monkeypatch):
    monkeypatch.setattr(cuda_kernels, "TILE_BYTES", TILES[tile])
    kernels = new_set()
    cases = [case for case in (*CASES, *FURTHER) if case.split(":")[0] in PRODUCTS and ":few" not in case]
    over_rows(near_float64, ((case, (kernels, case, dtype)) for case in cases))


#: {layer: (format, units, inputs, the upper bytes of the scales of a block, and their exponents)}.
WEIGHTS = {
    "tokens": ("q8_0", 37, 64, [1], 0x14),
    "up": ("q4_1", 256, 64, [1, 3], 0x20),
    "down": ("q6_k", 37, 256, [209], 0x04),
}


def adapted(on: Device, precision: str) -> tuple[FeedForwardNet, list[np.ndarray]]:
    """A net of quantised weights with adapters, and a batch."""
    rng = np.random.default_rng(3)
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(axis=-1), device=on, seed=3)
    net.add(layers.Embedding("tokens", 37, 64, weight_format="q8_0", input_sample_shape=(5,)))
    net.add(layers.Dense("up", 256, activation="silu", weight_format="q4_1"))
    net.add(layers.RMSNormalization("norm"))
    net.add(layers.Dense("down", 37, use_bias=False, weight_format="q6_k"))
    for name, (format, units, inputs, upper, exponent) in WEIGHTS.items():
        blocks = rng.integers(0, 256, (units, FORMATS[format].row_bytes(inputs)), np.uint8)
        scales = blocks.reshape(units, -1, FORMATS[format].nbytes)
        scales[..., upper] = scales[..., upper] & 0x83 | exponent
        net.layers[name].set_frozen("weight", blocks)
    net.add_lora(3, 6.0)
    net.compile(optimizer.AdamW(lr=1e-2), precision=precision)
    return net, [rng.integers(0, 37, (7, 5)) for _ in "xy"]


def losses(net: FeedForwardNet, batch: list[np.ndarray]) -> list[float]:
    """Of some steps. A kernel that is done on the host gives a warning, which is an error in all tests."""
    return [float(net.train_one_batch(*batch)[0]) for _ in range(4)]


@pytest.mark.parametrize("precision, off", [("float32", 2.0**-18), ("bfloat16", 2.0**-8), ("float16", 2.0**-11)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_net_of_quantised_weights_with_adapters_trains_in_one_graph(kind, precision, off):
    on = new_device(kind)
    found = losses(*adapted(on, precision))
    assert found[-1] < found[0]
    np.testing.assert_allclose(found, losses(*adapted(device.new_cpu(kernels="numpy"), "float32")), rtol=off)
    assert getattr(on.runtime.stream, "graph_launches", 3) == 3, "all steps but the first"
