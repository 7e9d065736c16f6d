"""Lion: ten steps beside its formula in float64; the bytes of state that the docs say each optimizer has."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from singa_lite import FeedForwardNet, layers, loss, optimizer, tensor

PAGE = Path(__file__).resolve().parents[1] / "docs" / "smaller_state.md"
OPTIMIZERS = {
    "`SGD()`": optimizer.SGD,
    "`SGD(momentum=0.9)`": lambda: optimizer.SGD(momentum=0.9),
    "`RMSProp`": optimizer.RMSProp,
    "`AdaGrad`": optimizer.AdaGrad,
    "`Lion`": optimizer.Lion,
    "`Muon`": optimizer.Muon,
    "`Adafactor`": optimizer.Adafactor,
    "`AdamW`": optimizer.AdamW,
    "`AdamW(amsgrad=True)`": lambda: optimizer.AdamW(amsgrad=True),
}


@pytest.mark.parametrize("shape", [(7,), (5, 3), (4, 3, 2, 5)])
def test_ten_steps_are_those_of_the_formula(shape):
    rng = np.random.default_rng(1)
    start = rng.standard_normal(shape).astype(np.float32)
    wanted, momentum, value = start.astype(float), np.zeros(shape), tensor.as_tensor(start)
    opt = optimizer.Lion(0.01, 0.8, 0.95, weight_decay=0.3)
    opt.register("*", lr_mult=0.5)
    for _ in range(10):
        gradient = rng.standard_normal(shape).astype(np.float32)
        direction = np.sign(0.8 * momentum + 0.2 * gradient)
        wanted -= 0.005 * (direction + 0.3 * wanted)
        momentum = 0.95 * momentum + 0.05 * gradient
        opt.update("w", value, tensor.as_tensor(gradient))
    np.testing.assert_allclose(tensor.to_numpy(value), wanted, rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(tensor.to_numpy(opt.state["w"]["momentum"]), momentum, rtol=2e-6, atol=1e-6)


def planned(name: str, state_dtype: str | None) -> float:
    """Bytes of state a parameter in the plan of a step."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy())
    net.add(layers.Dense("large", 512, input_sample_shape=(256,)))
    net.compile(OPTIMIZERS[name](), state_dtype=state_dtype)
    return round(net.plan_batch(2).by_class.get("optimizer state", 0) / (513 * 256), 1)


@pytest.mark.skipif(not PAGE.is_file(), reason="this copy has no docs, the checkout has")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_page_has_the_bytes_of_plans(name):
    (row,) = re.findall(rf"^\| {re.escape(name)} \|.*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    said = [float(cell) for cell in row.split("|")[3:6] if cell.strip() != "-"]
    kinds = (None, "bfloat16", "int8")[: len(said)]
    assert said == [planned(name, kind) for kind in kinds]
